"""`lakeward snowflake apply`: brings Snowflake to the plan, statement by statement.

Promise: each statement leaves Snowflake in a state that the next run understands, and a run begins by asking what is
there. So a run that dies anywhere is finished by the next, and a run with nothing to do runs nothing. The connection
commits each statement by itself: REFRESH is not allowed within a transaction. Freshness is refreshed last, so it never
claims what is not there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeward.config import Config
from lakeward.errors import ConfigError, LakewardError, TransientError
from lakeward.lake import Lake
from snowflake.lakehouse.difference import Change, difference
from snowflake.lakehouse.inventory import inventory
from snowflake.lakehouse.plan import Plan, build
from snowflake.lakehouse.statements import statements

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session  # its connector is slow to import

_TRUST = ("_IAM_USER_ARN", "_EXTERNAL_ID", "_SERVICE_ACCOUNT", "_CONSENT_URL", "_APP_NAME")
log = logging.getLogger(__name__)
Connect = Callable[[], "Session"]


def changes(lake: Lake, config: Config, session: Session, *, tables_only: bool = False) -> list[Change]:
    """What would change. Errors as `build` and `difference`. With `tables_only`, what follows a publication: tables
    and their grants, not what an administrator makes once."""
    plan = build(lake, config)
    wanted = statements(plan.text)
    made = difference(wanted, inventory(session, wanted), drop=plan.tables > 0)
    once = ("EXTERNAL VOLUME", "CATALOG INTEGRATION", "STORAGE INTEGRATION", "ROLE", "DATABASE")
    return [c for c in made if not (tables_only and c.statement.kind in once)]


def apply(session: Session, config: Config, made: Sequence[Change], say: Callable[[str], None]) -> int:
    """Run the changes; how many they were.

    Raises what Snowflake's refusal means, with the statement's number: the same command goes on from there.
    """
    for number, change in enumerate(made, 1):
        log.info("%d of %d: %s", number, len(made), change.statement.text)
        say(f"{number:>4} of {len(made)}  {change}")
        try:
            answer = session.dicts(change.statement.sql(config.snowflake))
        except LakewardError as error:
            error.facts |= {"statement": f"{number} of {len(made)}: {change}"}
            if not isinstance(error, TransientError):
                error.hint = f"{error.hint}; then the same command goes on from this statement"
            raise
        if change.statement.action == "describe":
            for line in _trust(answer):
                say(f"           {line}")
    return len(made)


def runnable(lake: Lake, plan: Plan) -> None:
    """Raises ConfigError for a plan that still has placeholders."""
    if lake.local:
        raise ConfigError(
            f"the lake {lake.root} is a folder; Snowflake reads object stores only",
            hint='set [lake] root to s3a://, gs:// or abfss:// and run the pipeline there; "plan" shows the form',
        )
    if plan.missing:
        raise ConfigError(plan.missing[0], hint="docs/snowflake.md says where to find it")
    if plan.tables == 0:
        raise ConfigError("nothing is published yet", hint="run `lakeward gold` first")


def script(lake: Lake, config: Config, connect: Connect) -> tuple[str, list[Change] | None]:
    """The SQL that a DBA can run, and the changes in it: only these where credentials are given (None elsewhere)."""
    if not config.snowflake.has_login:
        return build(lake, config).text, None
    session = connect()
    try:
        made = changes(lake, config, session)
    finally:
        session.close()
    lines = [f"-- {len(made)} changes against what is in Snowflake now"]
    lines += [f"--   {' '.join(str(change).split())}" for change in made]
    lines += [f"\n{change.statement.text};" for change in made]
    return "\n".join(lines) + "\n", made


def _trust(answer: Sequence[Mapping[str, object]]) -> list[str]:
    """Whom the storage has to trust: what DESC says of Snowflake's own identity, never a key."""
    found: dict[str, object] = {}
    for row in answer:
        value = str(row.get("property_value"))
        found |= json.loads(value) if value.startswith("{") else {str(row.get("property")): value}
    return [f"{name} = {value}" for name, value in found.items() if name.endswith(_TRUST)]
