"""Ops without a module, of which the tests make layer groups by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.func import ReturnOp
from xdsl.dialects.test import TestOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition

from tpusim import chips
from tpusim.ir.attrs import flag, int_attr, ints_attr
from tpusim.ir.modes import pool_mode
from tpusim.ir.types import UniformType, f16, f32, shape_of, tensor
from tpusim.ops.add import TpuAdd
from tpusim.ops.conv import TpuConv2D
from tpusim.ops.framework.base import Axis, Window
from tpusim.ops.framework.families import UnaryTpu
from tpusim.ops.interfaces import LaneCopies, Margins, SharedWindows
from tpusim.ops.matmul import TpuMatMul
from tpusim.ops.pool import TpuPool2D
from tpusim.ops.softmax import TpuSoftmax
from tpusim.ops.structure import TopInput, TopWeight, make_none

X = chips.load("bm1684x")
OLD = chips.load("bm1684")
I8 = UniformType.of(0.1)


def value(shape: Sequence[int] = (1, 4, 10, 8), element: object = f32) -> SSAValue:
    """An activation made by some op outside every group."""
    return TestOp.create(result_types=[tensor(shape, element)]).results[0]  # type: ignore[arg-type]


def network_input(shape: Sequence[int] = (1, 4, 10, 8)) -> SSAValue:
    """An f32 input of the network."""
    return TopInput.create(result_types=[tensor(shape, f32)]).output


def weight(shape: Sequence[int]) -> SSAValue:
    return TopWeight.create(result_types=[tensor(shape, f32)]).output


def conv(
    x: SSAValue, k: int = 3, stride: int = 1, pad: int | None = None, *, packed: bool = True, dilation: int = 1,
    groups: int = 1,
) -> TpuConv2D:  # fmt: skip
    """A convolution of f32 with as many channels out as in."""
    pad = dilation * (k // 2) if pad is None else pad
    n, c, h, w = shape_of(x)
    reach = (k - 1) * dilation + 1
    shape = (n, c, (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1)
    attributes = {
        "kernel_shape": ints_attr((k, k)), "strides": ints_attr((stride, stride)), "pads": ints_attr((pad,) * 4),
        "dilations": ints_attr((dilation, dilation)), "filter_packed": flag(packed), "filter_packing": int_attr(1),
        "group": int_attr(groups),
    }  # fmt: skip
    operands = [x, weight((1, c, 1, c // groups * k * k)), make_none().output]
    return TpuConv2D.create(operands=operands, result_types=[tensor(shape, f32)], attributes=attributes)


def pool(x: SSAValue, k: int, stride: int, pad: int = 0) -> TpuPool2D:
    n, c, h, w = shape_of(x)
    shape = (n, c, (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
    attributes = {
        "pool_mode": pool_mode("Max"), "kernel_shape": ints_attr((k, k)), "strides": ints_attr((stride, stride)),
        "pads": ints_attr((pad,) * 4),
    }  # fmt: skip
    return TpuPool2D.create(operands=[x], result_types=[tensor(shape, f32)], attributes=attributes)


def add(*values: SSAValue) -> TpuAdd:
    shape = np.broadcast_shapes(*(shape_of(v) for v in values))
    return TpuAdd.create(operands=list(values), result_types=[tensor(shape, f32)])


Rule = Callable[[Window], Window | None]


@irdl_op_definition
class Odd(UnaryTpu, SharedWindows, LaneCopies):
    """An element-wise op with any backward rule the test gives it."""

    name = "test.odd"
    MARGINS: ClassVar[Margins] = "read"
    RULES: ClassVar[dict[Operation, tuple[Rule, bool]]] = {}

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        del axis, operand
        return self.RULES[self][0](window)

    def accepts_margins(self) -> bool:
        return self.RULES[self][1]

    def copies_over_lanes(self) -> bool:
        return False

    def copied_by_load(self) -> bool:
        return False


def odd(x: SSAValue, rule: Rule = lambda window: window, *, margins: bool = False) -> Odd:
    op = Odd.create(operands=[x], result_types=[x.type])
    Odd.RULES[op] = rule, margins
    return op


def outside(*values: SSAValue) -> ReturnOp:
    """A user outside every group; keep a reference to it."""
    return ReturnOp(*values)


BIG = chips.load("bm1690")


def matmul(left: SSAValue, right: SSAValue, *, transposes: tuple[bool, bool] = (False, False)) -> TpuMatMul:
    """A product of two f16 tensors of one rank, or of rows by one matrix."""
    rows, columns = shape_of(left)[:-1], shape_of(right)[-2 if transposes[1] else -1]
    attributes = {"left_transpose": flag(transposes[0]), "right_transpose": flag(transposes[1])}
    operands = [left, right, make_none().output]
    return TpuMatMul.create(operands=operands, result_types=[tensor((*rows, columns), f16)], attributes=attributes)


def softmax(x: SSAValue, axis: int) -> TpuSoftmax:
    operands = [x, make_none().output]
    return TpuSoftmax.create(operands=operands, result_types=[x.type], attributes={"axis": int_attr(axis)})
