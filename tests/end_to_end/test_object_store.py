"""A lake on an object store, in each of the catalogs that people keep there: two through every command."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table
from servers.command import run_lakeward
from servers.iceberg_rest import rest_catalog
from servers.object_store import REGION, ObjectStore, object_store
from servers.recorded import recorded
from servers.running import Database

from lakeward import crash
from lakeward.catalog import S3_FILES
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator, replicator_url
from lakeward.embedded.server import EmbeddedServer
from lakeward.names import encode_lower

pytestmark = pytest.mark.timeout(1800)
MANY = 25_000
SETTINGS = """
[source]
url = "{url}"
password = "env:SOURCE_PASSWORD"
include = ["{database}.*"]
[lake]
root = "s3a://{bucket}/lakes/one"
endpoint = "{endpoint}"
{settings}
"""
# In front of a program: by its clock it is eight days later.
LATER = """
import time
now = time.time
time.time = lambda: now() + 8 * 86_400
"""
VENDED, SECRET = "the-key-that-the-catalog-hands-out", "the-secret-that-the-catalog-hands-out"


@dataclass
class Remote:
    """A source whose lake lies in `store`."""

    folder: Path
    store: ObjectStore
    database: Database
    password: str
    catalog: str

    def configure(self, settings: str) -> None:
        """Write the configuration: `settings` are lines that follow those of [lake]."""
        url, name = replicator_url(self.database.server), self.database.name
        own = SETTINGS.format(
            url=url, database=name, bucket=self.store.bucket, endpoint=self.store.endpoint, settings=settings
        )
        (self.folder / "lakeward.toml").write_text(own)

    def lakeward(self, *arguments: str, **environment: str) -> Any:
        return run_lakeward(self.folder, self.password, *arguments, **{**self.store.environment, **environment})

    def run(self, *arguments: str, **environment: str) -> str:
        done = self.lakeward(*arguments, **environment)
        assert done.returncode == 0, f"{arguments}: {done.stderr[-4000:]}"
        assert self.store.password not in done.stdout + done.stderr
        return str(done.stdout)

    def run_and_maintain(self) -> str:
        """A run by whose clock maintenance is due, and what has been replaced by now may go."""
        (self.folder / "later").mkdir(exist_ok=True)
        (self.folder / "later" / "sitecustomize.py").write_text(LATER)
        path = os.pathsep.join(filter(None, [str(self.folder / "later"), os.environ.get("PYTHONPATH")]))
        said = self.run("run", PYTHONPATH=path)
        assert "\nmaintain " in said
        assert " 0 snapshots expired" not in said
        return said

    def document(self, path: str) -> Any:
        with self.store.filesystem().open_input_stream(f"{self.store.bucket}/lakes/one/{path}") as stream:
            return json.loads(stream.read())

    def operations(self, table: str) -> list[str]:
        """What Delta's log calls the commits of a silver table."""
        log = pafs.FileSelector(f"{self.store.bucket}/lakes/one/silver/{self.database.name}/{table}/_delta_log")
        found = sorted(f.path for f in self.store.filesystem().get_file_info(log) if f.path.endswith(".json"))
        lines = [self.store.filesystem().open_input_file(path).read().splitlines() for path in found]
        actions = [json.loads(line) for each in lines for line in each]
        return [action["commitInfo"]["operation"] for action in actions if "commitInfo" in action]

    @property
    def files(self) -> dict[str, str]:
        """By what PyIceberg reaches the store."""
        return {
            "s3.endpoint": self.store.endpoint,
            "s3.access-key-id": self.store.user,
            "s3.secret-access-key": self.store.password,
            "s3.region": REGION,
        }

    def entry(self, table: str) -> Any:
        """What gold says of the table that it has published."""
        return self.document("_lakeward/gold.json")["tables"][f"{self.database.name}.{table}"]

    def published(self, table: str) -> Table:
        """Gold's table as PyIceberg finds it: by its catalog, or by its metadata file."""
        if self.catalog != "glue":
            return StaticTable.from_metadata(self.entry(table)["metadata_file"], self.files)
        glue = {
            "type": "glue",
            "glue.endpoint": self.store.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": self.store.user,
            "glue.secret-access-key": self.store.password,
        }
        there = load_catalog("glue", **glue, **self.files)
        return there.load_table((encode_lower(self.database.name), encode_lower(table)))

    def exported(self, table: str) -> list[dict[str, Any]]:
        base = f"export/{self.database.name}/{table}"
        folder = f"{self.store.bucket}/lakes/one/{base}/{self.document(f'{base}/current.json')['folder']}"
        found = self.store.filesystem().get_file_info(pafs.FileSelector(folder, recursive=True))
        files = [f.path for f in found if f.type == pafs.FileType.File]
        assert files, folder
        assert all(f.endswith(".parquet") for f in files), files
        return list(ds.dataset(files, filesystem=self.store.filesystem()).to_table().to_pylist())

    def landed(self, table: str) -> list[dict[str, Any]]:
        """The events in the files that manifests name, in whatever order."""
        root, partition = f"{self.store.bucket}/lakes/one", f"TableName={self.database.name}.{table}"
        store = self.store.filesystem()
        events = []
        for info in store.get_file_info(pafs.FileSelector(f"{root}/landing-manifest/{partition}")):
            for file in json.loads(store.open_input_file(info.path).read())["files"]:
                lines = gzip.decompress(store.open_input_file(f"{root}/{file['path']}").read()).splitlines()
                assert len(lines) == file["rows"]
                events += [json.loads(line) for line in lines]
        return events


