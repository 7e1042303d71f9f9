"""Ops that move elements, choose them, or join values; and reductions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.conformance.fuzz.net import Net
from benchmarks.conformance.fuzz.production import Family

FAMILY = Family()


def axis_of(net: Net, x: str) -> int:
    """An axis, counted from either end."""
    rank = len(net.shape(x))
    return net.between(-rank, rank - 1)


def integers(*values: int) -> np.ndarray:
    """An int64 constant of rank 1."""
    return np.array(values, np.int64)


@FAMILY.add("Transpose", (2, 3, 4, 5), 2)
def transpose(net: Net, x: str) -> str:
    """Any permutation."""
    return net.op("Transpose", x, perm=[int(a) for a in net.rng.permutation(len(net.shape(x)))])


@FAMILY.add("Reshape", weight=2)
def reshape(net: Net, x: str) -> str:
    """Two axes become one, an axis becomes two, or one size is left to ONNX."""
    shape = list(net.shape(x))
    at = net.between(0, len(shape) - 1)
    if len(shape) > 1 and net.chance(0.5):
        at = min(at, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif len(shape) < 5:
        factors = [d for d in range(1, shape[at] + 1) if shape[at] % d == 0]
        low = net.pick(*factors)
        shape[at : at + 1] = [low, shape[at] // low]
    if net.chance(0.3):
        shape[net.between(0, len(shape) - 1)] = -1
    return net.op("Reshape", x, integers(*shape))


@FAMILY.add("Flatten", (2, 3, 4, 5), 0.5)
def flatten(net: Net, x: str) -> str:
    """Two axes are left."""
    return net.op("Flatten", x, axis=net.between(0, len(net.shape(x)) - 1))


@FAMILY.add("Unsqueeze", (1, 2, 3, 4))
def unsqueeze(net: Net, x: str) -> str:
    """A new axis of size 1."""
    return net.op("Unsqueeze", x, integers(net.between(0, len(net.shape(x)))))


@FAMILY.add("Squeeze", (2, 3, 4, 5))
def squeeze(net: Net, x: str) -> str | None:
    """An axis of size 1 goes."""
    single = [a for a, n in enumerate(net.shape(x)) if n == 1]
    return net.op("Squeeze", x, integers(net.pick(*single))) if single else None


@FAMILY.add("Concat", weight=2)
def concat(net: Net, x: str) -> str:
    """With values that fit, with itself, or with a constant."""
    shape, axis = net.shape(x), axis_of(net, x)
    at = axis % len(shape)

    def like(v: str) -> bool:
        other = net.shape(v)
        return len(other) == len(shape) and all(
            m == n for a, (m, n) in enumerate(zip(other, shape, strict=True)) if a != at
        )

    known = [v for v in net.values() if net.is_float(v) and like(v)]
    parts = [x, *(net.pick(*known) for _ in range(net.between(1, 3)))]
    if net.chance(0.15):
        parts.append(net.drawn(*shape[:at], net.between(1, 3), *shape[at + 1 :], std=0.6))
    net.rng.shuffle(parts)
    return net.op("Concat", *parts, axis=axis)


@FAMILY.add("Split")
def split(net: Net, x: str) -> list[str] | None:
    """Two or three parts, equal or not."""
    at = net.between(0, len(net.shape(x)) - 1)
    size = net.shape(x)[at]
    if size < 3:
        return None
    if size % 2 == 0 and net.chance(0.4):
        return net.several("Split", 2, x, axis=at)
    cut = net.between(1, size - 1)
    return net.several("Split", 2, x, integers(cut, size - cut), axis=at)


@FAMILY.add("Slice", weight=1.5)
def cut(net: Net, x: str) -> str | None:
    """A part along one or two axes, with steps, also backward."""
    shape = net.shape(x)
    wide = [a for a, n in enumerate(shape) if n > 1]
    if not wide:
        return None
    axes = sorted({net.pick(*wide) for _ in range(net.between(1, 2))})
    begins = [net.between(0, shape[a] // 2) for a in axes]
    ends = [
        net.pick(shape[a], 2**31 - 1, -1 if shape[a] - 1 > b else shape[a]) for a, b in zip(axes, begins, strict=True)
    ]
    steps = [net.pick(1, 1, 2, 3) for _ in axes]
    if net.chance(0.1):
        begins, ends, steps = [-1] * len(axes), [-(2**31) + 1] * len(axes), [-1] * len(axes)
    return net.op("Slice", x, integers(*begins), integers(*ends), integers(*axes), integers(*steps))


@FAMILY.add("Pad", (2, 3, 4))
def pad(net: Net, x: str) -> str:
    """Constant, reflected and repeated borders."""
    shape, mode = net.shape(x), net.pick("constant", "constant", "reflect", "edge")
    first = net.between(0, len(shape) - 1) if mode == "constant" else max(0, len(shape) - 2)
    most = [0 if a < first else min(3, n - 1 if mode == "reflect" else 3) for a, n in enumerate(shape)]
    pads = [net.between(0, m) for m in most * 2]
    value = [np.float32(net.pick(0.0, 0.4, -1.0))] if mode == "constant" and net.chance(0.7) else []
    return net.op("Pad", x, integers(*pads), *value, mode=mode)


@FAMILY.add("Tile", weight=0.5)
def tile(net: Net, x: str) -> str:
    """Repeated along some axes."""
    return net.op("Tile", x, integers(*(net.pick(1, 1, 2, 3) for _ in net.shape(x))))


@FAMILY.add("Expand", weight=0.5)
def expand(net: Net, x: str) -> str | None:
    """Axes of size 1 grow."""
    shape = net.shape(x)
    if 1 not in shape[1:]:
        return None
    return net.op("Expand", x, integers(*(net.between(2, 4) if n == 1 and a else n for a, n in enumerate(shape))))


@FAMILY.add("Gather")
def gather(net: Net, x: str) -> str:
    """Constant indices: one, several, or a scalar, which removes the axis."""
    at = net.between(0, len(net.shape(x)) - 1)
    size = net.shape(x)[at]
    count = net.between(1, 4)
    if net.chance(0.3) and len(net.shape(x)) > 1:
        return net.op("Gather", x, np.array(net.between(-1, size - 1), np.int64), axis=at)
    return net.op("Gather", x, integers(*(net.between(0, size - 1) for _ in range(count))), axis=at)


@FAMILY.add("DepthToSpace", (4,))
def depth_to_space(net: Net, x: str) -> str | None:
    """Pixel shuffles in both orders."""
    c = net.shape(x)[1]
    blocks = [b for b in (2, 3) if c % (b * b) == 0]
    if not blocks:
        return None
    return net.op("DepthToSpace", x, blocksize=net.pick(*blocks), mode=net.pick("DCR", "CRD"))


@FAMILY.add("SpaceToDepth", (4,))
def space_to_depth(net: Net, x: str) -> str | None:
    """The inverse."""
    h, w = net.shape(x)[2:]
    blocks = [b for b in (2, 3) if h % b == 0 and w % b == 0]
    return net.op("SpaceToDepth", x, blocksize=net.pick(*blocks)) if blocks else None


@FAMILY.add("Resize", (4,))
def resize(net: Net, x: str) -> str:
    """Nearest and linear, by scales or sizes, as exporters ask for it."""
    n, c, h, w = net.shape(x)
    mode, where, near = net.pick(
        ("nearest", "asymmetric", "floor"), ("nearest", "asymmetric", "floor"), ("linear", "half_pixel", None),
        ("linear", "align_corners", None), ("linear", "pytorch_half_pixel", None), ("linear", "asymmetric", None),
        ("nearest", "half_pixel", "round_prefer_floor"), ("cubic", "half_pixel", None),
    )  # fmt: skip
    up = net.between(2, 3)
    more = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": near}
    if net.chance(0.5):
        return net.op("Resize", x, "", np.array([1, 1, up, up], np.float32), **more)
    return net.op("Resize", x, "", "", integers(n, c, h * up, net.pick(w * up, w, w + 1)), **more)


@FAMILY.add("Reduce", weight=2)
def reduce(net: Net, x: str) -> str:
    """Every reduction, over some axes."""
    op, rank = net.pick("Mean", "Mean", "Max", "Min", "Sum", "L2", "L1", "Prod"), len(net.shape(x))
    axes = sorted({net.between(0, rank - 1) for _ in range(net.between(1, 2))})
    keep = 1 if len(axes) == rank else net.pick(0, 1)
    if op == "Sum" or net.opset >= 18:
        return net.op(f"Reduce{op}", x, integers(*axes), keepdims=keep)
    return net.op(f"Reduce{op}", x, axes=axes, keepdims=keep)


@FAMILY.add("Arg", weight=0.5)
def arg(net: Net, x: str) -> str:
    """The index of the largest or smallest value, as a number."""
    found = net.op(
        net.pick("ArgMax", "ArgMin"), x, axis=axis_of(net, x), keepdims=net.pick(0, 1) if len(net.shape(x)) > 1 else 1
    )
    return net.op("Cast", found, to=TensorProto.FLOAT)


@FAMILY.add("TopK", weight=0.4)
def top_k(net: Net, x: str) -> str:
    """The largest values of the last axis."""
    return net.several("TopK", 2, x, integers(net.between(1, net.shape(x)[-1])), axis=-1)[0]


@FAMILY.add("CumSum", weight=0.4)
def cumulative(net: Net, x: str) -> str:
    """The running sum."""
    return net.op("CumSum", x, np.array(net.between(0, len(net.shape(x)) - 1), np.int64))


@FAMILY.add("GatherElements", weight=0.4)
def gather_elements(net: Net, x: str) -> str:
    """Constant indices of the value's shape."""
    shape, at = net.shape(x), net.between(0, len(net.shape(x)) - 1)
    return net.op("GatherElements", x, net.rng.integers(0, shape[at], shape), axis=at)


@FAMILY.add("Trilu", (2, 3, 4), 0.3)
def triangle(net: Net, x: str) -> str:
    """The upper or lower triangle."""
    return net.op("Trilu", x, upper=net.pick(0, 1))


@FAMILY.add("GridSample", (4,), 0.4)
def grid_sample(net: Net, x: str) -> str:
    """At the points of a second input."""
    grid = net.op("Tanh", net.input(f"in{net.mark}", net.shape(x)[0], net.between(2, 6), net.between(2, 6), 2))
    return net.op("GridSample", x, grid, mode=net.pick("bilinear", "nearest"), align_corners=net.pick(0, 1))
