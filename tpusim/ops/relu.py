"""Relu and Clip: `top.Relu`, `tpu.Relu`, `top.Clip`, `tpu.Clip`, and the fusion of Relu into what makes its input."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, float_attr, framework_name, op_name, set_op_name
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import Array, Builder, EmitContext, FloatRule, LoweringContext, RangeRule, TopOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    UnaryTop,
    UnaryTpu,
    only_user,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
)
from tpusim.ops.framework.logical import WITH_MM, GroupType
from tpusim.ops.interfaces import SharedWindows

FLOAT_MAX = float(np.finfo(np.float32).max)
"""An absent upper bound of Clip; the negative for an absent lower one."""


# ---------------------------------------------------------------------------------------------------------------- Relu


@irdl_op_definition
class TopRelu(UnaryTop):
    """`top.Relu`: max(x, 0), then min(., relu_limit) if relu_limit > 0."""

    name = "top.Relu"
    SPEC: ClassVar[tuple[str, ...]] = ("9.7", "9.5")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")
    RANGE: ClassVar[RangeRule] = RangeRule(backward=True, forward=True)

    relu_limit = opt_attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, relu_limit: float = -1.0, name: str) -> SSAValue:
        """relu_limit: the upper bound, below 0 for none."""
        return builder.build(cls, [x], {"relu_limit": float_attr(relu_limit)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        return (kernels.relu_float(operands[0], limit=relu_limit_of(self)),)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Relu goes into its producer; in front of a Concat first, if all its producers take it."""
        del weights
        return TopMoveReluAheadConcatPattern(), TopFuseRelu()

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Relu on bytes (numerics.md 9.0, 9.7), or why not."""
        why, x, y = self.why_not_integer(ctx), ctx.quant(self.input), ctx.quant(self.output)
        if why is None and x is not None and y is not None and x.scale != y.scale:
            return f"a byte move needs one scale for input and output, got {x.scale:.6g} and {y.scale:.6g}"
        return why or self.on_bytes(ctx, {})

    def why_not_integer(self, ctx: LoweringContext) -> str | None:
        """What every integer form requires and the op lacks; None if nothing is missing."""
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        return "there is no integer form with zero points (numerics.md 9.7)" if ctx.asymmetric else None

    def on_bytes(self, ctx: LoweringContext, attributes: Mapping[str, Attribute]) -> SSAValue:
        """tpu.Relu whose operand and result are bytes."""
        operand, element = ctx.operand(self.input, "int8", self), ctx.quantised_type(self.output)
        return ctx.build(TpuRelu, [operand], attributes, element, shape_of(self.output), op_name(self))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Relu in the float type of the mode."""
        operand, attributes = (
            ctx.operand(self.input, ctx.float_mode(self), self),
            {"relu_limit": float_attr(relu_limit_of(self))},
        )
        return ctx.build(TpuRelu, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuRelu(UnaryTpu, SharedWindows):
    """`tpu.Relu`: bytes max(q, 0), or sat(max(RSR(q*multiplier, rshift, HALF_UP), 0)); f32 with a limit."""

    name = "tpu.Relu"

    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers exactly, f32 as top.Relu."""
        (x,) = operands
        if uniform_of(self.output) is None:
            return (kernels.relu_float(x, limit=relu_limit_of(self)),)
        dtype = value_dtype(self.output)
        if self.multiplier is not None and self.rshift is not None:
            x = kernels.mulshift_int(x, self.multiplier.value.data, self.rshift.value.data, 0, 0, out_dtype=dtype)
        return (kernels.relu_int(x, out_dtype=dtype),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """RQ with relu where there is a multiplier, else an AR copy with relu."""
        if self.multiplier is not None and self.rshift is not None:
            requant = isa.Requant(self.multiplier.value.data, self.rshift.value.data)
            ctx.emit(isa.Rescale, input=ctx.input(0), output=ctx.output(), requant=requant, relu=True)
            return
        limit = -1.0 if uniform_of(self.output) else relu_limit_of(self)
        ctx.emit(isa.Arith, kind="copy", a=ctx.input(0), output=ctx.output(), relu=True, relu_limit=limit)


# ---------------------------------------------------------------------------------------------------------------- Clip


@irdl_op_definition
class TopClip(UnaryTop):
    """`top.Clip`: min(max(x, min), max)."""

    name = "top.Clip"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")

    minimum = attr_def(FloatAttr, attr_name="min")
    maximum = attr_def(FloatAttr, attr_name="max")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, minimum: float = -FLOAT_MAX, maximum: float = FLOAT_MAX, name: str
    ) -> SSAValue:
        """The bounds, clamped to what f32 holds; a lower bound of 0 makes it a Relu."""
        low, high = (min(max(bound, -FLOAT_MAX), FLOAT_MAX) for bound in (minimum, maximum))
        if low == 0.0 and high > 0.0:
            return TopRelu.make(builder, x, relu_limit=-1.0 if high >= FLOAT_MAX else high, name=name)
        return builder.build(cls, [x], {"min": float_attr(low), "max": float_attr(high)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        return (kernels.clip_float(operands[0], self.minimum.value.data, self.maximum.value.data),)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Clip in float; tpusim has no integer form (numerics.md 12: float fallback)."""
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        return ctx.build(
            TpuClip, [operand], dict(self.attributes), ctx.float_type(self), shape_of(self.output), op_name(self)
        )


@irdl_op_definition
class TpuClip(UnaryTpu, SharedWindows):
    """`tpu.Clip`: min(max(x, min), max) in f32."""

    name = "tpu.Clip"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM

    minimum = attr_def(FloatAttr, attr_name="min")
    maximum = attr_def(FloatAttr, attr_name="max")

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute what top.Clip computes."""
        return (kernels.clip_float(operands[0], self.minimum.value.data, self.maximum.value.data),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """AR maximum, then AR minimum in place."""
        ctx.emit(isa.Arith, kind="max", a=ctx.input(0), b=self.minimum.value.data, output=ctx.output())
        ctx.emit(isa.Arith, kind="min", a=ctx.output(), b=self.maximum.value.data, output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ rewrites


class TopFuseRelu(RewritePattern):
    """An op that may carry a relu, used only by a Relu -> the op with do_relu, named as the Relu."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Move relu, limit and name into the producer."""
        if not isinstance(op, TopRelu):
            return
        producer, limit = op.input.owner, relu_limit_of(op)
        if not isinstance(producer, TopOp) or not _takes_relu(producer, limit):
            return
        attributes = relu_attributes(True, limit)
        producer.attributes |= {k: v for k, v in attributes.items() if k in _attribute_names(producer)}
        copy_name(producer, op)
        rewriter.replace(op, [], [producer.results[0]])
        rewriter.notify_op_modified(producer)


@dataclass
class ReluApart(RewritePattern):
    """An op of this name with a relu -> the op and a Relu after it, named by U-33."""

    kind: str

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The op keeps its calibrated range, and its name up to "relu" and `_pool`."""
        if op.name != self.kind or not relu_of(op):
            return
        result, name = op.results[0], op_name(op)
        relu = TopRelu.create(
            operands=[result], result_types=[result.type], attributes={"relu_limit": float_attr(relu_limit_of(op))}
        )
        copy_name(relu, op)
        op.attributes |= relu_attributes()
        set_op_name(op, re.split("relu", name, maxsplit=1, flags=re.IGNORECASE)[0] + "_pool")
        rewriter.insert(relu, InsertPoint.after(op))
        result.replace_all_uses_with(relu.output)
        relu.operands[0] = result
        rewriter.notify_op_modified(op)


class TopMoveReluAheadConcatPattern(RewritePattern):
    """Concat used only by a Relu, where every producer can carry a relu -> a Relu on every input of the Concat."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Concat stands for the Relu's tensor; the new Relus are called after their producers (U-33)."""
        concat = op.operands[0].owner if isinstance(op, TopRelu) else None
        if not isinstance(concat, TopOp) or concat.name != "top.Concat" or only_user(concat.results[0]) is None:
            return
        producers = [value.owner for value in concat.operands]
        limit = relu_limit_of(op)
        if not all(isinstance(p, TopOp) and p.name != "top.Concat" and _takes_relu(p, limit) for p in producers):
            return
        taken = _names_beside(op)
        for index, value in enumerate(concat.operands):
            relu = TopRelu.create(
                operands=[value], result_types=[value.type], attributes={"relu_limit": float_attr(limit)}
            )
            name = f"{op_name(producers[index])}_move_ahead_relu"  # type: ignore[arg-type]
            set_op_name(relu, _unique(name, taken))
            rewriter.insert(relu, InsertPoint.before(concat))
            concat.operands[index] = relu.output
        if framework_name(op) == op_name(op):
            copy_name(concat, op)
        else:
            set_op_name(concat, f"{op_name(concat)}_relu", framework_name(op))
        rewriter.replace(op, [], [concat.results[0]])
        rewriter.notify_op_modified(concat)


def _takes_relu(op: TopOp, limit: float) -> bool:
    """Whether a relu with this limit can become part of `op`: it knows do_relu, has none yet and has one user."""
    known = _attribute_names(op)
    able = "do_relu" in known and (limit < 0 or "relu_limit" in known)
    return able and not relu_of(op) and only_user(op.results[0]) is not None


def _attribute_names(op: TopOp) -> set[str]:
    return set(op.get_irdl_definition().attributes)


def _names_beside(op: Operation) -> set[str]:
    block = op.parent_block()
    return set() if block is None else {op_name(other) for other in block.ops}


def _unique(name: str, taken: set[str]) -> str:
    unique, count = name, 0
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    taken.add(unique)
    return unique