@contextlib.contextmanager
def remote_lake(request: pytest.FixtureRequest, folder: Path, flavour: str, catalog: str) -> Iterator[Remote]:
    """A lake that is not configured yet."""
    server: EmbeddedServer = request.getfixturevalue(f"{flavour}_server")
    with object_store(folder, f"lake-{catalog}") as store, Database.create(server, f"remote_{catalog}") as database:
        yield Remote(folder, store, database, ensure_replicator(server, [EVERY_SCHEMA]), catalog)


@pytest.fixture(params=[("mysql", "hadoop"), ("mariadb", "glue")], ids="-".join)
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    with remote_lake(request, tmp_path, *request.param) as made:
        properties = f'{{ "glue.endpoint" = "{made.store.endpoint}" }}' if made.catalog == "glue" else "{}"
        made.configure(f'[gold]\ncatalog = "{made.catalog}"\nproperties = {properties}\n[landing]\ntables = ["*"]\n')
        yield made


def test_a_lake_on_an_object_store_equals_its_source_over_a_kill_changes_and_maintenance(remote: Remote) -> None:
    execute = remote.database.execute
    execute("CREATE TABLE trips (id INT PRIMARY KEY, n INT, v VARCHAR(9), at DATETIME(3))")
    rows = (f"({n}, {n}, 'x', '2026-01-02 03:04:05.678')" for n in range(1, 41))
    execute(f"INSERT INTO trips VALUES {', '.join(rows)}")
    execute("CREATE TABLE `Trips` (id INT PRIMARY KEY, `a col` INT)")  # another table, but for catalogs that fold case
    execute("INSERT INTO `Trips` VALUES (1, 2)")
    execute("CREATE TABLE many (id INT PRIMARY KEY, v VARCHAR(9))")  # too many for the driver to hold as a small table
    rows = (f"({n}, 'x')" for n in range(MANY))
    execute(f"INSERT INTO many VALUES {', '.join(rows)}")
    remote.run("run")
    execute("UPDATE many SET v = 'y' WHERE id % 2 = 0")
    execute("DELETE FROM many WHERE id % 3 = 0")
    execute("UPDATE trips SET n = -n WHERE id < 20")
    execute("DELETE FROM trips WHERE id = 40")
    execute("ALTER TABLE trips ADD COLUMN w INT DEFAULT 7")
    execute("INSERT INTO trips VALUES (41, 41, 'é', NULL, 8)")
    execute("UPDATE `Trips` SET `a col` = 3")
    for moment in ("landing.before_manifest", "silver.after_merges"):
        killed = remote.lakeward("run", **{crash.VARIABLE: moment})
        assert killed.returncode == -9, killed.stderr[-4000:]
    remote.run("run")
    landed = remote.landed("trips")
    # The column's default is in no event of the rows that were there, so the table was read a second time.
    assert Counter(event["op"] for event in landed) == {"r": 40 + 40, "u": 19, "d": 1, "c": 1}
    assert len({event["position"] for event in landed}) == len(landed)
    remote.run("maintain")
    assert "equals the source" in remote.run("verify")
    many = {r["id"]: r["v"] for r in remote.published("many").scan().to_arrow().to_pylist()}
    assert many == {n: "xy"[n % 2 == 0] for n in range(MANY) if n % 3}
    assert remote.operations("many") == ["CREATE TABLE", "WRITE", "WRITE"]
    trips = {r["id"]: (r["n"], r["v"], r["w"]) for r in remote.published("trips").scan().to_arrow().to_pylist()}
    assert trips == {n: (-n if n < 20 else n, "x", 7) for n in range(1, 40)} | {41: (41, "é", 8)}
    assert {r["id"]: (r["n"], r["v"], r["w"]) for r in remote.exported("trips")} == trips
    assert (
        remote.published("Trips").location()
        == f"s3a://{remote.store.bucket}/lakes/one/gold/{remote.database.name}/Trips"
    )
    assert [(r["id"], r["a col"]) for r in remote.published("Trips").scan().to_arrow().to_pylist()] == [(1, 3)]
    assert [(r["id"], r["a col"]) for r in remote.exported("Trips")] == [(1, 3)]


