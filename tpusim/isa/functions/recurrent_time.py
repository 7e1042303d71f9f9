"""How long the library's kernel of a recurrent layer takes (U-107): its commands, added up.

The kernel waits for nearly all of its transfers, so its time is a sum. Established cycle by cycle from the profiles of
20 layers on two chips. The cycles of a transfer are rounded down, as in the profile.
"""

from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div

_F32, _HALF = 4, 2
GATES = {"LSTM": 4, "GRU": 3}


class Extents(NamedTuple):
    """Steps, batch, elements of a row of the input, elements of a state, directions."""

    steps: int
    batch: int
    width: int
    hidden: int
    ways: int


class Layer(NamedTuple):
    """A layer. cell: LSTM or GRU. outputs: results that the kernel stores."""

    at: Extents
    cell: str
    biased: bool
    outputs: tuple[str, ...]


class _Transfers(NamedTuple):
    """Transfers of a chip: cycles by the number of runs, equal bytes in a lane or a row, and their bytes."""

    chip: ChipSpec

    def load(self, size: int, runs: float) -> int:
        """A matrix to the lanes."""
        chip = self.chip
        return self._cycles("s2l", size, runs, chip.kernel_gbs or chip.matrix_gbs or chip.bandwidth.s2l)

    def store(self, size: int, runs: float) -> int:
        """A matrix from the lanes."""
        chip = self.chip
        return self._cycles("l2s", size, runs, chip.kernel_gbs or chip.matrix_store_gbs or chip.bandwidth.l2s)

    def tensor(self, size: int, runs: float) -> int:
        """A tensor to the lanes."""
        return self._cycles("s2l", size, runs, self._shared(size, self.chip.bandwidth.s2l))

    def tensor_store(self, size: int, runs: float) -> int:
        """A tensor from the lanes."""
        return self._cycles("l2s", size, runs, self._shared(size, self.chip.bandwidth.l2s))

    def _shared(self, size: int, rate: float) -> float:
        """The rate of a tensor; few pages lie in few memory channels."""
        chip = self.chip
        channels = min(max(1, ceil_div(size, chip.dma_page_bytes)), chip.dma_channels)
        return (chip.kernel_gbs or rate) * channels / chip.dma_channels

    def inside(self, size: int, runs: float) -> int:
        """A tensor from local to local memory."""
        return self._cycles("l2l", size, runs, self.chip.bandwidth.l2l)

    def _cycles(self, way: str, size: int, runs: float, rate: float) -> int:
        nanoseconds = self.chip.latency_ns(way) + max(size, runs * (self.chip.dma_run_bytes or 0)) / rate
        return int(nanoseconds * self.chip.tiu_mhz / 1000)


def _even(columns: int, chip: ChipSpec) -> int:
    """Columns of a matrix in each lane."""
    return ceil_div(columns, chip.lanes)


def layer_cycles(layer: Layer, size: int, chip: ChipSpec) -> int:
    """Cycles of a layer whose elements have `size` bytes."""
    if size == _HALF:
        return layer.at.ways * _half(layer, chip)
    if layer.cell == "GRU":
        return layer.at.ways * (_gru_paired if _is_paired(layer.at.hidden, chip) else _gru)(layer, chip)
    return layer.at.ways * (_resident if _fits(layer, chip) else _streamed)(layer, chip)


def _fits(layer: Layer, chip: ChipSpec) -> bool:
    """Whether all weights of a direction fit local memory."""
    at = layer.at
    return (at.width + at.hidden) * _even(GATES[layer.cell] * at.hidden, chip) * _F32 <= chip.lmem_bytes


def _function(steps: int, half_steps: int, more: int = 0) -> int:
    """A sigmoid or a tanh by exponential and division; two of its steps have 16 bits. more: sums and products after."""
    return (55 + more) * steps + 2 * half_steps


def _functions(batch: int, columns: int, more: int, chip: ChipSpec) -> int:
    """The function of a matrix with so many columns in each lane."""
    wide, half = (batch * ceil_div(columns, chip.eu_elements(size)) for size in (_F32, _HALF))
    return _function(wide, half, more)


