"""Product of n tensors: `top.Mul` and `tpu.Mul` (numerics.md 5.6, 9.0, 9.3, 9.5)."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.prim.multiplier import best_fit
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import int_attr, value_name
from tpusim.ir.modes import RequantModeAttr
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import DType, View
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    EmitContext,
    FloatRule,
    LoweringContext,
    OpT,
    RangeRule,
    TensorSlice,
)
from tpusim.ops.framework.families import (
    ArithmeticTop,
    NaryTpu,
    Requanted,
    built_in_integers,
    constant_operand,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.framework.logical import EVERY_TYPE, GroupType
from tpusim.ops.interfaces import Overwrites

Fit = Callable[[float], tuple[int, int] | None]
"""Scale -> (multiplier, right shift); None: no multiplier fits."""


@irdl_op_definition
class TpuMul(Requanted, NaryTpu, Overwrites):
    """`tpu.Mul`: integers sat(RSR(relu(prod (q_i - z_i))*m, r) + z), or f32. quant_mode QDM: see numerics.md 5.2."""

    name = "tpu.Mul"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"),)
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    quant_mode = opt_attr_def(RequantModeAttr)

    @property
    def qdm(self) -> bool:
        """Whether the requant is that of numerics.md 5.2 (`quant_mode` QDM)."""
        return self.quant_mode is not None and self.quant_mode.data == "QDM"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The exact product, relu, one requant."""
        if self.scaling is None:
            return (limited(kernels.mul_float(tuple(operands), do_relu=relu_of(self)), self),)
        zeros = tuple(zero_point(v) for v in self.inputs)
        y = kernels.mul_int(
            tuple(operands), *self.scaling, zeros, zero_point(self.output),
            do_relu=relu_of(self), out_dtype=value_dtype(self.output),
            requant="qdm" if self.qdm else "multiply_shift",
        )  # fmt: skip
        return (y,)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """Integers are multiplied in the work area. A chain of floats reads two operands before it writes."""
        return self.scaling is not None or operand < 2

    # ---------------------------------------------------------------------------------------------------- work buffers

    @property
    def work_type(self) -> DType:
        """The type of the partial products."""
        found = partial_type([byte_range(value_dtype(v), zero_point(v)) for v in self.inputs])
        assert found is not None  # lowering refuses others
        return found

    def _centred(self) -> list[int]:
        """The operands whose zero point is subtracted first."""
        return [i for i, v in enumerate(self.inputs) if zero_point(v)]

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: 2*out, and 2*out more to requantise (layer_group.md 9.3); more for operands with zero points."""
        if self.scaling is None:
            return 0
        word = lmem_bytes(output.shape, "i16", chip)
        used = lmem_bytes(output.shape, self.work_type, chip) + len(self._centred()) * word
        return max(used, word if self.scaling == (1, 0) else 2 * word)

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """f32: AR products. Integers: AR products in the work area, then RQ; as a global layer FN mul_int."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.scaling is None:
            self.emit_chain(ctx, "mul", views, ctx.output(), relu_limit_of(self))
            return
        mode = "qdm" if self.qdm else "shift"
        requant = isa.Requant(*self.scaling, zero_point(self.output), mode=mode)
        if not ctx.local:
            self._emit_global(ctx, views, requant)
            return
        shape = ctx.output_slice().shape
        total = activation_view(ctx.buffer(), shape, self.work_type, ctx.chip)
        free = ctx.buffer() + lmem_bytes(shape, self.work_type, ctx.chip)
        for i in self._centred():
            centred = activation_view(free, views[i].shape, "i16", ctx.chip)  # type: ignore[arg-type]
            zero = zero_point(self.inputs[i])
            ctx.emit(isa.Rescale, input=views[i], output=centred, requant=isa.Requant(), input_zero=zero)
            views[i] = centred
            free += lmem_bytes(shape, "i16", ctx.chip)
        self.emit_chain(ctx, "mul", views, total, -1.0)
        ctx.emit(isa.Rescale, input=total, output=ctx.output(), requant=requant)

    def _emit_global(self, ctx: EmitContext, views: list[View], requant: isa.Requant) -> None:
        function = functions.MulInt(
            operand_zero_points=tuple(zero_point(v) for v in self.inputs),
            multiplier=requant.multiplier,
            rshift=requant.rshift,
            zero_point=requant.zero_point,
            relu=relu_of(self),
            qdm=self.qdm,
        )
        ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=ctx.output())


