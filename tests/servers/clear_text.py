"""Every value in every file under a folder, so that a test can say that some text is in none of them.

Parquet's values are decoded, Avro's deflated blocks inflated, gzip unpacked; every file is searched as it is, too.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# Of columns and rows that a test hides; PIN is a number.
MASKED, EXCLUDED, OUTSIDE, PIN = "zq-masked-7731", "zq-excluded-8842", "zq-outside-9953", 424242424
SECRETS = (MASKED, EXCLUDED, OUTSIDE, str(PIN))
KNOWN = "zq-inside-1064"  # not secret: it shows that the search finds what is there


def found_in(folder: Path, secrets: Sequence[str]) -> dict[str, set[str]]:
    """The files under `folder` that hold one of `secrets`, and which; plain, in hex, in any case."""
    needles = {s: (s.lower().encode(), s.encode().hex().encode()) for s in secrets}
    found: dict[str, set[str]] = {}
    for file in filter(Path.is_file, folder.rglob("*")):
        for text in texts(file):
            lowered = text.lower()
            hits = {s for s, forms in needles.items() if any(form in lowered for form in forms)}
            if hits:
                found.setdefault(str(file.relative_to(folder)), set()).update(hits)
    return found


def texts(file: Path) -> Iterator[bytes]:
    """The bytes of `file`, and what they say where they are packed."""
    raw = file.read_bytes()
    yield raw
    if raw[:4] == b"PAR1":
        for column in pq.read_table(pa.BufferReader(raw), partitioning=None).columns:
            for chunk in column.chunks:
                yield str(chunk.to_pylist()).encode()
    elif raw[:4] == b"Obj\x01":
        yield from _avro_blocks(raw)
    elif raw[:2] == b"\x1f\x8b":
        yield gzip.decompress(raw)


def _avro_blocks(raw: bytes) -> Iterator[bytes]:
    """The blocks of an object container: a count, a size, the data, the marker that also ends the file's header."""
    for block in raw.split(raw[-16:])[1:-1]:
        at = 0
        for _ in range(2):
            while block[at] & 0x80:
                at += 1
            at += 1
        with contextlib.suppress(zlib.error):  # of another codec: then it is in the file as it is
            yield zlib.decompressobj(-15).decompress(block[at:])
