"""Top ops of a tensor and a number, and the rewrites that form them (numerics.md 5.6, 9.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels.prim.multiplier import best_fit
from tpusim_kernels.prim.scale import round_half_away
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import copy_name, flag, float_attr, int_attr, op_name, set_op_name
from tpusim.ir.pdl import DataPattern, Drawing, reads_weights
from tpusim.ir.types import shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import TopAdd
from tpusim.ops.const_binary.base import Constants, ConstTop, shifted_constant
from tpusim.ops.const_binary.tpu import Kind, TpuAddConst, TpuMaxConst, TpuMinConst, TpuMulConst, TpuSubConst
from tpusim.ops.framework.base import (
    NARROWEST,
    Builder,
    FloatMode,
    FloatRule,
    LoweringContext,
    OpT,
    QuantParams,
    RangeRule,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    built_in_integers,
    constant_of,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.framework.rewriting import keeps_shape, made_by
from tpusim.ops.minmax import TpuMax, TpuMin
from tpusim.ops.patterns.merged_numbers import (
    AddMerge,
    MergeContinuousMulConst,
    MergeMulConst,
    MulMerge,
    RemoveAddConst,
    RemoveMulConst,
    TopGatherMulConst,
)
from tpusim.ops.relu import TopClip
from tpusim.ops.rescale import TOO_LARGE, TpuMulShift, requantised
from tpusim.ops.structure import make_weight
from tpusim.ops.sub import is_invertible

NEAR_ONE = np.float32(2e-5)
"""How far from 1 a factor has no effect (U-103)."""
LARGEST = {"f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127, "f8e5m2": 65504.0}
"""The largest finite number of each narrow type; with floats of 8 bits a constant has 16."""


# ------------------------------------------------------------------------------------------------------------- MulConst


@irdl_op_definition
class TopMulConst(ConstTop):
    """`top.MulConst`: x * const_val, optional relu."""

    name = "top.MulConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    TPU: ClassVar[OpT] = TpuMulConst
    KIND: ClassVar[Kind] = "mul"

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, const_val: float, name: str) -> SSAValue:
        """Append a product with the factor `const_val`."""
        return builder.build(cls, [x], {"const_val": float_attr(const_val), **relu_attributes()}, name)

    @override
    def forwarded_range(self, source: tuple[float, float]) -> tuple[float, float]:
        """The operand's range times the constant (3.3 step 9), relu or not; unchanged for the constant 0."""
        low, high = sorted(end * self.number for end in source)
        return (low, high) if self.number else source

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Mul or Div by a scalar weight becomes a MulConst; a MulConst without effect is removed, others are merged."""
        merging = RemoveMulConst(), MergeContinuousMulConst(), MergeMulConst(weights), TopGatherMulConst(weights)
        return MulToMulConst(), DivToMulConst(), *merging, MulMerge(weights)

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """If the constant is outside the range of the 16-bit type (numerics.md 12.2, 12.3)."""
        del chip
        return abs(self.number) > LARGEST[wanted]

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """(m, r) of s_in/s_out*c: the best fit in 8 bits, r of either sign (5.1)."""
        del ctx
        try:
            return Constants(*best_fit(x.scale / y.scale * self.number, 8))
        except ValueError as error:
            return str(error)

    @override
    def build_int8(self, ctx: LoweringContext, operand: SSAValue, constants: Constants) -> SSAValue | str:
        """tpu.MulShift, which by a quirk drops a relu; with the quirk off tpu.MulConst with the relu."""
        lost = relu_of(self) and ctx.reproduces(Quirk.MULSHIFT_WITHOUT_RELU)
        if relu_of(self) and not lost:
            return super().build_int8(ctx, operand, constants)
        if lost:
            ctx.decision(self, Quirk.MULSHIFT_WITHOUT_RELU.decision)
        attributes = {"multiplier": int_attr(constants.multiplier), "rshift": int_attr(constants.rshift)}
        return built_in_integers(self, ctx, TpuMulShift, [operand], attributes)


# --------------------------------------------------------------------------------------------------- AddConst, SubConst


@irdl_op_definition
class TopAddConst(ConstTop):
    """`top.AddConst`: x + const_val, optional relu."""

    name = "top.AddConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(add_constant=True)
    TPU: ClassVar[OpT] = TpuAddConst
    KIND: ClassVar[Kind] = "add"
    VANISHES: ClassVar[bool] = True

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Add of a scalar weight becomes an AddConst; one of 0 is removed; two Adds of constants become one."""
        return AddToAddConst(), RemoveAddConst(), AddMerge(weights)

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """Only without zero points (numerics.md 12.1)."""
        if ctx.asymmetric:
            return "there is no integer form with zero points (numerics.md 12.1)"
        return shifted_constant(ctx, self, x, y)


