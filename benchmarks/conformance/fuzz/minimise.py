"""Delta debugging: the smallest network that still differs in the same way.

Reductions are tried in turn until none is left that keeps the difference: fewer outputs, fewer nodes (a node becomes a
copy of its operand, or its result an input), smaller sizes, attributes at their defaults, plainer constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.conformance.fuzz.grammar import is_finite
from benchmarks.conformance.fuzz.statistics import Array

Holds = Callable[[onnx.ModelProto], bool]
"""Whether a network still shows the difference."""
MOST_TRIES = 200
"""Networks that are asked about, at most."""


def minimise(proto: onnx.ModelProto, holds: Holds, tries: int = MOST_TRIES) -> onnx.ModelProto:
    """The smallest network that was met for which `holds`; the given one is assumed to hold."""
    counted = list[onnx.ModelProto]()

    def smaller(current: onnx.ModelProto) -> onnx.ModelProto | None:
        for reduction in REDUCTIONS:
            for candidate in reduction(current):
                if len(counted) >= tries:
                    return None
                if is_valid(candidate):
                    counted.append(candidate)
                    if holds(candidate):
                        return candidate
        return None

    while (found := smaller(proto)) is not None:
        proto = found
    return proto


def is_valid(proto: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime computes finite values of the network."""
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError:
        return False
    return is_finite(proto)


def size(proto: onnx.ModelProto) -> tuple[int, int]:
    """(nodes, elements of inputs and constants)."""
    inputs = sum(int(np.prod(shape_of(v))) for v in proto.graph.input)
    return len(proto.graph.node), inputs + sum(int(np.prod(c.dims)) for c in proto.graph.initializer)


def shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of a value."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def types_of(proto: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The inferred type of every value."""
    graph = onnx.shape_inference.infer_shapes(proto).graph
    return {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}


def rebuilt(
    proto: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] | None = None,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
) -> onnx.ModelProto:
    """A network of these nodes, of which it keeps what the outputs need, with its types inferred again."""
    wanted, kept = set(outputs), list[onnx.NodeProto]()
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.insert(0, node)
            wanted |= set(node.input)
    graph = proto.graph
    made = helper.make_graph(
        kept,
        graph.name,
        [v for v in (graph.input if inputs is None else inputs) if v.name in wanted],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [c for c in (graph.initializer if constants is None else constants) if c.name in wanted],
    )
    model = helper.make_model(
        made, opset_imports=proto.opset_import, ir_version=proto.ir_version, producer_name=proto.producer_name
    )
    return onnx.shape_inference.infer_shapes(model)


def fewer_outputs(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """One inner value or output alone, the earliest first; then all outputs but one."""
    graph, types = proto.graph, types_of(proto)
    floats = [n for node in graph.node for n in node.output if n in types and _is_float(types[n])]
    outputs = [v.name for v in graph.output]
    for name in floats:
        if [name] != outputs:
            yield rebuilt(proto, graph.node, [name])
    if len(outputs) > 2:
        for name in outputs:
            yield rebuilt(proto, graph.node, [n for n in outputs if n != name])


def fewer_nodes(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """A value becomes an input, the latest first; then a node goes and its operand of the same type takes its place."""
    graph, types = proto.graph, types_of(proto)
    outputs = [v.name for v in graph.output]
    for node in reversed(graph.node):
        for name in node.output:
            if name in types and name not in outputs and _is_float(types[name]):
                given = helper.make_tensor_value_info(name, TensorProto.FLOAT, _dims(types[name]))
                rest = [n for n in graph.node if n is not node]
                yield rebuilt(proto, rest, outputs, inputs=[*graph.input, given])
    for node in graph.node:
        same = next((n for n in node.input if n in types and types[n] == types.get(node.output[0])), None)
        if same is not None:
            yield _without(proto, node, same)


def _without(proto: onnx.ModelProto, gone: onnx.NodeProto, operand: str) -> onnx.ModelProto:
    replaced = gone.output[0]
    nodes = list[onnx.NodeProto]()
    for node in proto.graph.node:
        if node is not gone:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [operand if n == replaced else n for n in node.input]
            nodes.append(copy)
    outputs = dict.fromkeys(operand if v.name == replaced else v.name for v in proto.graph.output)
    given = {v.name for v in proto.graph.input}
    return rebuilt(proto, nodes, [n for n in outputs if n not in given])


def smaller_sizes(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """A size gets smaller wherever it occurs: in inputs, constants, and the numbers that shapes are made of."""
    sizes = sorted({d for v in proto.graph.input for d in shape_of(v) if d > 1}, reverse=True)
    for old in sizes:
        for new in dict.fromkeys((1, 2, 3, old // 2)):
            if new and new < old:
                yield _resized(proto, old, new)


def _resized(proto: onnx.ModelProto, old: int, new: int) -> onnx.ModelProto:
    graph = proto.graph
    inputs = [
        helper.make_tensor_value_info(v.name, TensorProto.FLOAT, [new if d == old else d for d in shape_of(v)])
        for v in graph.input
    ]
    constants = [numpy_helper.from_array(_cut(numpy_helper.to_array(c), old, new), c.name) for c in graph.initializer]
    return rebuilt(proto, graph.node, [v.name for v in graph.output], constants, inputs)


def _cut(array: Array, old: int, new: int) -> Array:
    if array.dtype == np.int64 and array.ndim == 1 and array.size < 8:
        return np.where(array == old, new, array)
    return np.ascontiguousarray(array[tuple(slice(new if n == old else None) for n in array.shape)])


def fewer_attributes(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """An attribute at its default."""
    outputs = [v.name for v in proto.graph.output]
    for number, node in enumerate(proto.graph.node):
        for attribute in node.attribute:
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)
            kept = [a for a in node.attribute if a.name != attribute.name]
            del copy.graph.node[number].attribute[:]
            copy.graph.node[number].attribute.extend(kept)
            yield rebuilt(copy, copy.graph.node, outputs)


def plainer_constants(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The values of a float constant: all 0, all 1, all equal, of one digit."""
    outputs = [v.name for v in proto.graph.output]
    for number, constant in enumerate(proto.graph.initializer):
        old = numpy_helper.to_array(constant)
        if old.dtype != np.float32 or not old.size:
            continue
        mean = np.float32(np.round(old.mean(), 2))
        for new in (np.zeros_like(old), np.ones_like(old), np.full_like(old, mean), np.round(old, 1)):
            if _rank(new) < _rank(old):
                copy = [numpy_helper.from_array(new, constant.name) if i == number else c
                        for i, c in enumerate(proto.graph.initializer)]  # fmt: skip
                yield rebuilt(proto, proto.graph.node, outputs, copy)


def _rank(array: Array) -> int:
    """How plain values are; a constant only ever becomes plainer, so that minimising ends."""
    for rank, plain in enumerate((np.zeros_like(array), np.ones_like(array), np.full_like(array, array.flat[0]))):
        if np.array_equal(array, plain):
            return rank
    return 3 if np.array_equal(array, np.round(array, 1)) else 4


def _is_float(given: onnx.TypeProto) -> bool:
    return given.tensor_type.elem_type == TensorProto.FLOAT


def _dims(given: onnx.TypeProto) -> list[int]:
    return [d.dim_value for d in given.tensor_type.shape.dim]


REDUCTIONS = (fewer_outputs, fewer_nodes, smaller_sizes, fewer_attributes, plainer_constants)
