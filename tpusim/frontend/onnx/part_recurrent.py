"""RNN, and LSTM and GRU that are not one op (recurrent.py), step by step: products with matrices, gates and sums."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tpusim.frontend.onnx.parts import Parts

MOST_STEPS = 512
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "HardSigmoid", "Elu", "LeakyRelu")


def one(axis: int) -> np.ndarray:
    """An axis as the i64 constant of shape (1,) that ONNX ops take."""
    return np.array([axis], np.int64)


@dataclass
class Cell:
    """One direction of a recurrent op: its weights, and what is computed for every step."""

    p: Parts
    hidden: int
    functions: list[str]
    w: str
    """(input, gates*hidden)"""
    r: str
    """(hidden, gates*hidden)"""
    input_bias: str
    hidden_bias: str
    peepholes: list[str]
    clip: float

    def active(self, number: int, x: str) -> str:
        """An activation; its input is clipped first."""
        if self.clip:
            x = self.p.op("Clip", x, np.float32(-self.clip), np.float32(self.clip))
        return self.p.op(self.functions[number], x)

    def gates(self, x: str, count: int) -> list[str]:
        """Columns of a product, one part per gate."""
        return self.p.ops("Split", count, x, axis=1, num_outputs=count) if count > 1 else [x]


def lstm(cell: Cell, x: str, states: list[str]) -> list[str]:
    """One step; gates i, o, f, c."""
    p, (h, c) = cell.p, states
    total = p.op("Add", p.op("Add", x, p.op("MatMul", h, cell.r)), cell.hidden_bias)
    i, o, f, g = cell.gates(total, 4)
    if cell.peepholes:
        i = p.op("Add", i, p.op("Mul", cell.peepholes[0], c))
        f = p.op("Add", f, p.op("Mul", cell.peepholes[2], c))
    kept = p.op("Mul", cell.active(0, f), c)
    c = p.op("Add", kept, p.op("Mul", cell.active(0, i), cell.active(1, g)))
    if cell.peepholes:
        o = p.op("Add", o, p.op("Mul", cell.peepholes[1], c))
    return [p.op("Mul", cell.active(0, o), p.op(cell.functions[2], c)), c]


def gru(cell: Cell, x: str, states: list[str], *, linear_before_reset: bool = False) -> list[str]:
    """One step; gates z, r, h."""
    p, h = cell.p, states[0]
    xz, xr, xh = cell.gates(x, 3)
    z_r = p.op("Slice", cell.r, one(0), one(2 * cell.hidden), one(1))
    last = p.op("Slice", cell.r, one(2 * cell.hidden), one(3 * cell.hidden), one(1))
    bz, br, bh = cell.gates(cell.hidden_bias, 3)
    hz, hr = cell.gates(p.op("MatMul", h, z_r), 2)
    z = cell.active(0, p.op("Add", p.op("Add", xz, hz), bz))
    r = cell.active(0, p.op("Add", p.op("Add", xr, hr), br))
    if linear_before_reset:
        inner = p.op("Mul", r, p.op("Add", p.op("MatMul", h, last), bh))
    else:
        inner = p.op("Add", p.op("MatMul", p.op("Mul", r, h), last), bh)
    new = cell.active(1, p.op("Add", xh, inner))
    return [p.op("Add", p.op("Mul", p.op("Sub", np.float32(1), z), new), p.op("Mul", z, h))]


def rnn(cell: Cell, x: str, states: list[str]) -> list[str]:
    """One step of an RNN: f(x + h*R + biases); the new state."""
    p = cell.p
    return [cell.active(0, p.op("Add", p.op("Add", x, p.op("MatMul", states[0], cell.r)), cell.hidden_bias))]


def recurrent(p: Parts) -> None:
    """All directions and steps; lengths of samples are constant or computed."""
    kind, node = p.node.op_type, p.node
    p.whole = kind
    layout = int(node.take("layout", 0))
    x = p.op("Transpose", p.x, perm=[1, 0, 2]) if layout else p.x
    steps, batch = (node.shape(0)[1], node.shape(0)[0]) if layout else node.shape(0)[:2]
    direction, hidden = node.take("direction", "forward"), int(node.take("hidden_size", node.shape(2)[-1]))
    if steps > MOST_STEPS:
        raise ValueError(f"at most {MOST_STEPS} steps are required, got {steps}; cut the sequence")
    if node.take("input_forget", 0):
        raise ValueError("input_forget 0 is required")
    runs = [_run(p, kind, d, x, (steps, batch, hidden), bool(layout)) for d in range(node.shape(1)[0])]
    del direction
    _results(p, runs, (steps, batch, hidden), layout)


def _cell(p: Parts, kind: str, d: int, hidden: int, count: int) -> Cell:
    node, gates = p.node, GATES[kind]

    def pick(index: int) -> str:
        return p.op("Gather", p.input(index), np.array(d), axis=0)

    functions = [str(f) for f in node.take("activations", DEFAULTS[kind] * count)]
    each = len(DEFAULTS[kind])
    found = [next((name for name in PLAIN if name.lower() == f.lower()), "") for f in functions[d * each :][:each]]
    if "" in found:
        raise ValueError(f"activations of {', '.join(PLAIN)} are required, got {functions}")
    if node.take("activation_alpha") or node.take("activation_beta"):
        raise ValueError("activations without alpha and beta are required")
    bias = pick(3) if p.input(3) else ""
    zero = np.zeros((1, gates * hidden), np.float32)
    wb, rb = p.ops("Split", 2, p.reshape(bias, 1, -1), axis=1, num_outputs=2) if bias else (zero, zero)
    held = [b if isinstance(b, str) else p.op("Identity", b) for b in (wb, rb)]
    peepholes = p.ops("Split", 3, p.reshape(pick(7), 1, -1), axis=1, num_outputs=3) if p.input(7) else []
    w, r = (p.op("Transpose", pick(i), perm=[1, 0]) for i in (1, 2))
    return Cell(p, hidden, found, w, r, held[0], held[1], peepholes, float(node.take("clip", 0.0)))


def _run(
    p: Parts, kind: str, d: int, x: str, extents: tuple[int, int, int], batch_first: bool
) -> tuple[list[str], list[str]]:
    """(hidden state of every step, last states) of one direction."""
    (steps, batch, hidden), node = extents, p.node
    cell = _cell(p, kind, d, hidden, node.shape(1)[0])
    axis = 1 if batch_first else 0
    states = [_initial(p, index, d, (batch, hidden), axis) for index in ((5, 6) if kind == "LSTM" else (5,))]
    advance = {"LSTM": lstm, "RNN": rnn}.get(kind)
    before = bool(node.take("linear_before_reset", 0))
    backwards = node.take("direction", "forward") == "reverse" or d == 1
    flat = p.op("Add", p.op("MatMul", x, cell.w), cell.input_bias)
    found = [""] * steps
    order: Iterable[int] = range(steps - 1, -1, -1) if backwards else range(steps)
    for t in order:
        row = p.op("Gather", flat, np.array(t), axis=0)
        new = advance(cell, row, states) if advance else gru(cell, row, states, linear_before_reset=before)
        found[t], states = _masked(p, t, batch, states, new)
    return found, states


def _initial(p: Parts, index: int, d: int, shape: tuple[int, int], axis: int) -> str:
    if p.input(index):
        return p.op("Gather", p.input(index), np.array(d), axis=axis)
    return p.op("Identity", np.zeros(shape, np.float32))


def _masked(p: Parts, t: int, batch: int, old: list[str], new: list[str]) -> tuple[str, list[str]]:
    """After a sample's end the result is 0 and its states do not change."""
    lengths = p.node.constant(4)
    if not p.input(4) or (lengths is not None and lengths.min() > t):
        return new[0], new
    runs = p.op("Greater", p.reshape(p.input(4), batch, 1), np.array(t, p.node.dtype(4)))
    kept = [p.op("Where", runs, n, o) for o, n in zip(old, new, strict=True)]
    return p.op("Where", runs, new[0], np.float32(0)), kept


def _results(p: Parts, runs: list[tuple[list[str], list[str]]], extents: tuple[int, int, int], layout: int) -> None:
    """Y (steps, directions, batch, hidden), Y_h and Y_c (directions, batch, hidden); batch first with `layout`."""
    steps, batch, hidden = extents
    if p.output(0):
        shape = (1, 1, batch, hidden)
        rows = [p.reshape(run[0][t], *shape) for t in range(steps) for run in runs]
        whole = rows[0] if len(rows) == 1 else p.op("Concat", *rows, axis=0)
        y = p.reshape(whole, steps, len(runs), batch, hidden)
        p.result("Transpose", y, perm=[2, 0, 1, 3] if layout else [0, 1, 2, 3])
    for index in range(1, len(p.node.outputs)):
        last = [p.op("Unsqueeze", run[1][index - 1], one(0)) for run in runs]
        joined = last[0] if len(last) == 1 else p.op("Concat", *last, axis=0)
        p.result("Transpose", joined, perm=[1, 0, 2] if layout else [0, 1, 2], index=index)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = dict.fromkeys(GATES, recurrent)