@irdl_op_definition
class TopSubConst(ConstTop):
    """`top.SubConst`: x - const_val, or const_val - x if `is_reverse`; optional relu."""

    name = "top.SubConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(sub_constant=True)
    TPU: ClassVar[OpT] = TpuSubConst
    KIND: ClassVar[Kind] = "sub"

    is_reverse = opt_attr_def(BoolAttr)

    @classmethod
    @override
    def order(cls, reverse: bool) -> dict[str, Attribute]:
        """is_reverse: the constant is the minuend."""
        return {"is_reverse": flag(reverse)}

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Sub with a scalar weight becomes a SubConst or an AddConst."""
        return (SubToSubConst(),)

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """As AddConst; with zero points, C contains z_in*m."""
        found = shifted_constant(ctx, self, x, y)
        if isinstance(found, str) or not x.zero_point:
            return found
        return Constants(found.multiplier, found.rshift, found.constant + x.zero_point * found.multiplier)


# --------------------------------------------------------------------------------------------------- MaxConst, MinConst


class ExtremeConstTop(ConstTop):
    """The larger or smaller of an element and a number; input and output share one scale."""

    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    TENSORS: ClassVar[OpT]
    """The tpu op of two tensors."""

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """Multiplier 1, no shift, C = round(c/s) (DN-15).

        s is the scale of the output; `build_int8` requantises an operand that has another scale.
        """
        zero = 0 if ctx.reproduces(Quirk.EXTREME_WITHOUT_ZERO_POINT) else y.zero_point
        return Constants(1, 0, float(round_half_away(self.number / y.scale)) + zero)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """As other ops with a constant, except a relu with a zero point."""
        y = ctx.quant(self.output)
        if relu_of(self) and y is not None and y.zero_point:
            return "relu with a zero point"
        return super().lower_integer(ctx)

    @override
    def build_int8(self, ctx: LoweringContext, operand: SSAValue, constants: Constants) -> SSAValue | str:
        """The tpu op on bytes of the output's scale."""
        source = ctx.quant(self.input)
        assert source is not None  # checked by lower_integer
        # By the quirk (U-07) the constant lacks the zero point.
        if ctx.asymmetric and ctx.reproduces(Quirk.EXTREME_WITHOUT_ZERO_POINT):
            ctx.decision(self, "DN-15")
        same = requantised(ctx, self, operand, source, self.output)
        return TOO_LARGE if same is None else super().build_int8(ctx, same, constants)


@irdl_op_definition
class TopMaxConst(ExtremeConstTop):
    """`top.MaxConst`: max(x, const_val), optional relu."""

    name = "top.MaxConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    TPU: ClassVar[OpT] = TpuMaxConst
    TENSORS: ClassVar[OpT] = TpuMax
    KIND: ClassVar[Kind] = "max"

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Max with a scalar weight becomes a MaxConst."""
        return (MaxToMaxConst(),)


@irdl_op_definition
class TopMinConst(ExtremeConstTop):
    """`top.MinConst`: min(x, const_val), optional relu."""

    name = "top.MinConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    TPU: ClassVar[OpT] = TpuMinConst
    TENSORS: ClassVar[OpT] = TpuMin
    KIND: ClassVar[Kind] = "min"

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Min with a scalar weight becomes a MinConst."""
        return (MinToMinConst(),)


# ------------------------------------------------------------------------------------------------------------- rewrites


