"""Slices of Slices, of whole tensors, and Slices that are joined again, by TPU-MLIR's names (interface.md 7.3)."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, ints_attr
from tpusim.ir.pdl import DataPattern, Drawing
from tpusim.ir.types import shape_of, tensor
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.rewriting import keeps_shape, numbers_of, users
from tpusim.ops.view import vanish

SLICE = "top.Slice"
Part = tuple[tuple[int, int, int], ...]
"""(offset, step, end) along every axis."""


def part_of_slice(op: Operation) -> Part:
    """The part that a Slice takes."""
    columns = (numbers_of(op, key) for key in ("offset", "steps", "ends"))
    return tuple(zip(*columns, strict=True))


def slice_attributes(part: Part) -> dict[str, Attribute]:
    """The attributes of a Slice that takes a part."""
    offsets, steps, ends = zip(*part, strict=True)
    return {"offset": ints_attr(offsets), "steps": ints_attr(steps), "ends": ints_attr(ends)}


class NoUseSlicePattern(DataPattern):
    """A Slice of the whole tensor is removed."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """If the network returns the tensor and the Slice, a view of the tensor has the Slice's name."""
        x = p.operand()
        op = p.op(SLICE, x)
        p.require(keeps_shape, op, x)
        p.rewrite(op, vanish, x)


class MergeSlicePattern(DataPattern):
    """Slice -> Slice, the first read by Slices only: one Slice of the first's operand.

    If several Slices read the first, each merges with it; TPU-MLIR does that in another pattern (SplitSlicePattern).
    """

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        first = p.op(SLICE, p.operand())
        p.require(cls.is_read_by_slices, first)
        p.rewrite(p.op(SLICE, first), cls.merge, first)

    @classmethod
    def is_read_by_slices(cls, op: Operation) -> bool:
        """Whether nothing but Slices reads a Slice."""
        return all(user.name == SLICE for user in users(op.results[0]))

    @classmethod
    def merge(cls, rewriter: PatternRewriter, op: Operation, first: Operation) -> None:
        """Let the second take its part of what the first reads."""
        both = zip(part_of_slice(first), part_of_slice(op), shape_of(op.results[0]), strict=True)
        merged = tuple(
            (o1 + o2 * s1, s1 * s2, o1 + (o2 + (count - 1) * s2) * s1 + 1)
            for (o1, s1, _), (o2, s2, _), count in both
        )  # fmt: skip
        op.attributes |= slice_attributes(merged)
        op.operands[0] = first.operands[0]
        rewriter.notify_op_modified(op)


@dataclass
class MergeSliceConcatPattern(RewritePattern):
    """Concat of neighbouring Slices of one tensor -> one Slice, or the tensor itself."""

    slice: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Slice takes the Concat's name."""
        if op.name != "top.Concat":
            return
        parts = [v.owner for v in op.operands if isinstance(v.owner, Operation) and v.owner.name == SLICE]
        axis = op.attributes["axis"]
        if len(parts) < len(op.operands) or not isinstance(axis, IntegerAttr):
            return
        x = parts[0].operands[0]
        part = self._joined(x, parts, axis.value.data)
        if part is None:
            return
        if tensor(shape_of(x)) == tensor(shape_of(op.results[0])):
            vanish(rewriter, op, x)
            return
        new = self.slice.create(operands=[x], result_types=[op.results[0].type], attributes=slice_attributes(part))
        copy_name(new, op)
        rewriter.replace(op, new)

    def _joined(self, x: SSAValue, slices: Sequence[Operation], axis: int) -> Part | None:
        """The part that Slices of one tensor take together along an axis; None if they are not adjacent."""
        parts = [part_of_slice(s) for s in slices]
        first, last = parts[0], parts[-1]
        elsewhere = {(*p[:axis], *p[axis + 1 :]) for p in parts}
        if any(s.operands[0] is not x for s in slices) or len(elsewhere) > 1 or any(p[axis][1] != 1 for p in parts):
            return None
        if any(a[axis][2] != b[axis][0] for a, b in zip(parts, parts[1:], strict=False)):
            return None
        return (*first[:axis], (first[axis][0], 1, last[axis][2]), *first[axis + 1 :])