@irdl_op_definition
class TopMul(ArithmeticTop):
    """`top.Mul`: product of two or more tensors, numpy broadcasting, optional relu."""

    name = "top.Mul"
    SPEC: ClassVar[tuple[str, ...]] = ("9.5", "9.3", "5.6")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(product=True)
    ALIGNED_FROM: ClassVar[int | None] = 0
    TPU: ClassVar[OpT] = TpuMul
    fixed_threshold = opt_attr_def(FloatAttr)
    """The threshold that replaces the calibrated one (softmax correction)."""

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The product from left to right in f32, then relu."""
        return (limited(kernels.mul_float(tuple(operands), do_relu=relu_of(self)), self),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Mul with the best fit of an 8-bit multiplier and shift, or why that is not possible."""
        return self.with_multiplier(ctx, byte_fit)

    def with_multiplier(
        self, ctx: LoweringContext, fit: Fit, *, signed: bool = False, more: Mapping[str, Attribute] | None = None
    ) -> SSAValue | str:
        """tpu.Mul with the `fit` of the product's scale over the output's, or why that is not possible.

        signed: constants are int8 even without negative values. more: further attributes.
        """
        out = ctx.quant(self.output)
        if out is None:
            return "the output is not calibrated"
        scale, ranges = 1.0, list[Interval]()
        constants: list[np.ndarray | None] = []
        for value in self.inputs:
            constant, quant = ctx.array(value), ctx.quant(value)
            if constant is not None:
                stored, factor = constant_operand(constant, signed=signed)
                constants.append(stored)
                ranges.append(byte_range(stored.dtype.name, 0))
            elif quant is not None:
                constants.append(None)
                factor = quant.scale
                ranges.append(byte_range(quant.dtype, quant.zero_point))
            else:
                return f"operand '{value_name(value)}' is not calibrated"
            scale *= factor
        if partial_type(ranges) is None:
            return f"the product of {len(ranges)} operands leaves 32 bits"
        scaled = fit(scale / out.scale)
        if scaled is None:
            return f"the scale {scale / out.scale:.6g} would need a multiplier outside 0..127"
        operands = [
            ctx.operand(v, "int8", self) if c is None else ctx.weight(value_name(v) + "_int8", c)
            for v, c in zip(self.inputs, constants, strict=True)
        ]
        attributes: dict[str, Attribute] = {
            **relu_attributes(relu_of(self)), "multiplier": int_attr(scaled[0]), "rshift": int_attr(scaled[1])
        }  # fmt: skip
        attributes |= more or {}
        return built_in_integers(self, ctx, TpuMul, operands, attributes)


def byte_fit(scale: float) -> tuple[int, int] | None:
    """The best fit of a scale by an 8-bit multiplier and a shift (numerics.md 5.6); None if no multiplier fits."""
    try:
        return best_fit(scale, 8)
    except ValueError:
        return None


Interval = tuple[int, int]


def byte_range(dtype: str, zero: int) -> Interval:
    """(smallest, largest) q - zero of a byte q."""
    info = np.iinfo(dtype)
    return int(info.min) - zero, int(info.max) - zero


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def partial_type(ranges: Sequence[Interval]) -> DType | None:
    """The narrowest type that holds every partial product of operands in `ranges`; None if int32 does not."""
    total, reach = ranges[0], list[Interval]()
    for one in ranges[1:]:
        total = _product(total, one)
        reach.append(total)
    low, high = min(r[0] for r in reach), max(r[1] for r in reach)
    limits: dict[DType, Interval] = {"i16": (-(2**15), 2**15 - 1), "u16": (0, 2**16 - 1), "i32": (-(2**31), 2**31 - 1)}
    return next((dtype for dtype, (least, most) in limits.items() if least <= low and high <= most), None)
