"""A convolution of the network's image: its padding becomes a Pad before the layer groups."""

from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import flag, float_attr, ints_attr, op_name, set_op_name, text
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ops.cast import TpuCast
from tpusim.ops.conv import TpuConv2D
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import is_set, only_user, zero_point
from tpusim.ops.structure import TopInput

COLOURS = 3
"""The channels of an image for which the library treats the rows of the kernel as channels."""


@dataclass
class PaddedImageConv(RewritePattern):
    """Padded integer Conv2D of one group over the network's input of 3 channels -> Pad of rows, Conv2D.

    The cast of the input, if there is one, must have no other user; the kernel must have several rows without dilation.
    The padding of columns stays in the convolution.
    """

    pad: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the convolution; it keeps its name."""
        if not isinstance(op, TpuConv2D) or is_set(op.rows_in_channels) or not _of_image(op):
            return
        (top, left, bottom, right), x = op.geometry["pads"], shape_of(op.input)
        padded = TensorType(element_of(op.input), (*x[:2], x[2] + top + bottom, x[3]))
        attributes = {
            "paddings": ints_attr((0, 0, top, 0, 0, 0, bottom, 0)),
            "mode": text("constant"),
            "val": float_attr(zero_point(op.input)),
        }
        pad = self.pad.create(operands=[op.input], result_types=[padded], attributes=attributes)
        set_op_name(pad, f"{op_name(op)}_pad")
        rewriter.insert(pad)
        op.operands[0] = pad.results[0]
        op.pads, op.rows_in_channels = ints_attr((0, left, 0, right)), flag(True)
        rewriter.notify_op_modified(op)


def _of_image(op: TpuConv2D) -> bool:
    """Whether the library treats the rows of the kernel as channels, and the convolution has padding."""
    geometry, source = op.geometry, op.input.owner
    if isinstance(source, TpuCast):
        source = source.input.owner if only_user(op.input) is not None else None
    small = storage_dtype(element_of(op.input)).itemsize == 1 and op.inserts is None and not op.packed
    rows = op.kernel[0] > 1 and geometry["dilations"][0] == 1 and any(geometry["pads"])
    return isinstance(source, TopInput) and small and rows and op.groups == 1 and shape_of(op.input)[1] == COLOURS
