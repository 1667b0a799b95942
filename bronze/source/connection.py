"""Connections to the source: one way to open them, the same on the driver and on every executor.

Each session is put into the same state (time zone +00:00, sql_mode '', utf8mb4, no row or time limit), whatever the
server's defaults are, since a value's text depends on it. What a connection needs travels as `Settings`, plain values
that pickle; the TLS context is made where the connection is opened. PyMySQL's errors are translated here: one that
needs a person names the host, the port and the user, never the password.
"""

from __future__ import annotations

import ssl
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from lakeward.config import Source
from lakeward.errors import ConnectionLostError, LakewardError, TerminalError, TransientError

CONNECT_TIMEOUT_S = 20.0  # of each wait until a session is ready: a server that accepts may still say nothing
READ_TIMEOUT_S = 600  # of one wait for bytes; a first row may be long in coming when the server has to sort
WRITE_TIMEOUT_S = 60
# The server gives up on a client that reads slowly: 60 s by default, which one pause of a busy executor can exceed.
_SESSION = (
    "SET time_zone = '+00:00', net_write_timeout = 3600, net_read_timeout = 3600, wait_timeout = 28800, "
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_quote_show_create = 1, sql_mode = ''"
)
_LOST = {
    *(CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST_EXTENDED),
    *(ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.NEW_ABORTING_CONNECTION, ER.ABORTING_CONNECTION),
    1203,  # ER_TOO_MANY_USER_CONNECTIONS
    1226,  # ER_USER_LIMIT_REACHED
    1927,  # MariaDB: ER_CONNECTION_KILLED
    4031,  # ER_CLIENT_INTERACTION_TIMEOUT
}
_TRANSIENT = {
    *(ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.QUERY_INTERRUPTED, ER.OUT_OF_RESOURCES),
    3024,  # ER_QUERY_TIMEOUT
    1969,  # MariaDB: ER_STATEMENT_TIMEOUT
}
_NOT_YET_VALID, _EXPIRED = 9, 10  # OpenSSL's X509_V_ERR_CERT_…
_DENIED = {
    *(ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR),
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}


class _Connection(pymysql.Connection):  # type: ignore[misc]
    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """PyMySQL loads the system's CAs, 30 ms of a connection, for the mode in which it verifies nothing too."""
        return super()._create_ssl_ctx(sslp or _unverified())  # type: ignore[no-any-return]


class Settings(dict[str, Any]):
    """What opens a connection: host, port, user, password, tls (mode, ca, cert, key). Its repr hides the password."""

    def __repr__(self) -> str:
        return f"Settings({self['user']}@{self['host']}:{self['port']}, tls={self['tls']['mode']})"

    __str__ = __repr__


def settings(source: Source, password: str | None) -> Settings:
    """Picklable connection settings of `[source]`. Raises ConfigError for a url that is none."""
    user, host, port = source.address()
    tls = {"mode": source.tls.mode, "ca": source.tls.ca, "cert": source.tls.cert, "key": source.tls.key}
    return Settings(host=host, port=port, user=user, password=password, tls=tls)


def connect(source: Source, password: str | None) -> pymysql.Connection:
    """A connection to the source, in the session state of this module, with autocommit. Errors as `open_connection`."""
    return open_connection(settings(source, password))


