"""`python -m bench.binlog`: how fast and how small the binlog path is, as ratios to peers measured beside it."""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.running import running

from bench import debezium, decode
from bench.landing import Landed, land
from bench.machine import shape
from bench.workloads import SCHEMA, WORKLOADS, Workload, new_file, prepare, write
from lakeward.embedded.server import EmbeddedServer

TARGETS = {
    ("mysql-replication", "a"): 100,
    ("mysql-replication", "c"): 100,
    ("mysql-replication", "b"): 30,
    ("mysql-replication", "d"): 30,
    ("mysqlbinlog -v", "a"): 3,
    ("mysqlbinlog -v", "c"): 3,
}
PEERS = ("mysql-replication", "mysqlbinlog -v", "mysqlbinlog --raw")
LANDED_TARGET = 2
IDLE_TARGET_S = 3
IDLE_TABLES = 200
FILES = 8
_SETTINGS = {"innodb_buffer_pool_size": "512M"}


def main() -> None:
    options = _options()
    began = time.monotonic()
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {shape()}")
    with running("mysql", _SETTINGS) as server:
        print(f"MySQL {'.'.join(map(str, server.version))}", flush=True)
        if "decode" in options.parts:
            _decode(server, options)
    for part in ("landing", "memory", "idle"):
        if part in options.parts:
            with running("mysql", _SETTINGS) as server:
                globals()[f"_{part}"](server, options)
    print(f"load and time at the end: {shape()}; {time.monotonic() - began:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.binlog", description=__doc__)
    parts = ("decode", "landing", "memory", "idle")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--workloads", default="abcde", help="of the decode part")
    parser.add_argument("--decode-changes", type=int, default=400_000, help="of a workload; half of it for (b)")
    parser.add_argument("--sample", type=int, default=20_000, help="changes of each that mysql-replication reads")
    parser.add_argument("--landing-changes", type=int, default=1_000_000, help="of a backlog")
    parser.add_argument("--single-changes", type=int, default=300_000, help="of a backlog of one-row transactions")
    parser.add_argument("--memory-changes", type=int, default=300_000, help="of the smaller backlog")
    parser.add_argument("--rounds", type=int, default=2, help="of each pair, in turn; the best counts")
    return parser.parse_args()


def _decode(server: EmbeddedServer, options: argparse.Namespace) -> None:
    print("\n## A. Decode to Arrow, one core: changes a second of processor time, and ratios to the peers\n")
    _row("workload", "changes", "Lakeward", *(f"x {peer}" for peer in PEERS))
    _row(*["---"] * (3 + len(PEERS)))
    chosen = [WORKLOADS[key] for key in options.workloads]
    for found in decode.measure(server, chosen, options.decode_changes, options.sample, options.rounds):
        cells = []
        for peer in PEERS:
            ratio, target = found.ratio(peer), TARGETS.get((peer, found.workload.key))
            cells.append(_against(ratio, target, found.rates[peer]) if ratio else "cannot read it")
        places = {"file": "lakeward-file", "dump": "lakeward-dump", "dump with TLS": "lakeward-tls"}
        rates = ", ".join(f"{found.rates[reader]:,.0f} {place}" for place, reader in places.items())
        _row(f"({found.workload.key}) {found.workload.title}", f"{found.changes:,}", rates, *cells)


