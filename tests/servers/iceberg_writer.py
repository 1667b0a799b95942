"""Iceberg tables written without Spark, by PyIceberg, so that a test can write what Lakeward never would."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata
from pyiceberg.typedef import Record


class FolderCatalog(NoopCatalog):
    """Commits a metadata file and remembers nothing."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        made = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        place = f"{table.location()}/metadata/{uuid.uuid4()}.metadata.json"
        ToOutputFile.table_metadata(made, table.io.new_output(place))
        return CommitTableResponse.model_validate({"metadata": made, "metadata-location": place})


def create(folder: Path, schema: Schema, version: str = "2") -> Table:
    """An empty table at `folder`."""
    made = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(folder), {"format-version": version}
    )
    io = PyArrowFileIO()
    place = f"{folder}/metadata/0.metadata.json"
    ToOutputFile.table_metadata(made, io.new_output(place))
    return Table(("shop", folder.name), made, place, io, FolderCatalog("folder"))


def add(table: Table, *files: DataFile) -> Table:
    """Commit files as they are said to be."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for file in files:
            snapshot.append_data_file(file)
    return table


def write(table: Table, values: pa.Table, **options: Any) -> Path:
    """A Parquet file in the table's folder, with Iceberg's field ids in it, not committed."""
    names = {f.name: f.field_id for f in table.schema().fields}
    ids = [f.with_metadata({"PARQUET:field_id": str(names.get(f.name, 99))}) for f in values.schema]
    path = Path(table.location()) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(values.cast(pa.schema(ids)), path, compression="none", **options)
    return path


def described(path: Path, rows: int, **other: Any) -> DataFile:
    """The file as a manifest says it is."""
    return DataFile.from_args(
        **{
            "content": DataFileContent.DATA,
            "file_path": str(path),
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": rows,
            "file_size_in_bytes": path.stat().st_size if path.exists() else 1,
            "column_sizes": {},
            "value_counts": {},
            "null_value_counts": {},
            "nan_value_counts": {},
            "lower_bounds": {},
            "upper_bounds": {},
            "spec_id": 0,
            **other,
        }
    )
