"""Reductions: `top.Reduce` and `tpu.Reduce`, in float and, for some targets, in integers (numerics.md 11.3, 12)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, cast

import numpy as np
from tpusim_kernels.arith_shift import reduce_int
from tpusim_kernels.reduce import reduce_float
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, var_operand_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, flag, ints, ints_attr, text
from tpusim.ir.pdl import DataPattern, Drawing, one_use, shape
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import ceil_div
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    GroupType,
    LoweringContext,
    Shape,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, built_in_float, value_dtype
from tpusim.ops.framework.logical import WHOLE, WITH_MM
from tpusim.ops.framework.rewriting import shape_of_result
from tpusim.ops.pool import TopAvgPool, TopMaxPool
from tpusim.ops.pool.top import window_over

NORMS = ("ReduceL1", "ReduceL2")
KINDS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd")
LOCAL_KINDS = ("ReduceMean", "ReduceSum", "ReduceMax")
LOCAL_AXES = ((4, 2), (4, 3), (3, 2))
"""(rank, axis) of the reductions with a local form (layer_group.md 2)."""
ATTRIBUTES = ("axes", "keepdims", "mode")
MAX_IMAGE = 65536
"""Reductions of an image (the last two axes) with as many elements or more are not merged (U-31)."""


def reduced_shape(x: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after a reduction. Raises ValueError for axes that x does not have, or that occur twice."""
    if not axes or len(set(axes)) != len(axes) or not all(0 <= axis < len(x) for axis in axes):
        raise ValueError(f"distinct axes in [0, {len(x)}) are required, got {list(axes)}")
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(x))
    return tuple(size for i, size in enumerate(x) if i not in axes)


def reduced_count(op: Operation) -> int:
    """The number of elements that are reduced to one: the product of the reduced extents."""
    x = shape_of(op.operands[0])
    return prod(x[axis] for axis in ints(op.attributes["axes"]))


class Reduce(Unary):
    """Mean, sum, maximum, minimum, L1 norm, L2 norm or product over `axes`."""

    axes = attr_def(ArrayAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of the kernel."""
        return {"mode": self.mode.data, "axes": ints(self.axes), "keepdims": bool(self.keepdims.value.data)}

    @override
    def infer(self) -> tuple[Shape, ...]:
        if self.mode.data not in KINDS:
            raise ValueError(f"a mode of {', '.join(KINDS)} is required, got {self.mode.data}")
        return (reduced_shape(shape_of(self.input), ints(self.axes), bool(self.keepdims.value.data)),)


@irdl_op_definition
class TopReduce(Reduce, TopOp):
    """`top.Reduce`: a reduction in f32."""

    name = "top.Reduce"
    SPEC: ClassVar[tuple[str, ...]] = ("11.3", "12.1")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, mode: str, axes: Sequence[int] = (), keepdims: bool = True, name: str
    ) -> SSAValue:
        """mode: one of KINDS. axes: negative axes count from the end; no axis: all axes."""
        rank = len(shape_of(x))
        axes = list(axes) or list(range(rank))
        if not all(-rank <= axis < rank for axis in axes):
            raise ValueError(f"axes in [{-rank}, {rank}) are required, got {axes}")
        attributes = {
            "axes": ints_attr(sorted({axis % rank for axis in axes})), "mode": text(mode), "keepdims": flag(keepdims)
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (reduce_float(operands[0], **self.options),)

    @override
    def flops(self) -> int:
        """One per element read (DN-27)."""
        return prod(shape_of(self.input))

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Reductions that are pools of an image or views, and consecutive reductions that merge."""
        del weights
        return ReduceToReshapePattern(), ReduceFusePattern(), ReduceToRPoolPattern(), ReduceDiscontinuousPattern()

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return "a reduction has no integer form (numerics.md 12.1)"

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, TpuReduce, {key: self.attributes[key] for key in ATTRIBUTES})


