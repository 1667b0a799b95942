"""Gold as readers see it that share no code with what wrote it: PyIceberg here, DuckDB in .venv-readers.

Each reads the very metadata file that gold has published. Values are compared as the golden files print them, so that
one bit of a float, a digit behind the point or a zone tells two apart; rows are counted, since equal ones may stand
there twice.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from golden.loader import shown
from pyiceberg.table import StaticTable

from bronze.snapshot.read import read_exact
from bronze.source.connection import connect
from bronze.source.server import exact_read
from gold.published import PublishedTable, published
from lakeward.cli.app import App
from lakeward.lake import Lake
from lakeward.schema import TableSchema
from lakeward.state import load_bronze, load_silver
from silver.columns import DELETED, META

READERS = Path(__file__).resolve().parents[2] / ".venv-readers" / "bin" / "python"
# Each package holds its extension as a file; nothing is fetched.
DUCKDB = """
import json, sys, duckdb, duckdb_extension_avro, duckdb_extension_iceberg
from pathlib import Path
for package in (duckdb_extension_avro, duckdb_extension_iceberg):
    file = next(Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension"))
    duckdb.execute(f"LOAD '{file}'")
duckdb.execute("SET TimeZone = 'UTC'")
"""
# An instant goes as its microseconds: DuckDB's TIMESTAMPTZ needs another package to become Python's.
_EVERY_TABLE = """
import datetime, pickle
FIRST = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
found = {}
for name, file in json.load(sys.stdin).items():
    scan = "iceberg_scan('" + file.replace("'", "''") + "')"
    kinds = [(c, kind) for c, kind, *_ in duckdb.sql(f"DESCRIBE SELECT * FROM {scan}").fetchall()]
    instant = [kind == "TIMESTAMP WITH TIME ZONE" for _, kind in kinds]
    quoted = ['"' + c.replace('"', '""') + '"' for c, _ in kinds]
    listed = ", ".join(f"epoch_us({c})" if of else c for c, of in zip(quoted, instant))
    rows = [
        [FIRST + datetime.timedelta(microseconds=v) if of and v is not None else v for v, of in zip(row, instant)]
        for row in duckdb.sql(f"SELECT {listed} FROM {scan}").fetchall()
    ]
    found[name] = ([c for c, _ in kinds], rows)
sys.stdout.buffer.write(pickle.dumps(found))
"""
OWN = {*(name for name, _ in META), DELETED}
NAMED_MAX = 3  # rows that a fault names
SHOWN_MAX = 300  # characters of such a row
Row = dict[str, str]  # column -> value, as `shown` prints it
Tables = dict[str, tuple[list[str], list[Row]]]  # shop.users -> its columns, its rows


def by_pyiceberg(tables: Iterable[PublishedTable]) -> Tables:
    """What PyIceberg reads of each table."""
    found: Tables = {}
    for table in tables:
        read = StaticTable.from_metadata(table.metadata_file).scan().to_arrow()
        rows = [{c: shown(v) for c, v in row.items()} for row in read.to_pylist()]
        found[f"{table.schema}.{table.table}"] = (read.column_names, rows)
    return found


def by_duckdb(tables: Iterable[PublishedTable]) -> Tables:
    """What DuckDB reads of each table, all of them by one process."""
    assert READERS.exists(), "make readers"
    files = {f"{t.schema}.{t.table}": t.metadata_file for t in tables}
    command = [str(READERS), "-c", DUCKDB + _EVERY_TABLE]
    done = subprocess.run(command, input=json.dumps(files).encode(), capture_output=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = pickle.loads(done.stdout)
    return {
        name: (columns, [dict(zip(columns, map(shown, row), strict=True)) for row in rows])
        for name, (columns, rows) in found.items()
    }


def read_mirrors(lake: Lake, names: Iterable[str]) -> dict[str, Tables]:
    """The mirrors of these source tables that gold has published, by reader."""
    wanted = set(names)
    mirrors = [t for t in published(lake) if t.kind == "mirror" and f"{t.schema}.{t.table}" in wanted]
    return {"PyIceberg": by_pyiceberg(mirrors), "DuckDB": by_duckdb(mirrors)}


def mirror_faults(app: App) -> dict[str, list[str]]:
    """Where a mirror is not what its source table holds, by source table; each followed table is named.

    Gold has to stand at silver's cut, and the source must not have moved since."""
    config, password = app.source
    state, cut = load_bronze(app.lake), load_silver(app.lake).cut
    schemas = {name: table.schema for name, table in state.tables.items() if table.status != "stopped"}
    cuts = {f"{t.schema}.{t.table}": t.cut for t in published(app.lake) if t.kind == "mirror"}
    read = read_mirrors(app.lake, schemas)
    found: dict[str, list[str]] = {}
    with contextlib.closing(connect(config.source, password)) as connection:
        exact_read(connection, state.epoch)
        for name, schema in schemas.items():
            if cuts.get(name) != cut:
                found[name] = [f"gold has {name} at {cuts.get(name)}, and silver's cut is {cut}"]
                continue
            columns = [c.name.lower() for c in schema.columns]
            rows = _at_source(connection, schema, columns)
            found[name] = [f for reader, of in read.items() for f in faults(reader, name, columns, rows, of[name])]
    return found


def faults(
    reader: str, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, str]], read: tuple[list[str], list[Row]]
) -> list[str]:
    """Where what `reader` read of a mirror is not `rows`, each as often, of these columns and Lakeward's own alone."""
    there, held = read
    if set(there) - OWN != set(columns):
        return [f"{reader} reads the columns {sorted(set(there) - OWN)} of {name}, not {sorted(columns)}"]
    wanted = Counter(tuple(row[c] for c in columns) for row in rows)
    got = Counter(tuple(row[c] for c in columns) for row in held)
    lost, more = wanted - got, got - wanted
    found = [(f"{reader} does not read", lost), (f"{reader} reads, and nothing holds,", more)]
    return [
        f"{what} {rows.total()} rows of {name}: {_named(columns, rows, lost, more)}" for what, rows in found if rows
    ]


def _at_source(connection: Any, schema: TableSchema, columns: Sequence[str]) -> list[Row]:
    batches = read_exact(connection, schema)
    return [dict(zip(columns, map(shown, row.values()), strict=True)) for batch in batches for row in batch.to_pylist()]


def _named(columns: Sequence[str], rows: Counter[Any], *sides: Counter[Any]) -> str:
    """Some of the rows, by the columns in which the sides differ."""
    apart = [i for i in range(len(columns)) if len({frozenset(r[i] for r in side) for side in sides}) > 1]
    chosen = apart or range(len(columns))
    named = ["; ".join(f"{columns[i]}={row[i]}" for i in chosen)[:SHOWN_MAX] for row in list(rows)[:NAMED_MAX]]
    return " | ".join(named)
