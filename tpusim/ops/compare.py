"""Comparisons: `top.Compare`, `tpu.Compare`, `top.CompareConst` and `tpu.CompareConst` (numerics.md 2.2, 9.0, 12).

A result is 0 or 1: f32 in the top module, a byte of scale 1 after a comparison in integers, else a float. And, Or and
Xor compare such values. Not is a comparison with 0, a cast to bool a comparison with NotEqual.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import logic as kernels
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, flag, float_attr, op_name, text, value_name
from tpusim.ir.pdl import DataPattern, Drawing, one_use
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    Holds,
    LoweringContext,
    QuantParams,
    RangeRule,
    reads_indices,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    ExactIndices,
    NaryTop,
    NaryTpu,
    UnaryTop,
    UnaryTpu,
    aligned,
    built_in_integers,
    is_set,
    value_dtype,
)
from tpusim.ops.framework.rewriting import first_number, keeps_shape, number_and_computed

MIRRORED: Mapping[str, str] = {
    "Equal": "Equal", "NotEqual": "NotEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual", "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual", "And": "And", "Or": "Or", "Xor": "Xor",
}  # fmt: skip
"""Mode -> the mode with the operands exchanged."""
LOGICAL = ("And", "Or", "Xor")
INDICES = "indices are compared in f32"


def checked_mode(mode: StringAttr) -> str:
    """The mode. Raises ValueError for an unknown mode."""
    if mode.data not in MIRRORED:
        raise ValueError(f"a mode of {', '.join(MIRRORED)} is required, got {mode.data!r}")
    return mode.data


# -------------------------------------------------------------------------------------------------------------- Compare


@irdl_op_definition
class TpuCompare(NaryTpu):
    """`tpu.Compare`: 1 where `a mode b` is true, else 0; on bytes of one scale and zero point, or on floats."""

    name = "tpu.Compare"

    mode = attr_def(StringAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        a, b = operands
        kind = "float32" if uniform_of(self.output) is None else value_dtype(self.output)
        return (kernels.compare(a, b, mode=checked_mode(self.mode), out_dtype=kind),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        ctx.emit(isa.Compare, kind=self.mode.data, a=ctx.input(0), b=ctx.input(1), output=ctx.output())


@irdl_op_definition
class TopCompare(ExactIndices, NaryTop):
    """`top.Compare`: 1 where `first mode second` is true, else 0, numpy broadcasting."""

    name = "top.Compare"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "2.2", "12.1")
    RANGE: ClassVar[RangeRule] = RangeRule(compare=True)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")
    HOLDS: ClassVar[Holds] = "bool"

    mode = attr_def(StringAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, left: SSAValue, right: SSAValue, *, mode: str, name: str) -> SSAValue:
        """mode: a key of MIRRORED; And, Or and Xor take tensors of 0 and 1."""
        checked_mode(text(mode))
        return builder.build(cls, aligned(builder, [left, right]), {"mode": text(mode)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        a, b = operands
        return (kernels.compare(a, b, mode=checked_mode(self.mode), out_dtype="float32"),)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A comparison with a scalar weight, and Not of Equal."""
        return CompareToCompareConst(weights), FuseNotEqual()

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Compare on bytes if scales and zero points are equal, else why that is not possible."""
        why = self._why_not_int8(ctx)
        if why is not None:
            return why
        operands = [ctx.operand(v, "int8", self) for v in self.inputs]
        return built_in_integers(self, ctx, TpuCompare, operands, {"mode": self.mode})

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        operands, element = [ctx.operand(v, ctx.float_mode(self), self) for v in self.inputs], ctx.float_type(self)
        return ctx.build(TpuCompare, operands, {"mode": self.mode}, element, shape_of(self.output), op_name(self))

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        if reads_indices(self):
            return INDICES
        quants: list[QuantParams] = []
        for value in self.inputs:
            if ctx.array(value) is not None:
                return f"operand '{value_name(value)}' is a constant tensor, which has no scale (numerics.md 9.0)"
            quant = ctx.quant(value)
            if quant is None:
                return f"operand '{value_name(value)}' is not calibrated"
            quants.append(quant)
        if quants[0].zero_point and self.mode.data in LOGICAL:
            return f"mode {self.mode.data} asks for bytes that are 0 where the value is"
        return None if quants[0] == quants[1] else "the operands' scales or zero points differ (numerics.md 9.0)"


# --------------------------------------------------------------------------------------------------------- CompareConst


@irdl_op_definition
class TpuCompareConst(UnaryTpu):
    """`tpu.CompareConst`: 1 where `x mode const_val` (inversed: `const_val mode x`) is true, else 0."""

    name = "tpu.CompareConst"

    mode = attr_def(StringAttr)
    const_val = attr_def(FloatAttr)
    inversed = opt_attr_def(BoolAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        quantised, number = uniform_of(self.output) is not None, self.const_val.value.data
        y = kernels.compare_const(
            operands[0], int(number) if quantised else np.float32(number), mode=checked_mode(self.mode),
            inversed=is_set(self.inversed), out_dtype=value_dtype(self.output) if quantised else "float32",
        )  # fmt: skip
        return (y,)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One AR comparison; a constant on the left is put on the right of the mirrored mode."""
        mode = checked_mode(self.mode)
        kind = MIRRORED[mode] if is_set(self.inversed) else mode
        ctx.emit(isa.Compare, kind=kind, a=ctx.input(0), b=self.const_val.value.data, output=ctx.output())