class ReduceToReshapePattern(DataPattern):
    """Mean, sum, maximum, minimum or product over axes of length 1 -> Reshape.

    L1 and L2 norms stay, because they drop the sign; TPU-MLIR replaces them too.
    """

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The Reshape takes the name."""
        x = p.operand()
        op = p.op("top.Reduce", x)
        p.require(cls.moves_only, op)
        becomes = p.rewrite(op)
        becomes.replace_with("top.Reshape", x, shape=becomes.attribute(shape_of_result, op))

    @classmethod
    def moves_only(cls, op: "TopReduce") -> bool:
        """Whether each result is an element."""
        return op.mode.data not in NORMS and reduced_count(op) == 1


class ReduceFusePattern(DataPattern):
    """Reduce -> Reduce of the same mode and keepdims, the first used once: one over the axes of both.

    Norms, and reductions of an image with 65,536 elements or more, are not merged (U-31).
    """

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        x, mode, keepdims = p.operand(), p.attribute(), p.attribute()
        first = p.op("top.Reduce", x, mode=mode, keepdims=keepdims)
        p.require(one_use, first)
        p.require(cls.merges, first)
        second = p.op("top.Reduce", first, mode=mode, keepdims=keepdims)
        p.rewrite(second, cls.merge, first)

    @classmethod
    def merges(cls, first: "TopReduce") -> bool:
        """Whether a reduction may be merged with the next."""
        return first.mode.data not in NORMS and prod(shape_of(first.input)[-2:]) < MAX_IMAGE

    @classmethod
    def merge(cls, rewriter: PatternRewriter, op: "TopReduce", first: "TopReduce") -> None:
        """Replace both by one that has the name of the second."""
        rank, inner = len(shape_of(first.input)), ints(first.axes)
        left = range(rank) if op.keepdims.value.data else [a for a in range(rank) if a not in inner]
        axes = sorted({*inner, *(left[axis] for axis in ints(op.axes))})
        new = TopReduce.create(
            operands=[first.input], result_types=[op.output.type],
            attributes={**op.attributes, "axes": ints_attr(axes)},
        )  # fmt: skip
        copy_name(new, op)
        rewriter.replace(op, new)
        rewriter.erase(first)


class ReduceDiscontinuousPattern(DataPattern):
    """Reduce with keepdims over axes with axes of length 1 between them: it reduces those too."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The axes become neighbours."""
        op = p.op("top.Reduce", p.operand(), keepdims=flag(True))
        p.require(cls.has_gaps, op)
        p.rewrite(op, cls.fill_gaps)

    @classmethod
    def has_gaps(cls, op: "TopReduce") -> bool:
        """Whether axes of length 1 are between those that are reduced, and no others."""
        axes, filled = ints(op.axes), _filled(op)
        return filled != axes and filled == tuple(range(axes[0], axes[-1] + 1))

    @classmethod
    def fill_gaps(cls, rewriter: PatternRewriter, op: "TopReduce") -> None:
        """Reduce the axes between as well."""
        op.attributes["axes"] = ints_attr(_filled(op))
        rewriter.notify_op_modified(op)


def _filled(op: "TopReduce") -> tuple[int, ...]:
    """The axes, with those of length 1 between the first and the last."""
    shape, axes = shape_of(op.input), ints(op.axes)
    return tuple(a for a in range(axes[0], axes[-1] + 1) if a in axes or shape[a] == 1)


