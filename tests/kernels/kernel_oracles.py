"""Independent NumPy references of the kernels: int64 or Python integers, plain loops over windows, nothing of JAX."""

from __future__ import annotations

import numpy as np


def rsr(v, n: int, mode: str) -> np.ndarray:
    """Rounding right shift by exact rational reasoning on Python integers."""

    def one(a: int) -> int:
        if n <= 0:
            return a << -n
        q, rest = divmod(a, 1 << n)
        twice, unit = 2 * rest, 1 << n
        up = {
            "HALF_UP": twice >= unit,
            "HALF_DOWN": twice > unit,
            "HALF_AWAY_FROM_ZERO": twice > unit or (twice == unit and a >= 0),
            "HALF_TO_EVEN": twice > unit or (twice == unit and q % 2 == 1),
            "TOWARDS_ZERO": a < 0 and rest != 0,
            "UP": rest != 0,
            "DOWN": False,
        }[mode]
        return q + int(up)

    v = np.asarray(v)
    return np.array([one(int(a)) for a in v.reshape(-1)], dtype=object).reshape(v.shape)


def sat(v, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.asarray(v, dtype=object), info.min, info.max).astype(dtype)


def pad2d(x, pads, value) -> np.ndarray:
    top, left, bottom, right = pads
    widths = [(0, 0), (0, 0), (top, bottom), (left, right)]
    return np.pad(np.asarray(x).astype(np.int64), widths, constant_values=int(value))


def windows(x, kernel, strides) -> np.ndarray:
    """(n, c, oh, ow, kh, kw) views of an already padded tensor."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1]]


def per_channel(p, ndim: int, axis: int) -> np.ndarray:
    p = np.atleast_1d(np.asarray(p)).astype(object)
    shape = [1] * ndim
    shape[axis] = p.size
    return p.reshape(shape)


def requant(acc, m, r, axis: int, mode: str = "HALF_UP") -> np.ndarray:
    """Round acc*m / 2^r per channel, in Python integers."""
    acc = np.asarray(acc).astype(object)
    m = np.broadcast_to(per_channel(m, acc.ndim, axis), acc.shape)
    r = np.broadcast_to(per_channel(r, acc.ndim, axis), acc.shape)
    product = acc * m
    out = np.empty(acc.shape, object)
    for shift in {int(s) for s in r.reshape(-1)}:
        here = r == shift
        out[here] = rsr(product[here], shift, mode)
    return out
