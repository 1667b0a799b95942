"""An Iceberg REST catalog: the server that Iceberg releases for clients to be tested against, in a process of its own.

It is `org.apache.iceberg.rest.RESTCatalogServer`, which the image `apache/iceberg-rest-fixture` runs, of the newest
release that has it. It keeps its tables in SQLite and writes their metadata files itself. A proxy before it says what
its clients sent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from servers.listening import free_port, listening
from servers.recorded import Recorded, recorded

from lakeward.artifacts import resolve
from lakeward.catalog import ICEBERG_SDK, SQLITE
from lakeward.java import java_home
from lakeward.storage import sdk

ICEBERG, JETTY, HTTP = "1.11.0", "12.1.14", "5.4"
SERVER = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",  # its servlet
    *(f"org.apache.iceberg:iceberg-{part}:{ICEBERG}" for part in ("core", "api", "common", "bundled-guava", "aws")),
    *(f"org.eclipse.jetty:jetty-{part}:{JETTY}" for part in ("http", "io", "security", "server", "session", "util")),
    *(f"org.eclipse.jetty.compression:jetty-compression-{part}:{JETTY}" for part in ("common", "gzip", "server")),
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    "jakarta.servlet:jakarta.servlet-api:6.0.0",
    "org.apache.httpcomponents.client5:httpclient5:5.6.1",
    *(f"org.apache.httpcomponents.core5:{part}:{HTTP}" for part in ("httpcore5", "httpcore5-h2")),
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "dev.failsafe:failsafe:3.3.2",
    SQLITE,
)
# What pyspark brings along.
OF_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "jackson-annotations", "jackson-core", "jackson-databind",
            "avro", "RoaringBitmap", "slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")  # fmt: skip


@contextlib.contextmanager
def rest_catalog(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Recorded]:
    """A catalog that keeps its names, its log and tables that name no place of their own in `folder`.

    `properties` are Iceberg's, of the catalog behind the server: `{"io-impl": …}`.
    """
    port = free_port()  # of every address: the server takes no other
    own = {
        "rest.port": str(port),
        "uri": f"jdbc:sqlite:{folder}/rest-catalog.db",
        "warehouse": str(folder / "rest-warehouse"),
        **(properties or {}),
    }
    variables = {f"CATALOG_{k.replace('-', '__').replace('.', '_').upper()}": v for k, v in own.items()}
    # It takes every variable of such a name for a property.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CATALOG_")} | variables
    command = [str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
               "-cp", _class_path(), "org.apache.iceberg.rest.RESTCatalogServer"]  # fmt: skip
    with listening(command, port, folder / "rest-catalog.log", environment), recorded(f"http://127.0.0.1:{port}") as it:
        yield it


def _class_path() -> str:
    files = resolve(SERVER, name="iceberg-rest", transitive=False)
    files += resolve(sdk(ICEBERG_SDK), name="iceberg-rest-s3", transitive=False)
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(pyspark.origin).parent / "jars"
    files += [file for name in OF_SPARK for file in jars.glob(f"{name}-[0-9]*.jar")]
    return os.pathsep.join(str(file) for file in files)
