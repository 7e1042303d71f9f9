"""Scales of a quantised model, written into the module: ranges of tensors, scales of filters and matrices."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from xdsl.ir import Operation

from tpusim.frontend.onnx.outcome import Outcome
from tpusim.frontend.onnx.prequantised import Quantised, WeightScales
from tpusim.ir.attrs import op_name
from tpusim.ir.imported_scales import set_imported_ranges, set_imported_weight_scales, set_not_kept
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Weighs
from tpusim.ops.structure import TopWeight

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
OF_ONE_FORM = frozenset({"Transpose", "Identity", "Reshape"})


def keep_scales(model: Model, found: Quantised, nodes: Sequence[onnx.NodeProto], outcomes: Iterable[Outcome]) -> None:
    """Write the scales of the Q and DQ pairs into the module, and note the scales that it cannot express."""
    if not (found.ranges or found.weights or found.notes):
        return
    notes = list(found.notes)
    makers = {name: node for node in nodes for name in node.output}
    made = {o.outputs[0]: o.ops for o in outcomes if o.outputs}
    for node in nodes:
        if node.op_type in PRODUCTS:
            notes += _of_product(model, found, node, makers, made.get(node.output[0], ()))
    set_imported_ranges(model, found.ranges)
    set_not_kept(model, notes)


def _of_product(
    model: Model,
    found: Quantised,
    node: onnx.NodeProto,
    makers: dict[str, onnx.NodeProto],
    ops: Sequence[Operation],
) -> Iterable[str]:
    """Write the scales of a product's weight; yields messages about scales that cannot be kept."""
    integers = found.weights.get(_before_views(node.input[1], makers))
    op = next((op for op in ops if isinstance(op, TopOp) and isinstance(op, Weighs)), None)
    weight = op.operands[1].owner if op is not None else None
    if integers is None or op is None or not isinstance(weight, TopWeight):
        return
    if integers.zero_points.any():
        yield f"the weight of '{op_name(op)}' has zero points, which no chip supports: it is quantised again"
        return
    scales = channel_scales(op, model.weights[op_name(weight)], integers.scales)
    if scales is None:
        yield f"the weight of '{op_name(op)}' is not int8 with one scale per output channel: it is quantised again"
        return
    set_imported_weight_scales(weight, scales)
    bias = found.weights.get(node.input[2]) if len(node.input) > 2 else None
    before = found.ranges.get(node.input[0])
    if bias is not None and before is not None and not _fits(bias, integers.scales * before.scale):
        yield f"the bias of '{op_name(op)}' is not in steps of input times weight: it is rounded to them"


def _before_views(name: str, makers: dict[str, onnx.NodeProto]) -> str:
    """The constant before the views of a weight."""
    maker = makers.get(name)
    return _before_views(maker.input[0], makers) if maker is not None and maker.op_type in OF_ONE_FORM else name


def channel_scales(op: TopOp, weight: np.ndarray, scales: np.ndarray) -> tuple[float, ...] | None:
    """One scale, or one per output channel, such that the weight is int8 in units of it; None if it is not."""
    rows = op.by_channel(weight) if isinstance(op, Weighs) else None
    if rows is None or len(scales) not in (1, len(rows)):
        return None
    steps = rows.astype(np.float64) / scales.reshape(-1, 1)
    whole = np.abs(steps - np.round(steps)).max(initial=0.0) < 1e-3 and np.abs(steps).max(initial=0.0) < 128.5
    return tuple(scales.tolist()) if whole else None


def _fits(bias: WeightScales, scale: np.ndarray) -> bool:
    return bias.scales.size in (1, scale.size) and bool(np.allclose(bias.scales, scale, rtol=1e-4))
