"""Boxes of the highest scores without those that they cover: `top.Nms` (numerics.md 9.0, DN-33).

ONNX gives as many rows as there are boxes; here as there may be, with -1 in the rows behind the last. Upstream's op has
the thresholds as operands.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tpusim_kernels import boxes as kernels
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, int_attr
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, EmitContext, FloatRule, Holds, LoweringContext, OpT, Shape
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu
from tpusim.ops.interfaces import FilledUp


def _rows(op: Operation) -> tuple[Shape, ...]:
    """(batch x classes x boxes of each, 3)."""
    boxes, scores = (shape_of(v) for v in op.operands)
    if len(boxes) != 3 or len(scores) != 3 or boxes != (scores[0], scores[2], 4):  # noqa: PLR2004  (batch, boxes, 4)
        wanted = "boxes (batch, boxes, 4) and scores (batch, classes, boxes) are required"
        raise ValueError(f"{wanted}, got {boxes} and {scores}")
    return ((scores[0] * scores[1] * _kept(op), 3),)


def _kept(op: Operation) -> int:
    """How many boxes of a class may be kept."""
    most = op.attributes["max_output_size"]
    assert isinstance(most, IntegerAttr)
    return min(most.value.data, shape_of(op.operands[1])[2])


def _options(op: "TpuNms | TopNms") -> tuple[int, float, float | None, bool]:
    """Boxes kept at most, the limit of overlaps, that of scores if there is one, and whether boxes have centres."""
    score = None if op.score_threshold is None else float(op.score_threshold.value.data)
    return _kept(op), float(op.iou_threshold.value.data), score, bool(op.center_point_box.value.data)


def _chosen(op: "TpuNms | TopNms", operands: Sequence[Array]) -> Array:
    kept, iou, score, center = _options(op)
    return kernels.non_max_suppression(operands[0], operands[1], kept=kept, iou=iou, score=score, center=center)


@irdl_op_definition
class TpuNms(MacroTpu):
    """`tpu.Nms`: rows (batch, class, box) in i32."""

    name = "tpu.Nms"

    boxes = operand_def(TensorType)
    scores = operand_def(TensorType)
    output = result_def(TensorType)
    center_point_box = attr_def(BoolAttr)
    max_output_size = attr_def(IntegerAttr)
    iou_threshold = attr_def(FloatAttr)
    score_threshold = opt_attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """A row for each box that may be kept."""
        return _rows(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 arithmetic, each step rounded once."""
        return (_chosen(self, operands),)

    def function(self) -> functions.Function:
        """Nms with the attributes as parameters."""
        return functions.Nms(*_options(self))

    def emit(self, ctx: EmitContext) -> None:
        """Scores first: the clock counts steps for each of them."""
        ctx.emit(isa.Fn, function=self.function(), inputs=(ctx.input(1), ctx.input(0)), output=ctx.output())


@irdl_op_definition
class TopNms(MacroTop, FilledUp):
    """`top.Nms`: (batch, class, box) of the boxes kept, as f32; -1 in the rows behind the last (DN-33)."""

    name = "top.Nms"
    TPU: ClassVar[OpT] = TpuNms
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    HOLDS: ClassVar[Holds] = "index"

    boxes = operand_def(TensorType)
    scores = operand_def(TensorType)
    output = result_def(TensorType)
    center_point_box = attr_def(BoolAttr)
    max_output_size = attr_def(IntegerAttr)
    iou_threshold = attr_def(FloatAttr)
    score_threshold = opt_attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, boxes: SSAValue, scores: SSAValue, *, most: int, iou: float = 0.0,
        score: float | None = None, center: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """most: boxes of a class kept at most; iou, score: limits in f32, None: none; center: centres and extents."""
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

    def infer(self) -> tuple[Shape, ...]:
        """A row for each box that may be kept."""
        return _rows(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Numbers as f32, exact up to 2^24."""
        return (_chosen(self, operands).astype("float32"),)

    def without_padding(self, result: np.ndarray) -> np.ndarray:
        """The rows that stand for boxes."""
        return result[result[:, 2] >= 0]

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Nms in float; it follows decision DN-33."""
        ctx.decision(self, "DN-33")
        return super().lower_float(ctx)

    def flops(self) -> int:
        """One per score read (DN-27)."""
        n, classes, boxes = shape_of(self.scores)
        return n * classes * boxes
