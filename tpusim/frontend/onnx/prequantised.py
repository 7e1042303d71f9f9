"""QuantizeLinear and DequantizeLinear pairs are removed from a model, and their scales are kept separately.

A pair on a computed tensor (one scale, 8 bits) says how that tensor is stored: the network is imported without the
pair. Pairs on constants stay and are folded, which dequantises the filter. If a pair clips values and no node does, the
clip is written as a node: ONNX Runtime's quantizer omits a Relu before integers that start at zero.
"""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tpusim.frontend.onnx.model_file import DEFAULT_DOMAINS
from tpusim.ir.imported_scales import ImportedRange

NON_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs", "Exp", "Sqrt", "Softplus"})
KEEPS_SIGN = frozenset({
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Reshape", "Transpose", "Flatten", "Squeeze",
    "Unsqueeze", "Concat", "Identity", "Slice", "Split", "Gather", "Resize", "Dropout", "ReduceMean", "ReduceMax",
    "Expand", "Tile", "Upsample", "DepthToSpace", "SpaceToDepth", "Add", "Mul",
})  # fmt: skip
BYTES = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
RELU6 = 6.0


@dataclass(frozen=True)
class WeightScales:
    """Scales and zero points of a constant's integers, along an axis of the constant if there are several."""

    scales: np.ndarray
    zero_points: np.ndarray


@dataclass
class Quantised:
    """The scales of a model's pairs. ranges: by ONNX tensor; weights: by the name of a constant after its pair."""

    ranges: dict[str, ImportedRange] = field(default_factory=dict[str, ImportedRange])
    weights: dict[str, WeightScales] = field(default_factory=dict[str, WeightScales])
    notes: list[str] = field(default_factory=list[str])


def without_pairs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Quantised]:
    """The model without the pairs on computed tensors, and their scales; the given model if it has no pairs."""
    if not any(_is(node, "DequantizeLinear") for node in model.graph.node):
        return model, Quantised()
    work = onnx.ModelProto()
    work.CopyFrom(model)
    return work, _Pairs(work).taken_out()


