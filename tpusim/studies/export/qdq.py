"""Write the integers of a tpu module into its original ONNX model."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.shape_inference
import onnx.version_converter
from onnx import helper, numpy_helper

from tpusim.canonicalize import canonicalize
from tpusim.errors import UnsupportedError, option
from tpusim.frontend import WHOLE, Cut, import_onnx
from tpusim.frontend.onnx import Source, cut_out, read_onnx, without_pairs
from tpusim.frontend.onnx.model_file import reads
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.types import uniform_of
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput
from tpusim.studies.export.differences import differences, reinterpreted
from tpusim.studies.export.onnx import export_onnx
from tpusim.studies.export.products import IntegerProduct, products

OPSET = 13
"""The first opset whose QuantizeLinear has scales per channel."""
IR_VERSION = 8
AFTER_PRODUCT = frozenset({"Relu", "Clip"})
"""Nodes after a product that its integer op also computes."""
FUSED = frozenset({*AFTER_PRODUCT, "Add", "Sub", "Mul", "Div", "BatchNormalization", "Identity", "Dropout"})
"""Nodes after a product that may be folded into its weights."""


@dataclass(frozen=True)
class Exported:
    """The QDQ model, and its differences from the module, a sentence each; also in its metadata as
    `tpusim.differences`.
    """

    model: onnx.ModelProto
    differences: tuple[str, ...]


def export_qdq(
    source: Source | Model,
    tpu: Model,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    cut: Cut = WHOLE,
) -> Exported:
    """An ONNX model with the integers of `tpu`, the INT8 module lowered from it.

    source: the ONNX model, whose nodes stay, or the top module, which `export_onnx` writes. input_shapes, cut: as for
    `import_onnx`, of an ONNX model.

    Raises UnsupportedError if the module stores nothing in bytes, ImportModelError if the module is in another state or
    the model cannot be read.
    """
    tpu.require_state("TPU_LOWERED", stage="export")
    if isinstance(source, Model):
        written = export_onnx(source)
        return _quantised(written.proto, written.tensors, tpu, [])
    canonical, _ = canonicalize(import_onnx(source, input_shapes=input_shapes, cut=cut))
    proto = onnx.ModelProto()
    proto.CopyFrom(_recent(without_pairs(cut_out(cut, read_onnx(source), input_shapes, tpu.name))[0]))
    names = {op_name(op): framework_name(op) for op in canonical.ops if isinstance(op, TopOp)}
    return _quantised(proto, names, tpu, reinterpreted(tpu))


def _quantised(proto: onnx.ModelProto, names: Mapping[str, str], tpu: Model, more: Sequence[str]) -> Exported:
    """Change a model in place. names: its tensors by the names of the ops of the top module; more: differences of it
    from the module whatever the numbers are.
    """
    writer = _Writer(proto.graph, _reals(proto))
    known = [p for p in products(tpu) if names.get(p.name) in writer.tensors]
    exact = {p.name for p in known if writer.weigh(names[p.name], p)}
    stored = {name: params for name, params in _stored(tpu).items() if names.get(name) in writer.tensors}
    if not stored:
        raise UnsupportedError(
            f"export: '{tpu.name}' in {tpu.mode} stores no f32 tensor of the ONNX model in bytes; lower it with "
            f"{option('mode', 'int8')}, give 2_canonical.mlir for a model in 16 bits, or write {option('to', 'onnx')}"
        )
    writer.quantise({names[name]: params for name, params in stored.items()})
    writer.drop_unread()
    told = [*differences(tpu, stored.keys(), exact), *more]
    _state(proto, tpu, told)
    return Exported(proto, tuple(told))


def _reals(proto: onnx.ModelProto) -> set[str]:
    """Tensors of f32 numbers, the only ones that QuantizeLinear takes; a type that cannot be inferred is f32."""
    graph = onnx.shape_inference.infer_shapes(proto).graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info)}
    named = {v.name for v in graph.input}.union(*(node.output for node in graph.node))
    return {name for name in named if known.get(name) in (None, 0, onnx.TensorProto.FLOAT)}


def _recent(proto: onnx.ModelProto) -> onnx.ModelProto:
    if all(o.version >= OPSET for o in proto.opset_import if o.domain in ("", "ai.onnx")):
        return proto
    try:
        return onnx.version_converter.convert_version(proto, OPSET)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise UnsupportedError(
            f"export: operator set {OPSET} is required, and this model cannot be taken there: {error}"
        ) from error


def _stored(tpu: Model) -> dict[str, QuantParams]:
    """Scale and zero point of each op's result and of each network input that is stored in bytes."""
    found: dict[str, QuantParams] = {}
    for op in tpu.ops:
        uniform = uniform_of(op.results[0]) if isinstance(op, TpuOp) else None
        if uniform is None or uniform.params.bits != 8 or uniform.params.axis is not None:
            continue
        source = op.operands[0].owner if isinstance(op, TpuCast) else op
        if not isinstance(op, TpuCast) or isinstance(source, TopInput) or uniform_of(source.results[0]) is None:  # type: ignore[union-attr]
            found.setdefault(op_name(source), uniform.params)  # type: ignore[arg-type]
    return found


