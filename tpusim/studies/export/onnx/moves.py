"""Forms of ops that move elements, or choose them by place."""

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.arg import TopArg
from tpusim.ops.concat import TopConcat
from tpusim.ops.cumulate import TopCumSum
from tpusim.ops.depth2space import TopDepth2Space
from tpusim.ops.elements import TopGatherElements, TopScatterElements, TopTopK
from tpusim.ops.framework.families import is_set
from tpusim.ops.grid_sampler import TopGridSampler
from tpusim.ops.nms import TopNms
from tpusim.ops.pad import TopPad
from tpusim.ops.permute import TopPermute
from tpusim.ops.resize.interp import TopInterp
from tpusim.ops.resize.upsample import TopUpsample
from tpusim.ops.reverse import TopReverse
from tpusim.ops.slice import TopGather, TopSlice
from tpusim.ops.swap_dim import TopSwapDimInner
from tpusim.ops.tile import TopTile
from tpusim.ops.view import TopFlatten, TopSqueeze, TopUnsqueeze, ViewTop
from tpusim.studies.export.onnx.forms import writes
from tpusim.studies.export.onnx.graph import INDEX, Nodes, Tensor


@writes(ViewTop)
def view(op: ViewTop, nodes: Nodes) -> Tensor:
    """Squeeze, Unsqueeze, Flatten to a matrix, or Reshape to the shape of the result."""
    x = nodes.tensor(op.input, None)
    if isinstance(op, TopFlatten) and shape_of(op.input)[:1] == shape_of(op.output)[:-1]:
        return nodes.add("Flatten", [x], dtype=x.dtype, axis=1)
    if isinstance(op, TopSqueeze | TopUnsqueeze):
        kind = "Squeeze" if isinstance(op, TopSqueeze) else "Unsqueeze"
        return nodes.add(kind, [x, nodes.indices(ints(op.axes))], dtype=x.dtype)
    return nodes.add("Reshape", [x, nodes.indices(shape_of(op.output))], dtype=x.dtype)


@writes(TopPermute)
def permute(op: TopPermute, nodes: Nodes) -> Tensor:
    """One Transpose node, of any type."""
    x = nodes.tensor(op.input, None)
    return nodes.add("Transpose", [x], dtype=x.dtype, perm=list(ints(op.order)))


@writes(TopConcat)
def concat(op: TopConcat, nodes: Nodes) -> Tensor:
    """One Concat node, of real numbers."""
    return nodes.add("Concat", [nodes.tensor(v) for v in op.inputs], axis=op.axis.value.data)


@writes(TopTile)
def tile(op: TopTile, nodes: Nodes) -> Tensor:
    """Tile along every axis."""
    x = nodes.tensor(op.input, None)
    return nodes.add("Tile", [x, nodes.indices(ints(op.tile))], dtype=x.dtype)


@writes(TopSlice)
def slice_(op: TopSlice, nodes: Nodes) -> Tensor:
    """Slice along the axes that become shorter."""
    x, sizes = nodes.tensor(op.input, None), shape_of(op.input)
    ranges = enumerate(zip(*op.cut, strict=True))
    cuts = [(o, e, axis, s) for axis, (o, s, e) in ranges if (o, e, s) != (0, sizes[axis], 1)]
    parts = [nodes.indices(values) for values in zip(*(cuts or [(0, sizes[0], 0, 1)]), strict=True)]
    return nodes.add("Slice", [x, *parts], dtype=x.dtype)


@writes(TopReverse)
def reverse(op: TopReverse, nodes: Nodes) -> Tensor:
    """Slice with a step of -1, from the last element to the one before the first."""
    x, axis = nodes.tensor(op.input, None), op.axis.value.data
    numbers = (-1, np.iinfo(np.int64).min, axis, -1)
    return nodes.add("Slice", [x, *(nodes.indices([number]) for number in numbers)], dtype=x.dtype)


@writes(TopGather)
def gather(op: TopGather, nodes: Nodes) -> Tensor:
    """Gather by int64 indices."""
    x = nodes.tensor(op.input, None)
    return nodes.add("Gather", [x, nodes.tensor(op.indices, INDEX)], dtype=x.dtype, axis=op.axis.value.data)


@writes(TopGatherElements)
def gather_elements(op: TopGatherElements, nodes: Nodes) -> Tensor:
    """GatherElements by int64 indices."""
    x = nodes.tensor(op.input, None)
    return nodes.add(
        "GatherElements", [x, nodes.tensor(op.indices, INDEX)], dtype=x.dtype, axis=op.axis.value.data
    )  # fmt: skip


@writes(TopScatterElements)
def scatter_elements(op: TopScatterElements, nodes: Nodes) -> Tensor:
    """ScatterElements with a reduction."""
    x, updates = nodes.tensor(op.input), nodes.tensor(op.updates)
    return nodes.add(
        "ScatterElements", [x, nodes.tensor(op.indices, INDEX), updates],
        axis=op.axis.value.data, reduction=op.word("reduction"),
    )  # fmt: skip


@writes(TopArg)
def arg(op: TopArg, nodes: Nodes) -> Tensor:
    """One ArgMax or ArgMin node."""
    return nodes.add(
        op.mode.data, [nodes.tensor(op.input)], dtype=INDEX, axis=op.axis.value.data,
        keepdims=int(is_set(op.keepdims)), select_last_index=int(is_set(op.select_last_index)),
    )  # fmt: skip


@writes(TopTopK)
def top_k(op: TopTopK, nodes: Nodes) -> Tensor:
    """The values or the places; the ops of one node share it."""
    inputs = [nodes.tensor(op.input), nodes.indices([op.K.value.data])]
    found = nodes.of_node("TopK", inputs, 2, axis=op.axis.value.data, largest=int(is_set(op.largest)), sorted=1)
    number = op.OUTPUTS.index(op.result.data)
    return Tensor(found[number], (np.dtype(np.float32), INDEX)[number])


