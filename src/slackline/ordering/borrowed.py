"""Arrays that compiled loops borrow from their caller.

Numba counts the references to an array with two atomic operations for each variable that holds it; functions that are
inlined into a loop add such variables. In our loops that took more time than the work. A borrowed array has no owner
and nothing is counted: its caller must hold the array until the compiled function returns.

Passing an array to compiled code costs several times as much as passing a number. So what is called for each event
takes the addresses of arrays that the caller holds, and makes arrays of them by ``carray(pointer(address), …)``.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from slackline.core.batch import Column


def _borrowed(typing_context, array):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.return_type)(context, builder, value=args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), codegen


def _itself(array: Any) -> Any:
    return array


def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


def _plain_pointer(address: Any) -> Any:
    return ctypes.c_void_p(int(address))


_INTERPRETED = getattr(config, "DISABLE_JIT", False)
#: The array without its owner, inside compiled code.
borrowed: Any = _itself if _INTERPRETED else intrinsic(_borrowed)
#: An address as a pointer, inside compiled code.
pointer: Any = _plain_pointer if _INTERPRETED else intrinsic(_pointer)


def address_of(array: Column) -> int:
    """The address of an array's data; the array must be held while it is used."""
    address: int = array.__array_interface__["data"][0]
    return address
