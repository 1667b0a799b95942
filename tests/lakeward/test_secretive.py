"""No secret stands in the configuration, on a command line, or in a message."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lakeward.config import parse
from lakeward.errors import ConfigError
from lakeward.secretive import shown, without

SECRET = "hunter2-of-the-catalog"
SCAN = """
import sys
from pathlib import Path
from lakeward import spark
from lakeward.config import parse

properties = {"token": "env:CATALOG_TOKEN", "header.X-Tenant": "env:CATALOG_TOKEN", "scope": "all"}
config = parse(
    {"lake": {"root": "lake"}, "gold": {"catalog": "rest", "uri": "http://127.0.0.1:9", "properties": properties}},
    folder=Path(sys.argv[1]),
)
session = spark.session_for(config, app="secrets", master="local[1]")
said = []
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        said.append(file.read_bytes())
    except OSError:  # it has ended
        pass
secret = session.conf.get("spark.sql.catalog.gold.token")
print("java is there:", any(b"java" in line and b"secrets" in line for line in said))
print("shown:", sum(secret.encode() in line for line in said))
print("set:", len(secret), session.conf.get("spark.sql.catalog.gold.scope"))
# A REST server names its warehouses itself, and refuses a folder.
print("warehouse:", session.newSession().conf.get("spark.sql.catalog.gold.warehouse", "none"))
session.stop()
"""


def test_a_catalogs_secret_is_in_the_session_and_on_no_command_line(tmp_path):
    env = {**os.environ, "CATALOG_TOKEN": SECRET}
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(tmp_path)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = ["java is there: True", "shown: 0", f"set: {len(SECRET)} all", "warehouse: none"]
    assert done.stdout.splitlines()[-4:] == said


@pytest.mark.parametrize(
    "name",
    [
        "jdbc.password",
        "token",
        "credential",
        "header.Authorization",
        "header.X-Api-Key",
        "header.Cookie",
        "adls.auth.shared-key.account.key",
        "adls.connection-string.account",
        "adls.sas-token.account",
        "hadoop.fs.azure.account.key.account.dfs.core.windows.net",
        "s3.secret-access-key",
        "s3.sse.key",
        "gcs.oauth2.token",
    ],
)
def test_a_property_that_holds_a_secret_is_refused_by_its_name(name):
    with pytest.raises(ConfigError, match="holds a literal") as error:
        parse({"gold": {"properties": {name: SECRET}}})
    assert SECRET not in str(error.value)
    assert parse({"gold": {"properties": {name: "env:NAME"}}}).gold.properties == {name: "env:NAME"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warehouse", "lake"),
        ("s3.access-key-id", "AKIA"),
        ("adls.auth.shared-key.account.name", "account"),
        ("client.credentials-provider", "com.example.Provider"),
        ("token-refresh-enabled", "false"),
        ("header.X-Iceberg-Access-Delegation", "vended-credentials"),
    ],
)
def test_a_property_that_holds_none_is_not(name, value):
    assert parse({"gold": {"properties": {name: value}}}).gold.properties == {name: value}


@pytest.mark.parametrize(
    ("section", "key", "address"),
    [
        ("gold", "uri", f"jdbc:postgresql://db:5432/catalog?user=lakeward&password={SECRET}"),
        ("gold", "uri", f"jdbc:postgresql://lakeward:{SECRET}@db/catalog"),
        ("gold", "uri", f"jdbc:sqlserver://db;user=lakeward;password={SECRET}"),
        ("gold", "uri", f"jdbc:oracle:thin:lakeward/{SECRET}@//db:1521/catalog"),
        ("gold", "uri", f"jdbc:mysql://(host=db,password={SECRET})/catalog"),
        ("gold", "uri", f"https://lakeward:{SECRET}@catalog.example.com"),
        ("gold", "uri", f"https://catalog.example.com/?access_token={SECRET}"),
        ("lake", "root", f"s3a://AKIA:{SECRET}@bucket/lake"),
        ("lake", "endpoint", f"http://minio:{SECRET}@minio:9000"),
        ("source", "url", f"mysql://lakeward:{SECRET}@db:3306"),
        ("source", "url", f"postgres://lakeward:{SECRET}@db"),
    ],
)
def test_an_address_with_a_secret_in_it_is_refused(section, key, address):
    with pytest.raises(ConfigError, match=rf"\[{section}\] {key} holds a password") as error:
        parse({section: {key: address}})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        "jdbc:sqlite:/var/lib/lakeward/catalog.db",
        "jdbc:postgresql://db:5432/catalog?sslmode=verify-full&user=lakeward",
        "jdbc:oracle:thin:@//db:1521/catalog",
        "https://catalog.example.com:8181/api/catalog",
    ],
)
def test_an_address_without_one_is_not(address):
    assert parse({"gold": {"uri": address}}).gold.uri == address
    assert shown(address) == address.partition("?")[0]


def test_a_message_shows_neither_the_user_nor_the_parameters_of_an_address():
    assert shown(f"jdbc:mysql://me:{SECRET}@db:1/c?password={SECRET}") == "jdbc:mysql://db:1/c"
    assert shown(f"jdbc:sqlserver://db;password={SECRET}") == "jdbc:sqlserver://db"
    assert without(f"refused: {SECRET}!", ["", SECRET]) == "refused: …!"