def _resident(layer: Layer, chip: ChipSpec) -> int:
    """One direction with its weights in local memory.

    A step multiplies state and row by the weights. The last gate goes through global memory to the layout of a state,
    and so do the other three after their sigmoid; the next row is loaded while the new state is computed.
    """
    (steps, n, width, size, _), move = layer.at, _Transfers(chip)
    columns, each, state_each = 4 * size, _even(4 * size, chip), _even(size, chip)
    state = n * size / state_each
    load_state, store_state = move.load(n * size * _F32, state), move.store(n * size * _F32, state)
    row = _row(layer, chip)
    weights = move.load(width * columns * _F32, width * columns / each)
    weights += move.load(size * columns * _F32, size * columns / each)
    weights += 2 * layer.biased * move.load(columns * _F32, columns / each)
    rows = n * ceil_div(each, chip.eu_elements(_F32))
    products = rows * (size + 1) + rows * (width + 2)
    last = n * (columns - 3 * size // each * each)
    out, back = move.store(last * _F32, last / each), move.tensor(3 * size * _F32, 3 * size / state_each)
    others = move.store(3 * n * size * _F32, 3 * n * size / each)
    gate, bent, new = (_functions(n, c, more, chip) for c, more in ((each, 0), (state_each, 3), (state_each, 7)))
    before_row = 4 * n * ceil_div(state_each, chip.eu_elements(_F32))
    step = out + max(gate, load_state) + max(others, bent) + n * back
    total = weights + 2 * load_state + row + steps * step + products + (steps - 1) * max(products, store_state)
    total += (steps - 1) * max(new, before_row + row) + new
    return total + len(layer.outputs) * store_state


def _streamed(layer: Layer, chip: ChipSpec) -> int:
    """One direction whose weights are loaded in every step, in blocks that fill each lane's vector once."""
    (steps, n, width, size, _), move = layer.at, _Transfers(chip)
    vector, columns, state_each = chip.eu_elements(_F32), 4 * size, _even(size, chip)
    state = n * size / state_each
    load_state, store_state = move.load(n * size * _F32, state), move.store(n * size * _F32, state)
    gate_store = move.store(n * size * _F32, n * size / vector)
    step = _row(layer, chip) + store_state + 4 * (gate_store + load_state)
    for start in range(0, columns, vector * chip.lanes):
        block = min(vector * chip.lanes, columns - start)
        step += sum(move.load(k * block * _F32, k * block / vector) for k in (width, size))
        step += 2 * layer.biased * move.load(block * _F32, block / vector) + n * (width + size + 3)
    step += _functions(n, vector * ceil_div(columns, vector * chip.lanes), 0, chip)
    step += _functions(n, state_each, 3, chip) + _functions(n, state_each, 7, chip)
    last = sum(result != "Y" for result in layer.outputs)
    return 2 * load_state + steps * step + last * store_state


def _half(layer: Layer, chip: ChipSpec) -> int:
    """One direction in 16 bits: a sample of the batch after the other, the state along one lane.

    The profile counts no time for the transfers that turn weights and rows.
    """
    (steps, n, width, size, _), move = layer.at, _Transfers(chip)
    wide, half = (ceil_div(size, chip.eu_elements(bytes_)) for bytes_ in (_F32, _HALF))
    bias, state = (move.tensor(rows * size * _HALF, rows) for rows in (1, n))
    products = _half_product(width, _LARGE_ROWS, layer, chip) + _half_product(size, _LARGE_STATES, layer, chip)
    sample = 3 * half + products
    gate = 2 * layer.biased * bias + n * sample + move.inside(n * size * _HALF, n)
    return 2 * state + steps * (4 * gate + n * (294 * wide + 22 * half))


_LARGE_STATES, _LARGE_ROWS, _LARGE = 128, 32, 512
"""Weights of so many elements of a state, and of a row, are multiplied at once if a state has 512 elements or more."""


def _half_product(inner: int, block: int, layer: Layer, chip: ChipSpec) -> int:
    size, total = layer.at.hidden, 0
    pixels = chip.cube_pixels * 2 // chip.half_mac_divisor
    block = block if size >= _LARGE else inner
    for start in range(0, inner, block):
        depth = min(block, inner - start)
        total += ceil_div(size, pixels) * ceil_div(depth, chip.filter_packing(_HALF, depth))
        total += 2 * ceil_div(size, chip.eu_elements(_HALF))
    return total


def layer_traffic(layer: Layer, size: int, chip: ChipSpec) -> tuple[int, int]:
    """(bytes loaded, bytes stored) in addition to operands and results."""
    (steps, n, width, hidden, ways), gates = layer.at, GATES[layer.cell]
    again = (ways - 1) * steps * n * width * size
    if size == _HALF:
        weights = gates * hidden * (width + hidden) * (n * steps - 1)
        return again + size * ways * (weights + 2 * layer.biased * gates * hidden * (steps - 1)), 0
    turned = gates if layer.cell == "LSTM" else int(_is_paired(hidden, chip))
    through = steps * n * turned * hidden * size * ways
    if layer.cell == "LSTM" and not _fits(layer, chip):
        again += (steps - 1) * gates * hidden * (width + hidden + 2 * layer.biased) * size * ways
    return again + through, through


# ----------------------------------------------------------------------------------------------------------------- GRU


def _is_paired(size: int, chip: ChipSpec) -> bool:
    """Whether both gates with a sigmoid are columns of one matrix, each of whole lanes."""
    pair = _even(2 * size, chip)
    return pair % _even(size, chip) == 0 and size % pair == 0


def _gru(layer: Layer, chip: ChipSpec) -> int:
    """One direction, gate by gate; the last state is stored and the next row loaded meanwhile."""
    (steps, n, width, size, _), move, each = layer.at, _Transfers(chip), _even(layer.at.hidden, chip)
    rows, state = n * ceil_div(each, chip.eu_elements(_F32)), n * size / each
    start = sum(3 * move.load(k * size * _F32, k * size / each) for k in (width, size))
    start += 6 * layer.biased * move.load(size * _F32, size / each) + move.load(n * size * _F32, state)
    row, store = _row(layer, chip), move.store(n * size * _F32, state)
    step = rows * (3 * (size + width + 3) + 3)
    step += sum(_functions(n, each, more, chip) for more in (0, 2, 4))
    middle = (steps - 2) * max(step, store + row) if steps > 1 else 0
    ends = max(step, row) + max(step, store) if steps > 1 else step
    return 1 + start + row + middle + ends + len(layer.outputs) * store


def _gru_paired(layer: Layer, chip: ChipSpec) -> int:
    """One direction; the second gate of the pair goes through global memory to the lanes of a state."""
    (steps, n, width, size, _), move = layer.at, _Transfers(chip)
    each, both = _even(size, chip), _even(2 * size, chip)
    rows, pairs = (n * ceil_div(columns, chip.eu_elements(_F32)) for columns in (each, both))
    state, row = n * size / each, _row(layer, chip)
    load, store = move.load(n * size * _F32, state), move.store(n * size * _F32, state)
    start = load + row
    for height, count in ((width, 1), (size, 1), (1, 2 * layer.biased)):
        weights = height * size * _F32, height * size / each
        start += count * (2 * move.tensor(*weights) + move.load(*weights))
    gates = pairs * (size + width + 3) + _functions(n, both, 0, chip)
    last = rows * (size + width + 6) + _functions(n, each, 2, chip)
    turned = max(move.tensor_store(n * size * _F32, state), last) + load
    total = 1 + start + gates + (steps - 1) * max(gates, store) + steps * turned
    return total + (steps - 1) * max(3 * rows, row) + 3 * rows + len(layer.outputs) * store


def _row(layer: Layer, chip: ChipSpec) -> int:
    """The load of a row of the input for every sample."""
    n, width = layer.at.batch, layer.at.width
    return _Transfers(chip).load(n * width * _F32, n * width / _even(width, chip))
