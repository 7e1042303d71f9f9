"""Ops that are linear along an axis: any kind of Resize, and Fourier transforms, as products with constant matrices."""

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np
from onnx import helper
from onnx.helper import make_opsetid

from tpusim.frontend.onnx.folding import by_definition
from tpusim.frontend.onnx.parts import Parts
from tpusim.ops.patterns.interpolated import UNSTATED, interpolated

MODES = ("coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value", "mode",
         "nearest_mode", "antialias")  # fmt: skip
STATES_COORDINATES = 11
"""The first version of Resize that states its coordinates; they were asymmetric."""
RANK = 4
"""Axes of an image."""
MOST = 1 << 22
"""Elements of a matrix that is made for an axis."""


def resize(p: Parts) -> None:
    """Resize axis by axis: a Gather if every element is a copy of another, otherwise a product with a matrix."""
    shape, modes = p.node.shape(0), {key: p.node.take(key) for key in MODES}
    if p.node.opset < STATES_COORDINATES:
        modes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    axes = [int(a) % len(shape) for a in p.node.take("axes") or range(len(shape))]
    index = 1 if p.node.op_type == "Upsample" or p.node.opset < 11 else 2
    scales = p.node.numbers(index, "scales")
    given = [int(v) for v in (p.node.numbers(3, "sizes") or ())]
    sizes = _sizes(p, [shape[a] for a in axes], scales, given)
    roi = p.node.numbers(1, "regions") if index == 2 else None
    x = p.x
    changed = [i for i, axis in enumerate(axes) if sizes[i] != shape[axis] or (scales and scales[i] != 1) or roi]
    for i in changed:
        region = [roi[i], roi[len(axes) + i]] if roi else None
        scale = float(scales[i]) if scales else None
        x = _along(p, x, axes[i], _matrix(shape[axes[i]], sizes[i], scale, region, modes))
    if len(shape) == RANK and roi is None and {axes[i] for i in changed} <= {RANK - 2, RANK - 1}:
        stated = str(modes["coordinate_transformation_mode"] or "half_pixel")
        coordinates = UNSTATED if p.node.opset < STATES_COORDINATES else stated
        p.whole = interpolated(str(modes["mode"]), coordinates, p.node.ending(0))
    p.result("Identity", x)


def _sizes(p: Parts, extents: list[int], scales: list[Any] | None, sizes: list[int]) -> list[int]:
    """The extents of the result along the axes; a policy keeps the aspect ratio."""
    if scales:
        return [floor(n * s) for n, s in zip(extents, scales, strict=True)]
    policy = p.node.take("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes
    ratios = [s / n for s, n in zip(sizes, extents, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [floor(scale * n + 0.5) for n in extents]


def _matrix(
    size: int, out: int, scale: float | None, region: list[float] | None, modes: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """((size, out) weights, added constant) of one axis, from ONNX's definition applied to unit vectors."""
    _require_small(size, out)
    kept = {key: value for key, value in modes.items() if value is not None}
    names = ["x", "roi" if region else "", "scales" if scale else "", "" if scale else "sizes"]
    node = helper.make_node("Resize", names[:3] if scale else names, ["y"], axes=[1], **kept)
    feeds = {"x": np.concatenate([np.eye(size, dtype=np.float32), np.zeros((1, size), np.float32)])}
    if region:
        feeds["roi"] = np.array(region, np.float32)
    feeds |= {"scales": np.array([scale], np.float32)} if scale else {"sizes": np.array([out], np.int64)}
    found = by_definition(node, [make_opsetid("", 19)], feeds)
    if found is None:
        raise ValueError("a Resize that ONNX's reference defines is required")
    y = found["y"].astype(np.float32)
    return y[:-1] - y[-1:], y[-1]


def _require_small(rows: int, columns: int) -> None:
    """Raise ValueError for a matrix whose making would be all that the import does."""
    if rows * columns > MOST:
        raise ValueError(f"a matrix of at most {MOST:,} elements is made for an axis, got {rows:,} x {columns:,}")


def _along(p: Parts, x: str, axis: int, weights: tuple[np.ndarray, np.ndarray]) -> str:
    matrix, more = weights
    if not more.any() and ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(0) == 1).all():
        return p.op("Gather", x, matrix.argmax(0), axis=axis)
    rank = len(p.node.shape(0))
    order = [*(a for a in range(rank) if a != axis), axis]
    back = [order.index(a) for a in range(rank)]
    y = p.op("MatMul", p.op("Transpose", x, perm=order), matrix)
    y = p.op("Add", y, more) if more.any() else y
    return p.op("Transpose", y, perm=back)


def fourier(p: Parts) -> None:
    """DFT along a constant axis: products with cosines and sines."""
    shape = p.node.shape(0)
    axis = int(p.node.need(2, "axes").reshape(-1)[0]) if p.input(2) else int(p.node.take("axis", _default(p)))
    axis %= len(shape)
    count = int(p.node.need(1, "lengths").reshape(-1)[0]) if p.input(1) else shape[axis]
    inverse, half = bool(p.node.take("inverse", 0)), bool(p.node.take("onesided", 0))
    if inverse and half:
        raise ValueError("a whole transform is required to be inverted (onesided 0)")
    used, rows = min(count, shape[axis]), count // 2 + 1 if half else count
    _require_small(used, rows)
    angle = 2 * np.pi * np.outer(np.arange(used), np.arange(rows)) / count
    factor = 1 / count if inverse else 1.0
    cosine, sine = np.cos(angle) * factor, np.sin(angle) * (factor if inverse else -factor)
    order = [*(a for a in range(len(shape)) if a not in (axis, len(shape) - 1)), axis]
    last = len(shape) - 1
    parts = [p.op("Gather", p.x, np.array(i), axis=last) for i in range(shape[-1])]
    turned = [p.op("Transpose", _first(p, part, used, axis), perm=order) for part in parts]
    products = [[p.op("MatMul", t, m.astype(np.float32)) for m in (cosine, sine)] for t in turned]
    real, imaginary = products[0]
    if len(products) == 2:
        real = p.op("Sub", real, products[1][1])
        imaginary = p.op("Add", imaginary, products[1][0])
    back = [order.index(a) for a in range(last)]
    results = [p.op("Unsqueeze", p.op("Transpose", y, perm=back), np.array([last])) for y in (real, imaginary)]
    p.result("Concat", *results, axis=last)


def _default(p: Parts) -> int:
    return 1 if p.node.opset < 20 else -2


def _first(p: Parts, x: str, count: int, axis: int) -> str:
    return p.op("Slice", x, np.array([0]), np.array([count]), np.array([axis]))


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {"Resize": resize, "Upsample": resize, "DFT": fourier}
