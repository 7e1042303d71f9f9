"""Difference and quotient: `top.Sub`, `tpu.Sub`, `top.Div` and `tpu.Div` (numerics.md 9.0, 9.3, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.arith_shift import sum_int
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, f32
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import copy_name, float_attr, ints, op_name, set_op_name, value_name
from tpusim.ir.types import element_of, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import View, itemsize
from tpusim.ops.activation.top import TopReciprocal, TopRsqrt
from tpusim.ops.add import Fit, ScaledTop, Scaling, Stored, emit_weighted_sum
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
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import ChipRewrites, Overwrites, QuirkRewrite
from tpusim.ops.mul import TopMul
from tpusim.ops.rescale import positive_fit
from tpusim.ops.structure import make_weight


def stored_constant(constant: np.ndarray, scale: float, zero_point: int = 0) -> np.ndarray:
    """round-half-away(c/s) + z in one byte, signed if a value is negative (numerics.md 9.3)."""
    signed = bool((constant < 0).any())
    return saturate_np(round_half_away(constant.astype(np.float64) / scale) + zero_point, "int8" if signed else "uint8")


# ------------------------------------------------------------------------------------------------------------------ Sub


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
    def weights(self) -> tuple[int, int] | None:
        """(m_a, -m_b) where one shift serves both operands, else None."""
        if self.multipliers is None or self.rshifts is None or len(ints(self.rshifts)) > 1:
            return None
        a, b = ints(self.multipliers)
        return a, -b

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        return f"{chip.name} subtracts in global memory only" if chip.is_global(self.name) else super().why_global(chip)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """Integers are first scaled into the work area; floats are one command."""
        del operand
        return True

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers are multiplied, shifted and rounded before the difference; with one shift, after it."""
        if self.scaling is None:
            return (limited(kernels.sub_float(tuple(operands), do_relu=relu_of(self)), self),)
        m, r = zip(*self.scaling, strict=True)
        if self.weights is not None:
            dtype = value_dtype(self.output)
            return (sum_int(tuple(operands), r[0], ms=self.weights, do_relu=relu_of(self), out_dtype=dtype),)
        y = kernels.sub_int(tuple(operands), m, r, do_relu=relu_of(self), out_dtype=value_dtype(self.output))
        return (y,)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: two scaled operands of 16 bits. 16-bit floats: out (layer_group.md 9.3)."""
        del inputs
        if self.scaling is not None:
            return 2 * lmem_bytes(output.shape, "i16", chip)
        dtype = command_dtype(element_of(self.output))
        return lmem_bytes(output.shape, dtype, chip) if itemsize(dtype) == 2 else 0

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Floats: AR sub. Integers: RQ per operand, then a saturating AR sub; as a global layer FN sub_int."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.scaling is None:
            self.emit_chain(ctx, "sub", views, ctx.output(), relu_limit_of(self))
            return
        if self.weights is not None:
            emit_weighted_sum(ctx, self, self.weights, self.scaling[0][1])
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


@irdl_op_definition
class TopSub(ScaledTop):
    """`top.Sub`: the first tensor less the second, numpy broadcasting, optional relu."""

    name = "top.Sub"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "9.3", "5.6")
    RANGE: ClassVar[RangeRule] = RangeRule(difference=True)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f8="f8")
    TPU: ClassVar[OpT] = TpuSub

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (limited(kernels.sub_float(tuple(operands), do_relu=relu_of(self)), self),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Sub with the best fit for each operand, or why that is not possible.

        A constant is stored at the output's scale, m = 1 (numerics.md 9.3).
        """

        def stored(constant: np.ndarray, s_out: float) -> tuple[np.ndarray, Scaling]:
            return stored_constant(constant, s_out), (1, 0)

        return self.with_multipliers(ctx, lambda s_in, s_out: positive_fit(ctx, self, s_in / s_out), stored)

    @override
    def with_multipliers(self, ctx: LoweringContext, fit: Fit, stored: Stored) -> SSAValue | str:
        if ctx.asymmetric and ctx.quant(self.output) is not None:
            return "there is no integer form with zero points (numerics.md 12.1)"
        return super().with_multipliers(ctx, fit, stored)


# ------------------------------------------------------------------------------------------------------------------ Div


@irdl_op_definition
class TpuDiv(NaryTpu, Overwrites):
    """`tpu.Div`: relu(a / b) in f32."""

    name = "tpu.Div"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (limited(kernels.div_float(tuple(operands), do_relu=relu_of(self)), self),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        if chip.is_global(self.name):
            return f"{chip.name} divides in global memory only"
        return super().why_global(chip)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """Always: the one command reads each element before it writes it."""
        del operand
        return True

    @override
    def emit(self, ctx: EmitContext) -> None:
        views = [ctx.input(i) for i in range(len(self.inputs))]
        self.emit_chain(ctx, "div", views, ctx.output(), relu_limit_of(self))


@irdl_op_definition
class TopDiv(ArithmeticTop, ChipRewrites):
    """`top.Div`: the first tensor over the second, numpy broadcasting, optional relu."""

    name = "top.Div"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    TPU: ClassVar[OpT] = TpuDiv

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (limited(kernels.div_float(tuple(operands), do_relu=relu_of(self)), self),)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A division by a constant becomes a product."""
        return (DivToMul(weights),)

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A quotient by a root becomes a product."""
        del weights, chip
        return (RootToReciprocal(),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return "a quotient has no integer form (numerics.md 9.0)"


def is_invertible(divisor: np.ndarray) -> bool:
    """Whether every number of a constant has a reciprocal in f32: it is finite and no subnormal."""
    return bool((np.abs(divisor) >= np.finfo(np.float32).tiny).all() and np.isfinite(divisor).all())


@dataclass
class DivToMul(RewritePattern):
    """Div by a constant tensor without zeros -> Mul by the reciprocal. DivToMulConst divides by single numbers."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The reciprocal is computed in f64 and narrowed once; name and relu stay."""
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


class RootToReciprocal(QuirkRewrite):
    """Div by a Sqrt that nothing else reads -> Mul by the Rsqrt `NAME_inv`, which has the range of the Sqrt (U-108)."""

    QUIRK = Quirk.ROOT_IN_RANGE_OF_ROOT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Mul has the name and the relu."""
        root = made_by(op.inputs[1], "top.Sqrt") if isinstance(op, TopDiv) and len(op.inputs) == 2 else None
        if root is None or not isinstance(op, TopDiv):
            return
        inverse = TopRsqrt.create(operands=[root.operands[0]], result_types=[root.results[0].type])
        set_op_name(inverse, f"{op_name(root)}_inv")
        new = TopMul.create(
            operands=[op.inputs[0], inverse.output], result_types=[op.output.type],
            attributes=relu_attributes(relu_of(op), relu_limit_of(op)),
        )  # fmt: skip
        copy_name(new, op)
        rewriter.replace(op, [inverse, new])
        rewriter.erase(root)


class DivToProduct(RewritePattern):
    """Div of two tensors -> Mul by the Reciprocal of the divisor; quotients with one divisor share its Reciprocal."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Reciprocal has no calibrated range; the Mul has the name and the relu."""
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
