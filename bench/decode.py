"""Measure A: a binlog to Arrow on one core, against mysql-replication and mysqlbinlog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from servers.mysql_binaries import mysqlbinlog

from bench.readers import ask, program
from bench.workloads import Workload, new_file, prepare, write
from bronze.source.connection import settings
from lakeward.config import Source, Tls
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator, replicator_url
from lakeward.embedded.server import EmbeddedServer
from lakeward.position import binlog_number

CORE = 0
WARM_CHANGES = 2000


@dataclass
class Decoded:
    """Changes a second of each reader on one workload; the best of its rounds. 0 where a reader saw not all changes."""

    workload: Workload
    changes: int
    rates: dict[str, float]

    def ratio(self, peer: str) -> float:
        """Lakeward's rate over a peer's, both from the same place: the server (without TLS), or the file."""
        mine = "lakeward-dump" if peer == "mysql-replication" else "lakeward-file"
        return self.rates[mine] / self.rates[peer] if self.rates[peer] else 0.0


def measure(
    server: EmbeddedServer, workloads: Sequence[Workload], changes: int, sample: int, rounds: int
) -> Iterator[Decoded]:
    """Each workload in turn, in a log of its own. mysql-replication stops after `sample` changes of it."""
    prepare(server, list(workloads))
    for workload in workloads:
        logs = []
        first = 0
        for wanted in (WARM_CHANGES, changes if workload.rows > 1 else changes // 2):
            logs.append(new_file(server).file)
            written = write(server, workload, wanted, first=first)
            first += written
        new_file(server)
        yield _read(server, workload, logs, written, min(sample, written), rounds)


def _read(
    server: EmbeddedServer, workload: Workload, logs: list[str], changes: int, sample: int, rounds: int
) -> Decoded:
    url, password = replicator_url(server), ensure_replicator(server, [EVERY_SCHEMA])
    secret, plain = (dict(settings(Source(url=url, tls=tls), password)) for tls in (Tls("required"), Tls("disabled")))
    data = Path(server.folder) / "data"
    places = [{"path": str(data / log), "file": log, "number": binlog_number(log)} for log in logs]
    request = {**places[1], "settings": plain, "changes": changes, "repeat": 3,
               "warm": {**places[0], "changes": WARM_CHANGES}}  # fmt: skip
    rates: dict[str, float] = {}

    def note(name: str, rate: float) -> None:
        rates[name] = max(rates.get(name, 0.0), rate)

    binary = str(mysqlbinlog())
    for _ in range(rounds):
        for name, reader, more in (
            ("lakeward-file", "lakeward-file", {}),
            ("lakeward-dump", "lakeward-dump", {}),
            ("lakeward-tls", "lakeward-dump", {"settings": secret}),
        ):
            seen, seconds = ask(reader, {**request, **more}, CORE)
            # A dump goes on into the log's later files, which hold nothing of the table.
            note(name, seen / seconds if seen == changes else 0.0)
        if workload.compressed:
            rates["mysql-replication"] = 0.0  # it has no handler for the event: it would wait for ever
        else:
            seen, seconds = ask("mysql-replication", {**request, "changes": sample, "repeat": 1, "warm": None}, CORE)
            note("mysql-replication", seen / seconds)
        path = places[1]["path"]
        note("mysqlbinlog -v", changes / program([binary, "-v", "--base64-output=decode-rows", str(path)], CORE))
        raw = [binary, "--read-from-remote-server", f"--socket={server.socket}", "--user=root", "--raw",
               f"--result-file={server.folder}/raw-", logs[1]]  # fmt: skip
        note("mysqlbinlog --raw", changes / program(raw, CORE))
    return Decoded(workload, changes, rates)
