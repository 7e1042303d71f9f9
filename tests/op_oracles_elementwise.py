"""What the integer element-wise and data-movement ops compute, in NumPy int64, written from numerics.md alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, storage_dtype, uniform_of

Array = np.ndarray
Oracle = Callable[[Any, Sequence[Any]], Array]


def half_up(v: Any, r: int) -> Array:
    """RSR HALF_UP (4.3) as floor((2v + 2^r) / 2^(r+1)); a left shift for r < 0."""
    v = np.asarray(v, np.int64)
    return (2 * v + (1 << r)) // (1 << (r + 1)) if r > 0 else v << -r


def clamped(v: Array, op: Any) -> Array:
    info = np.iinfo(storage_dtype(element_of(op.output)))
    return np.clip(v, info.min, info.max).astype(info.dtype)


def zero(value: Any) -> int:
    uniform = uniform_of(value)
    return uniform.zero_point.value.data if uniform else 0


def flagged(op: Any, key: str = "do_relu") -> bool:
    attribute = getattr(op, key, None)
    return attribute is not None and bool(attribute.value.data)


def sub(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: sat(relu(RSR(q_a*m_a, r_a) - RSR(q_b*m_b, r_b)))."""
    (m0, m1), (r0, r1) = ints(op.multipliers), ints(op.rshifts)
    a, b = (x.astype(np.int64) for x in operands)
    v = half_up(a * m0, r0) - half_up(b * m1, r1)
    return clamped(np.maximum(v, 0) if flagged(op) else v, op)


def extreme(pick: Callable[[Array, Array], Array]) -> Oracle:
    """9.0: max or min of raw bytes."""

    def compute(op: Any, operands: Sequence[Array]) -> Array:
        first, *rest = (x.astype(np.int64) for x in operands)
        for x in rest:
            first = pick(first, x)
        return clamped(np.maximum(first, 0) if flagged(op) else first, op)

    return compute


def const(combine: Callable[[Any, Array, int], Array]) -> Oracle:
    """9.3: RSR(combine((q - z_in)*m, C), r) + z_out, relu at z_out; SubConst has z_in inside C."""

    def compute(op: Any, operands: Sequence[Array]) -> Array:
        centre = zero(op.input) if op.name == "tpu.MulConst" else 0
        t = (operands[0].astype(np.int64) - centre) * op.multiplier.value.data
        add = 0 if op.name in ("tpu.MaxConst", "tpu.MinConst") else zero(op.output)
        v = half_up(combine(op, t, int(op.const_val.value.data)), op.rshift.value.data) + add
        return clamped(np.maximum(v, add) if flagged(op) else v, op)

    return compute


def pad(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: bytes moved, the constant already quantised."""
    (x,), pads, mode = operands, ints(op.paddings), op.mode.data
    widths = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    more = {"constant_values": int(op.val.value.data)} if mode == "constant" else {}
    return np.pad(x, widths, mode=mode, **more)


def cut(op: Any, operands: Sequence[Array]) -> Array:
    parts = zip(ints(op.offset), ints(op.ends), ints(op.steps), strict=True)
    return operands[0][tuple(slice(*p) for p in parts)]


ORACLES: dict[str, Oracle] = {
    "tpu.AddConst": const(lambda op, t, c: t + c),
    "tpu.Max": extreme(np.maximum),
    "tpu.MaxConst": const(lambda op, t, c: np.maximum(t, c)),
    "tpu.Min": extreme(np.minimum),
    "tpu.MinConst": const(lambda op, t, c: np.minimum(t, c)),
    "tpu.MulConst": const(lambda op, t, c: t),
    "tpu.Pad": pad,
    "tpu.Slice": cut,
    "tpu.Reverse": lambda op, x: np.flip(x[0], op.axis.value.data),
    "tpu.Sub": sub,
    "tpu.SubConst": const(lambda op, t, c: c - t if flagged(op, "is_reverse") else t - c),
    "tpu.Tile": lambda op, x: np.tile(x[0], ints(op.tile)),
    "tpu.Upsample": lambda op, x: x[0].repeat(op.scale_h.value.data, 2).repeat(op.scale_w.value.data, 3),
}
