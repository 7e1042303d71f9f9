"""The sums of products of a convolution and of its transpose, the one oracle of kernels, ops and machine.

NumPy only, of any number of axes; test_convolution.py holds it to one Python sum per output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

Array = np.ndarray


def wide(x: Array) -> Array:
    """As int64, which holds any sum of products of bytes; floats as f64."""
    return np.asarray(x).astype(np.float64 if np.asarray(x).dtype.kind == "f" else np.int64)


def taps(w: Array, groups: int) -> Iterator[tuple[slice, slice, tuple[int, ...], Array]]:
    """(output channels, input channels, position in the kernel, the weights there) of every group."""
    oc, icg, *kernel = w.shape
    for g, tap in product(range(groups), product(*map(range, kernel))):
        outs, ins = slice(g * oc // groups, (g + 1) * oc // groups), slice(g * icg, (g + 1) * icg)
        yield outs, ins, tap, w[(outs, slice(None), *tap)]


def gathered(
    x: Array,
    w: Array,
    pad: int = 0,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> Array:
    """Accumulators of w (oc, ic/groups, kernel) over x (n, ic, image); `pads`: those before, then those after."""
    rank = w.ndim - 2
    sides = zip(pads[:rank], pads[rank:], strict=True)
    x, w = np.pad(wide(x), ((0, 0), (0, 0), *sides), constant_values=pad), wide(w)
    size = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    out = np.zeros((len(x), len(w), *size), x.dtype)
    for outs, ins, tap, weights in taps(w, groups):
        first = [t * d for t, d in zip(tap, dilations, strict=True)]
        seen = (slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(first, size, strides, strict=True))
        out[:, outs] += np.einsum("oc,nc...->no...", weights, x[(slice(None), ins, *seen)])
    return out


def scattered(
    x: Array,
    w: Array,
    size: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> Array:
    """Accumulators of the transpose: every input adds its multiple of the kernel (oc, ic/groups, ...) to an image of
    `size`; what falls outside is left out.
    """
    x, w = wide(x), wide(w)
    out = np.zeros((len(x), len(w), *size), x.dtype)
    for outs, ins, tap, weights in taps(w, groups):
        steps = zip(x.shape[2:], strides, tap, dilations, pads[: len(tap)], strict=True)
        places = [np.arange(n) * s + t * d - p for n, s, t, d, p in steps]
        kept = [(place >= 0) & (place < n) for place, n in zip(places, size, strict=True)]
        inside = (slice(None), ins, *np.ix_(*kept))
        target = (slice(None), outs, *np.ix_(*(place[k] for place, k in zip(places, kept, strict=True))))
        out[target] += np.einsum("oc,nc...->no...", weights, x[inside])
    return out
