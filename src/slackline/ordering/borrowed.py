"""Arrays that compiled loops borrow from their caller.

Numba counts the references to an array with two atomic operations for each variable that holds it; functions that are
inlined into a loop add such variables. In our loops that took more time than the work. A borrowed array has no owner
and nothing is counted: its caller must hold the array until the compiled function returns.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, config
from numba.extending import intrinsic


def _borrowed(typing_context, array):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.return_type)(context, builder, value=args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), codegen


def _itself(array: Any) -> Any:
    return array


#: The array without its owner, inside compiled code.
borrowed: Any = _itself if getattr(config, "DISABLE_JIT", False) else intrinsic(_borrowed)
