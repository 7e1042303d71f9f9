"""Ops that move elements: views, Transpose, Concat, Tile, Expand, Pad, and parts of a tensor."""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ir.types import shape_of
from tpusim.ops.concat import TopConcat
from tpusim.ops.cumulate import TopCumSum
from tpusim.ops.elements import TopGatherElements, TopScatterElements, TopTopK
from tpusim.ops.nms import TopNms
from tpusim.ops.pad import TopPad
from tpusim.ops.permute import TopPermute
from tpusim.ops.slice import TopGather, TopSlice
from tpusim.ops.tile import TopTile
from tpusim.ops.view import TopReshape, TopSqueeze, TopUnsqueeze


def reshape(node: Node) -> SSAValue:
    """Reshape: the target is an attribute before opset 5, a constant input after."""
    target = node.take("shape")
    if target is None:
        target = node.need(1, "extents of the target").reshape(-1).tolist()
    allow_zero = bool(node.take("allowzero", 0))
    x = node.value(0)
    if len(target) == len(shape_of(x)) and list(target).count(-1) <= 1:
        kept = [-1, *[0] * (not allow_zero)]
        if all(size in (known, *kept) for size, known in zip(target, shape_of(x), strict=True)):
            return x  # TPU-MLIR's simplifier removes the node, so that it gives the operand its name
    return TopReshape.make(node.builder, x, shape=target, allow_zero=allow_zero, name=node.output)


def flatten(node: Node) -> SSAValue:
    """Flatten: to two axes, those before `axis` and the others."""
    return TopReshape.two_axes(node.builder, node.value(0), **node.options("axis"), name=node.output)


def _axes(node: Node) -> list[Any] | None:
    """The axes: an attribute before opset 13, a constant input after; None if absent."""
    axes = node.take("axes")
    return node.numbers(1, "axes") if axes is None else list(axes)


def squeeze(node: Node) -> SSAValue:
    """Squeeze; without axes every axis of extent 1 goes."""
    return TopSqueeze.make(node.builder, node.value(0), axes=_axes(node), name=node.output)


def unsqueeze(node: Node) -> SSAValue:
    """Unsqueeze: axes of extent 1 more."""
    x, axes = node.value(0), _axes(node)
    if axes is None:
        raise ValueError("axes are required")
    return TopUnsqueeze.make(node.builder, x, axes=axes, name=node.output)


def transpose(node: Node) -> SSAValue:
    """Transpose; without perm the axes are reversed. If every axis stays in its place, the operand is the result."""
    if list(node.attributes.get("perm", ())) == list(range(len(node.shape(0)))):
        node.take("perm")
        return node.value(0)
    return TopPermute.make(node.builder, node.value(0), **node.options(order="perm"), name=node.output)


def concat(node: Node) -> SSAValue:
    """Concat; operands without elements are left out."""
    filled = [node.value(i) for i in range(len(node.inputs)) if 0 not in node.shape(i)]
    axis = int(node.take("axis", 1))
    return filled[0] if len(filled) == 1 else TopConcat.make(node.builder, filled, axis=axis, name=node.output)


def tile(node: Node) -> SSAValue:
    """Tile of opset 6 and later."""
    x, times = node.value(0), _second(node)
    if node.opset < 6:
        raise ValueError("opset 6 or later is required")
    return TopTile.make(node.builder, x, tile=times, name=node.output)


def expand(node: Node) -> SSAValue:
    """Expand: leading axes of length 1, and repetition."""
    return TopTile.broadcast(node.builder, node.value(0), shape=_second(node), name=node.output)


def _second(node: Node) -> list[int]:
    return [int(number) for number in node.need(1, "numbers of the second input").reshape(-1)]


def pad(node: Node) -> SSAValue:
    """Pad: pads and value are attributes before opset 11, constant inputs after, with optional axes from 18."""
    x = node.value(0)
    rank = len(shape_of(x))
    mode, value = node.take("mode", "constant"), float(node.take("value", 0.0))
    pads = node.take("pads", node.take("paddings"))  # "paddings" in opset 1
    if pads is None:
        pads = _constant(node, 1, "pads")
    if node.has(2):
        value = float(_constant(node, 2, "constant_value")[0])
    if node.has(3):
        axes = [int(axis) % rank for axis in _constant(node, 3, "axes")]
        given, pads = pads, [0] * (2 * rank)
        for i, axis in enumerate(axes):
            pads[axis], pads[rank + axis] = given[i], given[len(axes) + i]
    if not any(pads):
        return x
    return TopPad.make(node.builder, x, paddings=pads, mode=mode, val=value, name=node.output)


def _constant(node: Node, index: int, what: str) -> list[Any]:
    return node.need(index, what).reshape(-1).tolist()


def slice_(node: Node) -> SSAValue:
    """Slice: attributes before opset 10, constant inputs after."""
    x, given = node.value(0), list[Sequence[int] | None]()
    for index, key in enumerate(("starts", "ends", "axes", "steps"), 1):
        old = node.take(key) if node.opset < 10 and key != "steps" else None
        given.append(node.numbers(index, key) if node.opset >= 10 else old)
    starts, ends, axes, steps = given
    if starts is None or ends is None:
        raise ValueError("starts and ends are required")
    return TopSlice.make(node.builder, x, offset=starts, ends=ends, steps=steps, axes=axes, name=node.output)