def open_connection(
    settings: dict[str, Any], *, proven: bool = False, read_timeout_s: float | None = None
) -> pymysql.Connection:
    """A connection from `settings`.

    `proven` says that this run has reached the server before, so that a refused connection is a restart and not a
    wrong address. No wait on it is endless: a statement fails with ConnectionLostError when no byte comes for
    `read_timeout_s` (READ_TIMEOUT_S). Raises TerminalError (wrong password, unknown host, refused, TLS) and
    ConnectionLostError (it is out of connections, is going down, or does not answer).
    """
    try:
        connection = _Connection(**arguments(settings))
        if "mariadb" not in connection.get_server_info().lower():
            _mysql_session(connection)
        connection._read_timeout = READ_TIMEOUT_S if read_timeout_s is None else read_timeout_s
        connection._write_timeout = WRITE_TIMEOUT_S
    except (pymysql.Error, OSError) as error:
        raise _connect_error(error, settings, proven) from error
    return connection


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` as keyword arguments of `pymysql.Connection`: all that this module and the binlog reader connect with.

    Raises TerminalError for a certificate or key file that cannot be loaded.
    """
    password = settings["password"] or ""
    return {
        "host": settings["host"],
        "port": settings["port"],
        "user": settings["user"],
        # PyMySQL writes text as latin-1 here; the servers hash the bytes of the client's charset.
        "password": password.encode("utf-8"),
        "charset": "utf8mb4",
        "autocommit": True,
        "init_command": _SESSION,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": CONNECT_TIMEOUT_S,
        "write_timeout": CONNECT_TIMEOUT_S,
        "program_name": "lakeward",
        **_tls_arguments(settings["tls"]),
    }


def translated(error: BaseException, settings_or_what: object) -> LakewardError:
    """The Lakeward error for a failure of a statement on an open connection.

    A lost connection and a full server are ConnectionLostError, a deadlock and a time-out TransientError; anything else
    is TerminalError.
    """
    number, text = _number_and_text(error)
    message = f"the source failed on {settings_or_what}: {text}"
    if number in _LOST or isinstance(error, OSError):
        return ConnectionLostError(message, hint="run the same command again", error=number)
    if number in _TRANSIENT:
        return TransientError(message, hint="run the same command again", error=number)
    if number in _DENIED:
        return TerminalError(
            message,
            hint="grant the replication user what it lacks: `lakeward doctor` prints the statement",
            error=number,
        )
    return TerminalError(message, hint="see the server's message", error=number)


def _tls_arguments(tls: dict[str, Any]) -> dict[str, Any]:
    mode = tls["mode"]
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred" and not tls["cert"]:
        return {}  # PyMySQL's own default: TLS without a check where the server has it, else plain
    # PyMySQL turns the check of the host's name off when no CA file is named; a context of our own cannot be weakened.
    try:
        if mode.startswith("verify"):
            context = ssl.create_default_context(cafile=tls["ca"])
            # Python 3.13 turns strict checks on, which the certificates that MySQL makes for itself do not pass.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = mode == "verify_identity"
        else:
            context = _unverified()
            if tls["ca"]:
                context.load_verify_locations(tls["ca"])  # not to verify by: a name that is wrong is said in each mode
        if tls["cert"]:
            context.load_cert_chain(tls["cert"], keyfile=tls["key"])
    except (OSError, ssl.SSLError) as error:
        raise TerminalError(
            f"a TLS file of [source] tls cannot be loaded: {error}",
            hint="name readable PEM files in ca, cert and key",
            **{name: tls[name] for name in ("ca", "cert", "key") if tls[name]},
        ) from error
    return {"ssl": context}


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _mysql_session(connection: pymysql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET max_execution_time = 0")
        # Invisible generated primary keys are in the row events; they have to be in information_schema too.
        cursor.execute("SHOW VARIABLES LIKE 'show_gipk_in_create_table_and_information_schema'")
        if cursor.fetchall():
            cursor.execute("SET show_gipk_in_create_table_and_information_schema = ON")


def _connect_error(error: Exception, settings: dict[str, Any], proven: bool) -> LakewardError:
    number, text = _number_and_text(error)
    cause = getattr(error, "original_exception", error)
    at = f"{settings['host']}:{settings['port']}"
    user = settings["user"]
    facts = {"server": at, "user": user, "tls": settings["tls"]["mode"]}
    if (
        _refused_in_tls(error, settings, proven)
        or isinstance(cause, ssl.SSLError)
        or number == CR.CR_SSL_CONNECTION_ERROR
        or number == 3159
    ):
        return TerminalError(f"no TLS connection to {at}: {text}", hint=_tls_hint(cause, settings["tls"]), **facts)
    if number in (ER.ACCESS_DENIED_ERROR, 1698):  # 1698: MariaDB, an account without a password plugin
        return TerminalError(
            f"{at} refused the user {user!r}: {text}",
            hint="check the user in [source] url, the secret that [source] password names, and the account's host part",
            **facts,
        )
    if number == ER.HOST_NOT_PRIVILEGED or number == ER.HOST_IS_BLOCKED:
        return TerminalError(f"{at} refuses this host: {text}", hint="allow this host in CREATE USER", **facts)
    transient = number in _LOST or number in _TRANSIENT or isinstance(cause, TimeoutError)
    if transient or (proven and isinstance(cause, OSError)):
        return ConnectionLostError(f"{at} does not answer: {text}", hint="run the same command again", **facts)
    if isinstance(cause, OSError):
        return TerminalError(
            f"nothing to talk to at {at}: {cause}",
            hint="check host and port in [source] url, that the server runs, and that no firewall stands between",
            **facts,
        )
    return TerminalError(f"cannot connect to {at}: {text}", hint="see the server's message", **facts)


def _refused_in_tls(error: Exception, settings: dict[str, Any], proven: bool) -> bool:
    """Whether the server has ended the session in TLS's own words. It judges a client's certificate after the client
    took the session for open, and MySQL then says nothing at all, as a server does that is going down."""
    told = error.__context__
    if isinstance(told, ssl.SSLEOFError):
        return bool(settings["tls"]["cert"]) and not proven
    return isinstance(told, ssl.SSLError)


def _tls_hint(cause: BaseException, tls: dict[str, Any]) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code in (_NOT_YET_VALID, _EXPIRED):
            return "renew the server's certificate, and see that the clocks of both machines are right"
        if "hostname" in str(cause).lower() or "ip address" in str(cause).lower():
            return 'write the name that stands in the certificate into [source] url, or tls = { mode = "verify_ca" }'
        return 'name the file of the CA that signed the server\'s certificate: [source] tls = { ca = "…" }'
    if tls["cert"]:
        return (
            "see that the server trusts the authority of the certificate in [source] tls cert, and that TLS is on there"
        )
    if tls["mode"] == "preferred":
        return '[source] tls = { mode = "disabled" } where the server offers no usable TLS'
    return "turn TLS on at the server (ssl_ca, ssl_cert, ssl_key), or choose another [source] tls mode"


def _number_and_text(error: BaseException) -> tuple[int, str]:
    if isinstance(error, pymysql.Error) and error.args and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1]) if len(error.args) > 1 else str(error)
    return 0, str(error)
