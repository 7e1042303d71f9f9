"""Relu and Clip: `top.Relu`, `tpu.Relu`, `top.Clip`, `tpu.Clip`, and the fusion of Relu into what makes its input."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, cast

import numpy as np
from tpusim_kernels import arith as kernels
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, float_attr, framework_name, op_name, set_framework_name, set_op_name, value_name
from tpusim.ir.names import unique_name
from tpusim.ir.types import uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import Array, Builder, EmitContext, FloatRule, LoweringContext, RangeRule, TopOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    UnaryTop,
    UnaryTpu,
    built_in_float,
    built_in_integers,
    only_user,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
)
from tpusim.ops.framework.logical import WITH_MM, GroupType
from tpusim.ops.interfaces import SharedWindows

FLOAT_MAX = float(np.finfo(np.float32).max)
"""The upper bound of a Clip without one; its negative is the lower bound of a Clip without one."""


# ---------------------------------------------------------------------------------------------------------------- Relu


@irdl_op_definition
class TopRelu(UnaryTop):
    """`top.Relu`: max(x, 0), then min(., relu_limit) if relu_limit > 0."""

    name = "top.Relu"
    SPEC: ClassVar[tuple[str, ...]] = ("9.7", "9.5")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f8="f8")
    RANGE: ClassVar[RangeRule] = RangeRule(backward=True, forward=True)

    relu_limit = opt_attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, relu_limit: float = -1.0, name: str) -> SSAValue:
        """relu_limit: the upper bound; below 0: none."""
        return builder.build(cls, [x], {"relu_limit": float_attr(relu_limit)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.relu_float(operands[0], limit=relu_limit_of(self)),)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Merge a Relu into its producer; before that, move it above a Concat if all producers can merge it."""
        del weights
        return TopMoveReluAheadConcatPattern(), TopFuseRelu()

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Relu on bytes (numerics.md 9.0, 9.7), or why that is not possible."""
        why, x, y = self.why_not_integer(ctx), ctx.quant(self.input), ctx.quant(self.output)
        if why is None and x is not None and y is not None and x.scale != y.scale:
            return f"a byte move needs one scale for input and output, got {x.scale:.6g} and {y.scale:.6g}"
        return why or self.on_bytes(ctx, {})

    def why_not_integer(self, ctx: LoweringContext) -> str | None:
        """The requirement of every integer form that the op does not meet; None if it meets all."""
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        return "there is no integer form with zero points (numerics.md 9.7)" if ctx.asymmetric else None

    def on_bytes(self, ctx: LoweringContext, attributes: Mapping[str, Attribute]) -> SSAValue:
        """tpu.Relu of a byte operand with a byte result."""
        operand = ctx.operand(self.input, "int8", self)
        return built_in_integers(self, ctx, TpuRelu, [operand], attributes)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, TpuRelu, {"relu_limit": float_attr(relu_limit_of(self))})


@irdl_op_definition
class TpuRelu(UnaryTpu, SharedWindows):
    """`tpu.Relu`: on bytes max(q, 0) or sat(max(RSR(q*multiplier, rshift, HALF_UP), 0)); in f32 with a limit."""

    name = "tpu.Relu"

    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        if uniform_of(self.output) is None:
            return (kernels.relu_float(x, limit=relu_limit_of(self)),)
        dtype = value_dtype(self.output)
        if self.multiplier is not None and self.rshift is not None:
            x = kernels.mulshift_int(x, self.multiplier.value.data, self.rshift.value.data, 0, 0, out_dtype=dtype)
        return (kernels.relu_int(x, out_dtype=dtype),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """RQ with relu if the op has a multiplier, else an AR copy with relu."""
        if self.multiplier is not None and self.rshift is not None:
            requant = isa.Requant(self.multiplier.value.data, self.rshift.value.data)
            ctx.emit(isa.Rescale, input=ctx.input(0), output=ctx.output(), requant=requant, relu=True)
            return
        limit = -1.0 if uniform_of(self.output) else relu_limit_of(self)
        ctx.emit(isa.Arith, kind="copy", a=ctx.input(0), output=ctx.output(), relu=True, relu_limit=limit)


# ---------------------------------------------------------------------------------------------------------------- Clip


@irdl_op_definition
class TopClip(UnaryTop):
    """`top.Clip`: min(max(x, min), max) in f32."""

    name = "top.Clip"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")

    minimum = attr_def(FloatAttr, attr_name="min")
    maximum = attr_def(FloatAttr, attr_name="max")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, minimum: float = -FLOAT_MAX, maximum: float = FLOAT_MAX, name: str
    ) -> SSAValue:
        """Bounds are clamped to the range of f32. A lower bound of 0 with a positive upper bound becomes a Relu."""
        low, high = (min(max(bound, -FLOAT_MAX), FLOAT_MAX) for bound in (minimum, maximum))
        if low == 0.0 and high > 0.0:
            return TopRelu.make(builder, x, relu_limit=-1.0 if high >= FLOAT_MAX else high, name=name)
        return builder.build(cls, [x], {"min": float_attr(low), "max": float_attr(high)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.clip_float(operands[0], self.minimum.value.data, self.maximum.value.data),)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Clip in float in every mode: it has no integer form (numerics.md 12)."""
        return built_in_float(self, ctx, TpuClip, dict(self.attributes))


