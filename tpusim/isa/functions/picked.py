"""Functions that pick elements, or return their places."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted, equal_shapes, has_axis, left_without, reduced
from tpusim.isa.yuv import YuvFormat, YuvPlanes

_EXTREMES = 4
"""Adjacent elements along the last axis in which one lane searches an extreme."""


class Gather(Function, frozen=True, tag="gather"):
    """Elements of the first operand along `axis` at the indices in the second."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One element, or row, of the result per index."""
        if (why := counted(operands, 2) or has_axis(self.axis, operands[0])) is not None:
            return why
        found = left_without(operands[0], (self.axis,)) * prod(operands[1])
        return None if found == prod(result) else Misfit(f"a result of {found} elements", f"{result}")


class ChannelTables(Function, frozen=True, tag="channel_tables"):
    """Every byte of the first operand, looked up in the table of its channel (axis 1): 256 entries of the second."""

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A table for each channel."""
        if (why := counted(operands, 2) or equal_shapes(operands[:1], result)) is not None:
            return why
        wanted, got = 256 * result[1] if len(result) > 1 else 0, prod(operands[1])
        return None if wanted == got else Misfit(f"256 entries for each of the channels of {result}", f"{got}")


class YuvToBgr(Function, frozen=True, tag="yuv_to_bgr"):
    """Planes b, g, r of frames in YUV, in bytes; rows of brightness and planes begin at multiples."""

    format: YuvFormat
    height: int
    width: int
    row_bytes: int
    channel_align: int

    def made_of(self, operands: int) -> Steps:
        """Two offsets taken off, a product, and a product with a sum for each of up to two colours, then a cast."""
        return Steps(arithmetic=6, lookups=0)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Frames of as many bytes as their planes take, and three planes of the result for each."""
        if (why := counted(operands, 1)) is not None:
            return why
        planes = YuvPlanes(self.format, self.height, self.width, self.row_bytes, self.channel_align)
        wanted = (operands[0][0], 3, self.height, self.width)
        if result != wanted:
            return Misfit(f"a result of shape {wanted}", f"{result}")
        total = wanted[0] * planes.total
        return None if prod(operands[0]) == total else Misfit(f"frames of {total} bytes", f"{operands[0]}")


class Arg(Function, frozen=True, tag="arg"):
    """Index of the extreme along `axis` as i32: the first of equals, or the last."""

    OVER_INPUT: ClassVar[bool] = True

    axis: int
    mode: Literal["ArgMax", "ArgMin"]
    select_last: bool = False

    def made_of(self, operands: int) -> Steps:
        """A comparison and a selection over the operand."""
        return Steps(arithmetic=2)

    def kernel_run(self, run: int, shape: Shape, chip: ChipSpec) -> int:
        """The adjacent elements in which one lane searches an extreme."""
        return super().kernel_run(min(run, _EXTREMES), shape, chip)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One index per row."""
        return reduced(operands, (self.axis,), result)


class GatherElements(Function, frozen=True, tag="gather_elements"):
    """An element of the first operand per index of the second, along `axis`; negative indices count from the end."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Data and indices of one rank; the result has the shape of the indices."""
        if (why := counted(operands, 2) or has_axis(self.axis, operands[0])) is not None:
            return why
        return _inside(operands[0], operands[1], self.axis) or equal_shapes(operands[1:], result)


class ScatterElements(Function, frozen=True, tag="scatter_elements"):
    """The first operand with the third's elements at the second's indices along `axis`, in place or combined."""

    axis: int
    reduction: Literal["none", "add", "mul", "max", "min"] = "none"

    def made_of(self, operands: int) -> Steps:
        """One access per element, and a step to combine."""
        return Steps(arithmetic=int(self.reduction != "none"), lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Data of the result's shape; indices and updates of one shape."""
        if (why := equal_shapes(operands, result, 3) or has_axis(self.axis, operands[0])) is not None:
            return why
        return _inside(operands[0], operands[1], self.axis) or equal_shapes(operands[1:], operands[2], 2)


def _inside(data: Shape, indices: Shape, axis: int) -> Misfit | None:
    """Indices have the data's rank, and are not longer than it along other axes."""
    if len(data) == len(indices) and all(
        n <= m or a == axis for a, (n, m) in enumerate(zip(indices, data, strict=True))
    ):
        return None
    return Misfit(f"indices of rank {len(data)} not longer than {data} except along axis {axis}", f"{indices}")


class TopK(Function, frozen=True, tag="topk"):
    """The k largest or smallest elements along `axis` in order, or their places as i32; of equals the first.

    first: this command does the work, another one for the same operand only stores its result.
    """

    OVER_INPUT: ClassVar[bool] = True

    axis: int
    k: int
    largest: bool = True
    result: Literal["values", "indices"] = "indices"
    first: bool = True

    @property
    def loads(self) -> bool:
        """Only the first command loads the operand."""
        return self.first

    def made_of(self, operands: int) -> Steps:
        """A comparison and two moves over the operand."""
        return Steps(arithmetic=3 * self.first)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """K places along the axis."""
        if (why := counted(operands, 1) or has_axis(self.axis, operands[0])) is not None:
            return why
        wanted = (*operands[0][: self.axis], self.k, *operands[0][self.axis + 1 :])
        return None if wanted == result else Misfit(f"a result of {wanted}", f"{result}")


class Reverse(Function, frozen=True, tag="reverse"):
    """The elements of the operand along `axis` in opposite order."""

    axis: int

    def kernel_run(self, run: int, shape: Shape, chip: ChipSpec) -> int:
        """The elements that keep their order, where the kernel loads and stores each place of the axis by itself."""
        return prod(shape[self.axis + 1 :]) if chip.mirrors_by_place else super().kernel_run(run, shape, chip)

    def made_of(self, operands: int) -> Steps:
        """One copy per element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape, which has the axis."""
        return counted(operands, 1) or equal_shapes(operands, result) or has_axis(self.axis, result)


class Nms(Function, frozen=True, tag="nms"):
    """(batch, class, box) in i32 of the boxes kept, by scores (batch, classes, boxes) and boxes (batch, boxes, 4).

    kept: most boxes kept of a class; iou: a box is suppressed whose intersection over union (f32) with a kept one is
    larger; score: a box needs a larger score, if given; center: boxes are centre and extents, not corners. Rows after
    the last result are -1.
    """

    OVER_INPUT: ClassVar[bool] = True

    kept: int
    iou: float
    score: float | None = None
    center: bool = False

    def made_of(self, operands: int) -> Steps:
        """Per score one comparison, and 14 steps for every box kept: overlap, areas, quotient, two selections."""
        return Steps(arithmetic=1 + 14 * self.kept)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Scores and boxes of one batch; a result of three columns, with a row for each box that may be kept."""
        if (why := counted(operands, 2)) is not None:
            return why
        scores, boxes = operands
        if len(scores) != 3 or boxes != (scores[0], scores[2], 4):  # noqa: PLR2004  (batch, classes, boxes)
            return Misfit("scores (batch, classes, boxes) and boxes (batch, boxes, 4)", f"{scores} and {boxes}")
        if not 1 <= self.kept <= scores[2]:
            return Misfit(f"1 to {scores[2]} boxes kept", f"{self.kept}")
        wanted = scores[0] * scores[1] * self.kept, 3
        return None if wanted == result else Misfit(f"a result of {wanted}", f"{result}")
