"""Difference and quotient: `top.Sub`, `tpu.Sub`, `top.Div` and `tpu.Div` (numerics.md 9.0, 9.3, 12)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.cv18xx import sum_int
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from xdsl.dialects.builtin import ArrayAttr, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, float_attr, ints, ints_attr, op_name, set_op_name, value_name
from tpusim.ir.types import element_of, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import View, itemsize
from tpusim.ops.activation.top import TopReciprocal
from tpusim.ops.add import Fit, emit_weighted_sum
from tpusim.ops.framework.base import (
    Array,
    EmitContext,
    FloatRule,
    LoweringContext,
    OpT,
    RangeRule,
    TensorSlice,
    TopOp,
)
from tpusim.ops.framework.families import (
    ArithmeticTop,
    NaryTop,
    NaryTpu,
    command_dtype,
    constant_of,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
)
from tpusim.ops.framework.logical import EVERY_TYPE, WITH_SMALL_C, GroupType
from tpusim.ops.interfaces import Overwrites
from tpusim.ops.mul import TopMul
from tpusim.ops.rescale import positive_fit
from tpusim.ops.structure import make_weight


def built_in_float(
    op: NaryTop, ctx: LoweringContext, cls: OpT, more: Mapping[str, Attribute] | None = None
) -> SSAValue:
    """The float form: every operand in the op's float type, relu and its limit, and `more` attributes."""
    operands = [ctx.operand(v, ctx.float_mode(op), op) for v in op.inputs]
    attributes = {**relu_attributes(relu_of(op), relu_limit_of(op)), **(more or {})}
    return ctx.build(cls, operands, attributes, ctx.float_type(op), shape_of(op.output), op_name(op))


def stored_constant(constant: np.ndarray, scale: float, zero_point: int = 0) -> np.ndarray:
    """round-half-away(c/s) + z in one byte, signed if a value is negative (numerics.md 9.3)."""
    signed = bool((constant < 0).any())
    return saturate_np(round_half_away(constant.astype(np.float64) / scale) + zero_point, "int8" if signed else "uint8")


StoredFor = Callable[[np.ndarray, float], tuple[np.ndarray, tuple[int, int]]]
"""(integers, (multiplier, shift)) of a constant operand at an output's scale."""

# ------------------------------------------------------------------------------------------------------------------ Sub