@irdl_op_definition
class TopCompareConst(ExactIndices, UnaryTop):
    """`top.CompareConst`: 1 where `x mode const_val` (inversed: `const_val mode x`) is true, else 0."""

    name = "top.CompareConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "2.2", "12.1")
    HOLDS: ClassVar[Holds] = "bool"

    mode = attr_def(StringAttr)
    const_val = attr_def(FloatAttr)
    inversed = opt_attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, mode: str, const_val: float, inversed: bool = False, name: str
    ) -> SSAValue:
        """mode: a key of MIRRORED. inversed: const_val is the first operand."""
        checked_mode(text(mode))
        attributes = {"mode": text(mode), "const_val": float_attr(const_val), "inversed": flag(inversed)}
        return builder.build(cls, [x], attributes, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        y = kernels.compare_const(
            operands[0], np.float32(self.const_val.value.data), mode=checked_mode(self.mode),
            inversed=is_set(self.inversed), out_dtype="float32",
        )  # fmt: skip
        return (y,)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.CompareConst with sat(round-half-away(c/s + z)), or why that is not possible; mode And runs in float."""
        x = ctx.quant(self.input)
        if x is not None and self.mode.data != "And" and not reads_indices(self):
            number = float_attr(float(stored_number(self.const_val.value.data, x)))
            return self._build(ctx, ctx.operand(self.input, "int8", self), number, ctx.quantised_type(self.output))
        mode = f"mode {self.mode.data} runs in float (numerics.md 12.1)"
        why = "the input is not calibrated" if x is None else mode
        return INDICES if reads_indices(self) else why

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        return self._build(ctx, operand, self.const_val, ctx.float_type(self))

    def _build(self, ctx: LoweringContext, operand: SSAValue, number: Attribute, element: Attribute) -> SSAValue:
        attributes: dict[str, Attribute] = {"mode": self.mode, "const_val": number, "inversed": self._inversed}
        return ctx.build(TpuCompareConst, [operand], attributes, element, shape_of(self.output), op_name(self))

    @property
    def _inversed(self) -> BoolAttr:
        return flag(is_set(self.inversed))


def stored_number(number: float, quant: QuantParams) -> int:
    """sat(round-half-away(c/s + z)) in the stored type of `quant` (numerics.md 9.0)."""
    return int(saturate_np(round_half_away(np.float64(number) / quant.scale + quant.zero_point), quant.dtype))


# ------------------------------------------------------------------------------------------------------------- patterns


class CompareToCompareConst(DataPattern):
    """Compare with a scalar weight -> CompareConst, inversed if the weight is the first operand."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """Name and result type stay. A weight that changes the result's shape does not match, nor do Or and Xor."""
        constant, other, mode = p.operand(), p.operand(), p.attribute()
        inversed, operands = p.choice((True, (constant, other)), (False, (other, constant)))
        op = p.op("top.Compare", *operands, mode=mode)
        p.require(cls.has_form, mode)
        p.require(number_and_computed, constant, other)
        p.require(keeps_shape, op, other)
        becomes = p.rewrite(op)
        number = becomes.attribute(first_number, constant)
        becomes.replace_with("top.CompareConst", other, mode=mode, const_val=number, inversed=flag(inversed))

    @classmethod
    def has_form(cls, mode: StringAttr) -> bool:
        """Whether there is a CompareConst of a mode."""
        return mode.data not in ("Or", "Xor")


class FuseNotEqual(DataPattern):
    """Equal, then Not (equal to 0) -> NotEqual."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """Nothing else may read the first op; the new op has the name of the last."""
        kind, operands = p.choice(("top.Compare", 2), ("top.CompareConst", 1))
        first = p.op(kind, *[p.operand() for _ in range(operands)], mode="Equal")
        p.require(one_use, first)
        op = p.op("top.CompareConst", first, mode="Equal")
        p.require(cls.is_with_zero, op)
        p.rewrite(op, cls.to_not_equal, first)

    @classmethod
    def is_with_zero(cls, op: TopCompareConst) -> bool:
        """Whether a CompareConst compares with 0."""
        return op.const_val.value.data == 0.0

    @classmethod
    def to_not_equal(cls, rewriter: PatternRewriter, op: Operation, first: Operation) -> None:
        """Replace both by the first in mode NotEqual."""
        new = type(first).create(
            operands=first.operands, result_types=[op.results[0].type],
            attributes={**first.attributes, "mode": text("NotEqual")},
        )  # fmt: skip
        copy_name(new, op)
        rewriter.replace(op, new)
        if prod(shape_of(first.results[0])) and first.results[0].first_use is None:
            rewriter.erase(first)
