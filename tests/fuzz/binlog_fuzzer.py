"""Feeds damaged binlog events to the reader and the decoder: a program of its own, so that a crash is survived.

    PYTHONPATH=.:tests python tests/fuzz/binlog_fuzzer.py CORPUS --cases 1000000 --seed 1

A case must be read whole or refused with a LakewardError. Anything else is a fault: another exception, a crash, more
than CASE_S seconds or MEMORY bytes, images whose bytes are not all accounted for, arrays that are not sound, or that
the reader of whole blocks gives something else than the one of single events. Each case follows from the corpus, the
seed and its number alone; the events of a case that fails are left beside the corpus.

With NUMBA_BOUNDSCHECK=1 the kernels check each index; what they find then is an IndexError, which is a fault too,
though the decoder takes it for damage.
"""

from __future__ import annotations

import argparse
import faulthandler
import pickle
import random
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.damage import Case, as_sent

from bronze.binlog.blocks import Block
from bronze.binlog.bulk import RowsBatch, read_blocks
from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Boundary, Presence, RowsEvent, Statement
from bronze.binlog.statements import effects
from bronze.binlog.transactions import read
from bronze.decode.rows import DecodedRows, decode_rows
from lakeward.errors import LakewardError

CASE_S = 20
MEMORY = 2 << 30
_OPS = {"c": (False, True), "u": (True, True), "d": (True, False)}


class _Seen:
    """What a reader gave."""

    def __init__(self) -> None:
        self.rows: list[RowsEvent] = []
        self.said: list[tuple[object, ...]] = []
        self.error: LakewardError | None = None

    def take(self, item: RowsEvent | Statement | Boundary) -> None:
        if isinstance(item, Boundary):
            return
        t = item.transaction
        where = (item.file, item.pos, t.id, t.gtid, t.ts_ms)
        if isinstance(item, RowsEvent):
            self.rows.append(item)
            self.said.append((*where, item.table_map.name, item.op, bytes(item.images), item.presence, item.in_payload))
        else:
            self.said.append((*where, item.schema, item.sql, item.end_pos))
            effects(item.sql, item.schema)


def _single(events: Sequence[bytes]) -> Iterator[RowsEvent | Statement | Boundary]:
    yield from read(events, file=1, wants=lambda table: True, gtid_set="")


def _blocks(events: Sequence[bytes]) -> Iterator[RowsEvent | Statement | Boundary]:
    half = len(events) // 2
    blocks = [Block.of(list(part)) for part in (events[:half], events[half:]) if part]
    for item in read_blocks(blocks, file=1, wants=lambda table: True, gtid_set=""):
        if isinstance(item, RowsBatch):
            yield from item.events()
        else:
            yield item


@dataclass
class Tally:
    """How far the cases came."""

    refused: int = 0  # by the reader
    undecoded: int = 0  # refused by the decoder
    whole: int = 0
    rows: int = 0


def run(events: Sequence[bytes], tally: Tally) -> None:
    """Read and decode as the stage does. Raises LakewardError, or AssertionError for a fault."""
    groups: dict[int, list[RowsEvent]] = {}
    tally.refused += 1
    one, two = _Seen(), _Seen()
    for seen, reader in ((one, _single), (two, _blocks)):
        try:
            for item in reader(events):
                seen.take(item)
        except LakewardError as error:
            seen.error = error
    # The schema of a BEGIN means nothing, and blocks are read without decoding it.
    if one.error is None or not isinstance(one.error.__cause__, UnicodeDecodeError):
        assert one.said == two.said, "the two readers give different items"
        assert str(one.error) == str(two.error), "the two readers end differently"
    for event in one.rows:
        groups.setdefault(id(event.table_map), []).append(event)
    if one.error is not None:
        raise one.error
    tally.refused -= 1
    tally.undecoded += 1
    for group in groups.values():
        columns = [_registered(c) for c in group[0].table_map.columns]
        done = decode_rows(columns, [(e.op, e.images) for e in group], [e.presence for e in group])
        _check(columns, group, done)
        tally.rows += len(done.after)
    tally.undecoded -= 1
    tally.whole += 1