@irdl_op_definition
class TopSub(ArithmeticTop):
    """`top.Sub`: the first tensor less the second, numpy broadcasting, optional relu."""

    name = "top.Sub"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "9.3", "5.6")
    RANGE: ClassVar[RangeRule] = RangeRule(difference=True)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The difference in f32, then relu."""
        return (limited(kernels.sub_float(tuple(operands), do_relu=relu_of(self)), self),)

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Sub in the float type of the mode."""
        return built_in_float(self, ctx, TpuSub)

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Sub with one 8-bit multiplier and shift per operand by the best fit, or why not.

        A constant is stored at the output's scale, m = 1 (numerics.md 9.3).
        """

        def stored(constant: np.ndarray, s_out: float) -> tuple[np.ndarray, tuple[int, int]]:
            return stored_constant(constant, s_out), (1, 0)

        return self.with_multipliers(ctx, lambda s_in, s_out: positive_fit(ctx, self, s_in / s_out), stored)

    def with_multipliers(self, ctx: LoweringContext, fit: Fit, stored: StoredFor) -> SSAValue | str:
        """tpu.Sub with what `fit` makes of the scales of operand and output; constants as `stored` has them."""
        out = ctx.quant(self.output)
        if out is None:
            return "the output is not calibrated"
        if ctx.asymmetric:
            return "there is no integer form with zero points (numerics.md 12.1)"
        operands: list[SSAValue] = []
        fits: list[tuple[int, int]] = []
        for value in self.inputs:
            scaled = self._operand(ctx, value, out.scale, fit, stored)
            if isinstance(scaled, str):
                return scaled
            operands.append(scaled[0])
            fits.append(scaled[1])
        attributes: dict[str, Attribute] = {
            **relu_attributes(relu_of(self)),
            "multipliers": ints_attr(m for m, _ in fits),
            "rshifts": ints_attr(r for _, r in fits),
        }
        element = ctx.quantised_type(self.output)
        return ctx.build(TpuSub, operands, attributes, element, shape_of(self.output), op_name(self))

    def _operand(
        self, ctx: LoweringContext, value: SSAValue, s_out: float, fit: Fit, stored: StoredFor
    ) -> tuple[SSAValue, tuple[int, int]] | str:
        """(integers, (m, r)) of one operand (numerics.md 9.3)."""
        constant, quant = ctx.array(value), ctx.quant(value)
        if constant is not None:
            integers, scaled = stored(constant, s_out)
            return ctx.weight(value_name(value) + "_int8", integers), scaled
        if quant is None:
            return f"operand '{value_name(value)}' is not calibrated"
        scaled = fit(quant.scale, s_out)
        if scaled is None:
            return f"operand '{value_name(value)}' would need a multiplier outside 0..127"
        return ctx.operand(value, "int8", self), scaled


@irdl_op_definition
class TpuSub(NaryTpu, Overwrites):
    """`tpu.Sub`: integers sat(relu(RSR(q_a*m_a, r_a) - RSR(q_b*m_b, r_b))), or f32.

    With one shift: sat(floor(relu(q_a*m_a - q_b*m_b)/2^r + 0.5)).
    """

    name = "tpu.Sub"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multipliers", "rshifts"),)
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_SMALL_C

    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)

    @property
    def scaling(self) -> tuple[tuple[int, int], ...] | None:
        """(multiplier, right shift) of each operand, None in float."""
        if self.multipliers is None or self.rshifts is None:
            return None
        multipliers, shifts = ints(self.multipliers), ints(self.rshifts)
        return tuple(zip(multipliers, shifts * len(multipliers) if len(shifts) == 1 else shifts, strict=True))

    @property
    def _weights(self) -> tuple[int, int] | None:
        """(m_a, -m_b) where one shift serves both operands, else None."""
        if self.multipliers is None or self.rshifts is None or len(ints(self.rshifts)) > 1:
            return None
        a, b = ints(self.multipliers)
        return a, -b

    def why_global(self, chip: ChipSpec) -> str | None:
        """As every binary op (layer_group.md 2)."""
        return f"{chip.name} subtracts in global memory only" if chip.is_global(self.name) else super().why_global(chip)

    def may_overwrite(self, operand: int) -> bool:
        """Integers are scaled into the work area first; floats are one command."""
        del operand
        return True

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Each operand multiplied, shifted and rounded on its own, then subtracted."""
        if self.scaling is None:
            return (limited(kernels.sub_float(tuple(operands), do_relu=relu_of(self)), self),)
        m, r = zip(*self.scaling, strict=True)
        if self._weights is not None:
            dtype = value_dtype(self.output)
            return (sum_int(tuple(operands), r[0], ms=self._weights, do_relu=relu_of(self), out_dtype=dtype),)
        y = kernels.sub_int(tuple(operands), m, r, do_relu=relu_of(self), out_dtype=value_dtype(self.output))
        return (y,)

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two scaled operands of 16 bits; 16-bit floats: out (layer_group.md 9.3)."""
        del inputs
        if self.scaling is not None:
            return 2 * lmem_bytes(output.shape, "i16", chip)
        dtype = command_dtype(element_of(self.output))
        return lmem_bytes(output.shape, dtype, chip) if itemsize(dtype) == 2 else 0

    def emit(self, ctx: EmitContext) -> None:
        """Floats: AR sub; integers: AR mul+shift per operand and a saturating subtraction; global: FN sub_int."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.scaling is None:
            self.emit_chain(ctx, "sub", views, ctx.output(), relu_limit_of(self))
            return
        if self._weights is not None:
            emit_weighted_sum(ctx, self, self._weights, self.scaling[0][1])
            return
        if not ctx.local:
            (m, s), (other, t) = self.scaling
            function = functions.SubInt((m, other), (s, t), relu_of(self))
            ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=ctx.output())
            return
        step = lmem_bytes(ctx.output_slice().shape, "i16", ctx.chip)
        scaled: list[View] = []
        for i, (view, (m, r)) in enumerate(zip(views, self.scaling, strict=True)):
            target = activation_view(ctx.buffer() + i * step, view.shape, "i16", ctx.chip)  # type: ignore[arg-type]
            ctx.emit(isa.Rescale, input=view, output=target, requant=isa.Requant(m, r))
            scaled.append(target)
        ctx.emit(isa.Arith, kind="sub", a=scaled[0], b=scaled[1], output=ctx.output(), relu=relu_of(self))


