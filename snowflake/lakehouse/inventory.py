"""What of a plan is in Snowflake already, asked by SHOW and DESC: `inventory(session, statements)`.

Reads only. SHOW lists what the session's role may see; an object that it may not see counts as missing, and CREATE …
IF NOT EXISTS then says what is so. LIKE knows wildcards, so names are compared again here, case and all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.names import sql_literal
from snowflake.lakehouse.statements import Name, Statement
from snowflake.lakehouse.template import literal_name, qualified

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session  # its connector is slow to import

# Objects of the account and of a database, with the word SHOW has for them
_ACCOUNT = {
    "DATABASE": "DATABASES",
    "EXTERNAL VOLUME": "EXTERNAL VOLUMES",
    "CATALOG INTEGRATION": "CATALOG INTEGRATIONS",
    "STORAGE INTEGRATION": "STORAGE INTEGRATIONS",
    "ROLE": "ROLES",
}
_DATABASE = {
    "SCHEMA": "SCHEMAS",
    "ICEBERG TABLE": "ICEBERG TABLES",
    "EXTERNAL TABLE": "EXTERNAL TABLES",
    "DYNAMIC TABLE": "DYNAMIC TABLES",
    "TABLE": "TABLES",
    "FILE FORMAT": "FILE FORMATS",
    "STAGE": "STAGES",
    "VIEW": "VIEWS",
    "PIPE": "PIPES",
}
_GRANTED_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
Key = tuple[str, Name]  # kind, name


@dataclass
class Inventory:
    """What is there: an object's properties as SHOW names them, and the read role's grants."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    grants: set[tuple[str, str, Name]] = field(default_factory=set)  # privilege, kind, name
    metadata: dict[Name, str] = field(default_factory=dict)  # of Iceberg tables: the file that Snowflake stands at
    volumes: dict[Name, str] = field(default_factory=dict)  # base URL of each external volume


def inventory(session: Session, plan: Iterable[Statement]) -> Inventory:
    """Look for every object that `plan` names, and for all Iceberg and external tables of its database."""
    plan = list(plan)
    found = Inventory()
    wanted = {(s.kind, s.name) for s in plan if s.action in ("create", "replace")}
    for kind, name in sorted(wanted):
        if kind in _ACCOUNT:
            _show(session, found, kind, f"SHOW {_ACCOUNT[kind]} LIKE {sql_literal(name[0])}")
    databases = sorted(n[0] for kind, n in wanted if kind == "DATABASE" and (kind, n) in found.objects)
    kinds = sorted({"ICEBERG TABLE", "EXTERNAL TABLE", *(k for k, _ in wanted if k in _DATABASE)})
    for database in databases:
        for kind in kinds:
            _show(session, found, kind, f"SHOW {_DATABASE[kind]} IN DATABASE {qualified((database,))}")
    for kind, name in sorted(wanted & set(found.objects)):
        if kind == "EXTERNAL VOLUME":
            found.volumes[name] = _base_url(session, name)
        if kind == "ROLE":
            _grants(session, found, name)
    for kind, name in sorted(wanted & set(found.objects)):
        if kind == "ICEBERG TABLE":
            found.metadata[name] = _metadata(session, name)
    return found


def _show(session: Session, found: Inventory, kind: str, statement: str) -> None:
    for row in session.dicts(statement):
        place: Name = (row["name"],)
        if kind == "SCHEMA":
            place = (row["database_name"], row["name"])
        elif kind in _DATABASE:
            place = (row["database_name"], row["schema_name"], row["name"])
        found.objects[kind, place] = row


def _base_url(session: Session, name: Name) -> str:
    for row in session.dicts(f"DESC EXTERNAL VOLUME {qualified(name)}"):
        if str(row["property"]).startswith("STORAGE_LOCATION_"):
            return str(json.loads(row["property_value"]).get("STORAGE_BASE_URL", ""))
    return ""


def _metadata(session: Session, name: Name) -> str:
    found = session.rows(f"SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION({literal_name(name)})")
    return str(json.loads(found[0][0]).get("metadataLocation") or "") if found and found[0][0] else ""


def _grants(session: Session, found: Inventory, role: Name) -> None:
    for row in session.dicts(f"SHOW GRANTS TO ROLE {qualified(role)}"):
        place = tuple((q.replace('""', '"') if q else w) for q, w in _GRANTED_PART.findall(str(row["name"])))
        found.grants.add((str(row["privilege"]), str(row["granted_on"]).replace("_", " "), place))
