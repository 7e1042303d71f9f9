"""What a recurrent layer computes, step by step in NumPy (numerics.md 11.7)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.simulator.float_tables import by_slope, product, rounded, total

Operands = tuple[np.ndarray, ...]
States = tuple[np.ndarray, ...]
Gate = Callable[[np.ndarray], np.ndarray]

_ORDER = {"LSTM": "ifog", "GRU": "rzh"}
_NODE_ORDER = {"LSTM": "iofg", "GRU": "zrh"}
_SIGMOID_LIMIT, _TANH_LIMIT = 12.0, 15.0
_BLOCK, _LONG_BLOCK = 512, 1024
"""Terms that one chain adds, and if there are more than the second number, that number (U-34)."""


def recurrent(function: fn.Recurrent, operands: Operands, output: View) -> np.ndarray:
    """All directions; the result that the function names."""
    layer = _Layer.of(function, operands)
    ways = [_one_way(layer, d) for d in range(1 + function.bidirectional)]
    index = {"Y": 0, "Y_h": 1, "Y_c": 2}[function.result]
    return np.stack([way[index] for way in ways], axis=int(index == 0)).reshape(output.shape)


@dataclass
class _Layer:
    """Operands by their meaning. weights, biases: by direction and gate, of the rows and of the states."""

    function: fn.Recurrent
    rows: np.ndarray
    weights: list[dict[str, tuple[np.ndarray | None, np.ndarray]]]
    biases: list[dict[str, tuple[np.ndarray, np.ndarray]]]
    states: list[np.ndarray]
    sigmoid: Gate
    tanh: Gate

    @classmethod
    def of(cls, function: fn.Recurrent, operands: Operands) -> "_Layer":
        rest = [x if x.dtype == np.float64 else x.astype(np.float32) for x in operands]
        rows, weights = rest.pop(0), rest.pop(0)
        ways, size, names = 1 + function.bidirectional, function.hidden, _names(function)
        bias = rest.pop(0) if function.biased else np.zeros(ways * 2 * len(names) * size, np.float32)
        shape = (ways, rows.shape[1], size)
        states = [rest.pop(0).reshape(shape) if given else np.zeros(shape, np.float32) for given in function.states]
        gates: tuple[Gate, Gate] = (_sigmoid, _tanh)
        if function.tables:
            gates = _table(rest[0], rest[1], _SIGMOID_LIMIT), _table(rest[2], rest[3], _TANH_LIMIT)
        found = [dict(_weights(function, weights.reshape(ways, -1)[d], rows.shape[2])) for d in range(ways)]
        offsets = [dict(_biases(function, bias.reshape(ways, -1)[d])) for d in range(ways)]
        return cls(function, rows, found, offsets, states, *gates)

    def of_rows(self, d: int) -> dict[str, np.ndarray]:
        """Gate -> the products of all rows, (T, N, H), with their bias; on a chip with tables they are given."""
        names, size = _names(self.function), self.function.hidden
        if self.function.tables:
            parts = np.split(self.rows, (1 + self.function.bidirectional) * len(names), axis=2)
            return dict(zip(names, parts[d * len(names) :], strict=False))
        flat, found = self.rows.reshape(-1, self.rows.shape[2]), dict[str, np.ndarray]()
        for name in names:
            weights = self.weights[d][name][0]
            assert weights is not None  # only tables go without
            found[name] = (_chain(flat, weights) + self.biases[d][name][0]).reshape(*self.rows.shape[:2], size)
        return found

    def of_state(self, state: np.ndarray, d: int, gate: str) -> np.ndarray:
        """The products of a state, with their bias."""
        found = _chain(state, self.weights[d][gate][1]) + self.biases[d][gate][1]
        return rounded(found) if self.function.tables else found


def _names(function: fn.Recurrent) -> str:
    return (_NODE_ORDER if function.tables else _ORDER)[function.cell]


def _weights(
    function: fn.Recurrent, packed: np.ndarray, width: int
) -> Iterator[tuple[str, tuple[np.ndarray | None, np.ndarray]]]:
    """Gate, the weights of the rows (I, H) and of the states (H, H)."""
    names, size = _names(function), function.hidden
    if function.tables:
        for name, part in zip(names, packed.reshape(len(names), size, size), strict=True):
            yield name, (None, part.T)
        return
    if function.cell in fn.MATRIX_PER_GATE:
        at = len(names) * width * size
        matrices = packed[:at].reshape(-1, width, size), packed[at:].reshape(-1, size, size)
        yield from zip(names, zip(*matrices, strict=True), strict=True)
        return
    whole = packed.reshape(-1, len(names), size)
    for i, name in enumerate(names):
        yield name, (whole[:width, i], whole[width:, i])


def _biases(function: fn.Recurrent, bias: np.ndarray) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    names = _names(function)
    parts = bias.reshape(-1, len(names), function.hidden)
    for i, name in enumerate(names):
        yield name, (parts[0, i], parts[-1, i])


def _one_way(layer: _Layer, d: int) -> tuple[np.ndarray, ...]:
    """(result of every step, last states) of a direction; the second runs backwards."""
    steps = len(layer.rows)
    found: list[np.ndarray] = [np.empty(0)] * steps
    states: States = tuple(state[d] for state in layer.states)
    advance, products = {"LSTM": _lstm, "GRU": _gru}[layer.function.cell], layer.of_rows(d)
    for t in reversed(range(steps)) if d else range(steps):
        states = advance(layer, {name: rows[t] for name, rows in products.items()}, d, states)
        found[t] = states[0]
    return np.stack(found), *states


def _lstm(layer: _Layer, row: dict[str, np.ndarray], d: int, states: States) -> States:
    h, c = states
    times, plus = _arithmetic(layer)
    i, f, o, g = (plus(row[name], layer.of_state(h, d, name)) for name in "ifog")
    c = plus(times(layer.sigmoid(f), c), times(layer.sigmoid(i), layer.tanh(g)))
    return times(layer.sigmoid(o), layer.tanh(c)), c


def _gru(layer: _Layer, row: dict[str, np.ndarray], d: int, states: States) -> States:
    (h,) = states
    times, plus = _arithmetic(layer)
    (zx, zh), (rx, rh), (hx, hh) = ((row[name], layer.of_state(h, d, name)) for name in "zrh")
    z, r = layer.sigmoid(plus(zx, zh)), layer.sigmoid(plus(rx, rh))
    new = layer.tanh(plus(times(r, hh), hx))
    if layer.function.tables:
        return (plus(plus(times(z, h), new), -times(z, new)),)
    return (times(np.float32(1) - z, new) + times(z, h),)


def _arithmetic(layer: _Layer) -> tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]:
    """Product and sum: rounded to f32, on a chip with tables to BF16."""
    return (product, total) if layer.function.tables else (np.multiply, np.add)


def _chain(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Compute x @ w in f32: a chain of fused multiply-adds over the inner axis, in blocks added in order (U-34)."""
    block, found = _LONG_BLOCK if len(w) > _LONG_BLOCK else _BLOCK, None
    for start in range(0, len(w), block):
        part = np.zeros((len(x), w.shape[1]), np.float32)
        for k in range(start, min(start + block, len(w))):
            part = (part + x[:, k : k + 1].astype(np.float64) * w[k].astype(np.float64)).astype(np.float32)
        found = part if found is None else found + part
    assert found is not None
    return found


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (0.5 * np.tanh(0.5 * x.astype(np.float64)) + 0.5).astype(np.float32)


def _tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _table(base: np.ndarray, slope: np.ndarray, limit: float) -> Gate:
    return lambda x: by_slope(rounded(x), base, slope, -limit, limit)
