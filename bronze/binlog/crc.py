"""CRC32 in compiled code: by carry-less multiplication where the processor has it, by sixteen tables where not.

Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel), with its
constants of the reflected polynomial; M. Kounavis and F. Berry, "Novel Table Lookup-Based Algorithms".
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils

from bronze.memory import intrinsic, word

# Kernels are compiled for another processor than this one where Numba is told so.
_CLMUL: Final = os.environ.keys().isdisjoint(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")) and bool(
    binding.get_host_cpu_features().get("pclmul")
)
_STEP: Final = 64  # bytes folded at once, in four lanes
_BY_64: Final = (0x154442BD4, 0x1C6E41596)  # x^(512+32), x^(512-32) modulo the polynomial
_BY_16: Final = (0x1751997D0, 0x0CCAA009E)  # x^(128+32), x^(128-32)
_build: Any = cgutils  # whose functions have no types
_LANE: Any = ir.VectorType(ir.IntType(64), 2)
_WORDS: Any = types.Tuple((types.uint64, types.uint64))  # type: ignore[no-untyped-call]


def _tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((16, 256), np.uint32)
    for n in range(256):
        value = n
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, n] = value
    for k in range(1, 16):
        tables[k] = tables[k - 1] >> np.uint32(8) ^ tables[0][tables[k - 1] & np.uint32(255)]
    return tables


TABLES = _tables()


@intrinsic
def _folded(typing, data, at, steps, crc):  # type: ignore[no-untyped-def]
    """Sixteen bytes, as two words, that have the CRC32 from 0 which `steps` (1 at least) times 64 from `crc` have."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data, at, steps, crc = args
        if not _CLMUL:  # there is no such instruction, and nobody calls this
            return context.get_constant_null(signature.return_type)
        begin = builder.gep(context.make_array(signature.args[0])(context, builder, data).data, [at])
        product = ir.FunctionType(_LANE, (_LANE, _LANE, ir.IntType(8)))
        multiply = _build.get_or_insert_function(builder.module, product, "llvm.x86.pclmulqdq")

        def lane(at: Any, n: int) -> Any:
            here = builder.gep(begin, [builder.add(at, at.type(16 * n))])
            found = builder.load(builder.bitcast(here, _LANE.as_pointer()))
            found.align = 1
            return found

        def fold(value: Any, by: tuple[int, int], other: Any) -> Any:
            halves = [builder.call(multiply, (value, _LANE(by), ir.IntType(8)(which))) for which in (0x00, 0x11)]
            return builder.xor(builder.xor(*halves), other)

        first = builder.insert_element(_LANE((0, 0)), crc, ir.IntType(32)(0))
        lanes = [lane(at.type(0), n) for n in range(4)]
        lanes[0] = builder.xor(lanes[0], first)
        kept = [_build.alloca_once_value(builder, value) for value in lanes]
        with _build.for_range(builder, builder.sub(steps, steps.type(1))) as loop:
            here = builder.mul(builder.add(loop.index, steps.type(1)), steps.type(_STEP))
            for n in range(4):
                builder.store(fold(builder.load(kept[n]), _BY_64, lane(here, n)), kept[n])
        value = builder.load(kept[0])
        for n in range(1, 4):
            value = fold(value, _BY_16, builder.load(kept[n]))
        words = [builder.extract_element(value, ir.IntType(32)(n)) for n in range(2)]
        return context.make_tuple(builder, signature.return_type, words)

    return _WORDS(data, types.intp, types.intp, types.uint64), generate


@njit(cache=True, nogil=True)
def _sixteen(a, b, tables):  # type: ignore[no-untyped-def]
    """The state after sixteen bytes, of which the first four have the state before in them."""
    byte = np.uint64(255)
    return np.uint64(
        tables[15, a & byte]
        ^ tables[14, a >> np.uint64(8) & byte]
        ^ tables[13, a >> np.uint64(16) & byte]
        ^ tables[12, a >> np.uint64(24) & byte]
        ^ tables[11, a >> np.uint64(32) & byte]
        ^ tables[10, a >> np.uint64(40) & byte]
        ^ tables[9, a >> np.uint64(48) & byte]
        ^ tables[8, a >> np.uint64(56)]
        ^ tables[7, b & byte]
        ^ tables[6, b >> np.uint64(8) & byte]
        ^ tables[5, b >> np.uint64(16) & byte]
        ^ tables[4, b >> np.uint64(24) & byte]
        ^ tables[3, b >> np.uint64(32) & byte]
        ^ tables[2, b >> np.uint64(40) & byte]
        ^ tables[1, b >> np.uint64(48) & byte]
        ^ tables[0, b >> np.uint64(56)]
    )


@njit(cache=True, nogil=True)
def crc32(data, at, end, tables, multiplied=True):  # type: ignore[no-untyped-def]
    """As zlib.crc32 of `data[at:end]`. `tables` are TABLES. Raises IndexError outside of the data."""
    if at < 0 or end > data.size:
        raise IndexError("bytes outside of their array")
    crc = np.uint64(0xFFFFFFFF)
    if _CLMUL and multiplied and end - at >= _STEP:
        steps = (end - at) // _STEP
        a, b = _folded(data, at, steps, crc)
        crc = _sixteen(a, b, tables)
        at += steps * _STEP
    while at + 16 <= end:
        crc = _sixteen(word(data, at) ^ crc, word(data, at + 8), tables)
        at += 16
    while at < end:
        crc = crc >> np.uint64(8) ^ np.uint64(tables[0, (crc ^ np.uint64(data[at])) & np.uint64(255)])
        at += 1
    return np.uint32(crc ^ np.uint64(0xFFFFFFFF))
