"""Pools that the top dialect lacks, decomposed into slices at each place of the window; and their inverses."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import ceil, floor, prod

import numpy as np

from tpusim.frontend.onnx.parts import Parts

INT = np.int64
MOST_PLACES = 1024
"""Windows of at most so many elements are decomposed."""


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes, from a pool's attributes and its input."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    """Pads of the attributes."""
    out: tuple[int, ...]

    @classmethod
    def of(cls, p: Parts) -> "Windows":
        """From the attributes; a last window that would start in the padding is left out."""
        node, size = p.node, p.node.shape(0)[2:]
        rank = len(size)
        kernel = tuple(int(k) for k in node.take("kernel_shape", ()))
        strides, dilations = (tuple(node.take(key, (1,) * rank)) for key in ("strides", "dilations"))
        reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        auto, pads = str(node.take("auto_pad", "NOTSET")), tuple(node.take("pads", (0,) * (2 * rank)))
        if prod(kernel) > MOST_PLACES:
            raise ValueError(f"windows of at most {MOST_PLACES:,} elements are required, got {list(kernel)}")
        if auto.startswith("SAME"):
            out = tuple(-(-n // s) for n, s in zip(size, strides, strict=True))
            total = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(out, strides, reach, size, strict=True)]
            less = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
            more = tuple(t - b for t, b in zip(total, less, strict=True))
            return cls(size, kernel, strides, dilations, less, more, out)
        if auto == "VALID":
            pads = (0,) * (2 * rank)
        before, after = pads[:rank], pads[rank:]
        extents = zip(size, reach, strides, before, after, strict=True)
        up = bool(node.take("ceil_mode", 0))
        out = tuple(_extent(*found, up=up) for found in extents)
        return cls(size, kernel, strides, dilations, before, after, out)

    def places(self) -> list[tuple[int, ...]]:
        """Offsets of the elements of a window, in order."""
        return list(product(*([i * d for i in range(k)] for k, d in zip(self.kernel, self.dilations, strict=True))))

    def reach(self) -> list[int]:
        """The number of elements past the end of the input that the last windows read."""
        needs = zip(self.out, self.strides, self.kernel, self.dilations, self.size, self.before, strict=True)
        return [max((o - 1) * s + (k - 1) * d + 1 - n - b, 0) for o, s, k, d, n, b in needs]

    def cut(self, place: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of the elements at one place of all windows."""
        ends = [at + (o - 1) * s + 1 for at, o, s in zip(place, self.out, self.strides, strict=True)]
        return np.array(place, INT), np.array(ends, INT)

    def slices(self, p: Parts, x: str, value: float) -> list[str]:
        """The padded input at every place of the windows."""
        pads = [0, 0, *self.before, 0, 0, *self.reach()]
        if any(pads):
            x = p.op("Pad", x, np.array(pads, INT), np.array(value, np.float32))
        axes, steps = np.arange(2, 2 + len(self.size)), np.array(self.strides, INT)
        return [p.op("Slice", x, *self.cut(place), axes, steps) for place in self.places()]

    def counts(self, *, padded: bool) -> np.ndarray:
        """Elements of each window inside the input, or inside it and its pads."""
        inside = np.ones(self.size, np.float32)
        edges = list(zip(self.before, self.after, strict=True))
        inside = np.pad(inside, edges, constant_values=float(padded))
        further = [(0, max(r - a, 0)) for r, a in zip(self.reach(), self.after, strict=True)]
        inside = np.pad(inside, further)
        total = np.zeros(self.out, np.float32)
        for place in self.places():
            starts, ends = self.cut(place)
            total += inside[tuple(slice(b, e, s) for b, e, s in zip(starts, ends, self.strides, strict=True))]
        return total


def _extent(size: int, reach: int, stride: int, before: int, after: int, *, up: bool) -> int:
    steps = (size + before + after - reach) / stride
    out = (ceil(steps) if up else floor(steps)) + 1
    return out - 1 if up and (out - 1) * stride >= size + before else out


def average_pool(p: Parts) -> None:
    """The sum over the number of elements of each window."""
    windows = Windows.of(p)
    counts = windows.counts(padded=bool(p.node.take("count_include_pad", 0)))
    total = p.op("Sum", *windows.slices(p, p.x, 0.0))
    p.result("Div", total, counts[None, None])


def lp_pool(p: Parts) -> None:
    """The root of the sum of powers."""
    order, windows = float(p.node.take("p", 2)), Windows.of(p)
    powers = p.op("Pow", p.op("Abs", p.x), np.float32(order))
    p.result("Pow", p.op("Sum", *windows.slices(p, powers, 0.0)), np.float32(1 / order))


