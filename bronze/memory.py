"""What kernels need of memory and NumPy's indices are slow at: eight bytes as one number, short runs of bytes copied.

Both look at the array's bounds themselves, whatever NUMBA_BOUNDSCHECK says.

And arrays without an owner: Numba counts references to each array that a function is given or a slice is of, with
locked instructions, which took half the time of kernels that call others for each value.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # whose own type says that the kernels hand the first argument in


@intrinsic
def _word(typing, data, at):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        begin = context.make_array(signature.args[0])(context, builder, args[0]).data
        word = builder.load(builder.bitcast(builder.gep(begin, [args[1]]), ir.IntType(64).as_pointer()))
        word.align = 1
        return builder.bswap(word) if sys.byteorder == "big" else word

    return types.uint64(data, types.intp), generate


@intrinsic
def _memcpy(typing, data, start, size, out, at):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        source, start, size, target, at = args
        source = context.make_array(signature.args[0])(context, builder, source).data
        target = context.make_array(signature.args[3])(context, builder, target).data
        begin, to = builder.gep(source, [start]), builder.gep(target, [at])
        cgutils.raw_memcpy(builder, to, begin, size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(data, types.intp, types.intp, out, types.intp), generate


@intrinsic
def borrowed(typing, array):  # type: ignore[no-untyped-def]
    """The same array, whose references are not counted: a kernel's own argument, which its caller keeps alive."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        made = context.make_array(signature.args[0])(context, builder, args[0])
        made.meminfo = ir.Constant(made.meminfo.type, None)
        made.parent = ir.Constant(made.parent.type, None)
        return made._getvalue()

    return array(array), generate


@intrinsic
def swapped(typing, word):  # type: ignore[no-untyped-def]
    """A uint64 with its eight bytes the other way round."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bswap(args[0])

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def word(data, at):  # type: ignore[no-untyped-def]
    """`data[at : at + 8]`, bytes, as a little-endian uint64. Raises IndexError outside of them."""
    if at < 0 or at + 8 > data.size:
        raise IndexError("bytes outside of their array")
    return _word(data, at)


@njit(cache=True, nogil=True)
def move(data, start, size, out, at):  # type: ignore[no-untyped-def]
    """`out[at : at + size] = data[start : start + size]` of two arrays of bytes. Raises IndexError outside of them."""
    if size < 0 or start < 0 or at < 0 or start + size > data.size or at + size > out.size:
        raise IndexError("bytes outside of their array")
    _memcpy(data, start, size, out, at)
