"""`tpu.Scale`: per-channel multiply-add, 8 x 8 + 16 bits or float (numerics.md 9.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.prim.multiplier import multiplier_of_shift, right_shift_fit
from tpusim_kernels.prim.scale import narrow_product, round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, NoneType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.reading import reshape_channels
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import lmem_bytes
from tpusim.isa.multiplications import of_channel_scale
from tpusim.ops.framework.base import (
    Array,
    Axis,
    EmitContext,
    QuantParams,
    Shape,
    TensorSlice,
    Window,
    is_none,
)
from tpusim.ops.framework.families import ElementwiseTpu, emit_limit, is_set, limited, relu_of, value_dtype, zero_point
from tpusim.ops.framework.views import on_four_axes
from tpusim.ops.interfaces import Macs, Overwrites, SharedWindows


@irdl_op_definition
class TpuScale(ElementwiseTpu, Macs, Overwrites, SharedWindows):
    """`tpu.Scale`: y = x*scale[c] + bias[c], channels on axis 1; scale, bias and rshift are (1, C, 1, 1).

    Integers: sat(relu(RSR(q*scale + bias, rshift, DOWN) + z)) with scale int8, bias int16, which contains the rounding
    constant, and rshift int32. `clamp16`: the sum is clamped to 16 bits before the shift. Floats have no rshift.
    """

    name = "tpu.Scale"
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2, 3)

    input = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    rshift = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    clamp16 = opt_attr_def(BoolAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR may leave the axes of the image out of the shapes of constants."""
        for value in (self.scale, self.bias, self.rshift):
            if not is_none(value):
                channels = shape_of(self.input)[1]
                reshape_channels(value, channels, (1, channels, 1, 1))
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError for constants that are not (1, C, 1, 1)."""
        x = shape_of(self.input)
        for value in (self.scale, self.bias, *(() if is_none(self.rshift) else (self.rshift,))):
            if len(x) < 2 or shape_of(value) != (1, x[1], 1, 1):
                raise ValueError(f"constants of shape (1, C, 1, 1) are required for input {x}, got {shape_of(value)}")
        return (x,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 as top.Scale."""
        x, scale, bias, rshift = operands
        scale, bias = scale.reshape(-1), bias.reshape(-1)
        if uniform_of(self.output) is None:
            return (limited(kernels.scale_float(x, scale, bias, do_relu=relu_of(self)), self),)
        shifts = (
            -rshift.astype("int32") if rshift.dtype.itemsize == 1 else rshift
        )  # TPU-MLIR states left shifts in bytes
        y = kernels.scale_int(
            x, scale, bias, shifts.reshape(-1), zero_point(self.output),
            do_relu=relu_of(self), out_dtype=value_dtype(self.output), clamp16=is_set(self.clamp16),
        )  # fmt: skip
        return (y,)

    @override
    def macs(self) -> int:
        return of_channel_scale(prod(shape_of(self.output)))

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of the input is that of the output; constants have channels only."""
        return window if operand == 0 or axis == "c" else (0, 1)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """In f32, the input (layer_group.md 10.1, rule 6)."""
        return operand == 0 and storage_dtype(element_of(self.output)).itemsize == 4

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: two 16-bit copies of the result (layer_group.md 9.3)."""
        del inputs
        return 0 if uniform_of(self.output) is None else 2 * lmem_bytes(output.shape, "i16", chip)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One AR mac per channel; a float relu limit is another command."""
        x, out = on_four_axes(ctx.input(0)), on_four_axes(ctx.output())
        integer = uniform_of(self.output) is not None
        ctx.emit(
            isa.ChannelScale, input=x, output=out, scale=ctx.input(1), bias=ctx.input(2),
            rshift=ctx.input(3) if integer else None, zero_point=zero_point(self.output), clamp16=is_set(self.clamp16),
            relu=relu_of(self),
        )  # fmt: skip
        if not integer:
            emit_limit(ctx, self)


# ----------------------------------------------------------------------------------------------- constants of the chip


@dataclass(frozen=True)
class IntegerScale:
    """Constants of the integer form, each (C,): scale int8, bias int16, rshift int32."""

    scale: np.ndarray
    bias: np.ndarray
    rshift: np.ndarray


def integer_scale(
    scale: np.ndarray, bias: np.ndarray, x: QuantParams, y: QuantParams, *, left_shifts: bool = True
) -> IntegerScale | None:
    """The constants of every channel (numerics.md 9.4); None if a bias leaves 16 bits at every shift.

    A coefficient above 127 output steps has a negative right shift. Without `left_shifts` that shift is 0, because
    TPU-MLIR's form is undefined for such a shift.
    """
    lowest = -32 if left_shifts else 0
    fits = [_channel(float(s), float(b), x, y, lowest) for s, b in zip(scale, bias, strict=True)]
    channels = [c for c in fits if c is not None]
    if len(channels) < len(fits):
        return None
    m, b, r = (np.array(column) for column in zip(*channels, strict=True))
    return IntegerScale(m.astype(np.int8), b.astype(np.int16), r.astype(np.int32))


def _channel(scale: float, bias: float, x: QuantParams, y: QuantParams, lowest: int) -> tuple[int, int, int] | None:
    """(m, B, r) of one channel, with the largest r for which B and B - m*z_in fit 16 bits; None if there is none."""
    _, r = right_shift_fit(scale, x.scale, y.scale)
    r = max(r, lowest)
    while True:
        m = multiplier_of_shift(scale, r, x.scale, y.scale)
        wide = int(round_half_away(narrow_product(bias, 2.0**r / y.scale)))
        stored = int(saturate_np(wide, "int16"))
        shifted = stored - m * x.zero_point
        if stored == wide and abs(shifted) <= (32768 if x.zero_point == 0 else 32767):
            return m, _with_rounding(shifted, r), r
        if r <= 0:
            return (m, stored, r) if x.zero_point == 0 else None
        r -= 1


def _with_rounding(bias: int, r: int) -> int:
    """The bias plus half a unit of the shift; if that overflows 16 bits, the bias alone."""
    if r <= 0:
        return bias
    wrapped = ((bias + (1 << (r - 1)) + 0x8000) & 0xFFFF) - 0x8000
    return max(wrapped, bias)