def _landing(server: EmbeddedServer, options: argparse.Namespace) -> None:
    print("\n## B, D. Binlog to committed bronze, two cores, warm: changes a second\n")
    _row("backlog", "changes", "Lakeward", "Debezium's engine, no sink", "ratio")
    _row(*["---"] * 5)
    chosen = [WORKLOADS["a"], WORKLOADS["b"]]
    prepare(server, chosen)
    for workload, changes in zip(chosen, (options.landing_changes, options.single_changes), strict=True):
        lake = _lake(server, workload)
        start = new_file(server)
        written = write(server, workload, changes)
        mine = _landed(server, lake, workload, written, options.rounds)
        theirs = max(debezium.read(server, workload, start, written, options.rounds + 1)) if debezium.available() else 0
        again = _landed(server, lake, workload, written, options.rounds)
        rate = max(mine.rate, again.rate)
        ratio = _against(rate / theirs, LANDED_TARGET) if theirs else "not measured: needs a JDK"
        _row(f"({workload.key}) {workload.title}", f"{written:,}", f"{rate:,.0f}", f"{theirs:,.0f}", ratio)
        if workload.key == "a":
            _files(server, workload, changes, rate, options.rounds)


def _files(server: EmbeddedServer, workload: Workload, changes: int, one: float, rounds: int) -> None:
    """The same load in several files, read in parallel."""
    lake = _lake(server, workload, "files")
    new_file(server)
    written = write(server, workload, changes, first=2 * changes, files=FILES)
    found = _landed(server, lake, workload, written, rounds)
    _row(f"({workload.key}) in {FILES} files", f"{written:,}", f"{found.rate:,.0f}", "", f"{found.rate / one:.1f}x one")


def _memory(server: EmbeddedServer, options: argparse.Namespace) -> None:
    print("\n## C. Ten times the backlog: peak memory of driver, JVM and workers together\n")
    _row("changes", "peak", "driver's own", "JVM's", "workers'", "seconds", "changes a second")
    _row(*["---"] * 7)
    workload = WORKLOADS["a"]
    prepare(server, [workload])
    first = 0
    for changes in (options.memory_changes, 10 * options.memory_changes):
        lake = _lake(server, workload, str(changes))
        new_file(server)
        written = write(server, workload, changes, first=first)
        first += 2 * changes
        found = _landed(server, lake, workload, written, 1, warm=False)
        seconds = min(found.seconds)
        peaks = (f"{size / (1 << 20):,.0f} MiB" for size in (found.peak, *found.kinds.values()))
        _row(f"{written:,}", *peaks, f"{seconds:.1f}", f"{written / seconds:,.0f}")


def _idle(server: EmbeddedServer, options: argparse.Namespace) -> None:
    print(f"\n## E. An idle run, {IDLE_TABLES} tables\n")
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE idle")
        for n in range(IDLE_TABLES):
            cursor.execute(f"CREATE TABLE idle.t{n:03d} (id INT PRIMARY KEY, v VARCHAR(40), at DATETIME(6))")
    lake = Path(server.folder) / "lakes" / "idle"
    made = land(server, lake, ["idle.*"])
    found = land(server, lake, ["idle.*"], rounds=3)
    print(f"first run, {IDLE_TABLES} empty tables: {made.seconds[0]:.1f} s")
    times = ", ".join(f"{s:.2f}" for s in found.seconds)
    print(f"nothing new, Spark up: {times} s (target {IDLE_TARGET_S} s)")
    print(f"the process from its start to its end, with all three: {found.process:.1f} s")


def _lake(server: EmbeddedServer, workload: Workload, name: str = "") -> Path:
    """A lake that has the table's snapshot, and stands where the binlog ends."""
    lake = Path(server.folder) / "lakes" / f"{workload.key}{name}"
    land(server, lake, [f"{SCHEMA}.{workload.table}"])
    return lake


def _landed(
    server: EmbeddedServer, lake: Path, workload: Workload, changes: int, rounds: int, *, warm: bool = True
) -> Landed:
    found = land(server, lake, [f"{SCHEMA}.{workload.table}"], rounds=rounds, warm=warm)
    if found.events != changes:
        raise RuntimeError(f"{found.events} events landed of {changes}")
    return found


def _against(ratio: float, target: float | None, rate: float = 0) -> str:
    said = f"{ratio:.1f}x" + (f" of {rate:,.0f}" if rate else "")
    return said if target is None else f"{said} (target {target}x{'' if ratio >= target else ', missed'})"


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
