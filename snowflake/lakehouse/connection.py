"""The one place that talks to Snowflake's connector: how a session is opened, and what its errors mean.

Errors leave here as Lakeward's own. A message of Snowflake's may quote the statement and values of rows, so only its
number, its SQL state and its query's id go on; the hint says what mends the few that people meet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import snowflake.connector
from cryptography.hazmat.primitives import serialization
from snowflake.connector import errors
from snowflake.connector.cursor import SnowflakeCursor

from lakeward.config import Snowflake
from lakeward.errors import ConfigError, LakewardError, TerminalError, TransientError
from snowflake.lakehouse.spelling import unquoted
from snowflake.lakehouse.template import qualified

LOGIN_SECONDS_MAX = 60
SOCKET_SECONDS_MAX = 60  # without a byte; Snowflake answers within 45, if only that the statement is still running
NETWORK_SECONDS_MAX = 120  # how long one request is tried again; a statement is as many requests as it takes
STATEMENT_SECONDS_MAX = 8 * 86_400  # Snowflake itself ends a statement after seven days at the latest

_HINTS = {
    250001: "see [snowflake] account, host and user, and that this machine reaches them",
    251001: "set account in [snowflake]",
    251005: "set user in [snowflake]",
    251006: "set private_key, oauth_token or password in [snowflake]",
    390100: "mend user, password or private_key in [snowflake]",
    390144: "register the public key with the user: ALTER USER … SET RSA_PUBLIC_KEY = '…'",
    390189: "grant the role to the user, or mend role in [snowflake]",
    390201: "mend warehouse or database in [snowflake]",
    630: "raise STATEMENT_TIMEOUT_IN_SECONDS of the user or the warehouse, or take a larger warehouse",
    606: "set warehouse in [snowflake], and let the role use it",
    2003: "create the database or schema, or grant the role USAGE on it",
    2043: "create the database or schema, or grant the role USAGE on it",
    3001: "grant the role USAGE on the database, CREATE SCHEMA on it, and what docs/snowflake.md lists for the sink",
}
_TRANSIENT = frozenset({604, 625, 8501, 90073, 250001, 250002, 250003, 390112, 390114, 390195})
_HTTP_TRANSIENT = frozenset({290403, 290408, 290429, 290500, 290502, 290503, 290504})


class Connection(snowflake.connector.SnowflakeConnection):
    """The connector's, but for one number that bounds two things there: how long a statement may take, and how long a
    request that gets no answer is sent again. A large MERGE takes hours; a network that is gone must not."""

    def cmd_query(self, *values: Any, timeout: int | None = None, **settings: Any) -> dict[str, Any]:
        return super().cmd_query(*values, **settings)  # each request is bounded by network_timeout


class Session:
    """An open session in `database`, with a schema of Lakeward's own as the current one once `enter` was called."""

    def __init__(self, connection: snowflake.connector.SnowflakeConnection, database: str) -> None:
        self._connection = connection
        self.database = database

    def run(self, statement: str, values: Sequence[Any] = ()) -> SnowflakeCursor:
        """Execute one statement, values bound at its `%s`. Raises TransientError or TerminalError."""
        try:
            cursor = self._connection.cursor()
            # Without values the connector leaves the statement's % signs alone.
            cursor.execute(statement, tuple(values) if values else None, timeout=STATEMENT_SECONDS_MAX)
            return cursor
        except errors.Error as error:
            raise translated(error, statement) from None

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.run(statement, values).fetchall()]

    def dicts(self, statement: str) -> list[dict[str, Any]]:
        """The answer of a SHOW or DESC, each row by its columns' names."""
        cursor = self.run(statement)
        names = [str(column[0]).lower() for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def count(self, statement: str, values: Sequence[Any] = ()) -> int:
        """How many rows the statement changed."""
        return self.run(statement, values).rowcount or 0

    def enter(self, schema: str) -> None:
        """Make sure of a schema, and make it the current one."""
        name = qualified((self.database, schema))
        self.run(f"CREATE SCHEMA IF NOT EXISTS {name}")
        self.run(f"USE SCHEMA {name}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is run within is there afterwards, or none of it."""
        self.run("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(LakewardError):  # a session that is gone has been rolled back
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def close(self) -> None:
        with contextlib.suppress(errors.Error):
            self._connection.close()


def connect(config: Snowflake, *, purpose: str = "sink") -> Session:
    """Open a session in which each statement commits by itself. `purpose` is what Snowflake's history shows.

    Raises ConfigError, TerminalError (with what to mend) or TransientError.
    """
    for name in ("account", "user"):
        if getattr(config, name) is None:
            raise ConfigError(f"[snowflake] {name} is not set", hint=f'{name} = "…"')
    if not config.has_login:
        raise ConfigError(
            "[snowflake] has neither private_key nor oauth_token nor password", hint='private_key = "file:rsa_key.p8"'
        )
    database = unquoted(config.database)
    settings = {
        "account": config.account,
        "user": config.user,
        "role": config.role,
        "warehouse": config.warehouse,
        "host": config.host,
        "port": config.port,
        "protocol": config.protocol,
        "database": database,
        **_credentials(config),
    }
    parameters = {
        "TIMEZONE": "UTC",
        "QUERY_TAG": f"lakeward snowflake {purpose}",
        "QUOTED_IDENTIFIERS_IGNORE_CASE": False,
        "CLIENT_TELEMETRY_ENABLED": False,
        "ABORT_DETACHED_QUERY": True,  # a statement whose client died holds its locks for minutes, not until it is done
    }
    try:
        made = Connection(
            **{key: value for key, value in settings.items() if value is not None},
            session_parameters=parameters,
            autocommit=True,
            login_timeout=LOGIN_SECONDS_MAX,
            socket_timeout=SOCKET_SECONDS_MAX,
            network_timeout=NETWORK_SECONDS_MAX,
            client_session_keep_alive=True,  # Spark may stage for longer than an idle session lives
            application="Lakeward",
        )
    except errors.Error as error:
        raise translated(error, "the login") from None
    return Session(made, database)


def _credentials(config: Snowflake) -> dict[str, Any]:
    if config.private_key is None and config.oauth_token is not None:
        return {"authenticator": "oauth", "token": config.oauth_token.reveal()}
    if config.private_key is None:
        return {"password": config.password.reveal()} if config.password else {}
    phrase = config.private_key_passphrase.reveal().encode() if config.private_key_passphrase else None
    try:
        key = serialization.load_pem_private_key(config.private_key.reveal().encode(), phrase)
    except (ValueError, TypeError):
        # The library's message may quote the key.
        raise ConfigError(
            "[snowflake] private_key is not a PEM that can be read with private_key_passphrase",
            hint="make one with `openssl genrsa 2048 | openssl pkcs8 -topk8 -inform PEM -out rsa_key.p8`",
        ) from None
    pkcs8, der = serialization.PrivateFormat.PKCS8, serialization.Encoding.DER
    return {"private_key": key.private_bytes(der, pkcs8, serialization.NoEncryption())}


def translated(error: errors.Error, statement: str) -> LakewardError:
    """The error as Lakeward's own: its numbers, not its text."""
    number = error.errno if isinstance(error.errno, int) else -1
    facts = {"number": number, "sql_state": error.sqlstate, "query": error.sfqid}
    what = f"Snowflake refused {' '.join(statement.split()[:3])} …"
    # Below the connection, the connector gives up on its own bound and says so by this class.
    lost = isinstance(error, (errors.OperationalError, errors.InternalServerError, errors.ServiceUnavailableError))
    if number in _TRANSIENT | _HTTP_TRANSIENT or (lost and number not in _HINTS):
        return TransientError(what, hint=_HINTS.get(number, "run the same command again"), **facts)
    hint = _HINTS.get(number, "see the query in Snowflake's history by its id")
    return TerminalError(what, hint=hint, **facts)
