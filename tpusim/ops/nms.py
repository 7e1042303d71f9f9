"""Boxes with the highest scores, without the boxes that they overlap: `top.Nms` (numerics.md 9.0, DN-33).

ONNX returns one row per box that is kept. Here the number of rows is fixed, and unused rows at the end are -1.
TPU-MLIR's op has the thresholds as operands.
"""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import boxes as kernels
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import flag, float_attr, int_attr
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    Holds,
    LoweringContext,
    OpT,
    Shape,
    ShapedOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu
from tpusim.ops.interfaces import FilledUp


class Nms(ShapedOp):
    """Rows (batch, class, box) of the boxes that are kept, and -1 in the unused rows (DN-33).

    It is computed in f32; each step is rounded once.
    """

    boxes = operand_def(TensorType)
    scores = operand_def(TensorType)
    output = result_def(TensorType)
    center_point_box = attr_def(IntegerAttr)
    max_output_size = attr_def(IntegerAttr)
    iou_threshold = attr_def(FloatAttr)
    score_threshold = opt_attr_def(FloatAttr)

    @property
    def most_kept(self) -> int:
        """The largest number of boxes that are kept of one class."""
        return min(self.max_output_size.value.data, shape_of(self.scores)[2])

    @property
    def options(self) -> tuple[int, float, float | None, bool]:
        """(boxes kept of one class, limit of overlaps, limit of scores or None, whether boxes are given by centres)."""
        score = None if self.score_threshold is None else float(self.score_threshold.value.data)
        return self.most_kept, float(self.iou_threshold.value.data), score, bool(self.center_point_box.value.data)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(batch x classes x boxes kept of each, 3)."""
        boxes, scores = shape_of(self.boxes), shape_of(self.scores)
        if len(boxes) != 3 or len(scores) != 3 or boxes != (scores[0], scores[2], 4):  # noqa: PLR2004  (batch, boxes, 4)
            wanted = "boxes (batch, boxes, 4) and scores (batch, classes, boxes) are required"
            raise ValueError(f"{wanted}, got {boxes} and {scores}")
        return ((scores[0] * scores[1] * self.most_kept, 3),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        kept, iou, score, center = self.options
        boxes, scores = operands
        return (kernels.non_max_suppression(boxes, scores, kept=kept, iou=iou, score=score, center=center),)


@irdl_op_definition
class TpuNms(Nms, MacroTpu):
    """`tpu.Nms`: rows (batch, class, box) in i32."""

    name = "tpu.Nms"

    @override
    def function(self) -> functions.Function:
        return functions.Nms(*self.options)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """The scores come first: the clock counts steps for each score."""
        ctx.emit(isa.Fn, function=self.function(), inputs=(ctx.input(1), ctx.input(0)), output=ctx.output())


@irdl_op_definition
class TopNms(Nms, MacroTop, FilledUp):
    """`top.Nms`: rows (batch, class, box) as f32, exact up to 2^24."""

    name = "top.Nms"
    TPU: ClassVar[OpT] = TpuNms
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    HOLDS: ClassVar[Holds] = "index"

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, boxes: SSAValue, scores: SSAValue, *, most: int, iou: float = 0.0,
        score: float | None = None, center: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """Append the op; limits are f32.

        most: boxes kept of one class. iou: limit of overlaps. score: limit of scores, None for no limit. center:
        whether boxes are centres and extents instead of corners.
        """
        if most < 1:
            raise ValueError(f"max_output_boxes_per_class of 1 or more is required, got {most}, which keeps no box")
        if not 0 <= iou <= 1:
            raise ValueError(f"an iou_threshold in [0, 1] is required, got {iou}")
        attributes: dict[str, Attribute] = {
            "center_point_box": flag(center), "max_output_size": int_attr(most), "iou_threshold": float_attr(iou),
        }  # fmt: skip
        if score is not None:
            attributes["score_threshold"] = float_attr(score)
        return builder.build(cls, [boxes, scores], attributes, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (super().inference(operands)[0].astype("float32"),)

    @override
    def without_padding(self, result: np.ndarray) -> np.ndarray:
        return result[result[:, 2] >= 0]

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        ctx.decision(self, "DN-33")
        return super().lower_float(ctx)

    @override
    def flops(self) -> int:
        """One per score read (DN-27)."""
        return prod(shape_of(self.scores))
