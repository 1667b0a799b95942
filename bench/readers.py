"""Readers of a binlog, each in a process of its own on one core: `python -m bench.readers <reader> <request as JSON>`.

A reader answers with one JSON document: the row changes it saw, and the seconds of its best repetition. Seconds are of
its own processor time, user and system: what one core takes where it has the core for itself, and nearly the same
where it has not. What a process does once (imports, compiled code from the cache) is left out of Lakeward's and
mysql-replication's. Both read from the server through the same kind of connection: as it is by default with
mysql-replication, without TLS.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads import SCHEMA
from bronze.allocation import give_back_freed_memory, keep_freed_memory
from bronze.binlog.blocks import Block
from bronze.binlog.bulk import RowsBatch, read_blocks
from bronze.binlog.files import file_blocks
from bronze.binlog.items import RowsEvent
from bronze.binlog.tablemap import TableMap
from bronze.binlog.wire import Dump
from bronze.decode.rows import decode_rows
from bronze.decode.walk import Images

_PENDING_BYTES = 24 << 20  # as the stream decodes

Request = Mapping[str, Any]  # path, file, number, settings, changes, repeat


def ask(reader: str, request: Request, core: int) -> tuple[int, float]:
    """(changes, seconds) of `reader`, pinned to `core`."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", "bench.readers", reader, json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{reader} failed: {done.stderr[-800:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["changes"], answer["seconds"]


def program(command: list[str], core: int) -> float:
    """Seconds of a program whose output nobody reads, pinned to `core`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.devnull, "wb") as nowhere:
        subprocess.run(["taskset", "-c", str(core), *command], stdout=nowhere, stderr=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def lakeward_file(request: Request) -> int:
    """Lakeward, from the file."""
    return _decoded(file_blocks(Path(request["path"])), request["number"])


def lakeward_dump(request: Request) -> int:
    """Lakeward, from the server, up to the end of the file."""
    dump = Dump(
        request["settings"],
        server_id=4720,
        file=request["file"],
        pos=4,
        flavour="mysql",
        blocking=False,
        heartbeat_s=10,
    )
    try:
        return _decoded(dump.blocks(), request["number"])
    finally:
        dump.close()


def mysql_replication(request: Request) -> int:
    """mysql-replication, from the server, until it has given out as many changes as were written."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    s = request["settings"]
    stream = BinLogStreamReader(
        {"host": s["host"], "port": s["port"], "user": s["user"], "passwd": s["password"]},
        server_id=4721,
        resume_stream=True,
        log_file=request["file"],
        log_pos=4,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[SCHEMA],
    )
    seen = 0
    try:
        for event in stream:
            for _ in event.rows:
                seen += 1
            if seen >= request["changes"]:
                break
    finally:
        stream.close()
    return seen


def _decoded(blocks: Iterator[Block], number: int) -> int:
    """Rows decoded to Arrow, a few megabytes at a time and by table, as `bronze.stream` does."""
    rows = 0
    keep_freed_memory()
    batches: list[RowsBatch] = []
    events: list[RowsEvent] = []
    size = 0
    for item in read_blocks(blocks, file=number, wants=lambda table: table.schema == SCHEMA, gtid_set=""):
        if isinstance(item, RowsBatch):
            batches.append(item)
            size += item.data.size
        elif isinstance(item, RowsEvent):
            events.append(item)
            size += len(item.images)
        if size >= _PENDING_BYTES:
            rows += _rows(batches, events)
            batches, events, size = [], [], 0
    rows += _rows(batches, events)
    del batches, events
    give_back_freed_memory()
    return rows


def _rows(batches: list[RowsBatch], events: list[RowsEvent]) -> int:
    parts: dict[int, tuple[TableMap, list[Any]]] = {}
    for batch in batches:
        for place in np.unique(batch.table).tolist():
            table_map = batch.maps[place]
            assert table_map is not None
            of = batch.table == place
            part = (batch.data, batch.start[of], batch.end[of], batch.op[of])
            parts.setdefault(id(table_map), (table_map, []))[1].append(part)
    single: dict[int, tuple[TableMap, list[Any]]] = {}
    for event in events:
        single.setdefault(id(event.table_map), (event.table_map, []))[1].append((event.op, event.images))
    decoded = [decode_rows(table_map.columns, Images.gathered(found)) for table_map, found in parts.values()]
    decoded += [decode_rows(table_map.columns, found) for table_map, found in single.values()]
    return sum(int(rows.counts.sum()) for rows in decoded)


READERS: dict[str, Callable[[Request], int]] = {
    "lakeward-file": lakeward_file,
    "lakeward-dump": lakeward_dump,
    "mysql-replication": mysql_replication,
}


def main() -> None:
    reader, request = READERS[sys.argv[1]], json.loads(sys.argv[2])
    if request["warm"]:
        reader({**request, **request["warm"]})
    best = float("inf")
    for _ in range(request["repeat"]):
        began = time.process_time()
        changes = reader(request)
        best = min(best, time.process_time() - began)
    print(json.dumps({"changes": changes, "seconds": best}))


if __name__ == "__main__":
    main()
