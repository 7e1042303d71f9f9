"""How long the library's kernel of an interpolation takes, as the profile counts its commands (U-90).

Two kernels: by whole factors rows are gathered on their way from global memory, by indices that the kernel stores there
first, and columns by a lookup each. By others each of four neighbours is looked up, by coordinates that are put in
order by copies in local memory. The load of the operand and the store of the result are commands of their own.
"""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Fn, Move
from tpusim.isa.functions import Interp
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.transfers import dma_ns

_EVEN_STEPS, _UNEVEN_STEPS, _COORDINATES = 16, {2: 75, 4: 42}, 110
"""AR steps of an interpolation by whole factors (F-11), by others (f32 inside) by bytes of an element (F-12, F-13), and
cycles before the latter (F-14)."""
_COORDINATE_BYTES = 4


def interpolation_cycles(command: Fn, function: Interp, chip: ChipSpec) -> int:
    """TIU cycles, and what the kernel moves for itself meanwhile, one after the other.

    The cycles of coordinates and weights are fitted to the profile of 12 sizes on both chips, within a tenth.
    """
    n, c, h, w = command.output.shape
    rows = n * ceil_div(c, chip.lanes)
    size = itemsize(command.output.dtype)
    steps = rows * ceil_div(h * w, chip.eu_elements(size))
    factors = function.whole_factors()
    if prod(command.inputs[0].shape[2:]) == 1:
        return steps
    if factors is None:
        cycles, moved = _COORDINATES + 4 * rows * h * w + _UNEVEN_STEPS[size] * steps, _coordinates_ns(h, chip)
    else:
        cycles, moved = rows * h * w + _EVEN_STEPS * steps, _gathered_ns(command, chip) if factors[0] > 1 else 0.0
    return cycles + round(moved * chip.tiu_mhz / 1000)


def _coordinates_ns(rows: int, chip: ChipSpec) -> float:
    """Two copies of the rows' coordinates in local memory, and a fill of as many words in every lane."""
    size = rows * _COORDINATE_BYTES
    copied = chip.latency_ns("l2l") + size / chip.bandwidth.l2l
    filled = chip.latency_ns("s2l") + size * chip.lanes / (chip.kernel_gbs or chip.bandwidth.s2l)
    return 2 * copied + filled


def _gathered_ns(command: Fn, chip: ChipSpec) -> float:
    """A store of indices and a gather of rows, less the load of the operand, which the gather stands for."""
    view, (n, c, h, _) = command.inputs[0], command.output.shape
    index = View("lmem", 0, (n, c, 1, h), "i32", "aligned")
    stored = Move(id=0, dep=0, op="", kind="tensor", input=index, output=_outside(index))
    inside = View("lmem", 0, view.shape, view.dtype, "aligned")
    loaded = Move(id=0, dep=0, op="", kind="tensor", input=_outside(inside), output=inside)
    size = prod((n, c, h, view.shape[3])) * itemsize(view.dtype)
    gathered = chip.latency_ns("s2l") + size / (chip.kernel_gbs or chip.bandwidth.s2l)
    return max(0.0, dma_ns(stored, chip) + gathered - dma_ns(loaded, chip))


def _outside(view: View) -> View:
    return View("gmem", 0, view.shape, view.dtype, "dense")
