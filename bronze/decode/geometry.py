"""GEOMETRY and VECTOR, whose stored bytes are taken apart but not read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bronze.decode.arrays import Bytes, Int64s, binary, gather, validity
from lakeward.schema import GEOMETRY_ARROW


def geometry(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """Structs of SRID and WKB: MySQL stores four bytes of SRID, little-endian, then the WKB as it was given.

    Raises ValueError for a value that is shorter than its SRID.
    """
    present = absent == 0
    if (length[present] < 4).any():
        raise ValueError("a geometry of less than four bytes")
    at = np.where(present, offset, 0)
    srid = np.zeros(absent.size, np.int32)
    if present.any():
        heads = data[at[present][:, None] + np.arange(4)]
        srid[present] = heads.copy().view("<u4").astype(np.int64).ravel().astype(np.int32)
    wkb = binary(*gather(data, offset + 4, np.maximum(length - 4, 0), absent), absent)
    bitmap, nulls = validity(absent)
    srids = pa.Array.from_buffers(pa.int32(), absent.size, [bitmap, pa.py_buffer(srid)], nulls)
    return pa.Array.from_buffers(GEOMETRY_ARROW, absent.size, [bitmap], nulls, children=[srids, wkb])


def vector(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """Lists of float32, which both servers store little-endian one after the other.

    Raises ValueError for a value whose length is no multiple of four.
    """
    if (length[absent == 0] % 4).any():
        raise ValueError("a vector whose length is no multiple of four bytes")
    offsets, raw = gather(data, offset, length, absent)
    entries = pa.Array.from_buffers(pa.float32(), raw.size // 4, [None, pa.py_buffer(raw)])
    bitmap, nulls = validity(absent)
    buffers = [bitmap, pa.py_buffer((offsets // 4).astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(pa.float32()), absent.size, buffers, nulls, children=[entries])
