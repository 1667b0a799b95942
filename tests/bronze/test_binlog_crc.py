"""The compiled CRC32 is zlib's, by both of its ways."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from bronze.binlog.crc import _CLMUL, TABLES, crc32


@pytest.mark.parametrize(
    "multiplied", [False, pytest.param(True, marks=pytest.mark.skipif(not _CLMUL, reason="no PCLMULQDQ here"))]
)
def test_it_is_that_of_zlib_for_every_length_and_place(multiplied: bool) -> None:
    data = np.frombuffer(random.Random(7).randbytes(9000), np.uint8)
    raw = data.tobytes()
    places = [(at, at + n) for n in range(300) for at in (0, n % 17)] + [(3, 9000), (0, 8192), (1, 8321)]
    for at, end in places:
        assert crc32(data, at, end, TABLES, multiplied) == zlib.crc32(raw[at:end]), (at, end)


def test_a_single_wrong_bit_is_seen_wherever_it_stands() -> None:
    data = np.frombuffer(random.Random(8).randbytes(200), np.uint8).copy()
    right = crc32(data, 0, 200, TABLES)
    for bit in range(1600):
        data[bit // 8] ^= 1 << bit % 8
        assert crc32(data, 0, 200, TABLES) != right, bit
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(("at", "end"), [(-1, 100), (0, 201), (100, 300)])
def test_it_reads_nothing_outside_of_the_data(at: int, end: int) -> None:
    with pytest.raises(IndexError):
        crc32(np.zeros(200, np.uint8), at, end, TABLES)
