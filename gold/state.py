"""gold.json: what gold has published, from which version of silver, and how far the running run has come.

Gold alone writes it; `gold.published` reads it for the stages after. It is never the only witness of a commit: each
Iceberg snapshot carries in its own summary the silver version that it holds (see `gold.iceberg`), so a run that was
killed between a commit and this document finds out from the table, and applies nothing twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.position import Checkpoint

FORMAT = 1
DOCUMENT = "gold"
Kind = Literal["mirror", "mart", "freshness"]


@dataclass
class GoldTable:
    """A published Iceberg table. `cut` is the last one at which it is known to be right."""

    schema: str
    table: str
    kind: Kind
    identifier: str  # quoted, for Spark SQL
    location: str  # the table's folder
    metadata_file: str  # the Iceberg metadata of `snapshot`
    snapshot: int
    columns: list[list[str]]  # [name, Spark SQL type], in order
    rows: int
    cut: Checkpoint
    published_ms: int  # when `snapshot` was committed, since 1970 UTC
    silver_version: int = -1  # mirrors: of the Delta table
    silver_id: str = ""  # mirrors: the Delta table's own id
    generation: int = 0  # mirrors: of the source's snapshot
    export_location: str | None = None  # mirrors: the folder of Parquet files
    export_metadata: str | None = None  # mirrors: the metadata_file that it was written from
    inputs: dict[str, int] = field(default_factory=dict)  # marts: snapshot of each table that was read
    model: str = ""  # marts: hash of the SQL


@dataclass
class GoldState:
    """gold.json. After a run has ended well every table of `tables` stands at `cut`."""

    run: int = 0
    cut: Checkpoint | None = None
    intent: dict[str, Any] | None = None  # {"run": n, "cut": …, "tables": {name: silver version}}: a run has begun
    tables: dict[str, GoldTable] = field(default_factory=dict)  # by "schema.table"
    basis: str = ""  # what all of it follows from, as `gold.basis` has it
    catalog: str = ""  # where it is published, as `gold.basis` has it


def load_gold(lake: Lake) -> GoldState:
    """The state of `lake`; an empty one before the first run. Raises TerminalError for another version's document."""
    doc = lake.read(DOCUMENT)
    if doc is None:
        return GoldState()
    if doc.pop("format", None) != FORMAT:
        raise TerminalError(
            f"{lake.path('_lakeward', DOCUMENT + '.json')} is of another version of Lakeward",
            hint="run the version that wrote it, or start a new lake root",
        )
    tables = {n: GoldTable(**{**t, "cut": Checkpoint.from_json(t["cut"])}) for n, t in doc.pop("tables").items()}
    cut = doc.pop("cut")
    return GoldState(**doc, cut=Checkpoint.from_json(cut) if cut else None, tables=tables)


def save_gold(lake: Lake, state: GoldState) -> None:
    tables = {n: {**asdict(t), "cut": t.cut.to_json()} for n, t in state.tables.items()}
    cut = state.cut.to_json() if state.cut else None
    lake.write(DOCUMENT, {"format": FORMAT, **vars(state), "cut": cut, "tables": tables})
