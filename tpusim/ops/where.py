"""Selection: `top.Where` and `tpu.Where` (numerics.md 3.3 step 8, 9.0, 17.2 where_const_no_round_mode)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels import logic as kernels
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from tpusim_kernels.prim.smallfloat import within_bf16
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import copy_name, flag, float_attr, ints_attr, op_name, set_op_name, value_name
from tpusim.ir.names import unique_name
from tpusim.ir.types import element_of, shape_of, tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.region import View
from tpusim.ops.compare import TopCompareConst
from tpusim.ops.const_binary import TopMaxConst, TopMinConst
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    GroupType,
    LoweringContext,
    NumberMode,
    QuantParams,
    RangeRule,
    Shape,
    ShapedOp,
    TopOp,
    TpuOp,
    is_none,
    reads_indices,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    ExactIndices,
    aligned,
    broadcast_shape,
    broadcast_why_global,
    built_in_integers,
    constant_of,
    is_set,
    mixed_depth,
    relu_attributes,
    value_dtype,
)
from tpusim.ops.framework.rewriting import Requested, made_by
from tpusim.ops.interfaces import ChipRewrites, Selects
from tpusim.ops.rescale import TOO_LARGE, positive_fit, requantised
from tpusim.ops.structure import TopWeight, make_weight
from tpusim.ops.tile import TopTile
from tpusim.ops.view import reshaped


def _shapes(operands: Sequence[SSAValue]) -> list[Shape]:
    """The shapes of the operands that are present."""
    return [shape_of(v) for v in operands if not is_none(v)]


class Where(ShapedOp):
    """tbrn where cond is not 0, else fbrn; condition and tensors broadcast.

    A branch that is a constant number is `none`. Its number is x_const_val for tbrn, y_const_val for fbrn.
    """

    cond = operand_def(TensorType)
    tbrn = operand_def(TensorType | NoneType)
    fbrn = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    x_is_const = opt_attr_def(BoolAttr)
    y_is_const = opt_attr_def(BoolAttr)
    x_const_val = attr_def(FloatAttr)
    y_const_val = attr_def(FloatAttr)

    @property
    def numbers(self) -> tuple[float, float]:
        """The numbers of constant branches: (x_const_val, y_const_val)."""
        return self.x_const_val.value.data, self.y_const_val.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (broadcast_shape(_shapes(self.operands)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        kind = "float32" if uniform_of(self.output) is None else value_dtype(self.output)
        rank = len(shape_of(self.output))
        branches: list[Array] = [
            np.full((1,) * rank, number, kind) if x is None else x
            for x, number in zip(operands[1:], self.numbers, strict=True)
        ]
        return (kernels.where(operands[0], *branches),)


@irdl_op_definition
class TpuWhere(Where, TpuOp):
    """`tpu.Where`: selects bytes or floats, element by element."""

    name = "tpu.Where"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local if the operands broadcast as those of local binary ops do (layer_group.md 2)."""
        del chip
        return broadcast_why_global(_shapes(self.operands))

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """In 3D groups n and d, which are one axis, broadcast together."""
        if kind is GroupType.GROUP_3D and (why := mixed_depth(_shapes(self.operands))) is not None:
            return f"{self.name} {why}"
        return super().why_not_in(kind, chip)

    @override
    def emit(self, ctx: EmitContext) -> None:
        branches: list[View | float] = [
            number if is_none(value) else ctx.input(i)
            for i, (value, number) in enumerate(zip((self.tbrn, self.fbrn), self.numbers, strict=True), 1)
        ]
        ctx.emit(
            isa.Where, condition=ctx.input(0), on_true=branches[0], on_false=branches[1], output=ctx.output()
        )  # fmt: skip


