"""`lakeward snowflake apply`: brings Snowflake to the plan, statement by statement.

Promise: each statement leaves Snowflake in a state that the next run understands, and a run begins by asking what is
there. So a run that dies anywhere is finished by the next, and a run with nothing to do runs nothing. The connection
commits each statement by itself: REFRESH is not allowed within a transaction. Freshness is refreshed last, so it never
claims what is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeward.config import Config
from lakeward.errors import ConfigError, LakewardError, TransientError
from lakeward.lake import Lake
from snowflake.lakehouse import rotation
from snowflake.lakehouse.difference import Change, difference
from snowflake.lakehouse.inventory import described, inventory
from snowflake.lakehouse.plan import Plan, build
from snowflake.lakehouse.statements import statements

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session  # its connector is slow to import

_TRUST = ("_IAM_USER_ARN", "_EXTERNAL_ID", "_SERVICE_ACCOUNT", "_CONSENT_URL", "_APP_NAME")
SHOWN = "snowflake"  # the document: where Snowflake stands, and the marks of the secrets it has
log = logging.getLogger(__name__)
Connect = Callable[[], "Session"]


def changes(
    lake: Lake, config: Config, session: Session, *, tables_only: bool = False, rotated: Collection[str] = ()
) -> list[Change]:
    """What would change. Errors as `build` and `difference`. With `tables_only`, what follows a publication: tables
    and their grants, not what an administrator makes once. `rotated`: secrets that Snowflake has not been given."""
    plan = build(lake, config)
    wanted = statements(plan.text)
    made = difference(wanted, inventory(session, wanted), drop=plan.tables > 0, rotated=rotated)
    once = (
        "EXTERNAL VOLUME",
        "CATALOG INTEGRATION",
        "STORAGE INTEGRATION",
        "NOTIFICATION INTEGRATION",
        "ROLE",
        "DATABASE",
    )
    namespaces = ("DATABASE", "alter")  # of a linked database: what a schema is elsewhere
    return [
        c for c in made if not tables_only or c.statement.kind not in once or (c.statement.kind, c.verb) == namespaces
    ]


def apply(session: Session, config: Config, made: Sequence[Change], say: Callable[[str], None]) -> int:
    """Run the changes; how many they were. What waits is said and not run.

    Raises what Snowflake's refusal means, with the statement's number: the same command goes on from there.
    """
    for change in made:
        if change.verb == "wait":
            say(f"           {change}")
            log.info("%s", change)
    made = [change for change in made if change.verb != "wait"]
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
            hint='set [lake] root to s3a://bucket/path and run the pipeline there; "plan" shows the form',
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
        made = changes(lake, config, session, rotated=rotation.rotated(lake.read(SHOWN) or {}, config.snowflake))
    finally:
        session.close()
    run = [change for change in made if change.verb != "wait"]
    lines = [f"-- {len(run)} changes against what is in Snowflake now"]
    lines += [f"--   {' '.join(str(change).split())}" for change in made]
    lines += [f"\n{change.statement.text};" for change in run]
    return "\n".join(lines) + "\n", made


def _trust(answer: Sequence[Mapping[str, object]]) -> list[str]:
    """Whom the storage has to trust: what DESC says of Snowflake's own identity, never a key."""
    return [f"{name} = {value}" for name, value in described(answer).items() if name.endswith(_TRUST)]
