"""The index of the largest or smallest element: `top.Arg` and `tpu.Arg` (numerics.md 12, interface.md 7).

Upstream's op has a second result, the extreme itself, which only exists once ReduceMax (ReduceMin) is merged into it;
Frameworks have the indices alone, and so has this op. The tpu op stores them as i32 in every mode (U-47).
"""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels.logic import arg
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i32
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, int_attr, ints, op_name, text
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
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.permute import TopPermute
from tpusim.ops.reduce import reduced_shape

ATTRIBUTES = ("axis", "keepdims", "mode", "select_last_index")


def _options(op: Operation) -> dict[str, Any]:
    """axis, mode and select_last of the kernel."""
    axis, mode, last = (op.attributes[key] for key in ("axis", "mode", "select_last_index"))
    assert isinstance(axis, IntegerAttr) and isinstance(mode, StringAttr) and isinstance(last, IntegerAttr)
    return {"axis": axis.value.data, "mode": mode.data, "select_last": bool(last.value.data)}


def _shape(op: Operation) -> Shape:
    options, keepdims = _options(op), op.attributes["keepdims"]
    if options["mode"] not in ("ArgMax", "ArgMin"):
        raise ValueError(f"mode ArgMax or ArgMin is required, got {options['mode']!r}")
    assert isinstance(keepdims, IntegerAttr)
    return reduced_shape(shape_of(op.operands[0]), (options["axis"],), bool(keepdims.value.data))


@irdl_op_definition
class TpuArg(TpuOp):
    """`tpu.Arg`: i32 indices of the extremes along `axis`."""

    name = "tpu.Arg"

    input = operand_def(TensorType)
    indices = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)
    select_last_index = attr_def(BoolAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The axis of length 1, or removed."""
        return (_shape(self),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it exactly, in integers."""
        return (arg(operands[0], **_options(self)).reshape(shape_of(self.indices)),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Say that it has no local form."""
        del chip
        return "the index of an extreme needs a whole axis"

    def emit(self, ctx: EmitContext) -> None:
        """Emit Fn `arg`; the indices are exact, in the output's type."""
        ctx.emit(isa.Fn, function=functions.Arg(**_options(self)), inputs=(ctx.input(0),), output=ctx.output())


@irdl_op_definition
class TopArg(TopOp):
    """`top.Arg`: the index of the largest (ArgMax) or smallest (ArgMin) element along `axis`, as f32."""

    name = "top.Arg"
    SPEC: ClassVar[tuple[str, ...]] = ("12.1", "12.2", "12.3")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    HOLDS: ClassVar[Holds] = "index"

    input = operand_def(TensorType)
    indices = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)
    select_last_index = attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, mode: str, axis: int = 0, keepdims: bool = True,
        select_last_index: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """mode: ArgMax or ArgMin; a negative axis counts from the end."""
        rank = len(shape_of(x))
        if not -rank <= axis < rank:
            raise ValueError(f"an axis in [{-rank}, {rank}) is required, got {axis}")
        attributes = {
            "axis": int_attr(axis % rank), "keepdims": flag(keepdims), "mode": text(mode),
            "select_last_index": flag(select_last_index),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    def infer(self) -> tuple[Shape, ...]:
        """The axis of length 1, or removed."""
        return (_shape(self),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Indices as f32, exact up to 2^24."""
        return (arg(operands[0], **_options(self)).astype("float32").reshape(shape_of(self.indices)),)

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A Permute in front of it."""
        del weights
        return (TopTransposeArg(),)

    def flops(self) -> int:
        """One per element read (DN-27)."""
        return prod(shape_of(self.input))

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Say why there is no integer form."""
        del ctx
        return f"{self.mode.data} has no integer form (numerics.md 12.1)"

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Arg of a float operand; i32 indices in every mode."""
        operands = [ctx.operand(self.input, ctx.float_mode(self), self)]
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        return ctx.build(TpuArg, operands, attributes, i32, shape_of(self.indices), op_name(self))


class TopTransposeArg(RewritePattern):
    """Permute -> Arg without keepdims, the Permute used once, the other axes in order: along the axis it came from."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Arg."""
        permute = made_by(op.input, "top.Permute") if isinstance(op, TopArg) else None
        if not isinstance(op, TopArg) or not isinstance(permute, TopPermute) or op.keepdims.value.data:
            return
        order = list(ints(permute.order))
        axis = order.pop(op.axis.value.data)
        if order == sorted(order):
            op.attributes["axis"] = int_attr(axis)
            op.operands[0] = permute.input
            rewriter.erase(permute)
            rewriter.notify_op_modified(op)