@irdl_op_definition
class TpuClip(UnaryTpu, SharedWindows):
    """`tpu.Clip`: min(max(x, min), max) in f32."""

    name = "tpu.Clip"
    ALONE: ClassVar[str] = ""  # its two commands would each load and store the tensor
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM

    minimum = attr_def(FloatAttr, attr_name="min")
    maximum = attr_def(FloatAttr, attr_name="max")

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.clip_float(operands[0], self.minimum.value.data, self.maximum.value.data),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """AR maximum, then AR minimum of the result."""
        ctx.emit(isa.Arith, kind="max", a=ctx.input(0), b=self.minimum.value.data, output=ctx.output())
        ctx.emit(isa.Arith, kind="min", a=ctx.output(), b=self.maximum.value.data, output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ rewrites


class TopFuseRelu(RewritePattern):
    """An op that can have a relu, read only by a Relu -> the op with do_relu and the name of the Relu."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Relu; its producer takes relu, limit and name."""
        if not isinstance(op, TopRelu):
            return
        producer, limit = op.input.owner, relu_limit_of(op)
        if not isinstance(producer, TopOp) or not _takes_relu(producer, limit) or only_user(op.operands[0]) is None:
            return
        for field, attribute in relu_attributes(True, limit).items():
            if hasattr(producer, field):
                setattr(producer, field, attribute)
        copy_name(producer, op)
        rewriter.replace(op, [], [producer.results[0]])
        rewriter.notify_op_modified(producer)


@dataclass
class ReluApart(RewritePattern):
    """An op of this name with a relu -> the op and a Relu (U-33)."""

    kind: str

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Relu takes the name; the op is named by the part before "relu" with `_pool` and keeps its range."""
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


MOVED_AHEAD = "_move_ahead_relu"
REWRITES = 10
"""How often TPU-MLIR rewrites a Concat with an operand that cannot have a relu: its rewriter's limit (U-33)."""


class TopMoveReluAheadConcatPattern(RewritePattern):
    """Concat read only by a Relu -> a Relu on every operand up to the first that cannot have one.

    If all can have one, the Concat replaces the Relu.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The new Relus are named after their producers (U-33)."""
        concat = op.operands[0].owner if isinstance(op, TopRelu) else None
        if not isinstance(concat, TopOp) or concat.name != "top.Concat" or only_user(concat.results[0]) is None:
            return
        limit, values = relu_limit_of(op), concat.operands
        able = list(takewhile(lambda value: _takes_relu(value.owner, limit), values))
        whole = len(able) == len(values)
        if not able or (not whole and op_name(cast("Operation", able[0].owner)).endswith(MOVED_AHEAD)):
            return
        fused = len(list(takewhile(lambda value: only_user(value) is not None, able)))
        taken = _names_around(op)
        for index, value in enumerate(able):
            relu = TopRelu.create(
                operands=[value], result_types=[value.type], attributes={"relu_limit": float_attr(limit)}
            )
            times = 1 if whole or index >= fused else REWRITES
            name = unique_name(value_name(value) + MOVED_AHEAD * times, taken)
            set_op_name(relu, name)
            taken.add(name)
            rewriter.insert(relu, InsertPoint.before(concat))
            concat.operands[index] = relu.output
        if whole:
            self._return_concat(op, concat, rewriter)
        else:
            set_framework_name(concat, "")  # some of its elements are rectified now, the framework's are not
        rewriter.notify_op_modified(concat)

    @staticmethod
    def _return_concat(op: Operation, concat: TopOp, rewriter: PatternRewriter) -> None:
        if framework_name(op) == op_name(op):
            copy_name(concat, op)
        else:
            set_op_name(concat, f"{op_name(concat)}_relu", framework_name(op))
        rewriter.replace(op, [], [concat.results[0]])


def _takes_relu(op: Operation | Block, limit: float) -> bool:
    """Whether `op` can take a relu with this limit: it has the attributes; no relu yet, or neither has a limit."""
    if not isinstance(op, TopOp) or op.name == "top.Concat":
        return False
    able = hasattr(op, "do_relu") and (limit < 0 or hasattr(op, "relu_limit"))
    return able and (not relu_of(op) or max(limit, relu_limit_of(op)) < 0)


def _names_around(op: Operation) -> set[str]:
    block = op.parent_block()
    return set() if block is None else {op_name(other) for other in block.ops}