@irdl_op_definition
class TopWhere(ExactIndices, Where, TopOp, ChipRewrites, Selects):
    """`top.Where`: tbrn where cond is not 0, else fbrn."""

    name = "top.Where"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "3.3")
    RANGE: ClassVar[RangeRule] = RangeRule(select=True)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, cond: SSAValue, tbrn: SSAValue | float, fbrn: SSAValue | float, *, name: str
    ) -> SSAValue:
        """cond: 0 where false. A branch is a tensor or a number; condition and tensors broadcast."""
        tensors = iter(aligned(builder, [cond, *(b for b in (tbrn, fbrn) if isinstance(b, SSAValue))]))
        operands, attributes = [next(tensors)], dict[str, Attribute]()
        for key, branch in (("x", tbrn), ("y", fbrn)):
            constant = not isinstance(branch, SSAValue)
            attributes[f"{key}_is_const"] = flag(constant)
            attributes[f"{key}_const_val"] = float_attr(branch if constant else 0.0)
            operands.append(builder.none() if constant else next(tensors))
        return builder.build(cls, operands, attributes, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A Where that only limits its operand becomes MaxConst or MinConst; a constant condition is tiled."""
        return CompareConstWhereToMinConst(), WhereBroadcastToTile(weights)

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A computed branch is repeated to the result's shape."""
        del weights, chip
        return (BranchesToTiles(),)

    @override
    def constant_branches(self) -> tuple[float, ...]:
        """The branches that are constant numbers, in the order (true, false)."""
        flags = (is_set(self.x_is_const), is_set(self.y_is_const))
        return tuple(number for number, given in zip(self.numbers, flags, strict=True) if given)

    @override
    def flops(self) -> int:
        """One per element (DN-27)."""
        return int(np.prod(shape_of(self.output)))

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        out, why = ctx.quant(self.output), self._why_not_int8(ctx)
        if why is not None or out is None:
            return why or "the output is not calibrated"
        attributes = dict(self.attributes)
        for key, number in zip("xy", self.numbers, strict=True):
            if is_set(self.x_is_const if key == "x" else self.y_is_const):
                attributes[f"{key}_const_val"] = float_attr(float(self._rounded(ctx, np.array(number), out)))
        branches = [self._stored(ctx, value, out) for value in (self.tbrn, self.fbrn)]
        operands = [self._condition(ctx, "int8"), *branches]
        return built_in_integers(self, ctx, TpuWhere, operands, attributes)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        mode = ctx.float_mode(self)
        branches = [ctx.none() if is_none(v) else ctx.operand(v, mode, self) for v in (self.tbrn, self.fbrn)]
        operands = [self._condition(ctx, mode), *branches]
        attributes, element = dict(self.attributes), ctx.float_type(self)
        if ctx.chip.hardware.bf16_unit:
            numbers = (float(within_bf16(number)) for number in self.numbers)
            attributes |= {f"{key}_const_val": float_attr(n) for key, n in zip("xy", numbers, strict=True)}
        return ctx.build(TpuWhere, operands, attributes, element, shape_of(self.output), op_name(self))

    def _condition(self, ctx: LoweringContext, mode: NumberMode) -> SSAValue:
        """The condition in `mode`; a constant condition of bytes is 0 or 1."""
        constant = ctx.array(self.cond)
        if constant is None or mode != "int8":
            return ctx.operand(self.cond, mode, self)
        return ctx.weight(value_name(self.cond) + "_uint8", (constant != 0).astype(np.uint8))

    def _stored(self, ctx: LoweringContext, value: SSAValue, out: QuantParams) -> SSAValue:
        """A branch as the output's integers; a constant becomes sat(round-half-away(c/s + z)) (numerics.md 9.0)."""
        if is_none(value):
            return ctx.none()
        constant, quant = ctx.array(value), ctx.quant(value)
        if constant is None:
            stored = ctx.operand(value, "int8", self)
            other_sign = quant is not None and quant.dtype != out.dtype
            operand = requantised(ctx, self, stored, quant, self.output) if quant and other_sign else stored
            assert operand is not None  # _why_not_int8 refuses a branch without a multiplier
            return operand
        return ctx.weight(value_name(value) + "_" + out.dtype, self._rounded(ctx, constant, out))

    def _rounded(self, ctx: LoweringContext, constant: np.ndarray, out: QuantParams) -> np.ndarray:
        """sat(c/s + z), rounded half away from zero; with the quirk off, half up."""
        real = np.asarray(constant.astype(np.float64) / out.scale + out.zero_point)
        theirs, ours = (saturate_np(v, out.dtype) for v in (round_half_away(real), np.floor(real + 0.5)))
        return ctx.quirked(self, Quirk.WHERE_CONST_NO_ROUND_MODE, theirs, ours)

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        if reads_indices(self):
            return "indices are selected in f32"
        if ctx.array(self.cond) is None:
            condition = ctx.quant(self.cond)
            if condition is None:
                return "the condition is not calibrated"
            if condition.zero_point:
                return "the condition's bytes are not 0 where it is false"
        branches = [v for v in (self.tbrn, self.fbrn) if not is_none(v) and ctx.array(v) is None]
        return next((why for v in branches if (why := self._why_no_bytes(ctx, v)) is not None), None)

    def _why_no_bytes(self, ctx: LoweringContext, branch: SSAValue) -> str | None:
        """Why a branch's integers cannot be selected as they are; None if they can.

        Decision: bytes whose sign differs from the output's are requantised first.
        """
        out, quant = ctx.quant(self.output), ctx.quant(branch)
        if out is None or quant is None:
            return f"branch '{value_name(branch)}' is not calibrated"
        if quant == out:
            return None
        # U-12: TPU-MLIR selects the bytes of a branch although its scale or zero point differs from the output's.
        if not ctx.reproduces(Quirk.WHERE_RAW_BYTES):
            return f"branch '{value_name(branch)}' has another scale or zero point than the output (numerics.md 9.0)"
        if quant.dtype != out.dtype and positive_fit(ctx, self, quant.scale / out.scale) is None:
            return TOO_LARGE
        ctx.decision(self, Quirk.WHERE_RAW_BYTES.decision)
        return None


# ------------------------------------------------------------------------------------------------------------ rewrites

TOO_LOW, MASKED = -3e30, -1e4
"""Constant branches below TOO_LOW are masks; they become MASKED (U-23)."""


class CompareConstWhereToMinConst(RewritePattern):
    """Where(x < c, c, x) -> MaxConst, Where(x > c, c, x) -> MinConst; nothing else reads the comparison."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Where."""
        compare = made_by(op.cond, "top.CompareConst") if isinstance(op, TopWhere) else None
        if not isinstance(op, TopWhere) or not isinstance(compare, TopCompareConst):
            return
        new = {"Less": TopMaxConst, "Greater": TopMinConst}.get(compare.mode.data)
        number = compare.const_val.value.data
        constant = is_set(op.x_is_const) and not is_set(op.y_is_const) and op.x_const_val.value.data == number
        if new is None or is_set(compare.inversed) or not constant or op.fbrn is not compare.input:
            return
        made = new.create(
            operands=[op.fbrn], result_types=[op.output.type],
            attributes={"const_val": float_attr(number), **relu_attributes()},
        )  # fmt: skip
        copy_name(made, op)
        rewriter.replace(op, made)
        rewriter.erase(compare)


@dataclass
class WhereBroadcastToTile(RewritePattern):
    """A condition of a smaller shape is repeated to the result's: a constant at once, a computed one by a Tile."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Where."""
        if not isinstance(op, TopWhere) or shape_of(op.cond) == shape_of(op.output):
            return
        name, condition = f"{op_name(op)}_Tile", constant_of(op.cond, self.weights)
        if condition is None:
            op.operands[0] = _repeated(op.cond, shape_of(op.output), name, rewriter)
        else:
            tiled = np.ascontiguousarray(np.broadcast_to(condition, shape_of(op.output)))
            weight = make_weight(self.weights, name, tiled, element_of(op.cond))
            rewriter.insert(weight, InsertPoint.before(op))
            op.operands[0] = weight.output
        rewriter.notify_op_modified(op)


class BranchesToTiles(RewritePattern):
    """Computed branches of a smaller shape are repeated to the result's (U-112)."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Where."""
        for index in (1, 2) if isinstance(op, TopWhere) else ():
            value, shape = op.operands[index], shape_of(op.results[0])
            if is_none(value) or isinstance(value.owner, TopWeight) or shape_of(value) == shape:
                continue
            op.operands[index] = _repeated(value, shape, f"{value_name(value)}_Tile", rewriter)
            rewriter.notify_op_modified(op)


def _repeated(value: SSAValue, shape: Shape, name: str, rewriter: PatternRewriter) -> SSAValue:
    """A value with as many axes as `shape`, then repeated to it by a Tile called `name`; both directly after it.

    What repeats it to that shape already is read again; ops of other shapes have other names.
    """
    missing = len(shape) - len(shape_of(value))
    if missing:
        view = reshaped(value, (1,) * missing + shape_of(value), f"{value_name(value)}_ToOutDim")
        value = _inserted(view, rewriter)
    if shape_of(value) == shape:
        return value
    times = [whole // part for part, whole in zip(shape_of(value), shape, strict=True)]
    tile = TopTile.create(
        operands=[value], result_types=[tensor(shape, element_of(value))], attributes={"tile": ints_attr(times)}
    )
    set_op_name(tile, name)
    return _inserted(tile, rewriter)


def _inserted(made: Operation, rewriter: PatternRewriter) -> SSAValue:
    """The result of an op that is put directly after its operand, or of an equal one that reads the operand already."""
    value, result = made.operands[0], made.results[0]
    assert isinstance(value.owner, Operation)  # a top value is made by an op
    for other in (use.operation for use in value.uses):
        known = other is not made and type(other) is type(made) and other.attributes == made.attributes
        if known and shape_of(other.results[0]) == shape_of(result):
            made.erase()
            return other.results[0]
    block = value.owner.parent_block()
    set_op_name(made, unique_name(op_name(made), {op_name(op) for op in block.ops} if block else ()))
    rewriter.insert(made, InsertPoint.after(value.owner))
    return result


class WhereTooLarge(Requested):
    """A constant branch below -3e30 -> -1e4 (U-23). It changes values, so it runs on request only."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Both branches are checked."""
        for key in ("x_const_val", "y_const_val") if isinstance(op, TopWhere) else ():
            number = op.attributes[key]
            if isinstance(number, FloatAttr) and number.value.data < TOO_LOW:
                op.attributes[key] = float_attr(MASKED)
                rewriter.notify_op_modified(op)