def rows_of(table: Table) -> dict[int, int]:
    return {r["id"]: r["n"] for r in table.scan().to_arrow().to_pylist()}


def test_a_database_as_the_catalog_of_a_lake_on_an_object_store(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with remote_lake(request, tmp_path, "mariadb", "jdbc") as remote:
        remote.configure(f'[gold]\nexport = []\ncatalog = "jdbc"\nuri = "jdbc:sqlite:{tmp_path}/catalog.db"\n')
        execute = remote.database.execute
        execute("CREATE TABLE trips (id INT PRIMARY KEY, n INT)")
        execute("INSERT INTO trips VALUES (1, 1), (2, 2), (3, 3)")
        remote.run("run")
        first = remote.entry("trips")
        execute("UPDATE trips SET n = -n WHERE id < 3")
        remote.run_and_maintain()
        assert rows_of(remote.published("trips")) == {1: -1, 2: -2, 3: 3}
        assert len(remote.published("trips").snapshots()) == 1
        entry = remote.entry("trips")
        assert entry["metadata_file"] != first["metadata_file"]
        assert entry["location"] == f"s3a://{remote.store.bucket}/lakes/one/gold/{remote.database.name}/trips"
        with contextlib.closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
            asked = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'trips'"
            assert connection.execute(asked).fetchall() == [(entry["metadata_file"],)]


def test_a_rest_server_as_the_catalog_of_a_lake_on_an_object_store_by_its_own_keys_and_by_the_servers(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    of_server = {
        "io-impl": S3_FILES,
        "s3.access-key-id": VENDED,
        "s3.secret-access-key": SECRET,
        "include-credentials": "true",
        "s3.path-style-access": "true",
        "client.region": REGION,
        "http-client.type": "urlconnection",
    }
    with contextlib.ExitStack() as stack:
        remote = stack.enter_context(remote_lake(request, tmp_path, "mysql", "rest"))
        server = stack.enter_context(rest_catalog(tmp_path, {**of_server, "s3.endpoint": remote.store.endpoint}))
        own = f'[gold]\nexport = []\ncatalog = "rest"\nuri = "{server.uri}"\n'
        remote.configure(own)
        execute = remote.database.execute
        execute("CREATE TABLE trips (id INT PRIMARY KEY, n INT)")
        execute("INSERT INTO trips VALUES (1, 1), (2, 2), (3, 3)")
        remote.run("run")
        assert rows_of(remote.published("trips")) == {1: 1, 2: 2, 3: 3}
        first = remote.entry("trips")
        assert first["location"] == f"s3a://{remote.store.bucket}/lakes/one/gold/{remote.database.name}/trips"
        # From here on by the keys that the server hands out.
        files = stack.enter_context(recorded(remote.store.endpoint))
        wanted = {"io-impl": S3_FILES, "s3.endpoint": files.uri, "s3.path-style-access": "true"}
        wanted["header.X-Iceberg-Access-Delegation"] = "vended-credentials"
        listed = ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in wanted.items())
        remote.configure(f"{own}properties = {{ {listed} }}\n")
        execute("UPDATE trips SET n = -n WHERE id < 3")
        execute("DELETE FROM trips WHERE id = 3")
        execute("CREATE TABLE later (id INT PRIMARY KEY, n INT)")
        execute("INSERT INTO later VALUES (1, 7)")
        said = remote.run_and_maintain()
        assert SECRET not in said + json.dumps(remote.document("_lakeward/gold.json"))
        assert {key.partition("Credential=")[2].partition("/")[0] for _, _, key in files.seen if key} == {VENDED}
        put = {path for method, path, _ in files.seen if method == "PUT" and path.endswith(".parquet")}
        for table in ("trips", "later"):
            assert any(f"/gold/{remote.database.name}/{table}/data/" in path for path in put), table
        assert remote.entry("trips")["metadata_file"] != first["metadata_file"]
        assert len(remote.published("trips").snapshots()) == 1
        # Another reader finds the tables by name, and their files by the server's keys.
        there = load_catalog("rest", uri=server.uri, **{"s3.endpoint": files.uri, "s3.region": REGION})
        assert rows_of(there.load_table((remote.database.name, "trips"))) == {1: -1, 2: -2}
        assert rows_of(there.load_table((remote.database.name, "later"))) == {1: 7}
