"""What brings Snowflake from what is there to what the plan says: pure, statements in, changes out.

A change is the least that does it: what is there and as it should be is left alone, so a plan that was applied changes
nothing. What Lakeward once made and gold no longer publishes is dropped from Snowflake (never from the lake: the
volume is read only); what others made is not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from snowflake.lakehouse.catalogs import DELTA_SUFFIX
from snowflake.lakehouse.inventory import Inventory, is_linked
from snowflake.lakehouse.landing_sql import HISTORY, LANDED_SCHEMA
from snowflake.lakehouse.plan import EXPORT_SCHEMA
from snowflake.lakehouse.settings import altered
from snowflake.lakehouse.statements import Name, Statement, bare, location_of, parts, property_of, query_of
from snowflake.lakehouse.template import keyword, literals, qualified

Verb = Literal["create", "alter", "replace", "refresh", "grant", "revoke", "drop", "run", "wait"]
# By these names `apply` knows what it once made
EXPORT, LANDED = EXPORT_SCHEMA.format(""), LANDED_SCHEMA.format("")
EXPORTS, LANDING, LANDING_PIPE, LANDING_RAW = "EXPORTS", "LANDING", "LANDING_PIPE", "LANDING_RAW"
ACCOUNT_KINDS = frozenset(
    {"ACCOUNT", "ROLE", "DATABASE ROLE", "USER", "WAREHOUSE", "INTEGRATION", "VOLUME", "EXTERNAL VOLUME", "SHARE"}
)

_FILE_NAME = "METADATA$FILENAME"


@dataclass(frozen=True)
class Change:
    """A statement to run, and why. With the verb "wait" it is not run: Snowflake has to find something first."""

    verb: Verb
    statement: Statement
    why: str = ""

    def __str__(self) -> str:
        of = self.statement
        what = f"{of.privilege} ON {of.kind}" if of.privilege else of.kind
        return " ".join(filter(None, (self.verb, what, qualified(of.name), f"({self.why})" if self.why else "")))


def difference(
    plan: Sequence[Statement], there: Inventory, *, drop: bool, rotated: Collection[str] = ()
) -> list[Change]:
    """The changes, in the order to run them. With `drop`, what the plan no longer names goes; `rotated` are the secrets
    that Snowflake has not been given.

    Raises TerminalError for a volume, integration or linked database whose settings cannot be made those of the plan.
    """
    waiting = _undiscovered(plan, there)
    changes: list[Change] = []
    made: set[tuple[str, Name]] = set()
    ungranted: set[tuple[str, Name]] = set()  # made without the grants of what was there
    for statement in plan:
        key = statement.kind, statement.name
        if statement.action != "describe" and _waits(statement, waiting):
            waiting |= {statement.name} if key not in there.objects else set()
            changes.append(Change("wait", statement, "until Snowflake has found it in the catalog"))
        elif statement.action in ("create", "replace"):
            found = _made(statement, there, rotated) if key in there.objects else [Change("create", statement)]
            if any(c.verb in ("create", "replace") for c in found):
                made.add(key)
                ungranted |= set() if "COPY GRANTS" in bare(statement) else {key}
            changes += found
        elif statement.action == "refresh":
            changes += _refresh(statement, there, new=key in made)
        elif statement.action == "grant":
            changes += _grant(statement, there, new=key in ungranted)
        elif statement.action == "describe" and key in made:
            changes.append(Change("run", statement, "who asks the storage for access"))
        elif statement.action == "other":
            changes.append(Change("run", statement))
    return [*changes, *(_gone(plan, there) if drop else [])]


def _undiscovered(plan: Sequence[Statement], there: Inventory) -> set[Name]:
    """The schemas and tables that the plan names in linked databases, and that Snowflake has not found there yet."""
    linked = {s.name[0] for s in plan if is_linked(s)}
    named = {(s.kind, s.name) for s in plan if s.action == "grant" and len(s.name) > 1 and s.name[0] in linked}
    return {name for kind, name in named if (kind, name) not in there.objects}


def _waits(of: Statement, waiting: Collection[Name]) -> bool:
    """Whether a statement is about one of `waiting`: it would fail, and stop what comes after it."""
    if of.action == "grant" and of.name in waiting:
        return True
    return of.kind == "VIEW" and of.action != "grant" and any(qualified(name) in of.text for name in waiting)


def _made(wanted: Statement, there: Inventory, rotated: Collection[str]) -> list[Change]:
    """What an object that is there lacks."""
    now, name = there.objects[wanted.kind, wanted.name], qualified(wanted.name)
    changed = [Change("alter", replace(wanted, text=t), why) for t, why in altered(wanted, there, rotated)]
    if wanted.kind == "ICEBERG TABLE":
        asked = {
            "catalog_name": property_of(wanted, "CATALOG"),
            "external_volume_name": property_of(wanted, "EXTERNAL_VOLUME"),
            "catalog_table_name": property_of(wanted, "CATALOG_TABLE_NAME"),
            "catalog_namespace": property_of(wanted, "CATALOG_NAMESPACE"),
        }
        # What SHOW has no column for is not known; what it shows empty is another way to find the table.
        other = [k for k, v in asked.items() if v is not None and k in now and (now[k] or "") != v]
        base = property_of(wanted, "BASE_LOCATION")
        if base is not None and (now.get("base_location") or base).rstrip("/") != base.rstrip("/"):
            other.append("base_location")
        if other:
            drop = replace(wanted, text=f"DROP ICEBERG TABLE {name}", action="other")
            return [Change("drop", drop, f"another {', '.join(other)}"), Change("create", wanted)]
        return []
    if wanted.kind == "EXTERNAL TABLE":
        _, folder = location_of(wanted) or ((), "")
        same = str(now.get("location", "")).rstrip("/").endswith(f"/{folder.rstrip('/')}")
        return [] if same else [Change("replace", wanted, "a new export")]
    if wanted.kind == "STAGE":
        url = property_of(wanted, "URL") or ""
        if (now.get("url") or url) != url:
            text = f"ALTER STAGE {name} SET URL = {literals([url])[1:-1]}"
            changed.insert(0, Change("alter", replace(wanted, text=text), "another URL"))
        return changed
    if wanted.kind == "PIPE":
        return _pipe(wanted, str(now.get("definition", "")))
    if wanted.kind == "DYNAMIC TABLE" and query_of(wanted.text) == query_of(str(now.get("text", ""))):
        return []  # its lag and its warehouse may be others': they are not what it says
    if wanted.action == "replace" and _same_text(wanted.text, str(now.get("text", ""))):
        return []
    return [Change("replace", wanted, "another definition")] if wanted.action == "replace" else changed


def _pipe(wanted: Statement, there: str) -> list[Change]:
    """A pipe of the time when files had no names in the raw table becomes one that writes them."""
    if not there or _FILE_NAME in there.upper():
        return []
    raw = parts(wanted.text.partition(" COPY INTO ")[2].partition(" (")[0])
    columns = [
        f"ALTER TABLE {qualified(raw)} ADD COLUMN IF NOT EXISTS FILE_NAME VARCHAR",
        f"ALTER TABLE {qualified(raw)} ADD COLUMN IF NOT EXISTS FILE_ROW NUMBER(19,0)",
    ]
    made = [Change("alter", Statement(text, "other", "TABLE", raw), "names of files") for text in columns]
    text = wanted.text.replace("CREATE PIPE IF NOT EXISTS", "CREATE OR REPLACE PIPE", 1)
    made.append(Change("replace", replace(wanted, text=text, action="replace"), "it names no files"))
    # The new one knows nothing of what was loaded. What it loads twice counts once, and nothing is left out.
    again = replace(wanted, text=f"ALTER PIPE {qualified(wanted.name)} REFRESH", action="other")
    return [*made, Change("run", again, "files that came while it was replaced")]


def _refresh(wanted: Statement, there: Inventory, *, new: bool) -> list[Change]:
    now = there.metadata.get(wanted.name, "")
    if new:  # it was made from this very file
        return []
    if wanted.path is not None and (now == wanted.path or now.endswith(f"/{wanted.path}")):
        return []
    return [Change("refresh", wanted)]


def _grant(wanted: Statement, there: Inventory, *, new: bool) -> list[Change]:
    # SHOW GRANTS calls every kind of table TABLE; an object that is made anew has lost its grants.
    kinds = {wanted.kind, wanted.kind.rpartition(" ")[2]}
    held = any((wanted.privilege, kind, wanted.name) in there.grants for kind in kinds)
    return [] if held and not new else [Change("grant", wanted)]


def _gone(plan: Sequence[Statement], there: Inventory) -> list[Change]:
    """What is Lakeward's and no longer in the plan, and what the read role has beyond it."""
    wanted = {(s.kind, s.name) for s in plan if s.action in ("create", "replace")}
    linked = {s.name[0] for s in plan if is_linked(s)}  # Snowflake fills these by the catalog
    ours = _Ours(plan, there)
    gone: list[Change] = []
    for (kind, name), now in sorted(there.objects.items()):
        if (kind, name) not in wanted and name[0] not in linked and ours(kind, name, now):
            statement = Statement(f"DROP {keyword(kind)} IF EXISTS {qualified(name)}", "other", kind, name)
            gone.append(Change("drop", statement, "the plan no longer has it"))
    dropped = {c.statement.name for c in gone}
    granted = {(s.privilege, s.kind.rpartition(" ")[2], s.name) for s in plan if s.action == "grant"}
    databases = {s.name[0] for s in plan if s.kind == "DATABASE"}
    role = next((s.role for s in plan if s.action == "grant"), ())
    for privilege, kind, name in sorted(there.grants):
        least = (privilege, kind.rpartition(" ")[2], name) in granted
        if least or not name or name[0] not in databases or name in dropped:
            continue
        # A warehouse or a role may bear the database's name, and is another's; an owner cannot be revoked.
        if (len(name) == 1) != (kind == "DATABASE") or kind in ACCOUNT_KINDS or privilege == "OWNERSHIP":
            continue
        text = f"REVOKE {keyword(privilege)} ON {keyword(kind)} {qualified(name)} FROM ROLE {qualified(role)}"
        change = Statement(text, "other", kind, name, privilege=privilege, role=role)
        gone.append(Change("revoke", change, "a reader does not need it"))
    return gone


