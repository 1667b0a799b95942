"""What of a plan is in Snowflake already, asked by SHOW and DESC: `inventory(session, statements)`.

Reads only. SHOW lists what the session's role may see; an object that it may not see counts as missing, and CREATE …
IF NOT EXISTS then says what is so. LIKE knows wildcards, so names are compared again here, case and all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.names import sql_literal
from snowflake.lakehouse.statements import Name, Statement, bare
from snowflake.lakehouse.template import literal_name, qualified

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session  # its connector is slow to import

# Objects of the account and of a database, with the word SHOW has for them
_ACCOUNT = {
    "DATABASE": "DATABASES",
    "EXTERNAL VOLUME": "EXTERNAL VOLUMES",
    "CATALOG INTEGRATION": "CATALOG INTEGRATIONS",
    "STORAGE INTEGRATION": "STORAGE INTEGRATIONS",
    "NOTIFICATION INTEGRATION": "NOTIFICATION INTEGRATIONS",
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
_OURS = ("ICEBERG TABLE", "EXTERNAL TABLE", "DYNAMIC TABLE", "PIPE", "STAGE")  # what may have to go
_DESCRIBED = {
    "EXTERNAL VOLUME": "EXTERNAL VOLUME",
    "CATALOG INTEGRATION": "CATALOG INTEGRATION",
    "STORAGE INTEGRATION": "STORAGE INTEGRATION",
}
_PAIR = re.compile(r"(\w+)\s*[=:]\s*([^,}\s][^,}]*)")
_GRANTED_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
Key = tuple[str, Name]  # kind, name


@dataclass
class Inventory:
    """What is there: an object's properties as SHOW names them, and the read role's grants."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    grants: set[tuple[str, str, Name]] = field(default_factory=set)  # privilege, kind, name
    metadata: dict[Name, str] = field(default_factory=dict)  # of Iceberg tables: the file that Snowflake stands at
    settings: dict[Key, dict[str, str]] = field(default_factory=dict)  # what DESC says of volumes and integrations
    linked: dict[Name, dict[str, Any]] = field(default_factory=dict)  # the settings of linked databases


def inventory(session: Session, plan: Iterable[Statement]) -> Inventory:
    """Look for every object that `plan` names, and in its databases for all that Lakeward may have made once."""
    plan = list(plan)
    found = Inventory()
    wanted = {(s.kind, s.name) for s in plan if s.action in ("create", "replace")}
    for kind, name in sorted(wanted):
        if kind in _ACCOUNT:
            _show(session, found, kind, f"SHOW {_ACCOUNT[kind]} LIKE {sql_literal(name[0])}")
    databases = sorted(n[0] for kind, n in wanted if kind == "DATABASE" and (kind, n) in found.objects)
    kinds = sorted({*_OURS, *(k for k, _ in wanted if k in _DATABASE)})
    for database in databases:
        for kind in kinds:
            _show(session, found, kind, f"SHOW {_DATABASE[kind]} IN DATABASE {qualified((database,))}")
    for kind, name in sorted(wanted & set(found.objects)):
        if kind in _DESCRIBED:
            found.settings[kind, name] = described(session.dicts(f"DESC {_DESCRIBED[kind]} {qualified(name)}"))
        if kind == "ROLE":
            _grants(session, found, name)
    for statement in plan:
        if is_linked(statement) and (statement.kind, statement.name) in found.objects:
            found.linked[statement.name] = _linked(session, statement.name)
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


def described(answer: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """DESC's properties by name. What is set within one (a volume's location, REST_CONFIG) stands beside it, whether it
    is written as JSON or as `{NAME=value, …}`."""
    found: dict[str, str] = {}
    for row in answer:
        name, value = str(row.get("property")).upper(), str(row.get("property_value") or "")
        found[name] = value
        if not value.startswith("{") and not name.startswith("REST_"):
            continue
        try:
            within = json.loads(value)
        except ValueError:
            within = dict(_PAIR.findall(value))
        found |= {str(k).upper(): str(v) for k, v in within.items()} if isinstance(within, dict) else {}
    return found


def is_linked(statement: Statement) -> bool:
    """Whether it makes a database that Snowflake fills from a catalog."""
    return statement.kind == "DATABASE" and "LINKED_CATALOG" in bare(statement)


def _linked(session: Session, name: Name) -> dict[str, Any]:
    found = session.rows(f"SELECT SYSTEM$GET_CATALOG_LINKED_DATABASE_CONFIG({sql_literal(name[0])})")
    return {str(k).lower(): v for k, v in json.loads(found[0][0]).items()} if found and found[0][0] else {}


def _metadata(session: Session, name: Name) -> str:
    found = session.rows(f"SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION({literal_name(name)})")
    return str(json.loads(found[0][0]).get("metadataLocation") or "") if found and found[0][0] else ""


def _grants(session: Session, found: Inventory, role: Name) -> None:
    for row in session.dicts(f"SHOW GRANTS TO ROLE {qualified(role)}"):
        place = tuple((q.replace('""', '"') if q else w) for q, w in _GRANTED_PART.findall(str(row["name"])))
        found.grants.add((str(row["privilege"]), str(row["granted_on"]).replace("_", " "), place))
