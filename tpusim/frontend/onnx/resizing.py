"""Resize, its predecessor Upsample, and sampling at computed places."""

from collections.abc import Mapping
from math import floor

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.frontend.onnx.part_linear import RANK, STATES_COORDINATES
from tpusim.ir.types import shape_of
from tpusim.ops.framework.building import require_size
from tpusim.ops.grid_sampler import TopGridSampler
from tpusim.ops.patterns.interpolated import NEAREST, SAME, UNSTATED, interpolated, nearest_coordinates
from tpusim.ops.patterns.recurrent import mark_parts
from tpusim.ops.resize import TopInterp, nearest_source
from tpusim.ops.resize.nearest import upstream_sources

Shape = tuple[int, ...]


def resize(node: Node) -> SSAValue:
    """Resize and Upsample: nearest, or linear along height and width."""
    x = node.value(0)
    scales, size = _target(node, shape_of(x))
    mode = node.take("mode", "nearest")
    modes = {"coord_mode": "asymmetric", "nearest_mode": "floor"}
    if node.opset >= STATES_COORDINATES:
        modes = node.options("nearest_mode", coord_mode="coordinate_transformation_mode")
    for key in ("cubic_coeff_a", "extrapolation_value"):  # of other modes
        node.take(key)
    mode = "linear" if mode == "bilinear" else mode  # in opset 1
    require_size(size)
    value = TopInterp.make(node.builder, x, size=size, scales=scales, mode=mode, **modes, name=node.output)
    if mode == "nearest" and len(size) == RANK and tuple(size[:2]) == shape_of(x)[:2]:
        coordinates = modes.get("coord_mode", "half_pixel") if node.opset >= STATES_COORDINATES else UNSTATED
        _mark_nearest(value, x, scales, modes, coordinates, node.output)
    return value


def _mark_nearest(
    value: SSAValue, x: SSAValue, scales: list[float], modes: Mapping[str, str], coordinates: str, tensor: str
) -> None:
    """Mark the ops from `x` to `value`, so that they can become the Interp or Upsample of TPU-MLIR (U-109)."""
    before, after = shape_of(x)[2:], shape_of(value)[2:]
    sources = upstream_sources(before, after, nearest_coordinates(coordinates))
    stated = modes.get("coord_mode", "half_pixel"), modes.get("nearest_mode", "round_prefer_floor")
    same = all(
        np.array_equal(nearest_source(i, o, scale, *stated), source)
        for i, o, scale, source in zip(before, after, scales[2:], sources, strict=True)
    )
    parts = list[Operation]()
    while value is not x and isinstance(value.owner, Operation):
        parts.append(value.owner)
        value = value.owner.operands[0]
    mark_parts(parts, interpolated(SAME if same else NEAREST, coordinates, ""), tensor)


def _target(node: Node, shape: Shape) -> tuple[list[float], Shape]:
    """(output per input element, extents) along every axis, from constant scales or sizes."""
    if node.op_type == "Upsample" and node.opset < 9:
        scales = node.take("scales")
        if scales is None:
            raise ValueError("scales are required; opset 7 or later")
        return _from_scales(shape, [float(s) for s in scales])
    for key in ("antialias", "exclude_outside"):
        if node.take(key, 0):
            raise ValueError(f"{key} = 0 is required")
    if node.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError('keep_aspect_ratio_policy "stretch" is required')
    given = node.take("axes")
    axes = range(len(shape)) if given is None else [int(a) % len(shape) for a in given]
    index = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    scales = node.numbers(index, "scales")
    if scales:
        full = [1.0] * len(shape)
        for axis, scale in zip(axes, scales, strict=True):
            full[axis] = float(scale)
        return _from_scales(shape, full)
    sizes = node.numbers(3, "sizes")
    if not sizes:
        raise ValueError("scales or sizes are required")
    size = list(shape)
    for axis, extent in zip(axes, sizes, strict=True):
        size[axis] = int(extent)
    return [o / i for i, o in zip(shape, size, strict=True)], tuple(size)


def _from_scales(shape: Shape, scales: list[float]) -> tuple[list[float], Shape]:
    if len(scales) != len(shape) or min(scales) <= 0:
        raise ValueError(f"{len(shape)} scales above 0 are required, got {scales}")
    return scales, tuple(floor(size * scale) for size, scale in zip(shape, scales, strict=True))


GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The modes of GridSample as opset 16 spells them -> as later ones do."""


def grid_sample(node: Node) -> SSAValue:
    """GridSample of images and volumes."""
    mode, padding = str(node.take("mode", "linear")), str(node.take("padding_mode", "zeros"))
    options = {"padding_mode": padding, "mode": GRID_MODES.get(mode, mode)}
    corners = bool(node.take("align_corners", 0))
    x, grid = node.value(0), node.value(1)
    return TopGridSampler.make(node.builder, x, grid, **options, align_corners=corners, name=node.output)


MAPPERS: dict[str, Mapper] = {"Resize": resize, "Upsample": resize, "GridSample": grid_sample}