class _Ours:
    """Whether Lakeward made an object: by the integration, the stage or the raw table that it stands on.

    What others made in the same database is theirs.
    """

    def __init__(self, plan: Sequence[Statement], there: Inventory) -> None:
        made = [s for s in plan if s.action == "create"]
        catalogs = {s.name[0] for s in made if s.kind == "CATALOG INTEGRATION"}
        self.catalogs = catalogs | {f"{name}{DELTA_SUFFIX}" for name in catalogs}  # also where no silver is shown now
        own = {s.name[:2]: property_of(s, "URL") for s in made if s.kind == "STAGE" and s.name[2] == EXPORTS}
        self.own = next(iter(own), ())
        self.export_url = next(iter(own.values()), None)
        self.raw = qualified((*self.own, LANDING_RAW))
        stages = [s.name for s in made if s.kind == "STAGE"]
        stages += [name for (kind, name), now in there.objects.items() if kind == "STAGE" and self._stage(name, now)]
        self.stages = tuple(".".join(stage) + "/" for stage in stages)

    def __call__(self, kind: str, name: Name, now: Mapping[str, Any]) -> bool:
        if kind == "ICEBERG TABLE":
            return now.get("catalog_name") in self.catalogs
        if kind == "EXTERNAL TABLE":
            return str(now.get("location", "")).replace('"', "").lstrip("@").startswith(self.stages)
        if kind == "DYNAMIC TABLE":
            history = qualified((*name[:2], HISTORY.format(name[2])))  # what is current is read from it
            text = str(now.get("text", ""))
            return name[1].endswith(LANDED) and (self.raw in text or f"FROM {history} " in text)
        if kind == "PIPE":
            return name == (*self.own, LANDING_PIPE)
        return kind == "STAGE" and (name == (*self.own, LANDING) or self._stage(name, now))

    def _stage(self, name: Name, now: Mapping[str, Any]) -> bool:
        """The stage of one table's export."""
        inside = self.export_url is not None and str(now.get("url", "")).startswith(self.export_url)
        return inside and name[:1] == self.own[:1] and name[1].endswith(EXPORT)


def _same_text(wanted: str, there: str) -> bool:
    return " ".join(wanted.split()) == " ".join(there.rstrip(" ;\n").split())