# ------------------------------------------------------------------------------------------------------------------ Div


@irdl_op_definition
class TopDiv(ArithmeticTop):
    """`top.Div`: the first tensor over the second, numpy broadcasting, optional relu."""

    name = "top.Div"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The quotient in f32, then relu."""
        return (limited(kernels.div_float(tuple(operands), do_relu=relu_of(self)), self),)

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A constant divisor is a factor."""
        return (DivToMul(weights),)

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Say why there is no integer form."""
        del ctx
        return "a quotient has no integer form (numerics.md 9.0)"

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """Become tpu.Div in float."""
        return built_in_float(self, ctx, TpuDiv)


@irdl_op_definition
class TpuDiv(NaryTpu, Overwrites):
    """`tpu.Div`: relu(a / b) in f32."""

    name = "tpu.Div"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The quotient in f32, then relu."""
        return (limited(kernels.div_float(tuple(operands), do_relu=relu_of(self)), self),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """As every binary op, but never on a chip without requant multipliers (layer_group.md 2)."""
        if chip.is_global(self.name):
            return f"{chip.name} divides in global memory only"
        return super().why_global(chip)

    def may_overwrite(self, operand: int) -> bool:
        """Yes: it is one command, which reads an element before it writes it."""
        del operand
        return True

    def emit(self, ctx: EmitContext) -> None:
        """Emit one AR command, a division."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        self.emit_chain(ctx, "div", views, ctx.output(), relu_limit_of(self))


def is_invertible(divisor: np.ndarray) -> bool:
    """Whether every number of a constant has a reciprocal."""
    return bool((np.abs(divisor) >= np.finfo(np.float32).tiny).all() and np.isfinite(divisor).all())


@dataclass
class DivToMul(RewritePattern):
    """Div by a constant without zeros -> Mul by the reciprocal; by a number DivToMulConst does it."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The reciprocal is taken in f64 and narrowed once; name and relu stay."""
        divisor = constant_of(op.operands[1], self.weights) if isinstance(op, TopDiv) else None
        if divisor is None or not isinstance(op, TopOp) or constant_of(op.operands[0], self.weights) is not None:
            return
        if not is_invertible(divisor) or (divisor.size == 1 and shape_of(op.operands[0]) == shape_of(op.results[0])):
            return
        reciprocal = (1.0 / divisor.astype(np.float64)).astype(np.float32)
        weight = make_weight(self.weights, value_name(op.operands[1]) + "_reciprocal", reciprocal)
        rewriter.insert(weight, InsertPoint.before(op))
        new = TopMul.create(
            operands=[op.operands[0], weight.output],
            result_types=[op.results[0].type],
            attributes=relu_attributes(relu_of(op), relu_limit_of(op)),
        )
        copy_name(new, op)
        rewriter.replace(op, new)


class DivToProduct(RewritePattern):
    """Div of two tensors -> Mul by the Reciprocal of the divisor; of several by one divisor there is one Reciprocal."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The reciprocal has no calibrated range; name and relu stay with the product."""
        if not isinstance(op, TopDiv) or len(op.inputs) != 2:
            return
        divisor = op.inputs[1]
        made = [use.operation for use in divisor.uses if isinstance(use.operation, TopReciprocal)]
        inverse = next((r for r in made if r.const_val.value.data == 1.0), None)
        if inverse is None:
            attributes = {"const_val": float_attr(1.0)}
            inverse = TopReciprocal.create(
                operands=[divisor], result_types=[tensor(shape_of(divisor), f32)], attributes=attributes
            )
            set_op_name(inverse, value_name(divisor) + "_reciprocal")
            rewriter.insert(inverse, InsertPoint.before(op))
        new = TopMul.create(
            operands=[op.inputs[0], inverse.output], result_types=[op.output.type],
            attributes=relu_attributes(relu_of(op), relu_limit_of(op)),
        )  # fmt: skip
        copy_name(new, op)
        rewriter.replace(op, new)