def _registered(wire: WireColumn) -> WireColumn:
    """Some columns as MariaDB's own types, which only the catalog knows."""
    kind = {16: "uuid", 4: "inet4"}.get(wire.meta, "") if wire.type_code == 254 and wire.collation_id == 63 else ""
    return replace(wire, column=replace(wire.column, kind=kind)) if kind else wire


def _check(columns: Sequence[WireColumn], events: Sequence[RowsEvent], done: DecodedRows) -> None:
    done.before.validate(full=True)
    done.after.validate(full=True)
    for event, found in zip(events, done.counts.tolist(), strict=True):
        assert found == _count(columns, event), f"{found} rows of an event that has others, or bytes left over"


def _count(columns: Sequence[WireColumn], event: RowsEvent) -> int:
    """The rows that the images have, byte by byte: written after the manual, not after the decoder."""
    data, at, rows = bytes(event.images), 0, 0
    every = tuple(range(len(columns)))
    presence = event.presence or Presence(every, every)
    documents = sum(c.type_code == 245 for c in columns)
    while at < len(data):
        for side, there in zip((presence.before, presence.after), _OPS[event.op], strict=True):
            if not there:
                continue
            if presence.diffs and side is presence.after:
                at += 1 + ((documents + 7) // 8 if data[at] else 0)
            nulls, at = data[at : at + (len(side) + 7) // 8], at + (len(side) + 7) // 8
            for k, c in enumerate(side):
                if not nulls[k // 8] >> k % 8 & 1:
                    at += _size(columns[c], data, at)
        rows += 1
    assert at == len(data), "images that end elsewhere than their event"
    return rows


def _size(wire: WireColumn, data: bytes, at: int) -> int:
    code, meta = wire.type_code, wire.meta
    fixed = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8, 4: 4, 5: 8, 13: 1, 10: 3, 14: 3, 7: 4, 12: 8, 11: 3, 247: meta, 248: meta}
    if code in fixed:
        return fixed[code]
    if code == 16:
        return (meta + 7) // 8
    if code in (17, 18, 19):
        return {17: 4, 18: 5, 19: 3}[code] + (meta + 1) // 2
    if code == 246:
        whole, scale = (meta >> 8) - (meta & 255), meta & 255
        return sum(n // 9 * 4 + (0, 1, 1, 2, 2, 3, 3, 4, 4)[n % 9] for n in (whole, scale))
    width = meta if code in (242, 245, 249, 250, 251, 252, 255) else 2 if meta > 255 else 1
    return width + int.from_bytes(data[at : at + width], "little")


def faulty(events: Sequence[bytes], tally: Tally) -> str:
    """What is wrong with how these events are taken, "" for nothing."""
    try:
        run(events, tally)
    except LakewardError as error:
        seen: BaseException | None = error
        while seen is not None:
            # Numba and NumPy say so; a memoryview, which is checked always, does not.
            if type(seen) is IndexError and "is out of bounds" in str(seen):
                return f"a kernel read outside its arrays: {seen!r}"
            seen = seen.__cause__
    except Exception:  # noqa: BLE001 (any is a fault, and the next case is to be tried)
        return traceback.format_exc(limit=-6)
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args(arguments)
    logs: list[list[bytes]] = pickle.loads(options.corpus.read_bytes())
    for log in logs:  # whole events must be taken; this also compiles what is to be measured
        run(as_sent(log, [raw[:-4] for raw in log if raw[4] not in (4, 15, 27)]), Tally())
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    began, faults, n, tally = time.monotonic(), 0, options.first, Tally()
    while n < options.first + options.cases and time.monotonic() - began < options.seconds:
        case = Case(random.Random(f"{options.seed}:{n}"), logs)
        case.damage()
        events = case.sealed()
        faulthandler.dump_traceback_later(CASE_S, exit=True)
        if what := faulty(events, tally):
            faults += 1
            left = options.corpus.with_name(f"fault-{options.seed}-{n}.pickle")
            left.write_bytes(pickle.dumps(events))
            print(f"case {n} of seed {options.seed} ({left}): {what}", flush=True)
        faulthandler.cancel_dump_traceback_later()
        n += 1
        if faults >= 20:
            break
    seconds = time.monotonic() - began
    print(f"{n - options.first} cases of seed {options.seed} in {seconds:.0f} s, {faults} faults; {tally}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
