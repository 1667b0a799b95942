"""A catalog that cannot be reached, or that says no, as an error with a remedy.

What Spark passes on is a chain of Java's exceptions, whose outermost says no more than that there was one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeward import catalog
from lakeward.errors import TerminalError, causes
from lakeward.secretive import is_secret, shown, without

_PREFIX = f"spark.sql.catalog.{catalog.NAME}."
_REST = frozenset(
    f"org.apache.iceberg.exceptions.{name}Exception"
    for name in ("REST", "NotAuthorized", "Forbidden", "BadRequest", "ServiceUnavailable", "ServiceFailure")
)
_UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
_JDBC = "org.apache.iceberg.jdbc.Unchecked"
_AWS, _HADOOP = "software.amazon.awssdk.", "org.apache.hadoop."
_NETWORK = ("Connect", "UnknownHost", "NoRouteToHost", "SocketTimeout", "HttpHostConnect", "SSL", "NoHttpResponse")
_REASON_MAX = 300
Chain = list[tuple[str, str]]  # (class, what it says in one line), the outermost first


def unanswered(error: BaseException, settings: Mapping[str, str]) -> TerminalError | None:
    """The error to show where `error`, from Spark, is the catalog's; None where it is another's.

    `settings` are Spark's, with those of the catalog (`catalog.settings`, or all that a session has).
    """
    own = {k.removeprefix(_PREFIX): v for k, v in settings.items() if k.startswith(_PREFIX)}
    kind, uri = own.get("type", "hadoop"), own.get("uri", "")
    chain = _chain(error)
    classes = {name for name, _ in chain}
    of_catalog = {
        "rest": bool(classes & _REST),
        "jdbc": any(name.startswith(_JDBC) for name in classes),
        # The object store's client is AWS's too; Hadoop stands between it and Spark.
        "glue": any(name.startswith(_AWS) for name in classes) and not any(n.startswith(_HADOOP) for n in classes),
    }
    if not of_catalog.get(kind) and _UNKNOWN not in classes:
        return None
    place = shown(uri) if uri else "AWS Glue"
    name, said = chain[-1]
    reason = without(said.replace(uri, place) if uri else said, (v for k, v in own.items() if is_secret(k)))
    what, remedy = _judged(kind, classes)
    return TerminalError(
        f"the catalog at {place} {what}: {name.rpartition('.')[2]}{f': {reason[:_REASON_MAX]}' if reason else ''}",
        hint=f"{remedy}; then run the same command again",
        catalog=kind,
    )


@contextlib.contextmanager
def answering(session: SparkSession) -> Iterator[None]:
    """Within it, the failures of `session`'s catalog are raised as `unanswered` says."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if known := unanswered(error, session.conf.getAll):
            raise known from error
        raise


def _judged(kind: str, classes: set[str]) -> tuple[str, str]:
    """What the catalog did, and the remedy."""
    names = {name.rpartition(".")[2] for name in classes}
    login = {
        "rest": "see the token or credential in [gold] properties",
        "jdbc": "see jdbc.user and jdbc.password in [gold] properties",
        "glue": "see the AWS credentials and the grants of their role for Glue",
    }.get(kind, "see [gold] properties")
    if _UNKNOWN in classes:
        return "did not say whether it took a commit", "see that it runs: what it took is looked up, and not done twice"
    if any(name.startswith(_NETWORK) for name in names):
        return "cannot be reached", f"see [gold] {'uri' if kind != 'glue' else 'properties'}, and that it runs there"
    if "NotAuthorizedException" in names:
        return "does not accept the login", login
    if names & {"ForbiddenException", "AccessDeniedException"}:
        return "refuses what was asked of it", login
    if kind == "jdbc":
        return "cannot be opened", f"see [gold] uri, the driver in [gold] jars, and that the database runs; {login}"
    return "fails", f"see [gold] uri and what the catalog itself logs; {login}"


def _chain(error: BaseException) -> Chain:
    found: Chain = []
    for at in causes(error):
        java = at.java_exception if isinstance(at, Py4JJavaError) else getattr(at, "_origin", None)
        while java is not None and len(found) < 50:
            name, said = java.getClass().getName(), (java.getMessage() or "").strip()
            # A server's own words, where they are not Iceberg's, may be a page or a document of many lines.
            found.append((name, " ".join(said.split()) if name in _REST else said.partition("\n")[0]))
            java = java.getCause()
    return found
