"""What a publication follows from, in short: as long as it is the same, a run of gold has nothing to do.

Silver's cut alone does not say so. Silver moves without it where a table is read anew at a quiet source, or held events
are replayed; and somebody may edit a mart or a setting. Read without Spark, since a quiet source is asked each round.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from gold.marts import models_folder
from lakeward.config import Config, Gold
from lakeward.state import BronzeState, SilverState


def basis(config: Config, bronze: BronzeState, silver: SilverState) -> str:
    """A digest of silver's tables, the marts' files and the settings of gold. Raises ConfigError as `marts` does."""
    gold = config.gold
    known = [bronze.tables[name].name for name in silver.tables if name in bronze.tables]
    said = {
        "cut": silver.cut.to_json() if silver.cut else None,
        "silver": {n: [t.version, t.generation, t.keys, t.beside, str(t.cut)] for n, t in silver.tables.items()},
        "bronze": sorted(map(str, known)),
        "models": {f.name: _digest(f) for f in models_folder(config).glob("*.sql")},
        "mirror": gold.mirror,
        "export": gold.export,
        "export_by": {str(name): by for name in known if (by := config.table(name).export_by)},
        "catalog": catalog_of(gold),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def catalog_of(gold: Gold) -> str:
    """Which catalog it is: its type and, where it has one, its address and warehouse, as a digest."""
    where = (gold.catalog, gold.uri, gold.properties.get("warehouse"))
    return hashlib.sha256(json.dumps(where).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
