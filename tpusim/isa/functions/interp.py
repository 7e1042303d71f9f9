"""Linear interpolation, and the time of the library's kernel, as the profile counts its commands (U-90).

The library has two kernels. For whole factors, rows are gathered on their way from global memory by indices that the
kernel stored before, and each column is looked up. For other factors, each of four neighbours is looked up by
coordinates that copies in local memory put in order. Separate commands load the operand and store the result.
"""

from collections.abc import Sequence
from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.move import Move
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted, image
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize

_WHOLE = 1e-4
"""The largest difference between an f32 factor and a whole number."""
_INDEX_BYTES = 4
_EVEN_STEPS, _UNEVEN_STEPS, _COORDINATES = 16, {2: 75, 4: 42}, 110
"""AR steps of an interpolation by whole factors (F-11); by other factors (computed in f32), for each number of bytes of
an element (F-12, F-13); and the cycles before the latter, for
each image in the lanes (F-14)."""
_WEIGHT_STEPS = {2: 49, 4: 20}
"""How many of the AR steps by other factors make weights, by bytes of an element (F-48, F-49): images that follow in
the same lanes, of the batch or of more channels than lanes, have them already."""
_COORDINATE_BYTES = 4


class Interp(Function, frozen=True, tag="interp"):
    """Interpolation of rows, then columns (numerics.md 11.4): linear in f32, a + d*(b - a), or the nearest element.

    scale_h, scale_w: operand elements per result element. host: the four neighbours are weighed in f32, by steps
    of the extents, as a host computes them. asymmetric: of the host, place o is at o * scale. nearest: the element at
    o * scale, rounded half up if align_corners, else down; of the host at ceil((o + 0.5) * scale - 1).
    """

    scale_h: float
    scale_w: float
    align_corners: bool = False
    host: bool = False
    asymmetric: bool = False
    nearest: bool = False

    @property
    def copies(self) -> bool:
        """Whether the elements are copies, as in mode nearest."""
        return self.nearest

    def made_of(self, operands: int) -> Steps:
        """Differences, products and sums in two directions; neighbours are gathered, row by row for uneven scales."""
        if self.nearest:
            return Steps(0, lookups=2)
        return Steps(arithmetic=9, lookups=1 if self.whole_factors() else 6)

    def whole_factors(self) -> tuple[int, int] | None:
        """The factors by which h and w are enlarged; None if one is not a whole number, or corners are aligned."""
        factors = [1 / scale if scale else 0.5 for scale in (self.scale_h, self.scale_w)]
        if self.align_corners or self.nearest or any(abs(f - round(f)) >= _WHOLE for f in factors):
            return None
        return round(factors[0]), round(factors[1])

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Coordinates, neighbours and weights, and the kernel's additional transfers."""
        return _cycles(inputs[0], output, self, chip)

    def moved(self, operands: Sequence[Shape], result: Shape, size: int) -> tuple[int, int]:
        """For whole factors: an operand's row and a previously stored index for each row of the result."""
        (n, c, h, w), rows = operands[0], result[2]
        one, factors = h * w == 1, self.whole_factors()
        if self.host or not (one or (factors and factors[0] > 1)):
            return 0, 0
        return n * c * (rows - h) * w * size, 0 if one else n * c * rows * _INDEX_BYTES

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Images of the same batch and channels."""
        if (why := counted(operands, 1) or image(result)) is not None:
            return why
        same = len(operands[0]) == 4 and operands[0][:2] == result[:2]
        return None if same else Misfit(f"an image of {result[:2]} batches and channels", f"{operands[0]}")


def _cycles(view: View, output: View, function: Interp, chip: ChipSpec) -> int:
    """TIU cycles, plus the kernel's additional transfers, which do not overlap with them.

    The cycles of coordinates and weights are fitted to the profile of 12 sizes on both chips, within a tenth.
    """
    n, c, h, w = output.shape
    rows = n * ceil_div(c, chip.lanes)
    size = itemsize(output.dtype)
    steps = rows * ceil_div(h * w, chip.eu_elements(size))
    factors = function.whole_factors()
    if function.nearest:
        return rows * h * w + _indices(h, w, chip) + round(_coordinates_ns(h, chip) * chip.tiu_mhz / 1000)
    if prod(view.shape[2:]) == 1:
        return steps
    if factors is None:
        weights = _WEIGHT_STEPS[size] * (steps - steps // rows)
        cycles = rows * (_COORDINATES + 4 * h * w) + _UNEVEN_STEPS[size] * steps - weights
        moved = _coordinates_ns(h, chip)
    else:
        cycles, moved = rows * h * w + _EVEN_STEPS * steps, _gathered_ns(view, output, chip) if factors[0] > 1 else 0.0
    return cycles + round(moved * chip.tiu_mhz / 1000)


def _indices(h: int, w: int, chip: ChipSpec) -> int:
    """TIU cycles by which the coordinates of all places become pairs of indices in every lane, for the nearest element.

    One lane computes them, a transposition puts each into a lane, and strided copies make the pairs.
    """
    places = h * w
    return h + 2 * ceil_div(places, chip.eu_elements(4)) + 9 * ceil_div(places, chip.lanes)


def _coordinates_ns(rows: int, chip: ChipSpec) -> float:
    """Two copies of the rows' coordinates in local memory, and a fill of the same number of words in every lane."""
    size = rows * _COORDINATE_BYTES
    copied = chip.latency_ns("l2l") + size / chip.bandwidth.l2l
    filled = chip.latency_ns("s2l") + size * chip.lanes / (chip.kernel_gbs or chip.bandwidth.s2l)
    return 2 * copied + filled


def _gathered_ns(view: View, output: View, chip: ChipSpec) -> float:
    """A store of indices and a gather of rows, minus the load of the operand, which the gather replaces."""
    n, c, h, _ = output.shape
    index = View("lmem", 0, (n, c, 1, h), "i32", "aligned")
    stored = Move(id=0, dep=0, op="", kind="tensor", input=index, output=_outside(index))
    inside = View("lmem", 0, view.shape, view.dtype, "aligned")
    loaded = Move(id=0, dep=0, op="", kind="tensor", input=_outside(inside), output=inside)
    size = prod((n, c, h, view.shape[3])) * itemsize(view.dtype)
    gathered = chip.latency_ns("s2l") + size / (chip.kernel_gbs or chip.bandwidth.s2l)
    return max(0.0, stored.dma_ns(chip) + gathered - loaded.dma_ns(chip))


def _outside(view: View) -> View:
    return View("gmem", 0, view.shape, view.dtype, "dense")