class ToConst(DataPattern):
    """A binary op of a tensor and a weight whose elements are all equal -> the op with a number; name and relu stay.

    TPU-MLIR has another pattern for weights of several equal elements (U-21, WeightToConst).
    """

    FROM: ClassVar[str]
    TO: ClassVar[type[ConstTop]]

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The tensor must have the shape of the result."""
        x, weight = p.operand(), p.operand()
        op = p.op(cls.FROM, *p.choice((x, weight), (weight, x)))
        p.require(cls.fits, op, x, weight)
        p.rewrite(op, cls.to_number, x, weight)

    @classmethod
    def form(cls, number: float, reverse: bool) -> tuple[type[ConstTop], float] | None:
        """(class, constant) of the new op; None if the op stays. reverse: the weight is the first operand."""
        del reverse
        return cls.TO, number

    @classmethod
    def elsewhere(cls, x: SSAValue, constant: np.ndarray) -> bool:
        """Whether the op is left to another pattern."""
        del x, constant
        return False

    @classmethod
    @reads_weights
    def fits(cls, weights: WeightStore, op: Operation, x: SSAValue, weight: SSAValue) -> bool:
        """Whether the weight is one number for every element of a computed tensor."""
        constant = constant_of(weight, weights)
        if constant is None or not is_one_number(constant) or constant_of(x, weights) is not None:
            return False
        return keeps_shape(op, x) and not cls.elsewhere(x, constant)

    @classmethod
    @reads_weights
    def to_number(
        cls, rewriter: PatternRewriter, weights: WeightStore, op: Operation, x: SSAValue, weight: SSAValue
    ) -> None:
        """Replace the op by the form of it that has a number, if there is one."""
        constant, reverse = constant_of(weight, weights), op.operands[0] is weight
        assert constant is not None  # checked by fits
        found = cls.form(float(constant.reshape(-1)[0]), reverse)
        if found is None:
            return
        kind, number = found
        attributes = {"const_val": float_attr(number), **relu_attributes(relu_of(op), relu_limit_of(op))}
        attributes |= kind.order(reverse)
        new = kind.create(operands=[x], result_types=[op.results[0].type], attributes=attributes)
        copy_name(new, op)
        rewriter.replace(op, new)


def is_one_number(constant: np.ndarray) -> bool:
    """Whether a constant is not empty and all its elements are equal; NaN is equal to nothing."""
    return constant.size > 0 and bool((constant == constant.flat[0]).all())


class MulToMulConst(ToConst):
    """Mul by a scalar weight -> MulConst; a factor within 2e-5 of 1 counts as 1 (U-103)."""

    FROM: ClassVar[str] = "top.Mul"
    TO: ClassVar[type[ConstTop]] = TopMulConst

    @classmethod
    @override
    def form(cls, number: float, reverse: bool) -> tuple[type[ConstTop], float] | None:
        """MulConst by the number, or by 1."""
        del reverse
        return cls.TO, 1.0 if abs(np.float32(number) - np.float32(1)) < NEAR_ONE else number


class ClipToExtremes(RewritePattern):
    """Clip -> MaxConst, without a calibrated range, and MinConst."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The MinConst takes the name of the Clip, the MaxConst that name with `_max` appended."""
        if not isinstance(op, TopClip):
            return
        bounds = op.minimum.value.data, op.maximum.value.data
        low, high = ({"const_val": float_attr(bound), **relu_attributes()} for bound in bounds)
        plain = tensor(shape_of(op.output), f32)
        larger = TopMaxConst.create(operands=[op.input], result_types=[plain], attributes=low)
        set_op_name(larger, f"{op_name(op)}_max")
        smaller = TopMinConst.create(operands=[larger.output], result_types=[op.output.type], attributes=high)
        copy_name(smaller, op)
        rewriter.replace(op, [larger, smaller])


class DivToMulConst(ToConst):
    """Div by a scalar weight that has a reciprocal -> MulConst by the reciprocal, computed in double (U-21)."""

    FROM: ClassVar[str] = "top.Div"
    TO: ClassVar[type[ConstTop]] = TopMulConst

    @classmethod
    @override
    def form(cls, number: float, reverse: bool) -> tuple[type[ConstTop], float] | None:
        """MulConst by 1/c for x / c; c / x stays, and so does a c without a reciprocal."""
        return None if reverse or not is_invertible(np.array(number, np.float32)) else (TopMulConst, 1.0 / number)


@dataclass
class AddConstToAdd(RewritePattern):
    """AddConst -> Add of a weight with one element."""

    weights: WeightStore

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Add takes name and relu."""
        if not isinstance(op, TopAddConst):
            return
        name = f"{op_name(op)}_const_val"
        weight = make_weight(self.weights, name, np.full((1,) * len(shape_of(op.output)), op.number, np.float32))
        rewriter.insert(weight, InsertPoint.before(op))
        new = TopAdd.create(
            operands=[op.input, weight.output], result_types=[op.output.type],
            attributes=relu_attributes(relu_of(op), relu_limit_of(op)),
        )  # fmt: skip
        copy_name(new, op)
        rewriter.replace(op, new)


class AddToAddConst(ToConst):
    """Add of a scalar weight -> AddConst."""

    FROM: ClassVar[str] = "top.Add"
    TO: ClassVar[type[ConstTop]] = TopAddConst

    @classmethod
    @override
    def elsewhere(cls, x: SSAValue, constant: np.ndarray) -> bool:
        """A row of equal numbers that is added to a MatMul, or the number of a single column, becomes its bias."""
        return (constant.size > 1 or shape_of(x)[-1:] == (1,)) and made_by(x, "top.MatMul") is not None


class SubToSubConst(ToConst):
    """c - x with a scalar weight c -> reversed SubConst; x - c -> AddConst of -c (U-21)."""

    FROM: ClassVar[str] = "top.Sub"
    TO: ClassVar[type[ConstTop]] = TopSubConst

    @classmethod
    @override
    def form(cls, number: float, reverse: bool) -> tuple[type[ConstTop], float]:
        return (TopSubConst, number) if reverse else (TopAddConst, -number)


class MaxToMaxConst(ToConst):
    """Max with a scalar weight -> MaxConst."""

    FROM: ClassVar[str] = "top.Max"
    TO: ClassVar[type[ConstTop]] = TopMaxConst


class MinToMinConst(ToConst):
    """Min with a scalar weight -> MinConst."""

    FROM: ClassVar[str] = "top.Min"
    TO: ClassVar[type[ConstTop]] = TopMinConst
