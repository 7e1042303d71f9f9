"""The index of the largest or smallest element: `top.Arg` and `tpu.Arg` (numerics.md 12, interface.md 7).

This op returns the indices alone, as frameworks do. TPU-MLIR's op has a second result, the extreme itself, for a
ReduceMax or ReduceMin that is merged into it. The tpu op stores the indices as i32 in every mode (U-47).
"""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels.logic import arg
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i32
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, int_attr, ints, op_name, text
from tpusim.ir.pdl import DataPattern, Drawing, one_use
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    Holds,
    LoweringContext,
    Shape,
    ShapedOp,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import checked_axis
from tpusim.ops.permute import TopPermute
from tpusim.ops.reduce import reduced_shape

ATTRIBUTES = ("axis", "keepdims", "mode", "select_last_index")


class Arg(ShapedOp):
    """The index of the largest (ArgMax) or smallest (ArgMin) element along `axis`."""

    input = operand_def(TensorType)
    indices = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)
    select_last_index = attr_def(BoolAttr)

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of the kernel and of the macro function."""
        last = bool(self.select_last_index.value.data)
        return {"axis": self.axis.value.data, "mode": self.mode.data, "select_last": last}

    @override
    def infer(self) -> tuple[Shape, ...]:
        if self.mode.data not in ("ArgMax", "ArgMin"):
            raise ValueError(f"mode ArgMax or ArgMin is required, got {self.mode.data!r}")
        return (reduced_shape(shape_of(self.input), (self.axis.value.data,), bool(self.keepdims.value.data)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (arg(operands[0], **self.options).reshape(shape_of(self.indices)),)


@irdl_op_definition
class TpuArg(Arg, TpuOp):
    """`tpu.Arg`: indices in i32."""

    name = "tpu.Arg"

    @property
    def is_constant(self) -> bool:
        """Whether the axis has one element."""
        return shape_of(self.input)[self.axis.value.data] == 1

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "the index of an extreme needs a whole axis"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """FN arg; along one element a fill, because its place is known."""
        if self.is_constant:
            ctx.fill(ctx.output(), 0, kind="matrix")
            return
        ctx.emit(isa.Fn, function=functions.Arg(**self.options), inputs=(ctx.input(0),), output=ctx.output())


@irdl_op_definition
class TopArg(Arg, TopOp):
    """`top.Arg`: indices as f32, exact up to 2^24."""

    name = "top.Arg"
    SPEC: ClassVar[tuple[str, ...]] = ("12.1", "12.2", "12.3")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    HOLDS: ClassVar[Holds] = "index"

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, mode: str, axis: int = 0, keepdims: bool = True,
        select_last_index: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """mode: ArgMax or ArgMin; a negative axis counts from the end."""
        attributes = {
            "axis": int_attr(checked_axis(axis, shape_of(x))), "keepdims": flag(keepdims), "mode": text(mode),
            "select_last_index": flag(select_last_index),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (super().inference(operands)[0].astype("float32"),)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Rewrite an Arg after a Permute."""
        del weights
        return (TopTransposeArg(),)

    @override
    def flops(self) -> int:
        """One per element read (DN-27)."""
        return prod(shape_of(self.input))

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return f"{self.mode.data} has no integer form (numerics.md 12.1)"

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Arg of a float operand; the indices are i32 in every mode."""
        operands = [ctx.operand(self.input, ctx.float_mode(self), self)]
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        return ctx.build(TpuArg, operands, attributes, i32, shape_of(self.indices), op_name(self))


class TopTransposeArg(DataPattern):
    """Permute that keeps the order of the other axes -> Arg without keepdims: the Arg alone, along the axis before."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        permute = p.op("top.Permute", p.operand())
        p.require(one_use, permute)
        op = p.op("top.Arg", permute, keepdims=flag(False))
        p.require(cls.keeps_others, op, permute)
        p.rewrite(op, cls.read_before, permute)

    @classmethod
    def keeps_others(cls, op: "TopArg", permute: TopPermute) -> bool:
        """Whether the Permute keeps the order of the axes that the Arg does not go along."""
        order = list(ints(permute.order))
        order.pop(op.axis.value.data)
        return order == sorted(order)

    @classmethod
    def read_before(cls, rewriter: PatternRewriter, op: "TopArg", permute: TopPermute) -> None:
        """Let the Arg read what the Permute reads."""
        op.axis = IntegerAttr(ints(permute.order)[op.axis.value.data], op.axis.type)
        op.operands[0] = permute.input
        rewriter.erase(permute)
        rewriter.notify_op_modified(op)
