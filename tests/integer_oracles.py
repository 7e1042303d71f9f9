"""What integer kernels and commands compute, in Python integers of any size, and values that strain them.

Written from numerics.md alone; nothing here knows the kernels or the machine, and nothing can overflow or round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from convolution import gathered
from hypothesis import Phase, settings
from hypothesis import strategies as st

Array = np.ndarray
INT32 = (-(2**31), 2**31 - 1)
SHORT = {"int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32"}
"""NumPy's name of a type -> the commands'."""


def bounded(examples: int) -> settings:
    """The same examples in every run, without a deadline (a first call compiles)."""
    phases = (Phase.explicit, Phase.generate, Phase.shrink)
    return settings(deadline=None, derandomize=True, database=None, max_examples=examples, phases=phases)


# ------------------------------------------------------------------------------------------------------------- values

FILLS = ("random", "ends", "lowest", "highest")


def filled(dtype: str, shape: Sequence[int], fill: str, seed: int) -> Array:
    """A tensor of random values, of both ends of the type in turn, or of one end alone."""
    low, high = (int(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    rng = np.random.default_rng(seed)
    if fill == "random":
        return rng.integers(low, high + 1, shape).astype(dtype)
    if fill == "ends":
        return np.where(rng.integers(0, 2, shape) == 0, low, high).astype(dtype)
    return np.full(shape, low if fill == "lowest" else high, dtype)


SEEDS = st.integers(0, 2**32 - 1)


def tensors(dtype: str, shape: Sequence[int]) -> st.SearchStrategy[Array]:
    return st.builds(filled, st.just(dtype), st.just(tuple(shape)), st.sampled_from(FILLS), SEEDS)


def zeros(dtype: str) -> st.SearchStrategy[int]:
    """Zero points of a type, its ends among them."""
    info = np.iinfo(dtype)
    return st.sampled_from([0, int(info.min), int(info.max)]) | st.integers(int(info.min), int(info.max))


WIDE = (2**31 - 2, 2**30, 1, 0, -1, -(2**31) + 2)
MULTIPLIERS = st.sampled_from(WIDE) | st.integers(-(2**31) + 2, 2**31 - 2)
"""32-bit multipliers (5.1: |m| < 2^31 - 1)."""
BYTE_MULTIPLIERS = st.sampled_from((127, 126, 1, 0, -1, -127)) | st.integers(-127, 127)
SHIFTS = st.integers(-32, 62) | st.integers(20, 45)
"""Shifts of 32-bit multipliers: negative ones are left shifts; the second range gives results inside a byte."""
BYTE_SHIFTS = st.integers(-32, 30) | st.integers(0, 16)


def lists(values: st.SearchStrategy[int], size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(values, min_size=size, max_size=size)


# ------------------------------------------------------------------------------------------------------------ oracles


def exact(x: Any) -> Array:
    """Python integers in an object array (`tolist` makes them, whatever NumPy integers were inside)."""
    array = np.asarray(x)
    found = np.empty(array.size, object)
    found[:] = array.ravel().tolist()
    return found.reshape(array.shape)


def channels(values: Sequence[int], rank: int, axis: int = 1) -> Array:
    shape = [1] * rank
    shape[axis] = len(values)
    return np.array([int(v) for v in values], object).reshape(shape)


def shifted(v: Array, r: Any, mode: str = "half_up") -> Array:
    """RSR (4.3): v / 2^r, rounded; r < 0 shifts left, above 63 counts as 63. `r` an integer or an array like `v`."""

    def one(a: int, n: int) -> int:
        if n <= 0:
            return a << -n
        unit = 1 << min(n, 63)
        if mode == "half_away" and a < 0:
            return -((-a + unit // 2) // unit)
        return (a + (0 if mode == "down" else unit // 2)) // unit

    values, amounts = np.broadcast_arrays(exact(v), exact(r))
    return np.array(list(map(one, values.ravel(), amounts.ravel())), object).reshape(values.shape)


def saturated(v: Array, dtype: str) -> Array:
    info = np.iinfo(dtype)
    return np.clip(exact(v), int(info.min), int(info.max)).astype(dtype)


def floored(v: Array, floor: int, relu: bool) -> Array:
    return np.maximum(v, floor) if relu else v


def ratio(a: Array, b: Array, mode: str = "half_away") -> Array:
    """Divide by b > 0, rounded half away from zero or half up."""

    def one(x: int, y: int) -> int:
        return -((2 * -x + y) // (2 * y)) if x < 0 and mode == "half_away" else (2 * x + y) // (2 * y)

    values, below = np.broadcast_arrays(exact(a), exact(b))
    return np.array(list(map(one, values.ravel(), below.ravel())), object).reshape(values.shape)


def framed(x: Array, pads: Sequence[int], value: int) -> Array:
    top, left, bottom, right = pads
    return np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def accumulated(
    x: Array, w: Array, pad: int, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int
) -> Array:
    """9.1: the sum of products of every window, as Python integers."""
    return exact(gathered(x, w, pad, strides=strides, pads=pads, dilations=dilations, groups=groups))


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> list[tuple[Any, Array]]:
    """((i, j), the elements inside the image) of every window; a window may hold none."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = kernel, strides, pads
    h, w = x.shape[2:]
    found = []
    for i in range((h + top + bottom - kh) // sh + 1):
        for j in range((w + left + right - kw) // sw + 1):
            y, z = i * sh - top, j * sw - left
            found.append(((i, j), exact(x[:, :, max(y, 0) : max(y + kh, 0), max(z, 0) : max(z + kw, 0)])))
    return found


def per_window(
    x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], of: Callable[[Array], Array]
) -> Array:
    """`of` (elements (n, c, h, w) -> (n, c)) of every window."""
    found = windows(x, kernel, strides, pads)
    (oh, ow), shape = [a + 1 for a in found[-1][0]], x.shape[:2]
    out = np.zeros((*shape, oh, ow), object)
    for (i, j), inside in found:
        out[:, :, i, j] = of(inside)
    return out


def inside_int32(v: Array) -> bool:
    return bool((v >= INT32[0]).all() and (v <= INT32[1]).all())