def _line(nodes: Nodes, number: float) -> Tensor:
    """One f32 number with an axis."""
    return nodes.constant(np.array([number], np.float32))


@writes(TopNms)
def nms(op: TopNms, nodes: Nodes) -> Tensor:
    """NonMaxSuppression, its rows followed by rows of -1 to the fixed number of rows."""
    kept, iou, score, center = op.options
    rows, columns = shape_of(op.results[0])
    numbers = [nodes.indices([kept]), *(None if n is None else _line(nodes, n) for n in (iou, score))]
    boxes = [nodes.tensor(op.boxes), nodes.tensor(op.scores)]
    found = nodes.add("NonMaxSuppression", [*boxes, *numbers], dtype=INDEX, center_point_box=int(bool(center)))
    filled = nodes.add("Concat", [found, nodes.constant(np.full((rows, columns), -1, np.int64))], dtype=INDEX, axis=0)
    return nodes.add("Slice", [filled, nodes.indices([0]), nodes.indices([rows]), nodes.indices([0])], dtype=INDEX)


@writes(TopCumSum)
def cumulative_sum(op: TopCumSum, nodes: Nodes) -> Tensor:
    """CumSum. Raises UnsupportedError for a running product."""
    if op.mode.data != "sum":
        raise UnsupportedError(f"export: '{op_name(op)}' is a running product, which no ONNX node computes")
    axis, flags = nodes.constant(np.asarray(op.axis.value.data, np.int64)), (op.exclusive, op.reverse)
    exclusive, reverse = (int(is_set(flag)) for flag in flags)
    return nodes.add("CumSum", [nodes.tensor(op.input), axis], exclusive=exclusive, reverse=reverse)


@writes(TopPad)
def pad(op: TopPad, nodes: Nodes) -> Tensor:
    """Pad, with a number, reflected or with the edge."""
    mode, inputs = op.mode.data, [nodes.tensor(op.input), nodes.indices(ints(op.paddings))]
    inputs += [nodes.number(op.val.value.data)] if mode == "constant" else []
    return nodes.add("Pad", inputs, mode=mode)


@writes(TopSwapDimInner)
def swap_dim(op: TopSwapDimInner, nodes: Nodes) -> Tensor:
    """Two slices in exchanged order."""
    x, (axis, offset) = nodes.tensor(op.input), op.swap
    size, where = shape_of(op.input)[axis], nodes.indices([axis])
    ends = [(offset, size), (0, offset)]
    parts = [nodes.add("Slice", [x, nodes.indices([a]), nodes.indices([b]), where]) for a, b in ends]
    return nodes.add("Concat", parts, axis=axis)


@writes(TopDepth2Space)
def depth2space(op: TopDepth2Space, nodes: Nodes) -> Tensor:
    """DepthToSpace or SpaceToDepth if they compute the same, else two views and a Transpose."""
    x, (rows, columns) = nodes.tensor(op.input), op.blocks
    flags = (op.is_crd, op.is_inversed, op.swap_cr)
    crd, inverse, swapped = (is_set(flag) for flag in flags)
    images = all(layout is None or is_set(layout) for layout in (op.in_is_nchw, op.out_is_nchw))
    if rows == columns and images and not swapped and not (inverse and crd):
        if inverse:
            return nodes.add("SpaceToDepth", [x], blocksize=rows)
        return nodes.add("DepthToSpace", [x], blocksize=rows, mode="CRD" if crd else "DCR")
    shape, order = op.split
    y = nodes.add("Transpose", [nodes.add("Reshape", [x, nodes.indices(shape)])], perm=list(order))
    return nodes.add("Reshape", [y, nodes.indices(shape_of(op.output))])


@writes(TopUpsample)
def upsample(op: TopUpsample, nodes: Nodes) -> Tensor:
    """Resize by whole factors, each element repeated."""
    return nodes.add(
        "Resize", [nodes.tensor(op.input), None, nodes.constant(np.array([1, 1, *op.factors], np.float32))],
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


@writes(TopInterp)
def interp(op: TopInterp, nodes: Nodes) -> Tensor:
    """Resize by interpolation, to sizes, or by scales that are not the quotients of the sizes."""
    (h, w), steps, align = op.geometry
    shape = shape_of(op.input)
    if op.is_nearest:
        where, how = ("align_corners", "round_prefer_ceil") if align else ("asymmetric", "floor")
        return nodes.add(
            "Resize", [nodes.tensor(op.input), None, None, nodes.indices([*shape[:2], h, w])], mode="nearest",
            coordinate_transformation_mode=where, nearest_mode=how,
        )  # fmt: skip
    quotients = [before / after for before, after in zip(shape[2:], (h, w), strict=True)]
    if align or list(steps) == quotients:
        sizes = [None, nodes.indices([*shape[:2], h, w])]
    else:
        sizes = [nodes.constant(np.array([1, 1, *(1 / step for step in steps)], np.float32))]
    mode = "align_corners" if align else "half_pixel"
    return nodes.add(
        "Resize", [nodes.tensor(op.input), None, *sizes], mode="linear", coordinate_transformation_mode=mode
    )


@writes(TopGridSampler)
def grid_sample(op: TopGridSampler, nodes: Nodes) -> Tensor:
    """One GridSample node with the same options."""
    options = op.options
    return nodes.add(
        "GridSample", [nodes.tensor(op.input), nodes.tensor(op.grid)], mode=options["mode"],
        padding_mode=options["padding"], align_corners=int(options["align_corners"]),
    )  # fmt: skip
