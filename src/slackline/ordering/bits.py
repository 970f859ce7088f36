"""Bits of a whole number, inside compiled code: one instruction each, which Numba has no function for."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import config
from numba.extending import intrinsic


def _bit_count(typing_context, number):  # type: ignore[no-untyped-def]
    return types.int64(types.int64), lambda context, builder, signature, args: builder.ctpop(args[0])


def _bit_length(typing_context, number):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = builder.ctlz(args[0], context.get_constant(types.boolean, False))
        return builder.sub(zeros.type(64), zeros)

    return types.int64(types.int64), codegen


_INTERPRETED = getattr(config, "DISABLE_JIT", False)
#: How many bits of a number are set; the number must not be negative.
bit_count: Any = (lambda number: int(number).bit_count()) if _INTERPRETED else intrinsic(_bit_count)
#: How many bits a number needs that is not negative.
bit_length: Any = (lambda number: int(number).bit_length()) if _INTERPRETED else intrinsic(_bit_length)
