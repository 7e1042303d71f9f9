"""Integer arithmetic on top of real arithmetic: quotients are rounded towards 0, narrow results wrap around."""

import numpy as np
from xdsl.ir import SSAValue

from tpusim.numbers.border import SMALL_INTEGERS, bits_of, is_integer, whole_limits
from tpusim.ops.activation import TopTrunc
from tpusim.ops.add import TopAdd
from tpusim.ops.framework.base import Builder
from tpusim.ops.power import TopMod
from tpusim.ops.sub import TopSub

ROUNDING = frozenset({"Div", "ReduceMean", "ReduceL2"})
"""Ops whose result on integers is rounded towards 0."""
WRAPPING = frozenset({"Add", "Sum", "Sub", "Mul", "Neg", "Abs", "MatMul", "Gemm", "ReduceSum", "ReduceL1", "Pow"})
"""Ops whose result on integers of 8 and 16 bits wraps around."""
PRODUCTS = frozenset({"Mul", "MatMul", "Gemm", "Pow", "ReduceProd"})
"""Those of WRAPPING whose results of 16-bit integers may exceed f32's exact range before they wrap around."""


def finishes(op_type: str, source: np.dtype, result: np.dtype) -> bool:
    """Whether the result must be rounded or wrapped. Raises ValueError if f32 is not exact before the wrap."""
    if not is_integer(result) or result.kind == "b":
        return False
    narrow = bits_of(result) <= 16
    if op_type == "Cast":
        if result in SMALL_INTEGERS:
            return source != result and source.kind != "b"
        return narrow and source.kind in "iu" and not np.can_cast(source, result)
    if narrow and bits_of(result) == 16 and op_type in PRODUCTS:
        raise ValueError(f"products of {result} leave the integers that f32 holds; cast the operands to float")
    return op_type in ROUNDING or (narrow and op_type in WRAPPING)


def finished(builder: Builder, x: SSAValue, op_type: str, result: np.dtype, name: str) -> SSAValue:
    """The exact result, rounded and wrapped to an integer type."""
    if op_type in ROUNDING:
        return TopTrunc.make(builder, x, name=name)

    def number(value: float, what: str) -> SSAValue:
        return builder.weight(f"{name}_{what}", np.array(value, np.float32))

    size = number(2.0 ** bits_of(result), "size")
    if whole_limits(result)[0] == 0:
        return TopMod.make(builder, x, size, name=name)
    half = number(2.0 ** (bits_of(result) - 1), "half")
    raised = TopAdd.make(builder, [x, half], name=f"{name}_raised")
    return TopSub.make(builder, [TopMod.make(builder, raised, size, name=f"{name}_mod"), half], name=name)