def split(node: Node) -> list[SSAValue]:
    """Split: sizes are an attribute before opset 13, a constant input after; else near-equal parts."""
    x, axis = node.value(0), int(node.take("axis", 0))
    count, extents = int(node.take("num_outputs", len(node.outputs))), shape_of(x)
    sizes: list[int] | None = node.take("split")
    sizes = node.numbers(1, "sizes") or sizes
    if sizes is None and -len(extents) <= axis < len(extents):
        each = -(-extents[axis] // count)
        sizes = [min(each, extents[axis] - i * each) for i in range(count)]
    names = [name or f"{node.output}_part{i}" for i, name in enumerate(node.outputs)]
    return TopSlice.split(node.builder, x, axis=axis, sizes=sizes or (), names=names)


def gather(node: Node) -> SSAValue:
    """Gather with constant indices, or with those of ArgMax."""
    x, indices = node.value(0), node.constant(1)
    found = node.value(1) if indices is None else indices
    return TopGather.make(node.builder, x, found, axis=int(node.take("axis", 0)), name=node.output)


def gather_elements(node: Node) -> SSAValue:
    """GatherElements: one index for every element of the result."""
    axis = int(node.take("axis", 0))
    return TopGatherElements.make(node.builder, node.value(0), node.value(1), axis=axis, name=node.output)


def scatter_elements(node: Node) -> SSAValue:
    """ScatterElements, and Scatter, which it replaced in opset 11."""
    options: dict[str, Any] = {"axis": int(node.take("axis", 0)), "reduction": node.take("reduction", "none")}
    return TopScatterElements.make(node.builder, *node.values(), **options, name=node.output)


def top_k(node: Node) -> list[SSAValue | None]:
    """TopK: the elements and their places. Before opset 10 the count is an attribute.

    Along another axis than the last it stands between Permutes, and each inner result has the other's name (U-114).
    """
    x, given = node.value(0), node.take("k")
    axis, largest, rank = int(node.take("axis", -1)), bool(node.take("largest", 1)), len(shape_of(x))
    options: dict[str, Any] = {
        "k": int(node.need(1, "counts").reshape(-1)[0] if given is None else given),
        "largest": largest,
    }
    node.take("sorted")  # in order in any case
    read = [name if name and node.tensors.is_read(name) else "" for name in node.outputs]
    if not any(read) or not -rank <= axis < rank or axis % rank == rank - 1:
        return [
            TopTopK.make(node.builder, x, axis=axis, result=result, name=name, **options) if name else None
            for result, name in zip(TopTopK.OUTPUTS, read, strict=False)
        ]
    order = [*(a for a in range(rank) if a != axis % rank), axis % rank]
    back = [order.index(a) for a in range(rank)]
    x = TopPermute.make(node.builder, x, order=order, name="transpose_before_topk")
    found: list[SSAValue | None] = []
    for result, name, inner in zip(TopTopK.OUTPUTS, read, _inner_names(node), strict=False):
        y = TopTopK.make(node.builder, x, axis=-1, result=result, name=inner, **options) if name else None
        found.append(None if y is None else TopPermute.make(node.builder, y, order=back, name=name))
    return found


def _inner_names(node: Node) -> list[str]:
    """Names of the values and the indices along the last axis; an absent output has a word of TPU-MLIR in its name."""
    first = next(name for name in node.outputs if name)
    ends = (node.tensors.ending(name) if name else "" for name in node.outputs)
    names = [f"{name or first}{end}" for name, end in zip(node.outputs, ends, strict=True)]
    values, indices = (*names, f"{first}_TopK_values")[:2]
    return [f"{indices}_transpose", f"{values}_transpose"]


def non_max_suppression(node: Node) -> SSAValue:
    """NonMaxSuppression; the limit of kept boxes must be constant, so that the result has fixed extents."""
    if not node.has(2):
        raise ValueError("max_output_boxes_per_class is required: without it ONNX keeps no box")
    most = int(node.need(2, "max_output_boxes_per_class").reshape(-1)[0])
    iou, score = (node.numbers(i, "thresholds") for i in (3, 4))
    return TopNms.make(
        node.builder, node.value(0), node.value(1), most=most, iou=0.0 if iou is None else iou[0],
        score=None if score is None else score[0], center=bool(node.take("center_point_box", 0)), name=node.output,
    )  # fmt: skip


def cumulate(node: Node) -> SSAValue:
    """CumSum and CumProd along a constant axis."""
    axis, mode = int(node.need(1, "axes").reshape(-1)[0]), "sum" if node.op_type == "CumSum" else "prod"
    flags = {key: bool(node.take(key, 0)) for key in ("exclusive", "reverse")}
    return TopCumSum.make(node.builder, node.value(0), axis=axis, mode=mode, **flags, name=node.output)


MAPPERS: dict[str, Mapper] = {
    "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Transpose": transpose,
    "Concat": concat, "Tile": tile, "Expand": expand, "Pad": pad, "Slice": slice_, "Split": split, "Gather": gather,
    "GatherElements": gather_elements, "ScatterElements": scatter_elements, "Scatter": scatter_elements, "TopK": top_k,
    "NonMaxSuppression": non_max_suppression, "CumSum": cumulate, "CumProd": cumulate,
}  # fmt: skip