def global_lp_pool(p: Parts) -> None:
    """The root of the sum of powers over the image."""
    order, rank = float(p.node.take("p", 2)), len(p.node.shape(0))
    powers = p.op("Pow", p.op("Abs", p.x), np.float32(order))
    total = p.op("ReduceSum", powers, np.arange(2, rank), keepdims=1)
    p.result("Pow", total, np.float32(1 / order))


def max_pool(p: Parts) -> None:
    """The largest element, and where it is in the whole tensor."""
    windows, x = Windows.of(p), p.node.shape(0)
    order = int(p.node.take("storage_order", 0))
    found = windows.slices(p, p.x, -np.inf)
    p.result("Max", *found)
    if not p.output(1):
        return
    stacked = p.op("Concat", *[p.op("Unsqueeze", part, np.array([0])) for part in found], axis=0)
    number = p.op("ArgMax", stacked, axis=0, keepdims=0)
    weights = [prod(x[2 + k + 1 :]) for k in range(len(x) - 2)]
    if order:
        weights = [prod(x[2 : 2 + k]) for k in range(len(x) - 2)]
    offsets = np.array([sum(o * w for o, w in zip(at, weights, strict=True)) for at in windows.places()], INT)
    p.result("Add", p.op("Gather", offsets, number), _corners(windows, x, weights), index=1)


def _corners(windows: Windows, x: tuple[int, ...], weights: list[int]) -> np.ndarray:
    """The place in the tensor of each window's first element."""
    grid = np.indices((*x[:2], *windows.out))
    places = (grid[0] * x[1] + grid[1]) * prod(x[2:])
    for k, weight in enumerate(weights):
        places = places + (grid[2 + k] * windows.strides[k] - windows.before[k]) * weight
    return places.astype(INT)


def max_unpool(p: Parts) -> None:
    """Elements put back at their places in a tensor of zeros."""
    x, rank = p.node.shape(0), len(p.node.shape(0)) - 2
    kernel = p.node.take("kernel_shape")
    strides, pads = p.node.take("strides", (1,) * rank), p.node.take("pads", (0,) * (2 * rank))
    full = [(x[2 + k] - 1) * strides[k] - pads[k] - pads[rank + k] + kernel[k] for k in range(rank)]
    shape, plain = p.node.numbers(2, "output extents"), (*x[:2], *full)
    flat = p.op("ScatterElements", np.zeros(prod(plain), np.float32), p.reshape(p.input(1), -1), p.reshape(p.x, -1))
    y = p.reshape(flat, *plain)
    if shape and tuple(shape) != plain:
        more = [int(n) - m for n, m in zip(shape, plain, strict=True)]
        p.result("Pad", y, np.array([*[0] * len(more), *more], INT))
    else:
        p.result("Identity", y)


def col2im(p: Parts) -> None:
    """Columns added up where their windows overlap."""
    size, block = (tuple(int(v) for v in p.node.need(i, "extents").reshape(-1)) for i in (1, 2))
    rank, (n, rows, _) = len(size), p.node.shape(0)
    strides, dilations = (p.node.take(key, (1,) * rank) for key in ("strides", "dilations"))
    pads = p.node.take("pads", (0,) * (2 * rank))
    wide = tuple(s + pads[k] + pads[rank + k] for k, s in enumerate(size))
    counts = [(w - (b - 1) * d - 1) // s + 1 for w, b, d, s in zip(wide, block, dilations, strides, strict=True)]
    inside, starts = np.indices(block).reshape(rank, -1), np.indices(counts).reshape(rank, -1)
    flat = np.zeros((inside.shape[1], starts.shape[1]), INT)
    for k in range(rank):
        flat = flat * wide[k] + inside[k][:, None] * dilations[k] + starts[k][None] * strides[k]
    channels = rows // prod(block)
    places = np.broadcast_to(flat.reshape(1, 1, -1), (n, channels, flat.size)).astype(INT)
    base = np.zeros((n, channels, prod(wide)), np.float32)
    y = p.op("ScatterElements", base, places, p.reshape(p.x, n, channels, -1), axis=2, reduction="add")
    y, axes = p.reshape(y, n, channels, *wide), np.arange(2, 2 + rank)
    p.result("Slice", y, np.array(pads[:rank], INT), np.array([pads[k] + s for k, s in enumerate(size)], INT), axes)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {
    "AveragePool": average_pool, "LpPool": lp_pool, "GlobalLpPool": global_lp_pool, "MaxPool": max_pool,
    "MaxUnpool": max_unpool, "Col2Im": col2im,
}  # fmt: skip