def _state(proto: onnx.ModelProto, tpu: Model, told: Sequence[str]) -> None:
    del proto.graph.value_info[:], proto.metadata_props[:]
    proto.ir_version = max(proto.ir_version, IR_VERSION)
    facts = {
        "chip": tpu.chip,
        "mode": tpu.mode,
        "differences": json.dumps(told),
    }
    helper.set_model_props(proto, {f"tpusim.{key}": value for key, value in facts.items()})


class _Writer:
    """Changes one ONNX graph in place, and looks up producers of tensors in it."""

    def __init__(self, graph: onnx.GraphProto, reals: Collection[str]) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.node for name in node.output}
        self._constants = {t.name for t in graph.initializer}
        for node in graph.node:
            if all(name in self._constants for name in node.input):
                self._constants.update(node.output)
        computed = (self._makers.keys() | {i.name for i in graph.input}) - self._constants
        self.tensors = computed.intersection(reals)
        self._used = self._constants | computed

    def weigh(self, tensor: str, product: IntegerProduct) -> bool:
        """Write the integers of a product into the node that computes a tensor; False if no node is this product."""
        chain = self._chain(tensor)
        node = chain[-1] if chain else None
        if (
            node is None
            or (node.op_type != "Conv") != product.is_matrix
            or any(a.name == "transA" and a.i for a in node.attribute)
        ):
            return False
        weight = self._shape(node.input[1], product)
        if weight is None:
            return False
        axis = weight.ndim - 1 if product.is_matrix else 0
        node.input[1] = self._dequantised(f"{product.name}_weight", weight, product.scales, axis)
        kept = [n for n in reversed(chain[:-1]) if n.op_type in AFTER_PRODUCT]
        dropped = [n for n in chain[:-1] if n.op_type not in AFTER_PRODUCT]
        self._bias(node, product)
        self._rewire([node, *kept], tensor, product)
        for gone in dropped:
            self._graph.node.remove(gone)
        return True

    def _chain(self, tensor: str) -> list[onnx.NodeProto]:
        """The nodes from the producer of a tensor back to the product."""
        chain: list[onnx.NodeProto] = []
        while (node := self._makers.get(tensor)) is not None:
            chain.append(node)
            if node.op_type in ("Conv", "Gemm", "MatMul"):
                return chain if node.input[1] in self._constants else []
            computed = [n for n in node.input if n and n not in self._constants]
            if node.op_type not in FUSED or len(computed) != 1:
                return []
            tensor = computed[0]
        return []

    def _shape(self, name: str, product: IntegerProduct) -> np.ndarray | None:
        """The weight in the node's layout; None if the weight was changed by fusions."""
        stated = next((t for t in self._graph.initializer if t.name == name), None)
        if product.is_matrix or stated is None:
            return product.weight
        shape = tuple(stated.dims)
        return product.weight.reshape(shape) if int(np.prod(shape)) == product.weight.size else None

    def _bias(self, node: onnx.NodeProto, product: IntegerProduct) -> None:
        del node.input[2:]
        if node.op_type == "Gemm":
            del node.attribute[:]
        if product.bias is not None and node.op_type != "MatMul":
            node.input.append(self._int32(product))

    def _int32(self, product: IntegerProduct) -> str:
        assert product.bias is not None  # the caller has checked it
        limits = np.iinfo(np.int32)
        bias = np.clip(product.bias, limits.min, limits.max).astype(np.int32)
        return self._dequantised(f"{product.name}_bias", bias, product.bias_scales, 0)

    def _rewire(self, nodes: Sequence[onnx.NodeProto], tensor: str, product: IntegerProduct) -> None:
        """Connect the product, a sum with the bias if the node has no bias input, and a relu."""
        nodes = list(nodes)
        if product.bias is not None and nodes[0].op_type == "MatMul":
            total = helper.make_node(
                "Add", [nodes[0].output[0], self._int32(product)], [self._fresh(f"{tensor}_total")]
            )
            nodes.insert(1, self._inserted_after(nodes[0], total))
        for number, node in enumerate(nodes):
            if number:
                node.input[0] = nodes[number - 1].output[0]
            node.output[0] = tensor if node is nodes[-1] else self._fresh(f"{tensor}_{node.op_type.lower()}_{number}")

    def _inserted_after(self, before: onnx.NodeProto, node: onnx.NodeProto) -> onnx.NodeProto:
        """Insert a node after another, and return the graph's copy of it."""
        place = 1 + next(i for i, n in enumerate(self._graph.node) if n == before)
        self._graph.node.insert(place, node)
        return self._graph.node[place]

    def _dequantised(self, name: str, array: np.ndarray, scales: np.ndarray, axis: int) -> str:
        """Add a constant of integers with a DequantizeLinear, and return the result's name."""
        name = self._fresh(name)
        scale = scales.astype(np.float32)
        scale = scale if scale.size > 1 else scale.reshape(())
        parts = {
            "quantized": np.ascontiguousarray(array),
            "scale": scale,
            "zero_point": np.zeros_like(scale, array.dtype),
        }
        inputs = [self._constant(f"{name}_{part}", a) for part, a in parts.items()]
        self._graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [name], axis=axis))
        return name

    def _constant(self, name: str, array: np.ndarray) -> str:
        """Add a constant, and return its name."""
        name = self._fresh(name)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _fresh(self, name: str) -> str:
        """The name, or it with a number appended if a tensor of the model has the name."""
        number, free = 0, name
        while free in self._used:
            number += 1
            free = f"{name}_{number}"
        self._used.add(free)
        return free

    def drop_unread(self) -> None:
        """Remove the constants that no node reads any more, above all the weights in floats."""
        read = {o.name for o in self._graph.output}.union(*map(reads, self._graph.node))
        kept = [t for t in self._graph.initializer if t.name in read]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)

    def quantise(self, stored: Mapping[str, QuantParams]) -> None:
        """Insert Q and DQ after every stored tensor, for all its readers; the DQ of a graph's result keeps its name."""
        results = {o.name for o in self._graph.output}
        self._makers = {name: node for node in self._graph.node for name in node.output}
        pairs: dict[str, list[onnx.NodeProto]] = {}
        for tensor, params in stored.items():
            made = tensor in self._makers
            source, target = (
                (self._fresh(f"{tensor}_real"), tensor)
                if made and tensor in results
                else (tensor, self._fresh(f"{tensor}_dequantized"))
            )
            for node in self._graph.node:
                node.input[:] = [target if n == tensor else n for n in node.input]
                node.output[:] = [source if n == tensor else n for n in node.output]
            pairs[source] = self._pair(source, target, tensor, params)
        nodes = [n for i in self._graph.input for n in pairs.get(i.name, [])]
        for node in self._graph.node:
            nodes += [node, *(n for name in node.output for n in pairs.get(name, []))]
        del self._graph.node[:]
        self._graph.node.extend(nodes)

    def _pair(self, source: str, target: str, tensor: str, params: QuantParams) -> list[onnx.NodeProto]:
        zero = np.array(params.zero_point, np.int8 if params.signed else np.uint8)
        parts = {"scale": np.array(params.scale, np.float32), "zero_point": zero}
        numbers = [self._constant(f"{tensor}_{part}", array) for part, array in parts.items()]
        stored = self._fresh(f"{tensor}_quantized")
        return [
            helper.make_node("QuantizeLinear", [source, *numbers], [stored]),
            helper.make_node("DequantizeLinear", [stored, *numbers], [target]),
        ]