def _is(node: onnx.NodeProto, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in DEFAULT_DOMAINS


class _Pairs:
    """Removes the pairs of QuantizeLinear and DequantizeLinear of one model, in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._clips = any(o.domain in DEFAULT_DOMAINS and o.version >= 11 for o in model.opset_import)
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._arrays = {t.name: t for t in model.graph.initializer}
        self._constant = set(self._arrays)
        for node in model.graph.node:
            if all(name in self._constant for name in node.input):
                self._constant.update(node.output)
        self._inputs = {i.name for i in model.graph.input} - set(self._arrays)
        self._found = Quantised()

    def taken_out(self) -> Quantised:
        """Replace each DequantizeLinear of a pair by the tensor, or by its Relu."""
        new: list[onnx.NodeProto] = []
        for node in self._graph.node:
            made = list(self._instead(node)) if _is(node, "DequantizeLinear") else [node]
            new.extend(made)
            self._makers.update({name: part for part in made for name in part.output})
            if _is(node, "Identity") and node.input[0] in self._found.ranges:
                self._found.ranges[node.output[0]] = self._found.ranges[node.input[0]]
        del self._graph.node[:]
        self._graph.node.extend(new)
        return self._found

    def _instead(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        first = self._makers.get(node.input[0])
        if node.input[0] in self._constant or (first is not None and first.input[0] in self._constant):
            self._note_weight(node)
            yield node
        elif first is None or not _is(first, "QuantizeLinear"):
            yield node
        else:
            yield from self._of_pair(first, node)

    def _note_weight(self, node: onnx.NodeProto) -> None:
        scales, zeros = self._array(node, 1), self._array(node, 2)
        if scales is not None and (zeros is not None or len(node.input) < 3 or not node.input[2]):
            zeros = np.zeros(1) if zeros is None else zeros
            self._found.weights[node.output[0]] = WeightScales(scales.reshape(-1).astype(np.float64), zeros.reshape(-1))

    def _of_pair(self, first: onnx.NodeProto, second: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        x, y = first.input[0], second.output[0]
        params = self._parameters(first), self._parameters(second)
        if params[0] is None or params[0] != params[1]:
            why = "the two halves differ" if params[0] and params[1] else "one scale of 8-bit integers is required"
            self._found.notes.append(f"the Q and DQ of '{x}' are computed as they are written: {why}")
            yield second
            return
        found, source = params[0], self._source(x)
        before = self._found.ranges.get(source)
        if before is not None and before != found:
            self._found.notes.append(f"'{source}' is quantised twice: its first scale {before.scale:.6g} is kept")
            found = before
        self._found.ranges[source] = self._found.ranges[y] = found
        cut = found.low == 0 and x not in self._inputs and not self._is_non_negative(x)
        yield from self._cut(x, y, found) if cut else [helper.make_node("Identity", [x], [y])]

    def _cut(self, x: str, y: str, found: ImportedRange) -> Iterator[onnx.NodeProto]:
        """The Relu or Relu6 that the range of the integers implies."""
        if abs(found.limits[1] - RELU6) > 1e-3 or not self._clips:
            yield helper.make_node("Relu", [x], [y])
            return
        ends = [f"{y}_least", f"{y}_most"]
        for name, end in zip(ends, (0.0, RELU6), strict=True):
            self._graph.initializer.append(numpy_helper.from_array(np.array(end, np.float32), name))
        yield helper.make_node("Clip", [x, *ends], [y])

    def _parameters(self, node: onnx.NodeProto) -> ImportedRange | None:
        """Scale and zero point of a Q or DQ node with one scale and 8 bits; None for any other."""
        scale, zero = self._array(node, 1), self._array(node, 2)
        if zero is None and (len(node.input) < 3 or not node.input[2]) and not node.attribute:
            zero = np.zeros((), np.uint8)
        if scale is None or zero is None or scale.size != 1 or zero.size != 1 or zero.dtype not in BYTES:
            return None
        number = float(scale.reshape(-1)[0])
        if not (np.isfinite(number) and number > 0):
            return None
        return ImportedRange.of(number, int(zero.reshape(-1)[0]), BYTES[zero.dtype])

    def _array(self, node: onnx.NodeProto, index: int) -> np.ndarray | None:
        """A constant parameter as an array."""
        name = node.input[index] if index < len(node.input) else ""
        maker = self._makers.get(name)
        if name in self._arrays:
            return numpy_helper.to_array(self._arrays[name])
        if maker is None or not _is(maker, "Constant") or [a.name for a in maker.attribute] != ["value"]:
            return None
        return numpy_helper.to_array(maker.attribute[0].t)

    def _source(self, name: str) -> str:
        """The tensor before the removed pairs."""
        maker = self._makers.get(name)
        return self._source(maker.input[0]) if maker is not None and _is(maker, "Identity") else name

    def _is_non_negative(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a tensor cannot be negative, because of its producer or because its integers start at zero."""
        maker = self._makers.get(name)
        if maker is None or name in seen or len(seen) > 64:
            return False
        if maker.op_type in NON_NEGATIVE:
            return True
        if maker.op_type == "Clip":
            least = self._array(maker, 1)
            stated = [a.f for a in maker.attribute if a.name == "min"]
            return bool((least is not None and (least >= 0).all()) or (stated and stated[0] >= 0))
        computed = _computed(maker, self._constant)
        constants = len(computed) < len(maker.input) and maker.op_type in ("Add", "Mul", "Concat")
        return maker.op_type in KEEPS_SIGN and not constants and all(
            self._is_non_negative(n, seen | {name}) for n in computed
        )  # fmt: skip


def _computed(node: onnx.NodeProto, constant: set[str]) -> Sequence[str]:
    return [name for name in node.input if name and name not in constant]
