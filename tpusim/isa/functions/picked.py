"""Functions that pick elements, or return their places."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from tpusim.chips import ChipSpec
from tpusim.isa import transfers
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted, equal_shapes, has_axis, left_without, reduced
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import steps
from tpusim.isa.transfers import KernelTransfers
from tpusim.isa.yuv import YuvFormat, YuvPlanes

INDEX_BYTES = 4
_INDEX_STEPS = 7
"""Vector steps for each vector of indices along an axis (F-08)."""


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
    """Planes b, g, r of frames in YUV, in bytes (`YuvPlanes`)."""

    format: YuvFormat
    height: int
    width: int
    row_bytes: int
    channel_align: int

    def made_of(self, operands: int) -> Steps:
        """Two subtractions; a product; a product and a sum for each of up to two colours; a cast."""
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
    """The index of the extreme along `axis` as i32; of equal extremes the first, or the last."""

    OVER_INPUT: ClassVar[bool] = True

    axis: int
    mode: Literal["ArgMax", "ArgMin"]
    select_last: bool = False

    def made_of(self, operands: int) -> Steps:
        """A comparison and a selection over the operand."""
        return Steps(arithmetic=2)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Along h of an image step by step: the extreme, its places, and the least of their indices."""
        if len(output.shape) == 4 and self.axis == 2:  # noqa: PLR2004  n, c, h, w
            return _extreme_cycles(inputs[0], output, self, chip)
        return super().cycles(inputs, output, chip)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One index per row."""
        return reduced(operands, (self.axis,), result)


def _extreme_cycles(view: View, output: View, function: Arg, chip: ChipSpec) -> int:
    """Two windows along h (extreme, index), a comparison and a selection over the image, a vector of indices.

    A minimum is a negated maximum; the vector is doubled until it is long enough, scaled and copied to all lanes.
    """
    n, c, h, w = view.shape
    vector = chip.eu_elements(itemsize(view.dtype))
    windows = n * ceil_div(c, chip.lanes) * h * ceil_div(w, vector)
    over_image = steps(view, itemsize(view.dtype), chip) * (2 + (function.mode == "ArgMin"))
    return 2 * windows + over_image + _INDEX_STEPS * ceil_div(h, vector) + 2 * steps(output, 4, chip)


class GatherElements(Function, frozen=True, tag="gather_elements"):
    """An element of the first operand per index of the second, along `axis`; negative indices count from the end."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """If axes follow, a product and a sum give the place in memory of each index; else one access for each."""
        if not chip.gather_gbs:
            return super().cycles(inputs, output, chip)
        return 4 * ceil_div(self._places(output, chip), chip.eu_bytes)

    def kernel_transfers(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> KernelTransfers | None:
        """A gather of elements; if axes follow, two loads and a store of places come before it, shared by all lanes."""
        if not chip.gather_gbs:
            return None
        ns, moved = chip.latency_ns("s2s") + output.nbytes / chip.gather_gbs, output.nbytes
        share = self._places(output, chip)
        if not share:
            return KernelTransfers(ns, moved, moved)
        places = View("gmem", 0, (1, chip.lanes, 1, share // INDEX_BYTES), "i32", "dense")
        cost = transfers.by_runs(places.nbytes, share, transfers.tile_pages(places, share, chip), chip)
        load, store = (transfers.kernel_ns(way, cost, chip) for way in ("s2l", "l2s"))
        return KernelTransfers(ns + 2 * load + store, moved + 2 * places.nbytes, moved + places.nbytes)

    def _places(self, output: View, chip: ChipSpec) -> int:
        """The bytes of places that one lane makes; 0 if no axis follows, so that indices are places."""
        if prod(output.shape[self.axis + 1 :]) == 1:
            return 0
        return align(ceil_div(output.elements, chip.lanes) * INDEX_BYTES, chip.eu_bytes)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Data and indices of one rank; the result has the shape of the indices."""
        if (why := counted(operands, 2) or has_axis(self.axis, operands[0])) is not None:
            return why
        return _inside(operands[0], operands[1], self.axis) or equal_shapes(operands[1:], result)


class ScatterElements(Function, frozen=True, tag="scatter_elements"):
    """The first operand, with elements of the third stored or combined at the indices in the second along `axis`."""

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
    """Indices of the data's rank are required, not longer than the data along the other axes."""
    if len(data) == len(indices) and all(
        n <= m or a == axis for a, (n, m) in enumerate(zip(indices, data, strict=True))
    ):
        return None
    return Misfit(f"indices of rank {len(data)} not longer than {data} except along axis {axis}", f"{indices}")


class TopK(Function, frozen=True, tag="topk"):
    """The k largest or smallest elements along `axis` in order, or their places as i32; of equals the first.

    first: this command does the work, another one for the same operand only stores its result. A unit that sorts in
    global memory does the work. TPU-MLIR's profile counts no time for it (U-119).
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
        """Nothing of the vector unit."""
        return Steps(arithmetic=0)

    def kernel_transfers(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> KernelTransfers | None:
        """The operand and the result once, in no time."""
        del chip
        return KernelTransfers(0.0, sum(view.nbytes for view in inputs) * self.first, output.nbytes)

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