class ReduceToRPoolPattern(DataPattern):
    """Mean or maximum over height and width of (n, c, h, w) -> the pool of one window over the image."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """Without keepdims the pool returns (n, c)."""
        x = p.operand()
        p.require(shape, x, (-1, -1, -1, -1))
        op = p.op("top.Reduce", x, mode=p.choice("ReduceMean", "ReduceMax"))
        p.require(cls.is_over_image, op)
        p.rewrite(op, cls.to_pool)

    @classmethod
    def is_over_image(cls, op: "TopReduce") -> bool:
        """Whether height and width are reduced."""
        return ints(op.axes) == (2, 3)

    @classmethod
    def to_pool(cls, rewriter: PatternRewriter, op: "TopReduce") -> None:
        """Replace the reduction by the pool of its mode."""
        pool = TopAvgPool if op.mode.data == "ReduceMean" else TopMaxPool
        attributes = window_over(shape_of(op.input)[2:], average=pool is TopAvgPool)
        if not op.keepdims.value.data:
            attributes["keepdims"] = flag(False)
        new = pool.create(operands=[op.input], result_types=[op.output.type], attributes=attributes)
        copy_name(new, op)
        rewriter.replace(op, new)


@irdl_op_definition
class TpuReduce(Reduce, TpuOp):
    """`tpu.Reduce`: f32; a mean is the sum times 1/n, and 1/n is first rounded to the output's type.

    Integers: sat(floor(f32(v*multiplier)/2^rshift + 0.5)), v the sum, the maximum or the minimum.
    """

    name = "tpu.Reduce"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"),)
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM

    tables = var_operand_def(TensorType)
    multiplier = opt_attr_def(ArrayAttr)
    rshift = opt_attr_def(ArrayAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR states the tables of a square root, which follow from the mode."""
        self.operands = self.operands[:1]
        return super().take_form()

    @property
    def _scale(self) -> float:
        """The factor of a mean: 1/n, rounded to the output's type."""
        kind = storage_dtype(element_of(self.output))
        return float(np.float32(1 / reduced_count(self)).astype(kind))

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift), None in float."""
        if self.multiplier is None or self.rshift is None:
            return None
        return ints(self.multiplier)[0], ints(self.rshift)[0]

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if self.scaling is not None:
            dtype = value_dtype(self.output)
            return (reduce_int(operands[0], *self.scaling, **self.options, out_dtype=dtype),)
        return (reduce_float(operands[0], scale=self._scale, **self.options),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local for mean, sum and maximum along axis 2 or 3 of 4-D, or axis 2 of 3-D tensors (layer_group.md 2)."""
        del chip
        if self.scaling is not None:
            return "an integer reduction has no local form"
        rank, axes, mode = len(shape_of(self.input)), ints(self.axes), self.mode.data
        if mode not in LOCAL_KINDS:
            return f"{mode} reduces in global memory; {', '.join(LOCAL_KINDS)} have a local form"
        if len(axes) != 1 or (rank, axes[0]) not in LOCAL_AXES:
            return f"a reduction of rank {rank} along {list(axes)}; local are one axis, 2 or 3 of 4-D, 2 of 3-D"
        same = element_of(self.input) == element_of(self.output)
        return None if same else "the reduction changes the element type"

    @override
    def can_slice(self, axis: Axis) -> bool:
        """The axes that are not reduced (layer_group.md 4). Without keepdims axis 3 becomes axis 2 and is not cut."""
        if axis in ("n", "c"):
            return True
        (reduced,) = ints(self.axes)
        if reduced == 3:
            return axis == "h"
        return axis == "w" and bool(self.keepdims.value.data)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The reduced axis is needed whole, and so is the axis that moves into its place."""
        del operand
        return window if self.can_slice(axis) else WHOLE

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Axis 3: 2*R(c)*h*E*B; axis 2 of a tensor without width: 2*R(c)*E*B (layer_group.md 9.3)."""
        assert inputs[0] is not None  # the operand is a tensor
        _, c, h, w = inputs[0].shape
        rows = 2 * ceil_div(c, chip.lanes) * chip.eu_bytes
        if ints(self.axes)[0] == 3:
            return rows * h
        return rows if w == 1 else 0

    @override
    def emit(self, ctx: EmitContext) -> None:
        """FN reduce, or FN reduce_int on integers. In local memory axes 2 and 3 are h and w."""
        mode, axes = self.mode.data, ints(self.axes)
        if self.scaling is not None:
            function = functions.ReduceInt(cast("functions.IntReduceMode", mode), axes, *self.scaling)
        else:
            function = functions.Reduce(cast("functions.ReduceMode", mode), axes, self._scale)
        ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0),), output=ctx.output())
