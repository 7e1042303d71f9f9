"""A part of a model as a separate model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from tpusim.frontend.cut import Cut
from tpusim.frontend.onnx.cutting import cut_out
from tpusim.frontend.onnx.model_file import (
    PROTO_LIMIT,
    Source,
    model_label,
    proto_bytes,
    read_onnx,
    reads,
    save_external,
)
from tpusim.host.files import replacing

Shapes = Mapping[str, tuple[int, ...]]


def tensors_of(source: Source) -> set[str]:
    """The names at which a model can be cut."""
    graph = read_onnx(source).graph
    return {i.name for i in graph.input} | {name for node in graph.node for name in node.output if name}


def extract(source: Source, cut: Cut, shapes: Shapes) -> onnx.ModelProto:
    """The part of a model, without the constants of the rest.

    shapes: of inputs whose shapes ONNX does not know. Raises the errors of `cut_out`.
    """
    whole = read_onnx(source)
    given = {i.name: shapes[i.name] for i in whole.graph.input if i.name in shapes}
    proto = cut_out(cut, whole, given, model_label(source))
    _state_shapes(proto.graph, shapes)
    _leave_out_unused(proto.graph)
    return proto


def write_onnx(source: Source, path: Path) -> None:
    """Write a model; the constants of a large model go to a second file in the same folder."""
    proto = read_onnx(source)
    if proto_bytes(proto) > PROTO_LIMIT:
        save_external(proto, path)
        return
    with replacing(path) as target:
        target.write_bytes(proto.SerializeToString())


def _state_shapes(graph: onnx.GraphProto, shapes: Shapes) -> None:
    for value in graph.input:
        kind = value.type.tensor_type
        static = kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)
        if value.name in shapes and not static:
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind.elem_type, shapes[value.name]))


def _leave_out_unused(graph: onnx.GraphProto) -> None:
    """Remove constants, inputs and shapes of the rest of the network."""
    read = {name for node in graph.node for name in reads(node)}
    constants = [constant for constant in graph.initializer if constant.name in read]
    inputs: Sequence[onnx.ValueInfoProto] = [value for value in graph.input if value.name in read]
    del graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.initializer.extend(constants)
    graph.input.extend(inputs)
