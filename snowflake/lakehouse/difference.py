"""What brings Snowflake from what is there to what the plan says: pure, statements in, changes out.

A change is the least that does it: what is there and as it should be is left alone, so a plan that was applied changes
nothing. What Lakeward once made and gold no longer publishes is dropped from Snowflake (never from the lake: the
volume is read only); what others made is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lakeward.errors import TerminalError
from snowflake.lakehouse.inventory import Inventory
from snowflake.lakehouse.statements import Name, Statement, bare, property_of
from snowflake.lakehouse.template import keyword, literals, qualified

Verb = Literal["create", "alter", "replace", "refresh", "grant", "revoke", "drop", "run"]


@dataclass(frozen=True)
class Change:
    """A statement to run, and why."""

    verb: Verb
    statement: Statement
    why: str = ""

    def __str__(self) -> str:
        of = self.statement
        what = f"{of.privilege} ON {of.kind}" if of.privilege else of.kind
        return " ".join(filter(None, (self.verb, what, qualified(of.name), f"({self.why})" if self.why else "")))


def difference(plan: Sequence[Statement], there: Inventory, *, drop: bool) -> list[Change]:
    """The changes, in the order to run them. With `drop`, what the plan no longer names goes.

    Raises TerminalError for an external volume of that name which lies elsewhere.
    """
    changes: list[Change] = []
    made: set[tuple[str, Name]] = set()
    ungranted: set[tuple[str, Name]] = set()  # made without the grants of what was there
    for statement in plan:
        key = statement.kind, statement.name
        if statement.action in ("create", "replace"):
            found = _made(statement, there) if key in there.objects else [Change("create", statement)]
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


def _made(wanted: Statement, there: Inventory) -> list[Change]:
    """What an object that is there lacks."""
    now, name = there.objects[wanted.kind, wanted.name], qualified(wanted.name)
    if wanted.kind == "EXTERNAL VOLUME":
        return _volume(wanted, there)
    if wanted.kind == "ICEBERG TABLE":
        asked = {
            "catalog_name": property_of(wanted, "CATALOG"),
            "external_volume_name": property_of(wanted, "EXTERNAL_VOLUME"),
            "catalog_table_name": property_of(wanted, "CATALOG_TABLE_NAME"),
            "catalog_namespace": property_of(wanted, "CATALOG_NAMESPACE"),
        }
        other = [k for k, v in asked.items() if v is not None and (now.get(k) or v) != v]
        base = property_of(wanted, "BASE_LOCATION")
        if base is not None and (now.get("base_location") or base).rstrip("/") != base.rstrip("/"):
            other.append("base_location")
        if other:
            drop = replace(wanted, text=f"DROP ICEBERG TABLE {name}", action="other")
            return [Change("drop", drop, f"another {', '.join(other)}"), Change("create", wanted)]
        return []
    if wanted.kind == "EXTERNAL TABLE":
        place = wanted.text.rpartition("WITH LOCATION = ")[2].split("\n")[0].rpartition('"')[2].rstrip("/")
        same = str(now.get("location", "")).rstrip("/").endswith(place)
        return [] if same else [Change("replace", wanted, "a new export")]
    if wanted.kind == "STAGE":
        url = property_of(wanted, "URL") or ""
        if (now.get("url") or url) != url:
            text = f"ALTER STAGE {name} SET URL = {literals([url])[1:-1]}"
            return [Change("alter", replace(wanted, text=text), "another URL")]
        return []
    if wanted.action == "replace" and _same_text(wanted.text, str(now.get("text", ""))):
        return []
    return [Change("replace", wanted, "another definition")] if wanted.action == "replace" else []


def _volume(wanted: Statement, there: Inventory) -> list[Change]:
    url, found = property_of(wanted, "STORAGE_BASE_URL"), there.volumes.get(wanted.name, "")
    if found and found != url:
        raise TerminalError(
            f"the external volume {wanted.name[0]} lies at {found}, and this lake at {url}",
            hint="set external_volume in [snowflake] to a name of this lake's own",
        )
    if str(there.objects[wanted.kind, wanted.name].get("allow_writes", "")).lower() != "false":
        text = f"ALTER EXTERNAL VOLUME {qualified(wanted.name)} SET ALLOW_WRITES = FALSE"
        return [Change("alter", replace(wanted, text=text), "it lets Snowflake write")]
    return []


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
    """What is Lakeward's by its integration, volume or stage, and no longer in the plan."""
    wanted = {(s.kind, s.name) for s in plan if s.action in ("create", "replace")}
    catalogs = {s.name[0] for s in plan if s.action == "create" and s.kind == "CATALOG INTEGRATION"}
    stages = [s.name for s in plan if s.action == "create" and s.kind == "STAGE"]
    linked = {s.name[0] for s in plan if s.kind == "DATABASE" and "LINKED_CATALOG" in bare(s)}
    gone: list[Change] = []
    for (kind, name), now in sorted(there.objects.items()):
        if name[0] in linked:  # Snowflake fills it by the catalog
            continue
        ours = kind == "ICEBERG TABLE" and now.get("catalog_name") in catalogs
        if kind == "EXTERNAL TABLE":
            place = str(now.get("location", "")).replace('"', "").lstrip("@")
            ours = any(place.startswith(".".join(stage) + "/") for stage in stages)
        if ours and (kind, name) not in wanted:
            statement = Statement(f"DROP {keyword(kind)} IF EXISTS {qualified(name)}", "other", kind, name)
            gone.append(Change("drop", statement, "gold no longer publishes it"))
    dropped = {c.statement.name for c in gone}
    granted = {(s.privilege, s.kind.rpartition(" ")[2], s.name) for s in plan if s.action == "grant"}
    databases = {s.name[0] for s in plan if s.kind == "DATABASE"}
    role = next((s.role for s in plan if s.action == "grant"), ())
    for privilege, kind, name in sorted(there.grants):
        least = (privilege, kind.rpartition(" ")[2], name) in granted
        if least or not name or name[0] not in databases or name in dropped:
            continue
        text = f"REVOKE {keyword(privilege)} ON {keyword(kind)} {qualified(name)} FROM ROLE {qualified(role)}"
        change = Statement(text, "other", kind, name, privilege=privilege, role=role)
        gone.append(Change("revoke", change, "a reader does not need it"))
    return gone


def _same_text(wanted: str, there: str) -> bool:
    return " ".join(wanted.split()) == " ".join(there.rstrip(" ;\n").split())
