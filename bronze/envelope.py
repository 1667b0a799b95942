"""The envelope: the shape of an event in bronze, in Arrow and in Spark.

Debezium's field names, since the ecosystem reads them. Both shapes are made from one list, so that the files the
executors write and the table they are committed to cannot differ. Everything is nullable: a truncate has no image, an
insert has no `before`, a server without GTIDs has none.
"""

from __future__ import annotations

import pyarrow as pa

from lakeward.schema import TableSchema, spark_fields

SOURCE_ARROW = pa.struct(
    [
        pa.field("server", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("file", pa.int64()),  # the binlog file's number
        pa.field("pos", pa.int64()),  # the event's first byte in that file
        pa.field("row", pa.int64()),
        pa.field("gtid", pa.string()),
        pa.field("snapshot", pa.bool_()),
        pa.field("generation", pa.int32()),  # the snapshot's number from 1; 0 in the stream
        pa.field("absent", pa.list_(pa.string())),  # columns that `after` does not tell; NULL where it tells all
        pa.field("before_absent", pa.list_(pa.string())),  # the same of `before`
        pa.field("unchecked", pa.bool_()),  # true where a session with foreign_key_checks = 0 made it, else NULL
        pa.field("cascade", pa.int64()),  # in silver's cascades, its number from 1; NULL in bronze
    ]
)
TRANSACTION_ARROW = pa.struct(
    [
        pa.field("id", pa.string()),
        pa.field("total_order", pa.int64()),
        pa.field("data_collection_order", pa.int64()),
    ]
)


def envelope_arrow(image: pa.StructType) -> pa.Schema:
    """The envelope around `before` and `after` of the type `image` (`TableSchema.image()`)."""
    return pa.schema(
        [
            pa.field("op", pa.string()),  # c, u, d, r (snapshot) or t (truncate)
            pa.field("before", image),
            pa.field("after", image),
            pa.field("ts_ms", pa.int64()),  # the source's commit time, since 1970 UTC
            pa.field("source", SOURCE_ARROW),
            pa.field("transaction", TRANSACTION_ARROW),
        ]
    )


def envelope_ddl(schema: TableSchema) -> str:
    """The envelope of a table as Spark SQL DDL: `op STRING, before STRUCT<…>, …`."""
    return spark_fields(envelope_arrow(schema.image()))
