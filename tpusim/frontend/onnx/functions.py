"""ONNX function bodies: an op that ONNX itself defines by other ops is replaced by these."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx.inliner
from onnx import helper

from tpusim.frontend.onnx.folding import IR_VERSION
from tpusim.frontend.onnx.model_file import DEFAULT_DOMAINS

NEWEST = onnx.defs.onnx_opset_version()
EVER_THE_SAME = frozenset({"Selu", "Shrink", "ThresholdedRelu"})
"""Ops that got a body in a later operator set without a change of meaning."""


def function_nodes(
    node: onnx.NodeProto, version: int, opset: int, types: Mapping[str, onnx.TypeProto]
) -> tuple[list[onnx.NodeProto], int] | None:
    """The nodes of ONNX's definition of a node, and the version of their operator set; None without such a definition.

    version: of the node's operator set; opset: of ONNX's default operator set. types: of the node's inputs, with
    shapes. The nodes have the inputs and outputs of the given node; inner tensors are named after its first output.
    """
    domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    if not onnx.defs.has(node.op_type, version, domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, version, domain)  # its stub lacks functions
    found = _body(schema, node, version, types)
    if found is None:
        return None
    opset = next((o.version for o in found.opset_import if o.domain in DEFAULT_DOMAINS), opset)
    stated = [a.default_value for a in schema.attributes.values()]
    defaults = [a for a in stated if a.type != onnx.AttributeProto.UNDEFINED]
    return _inlined(node, found, types, defaults), opset


def has_function(op_type: str, version: int, domain: str = "") -> bool:
    """Whether ONNX defines an op by others."""
    if not onnx.defs.has(op_type, version, domain):
        return False
    schema: Any = onnx.defs.get_schema(op_type, version, domain)
    return op_type in EVER_THE_SAME or bool(schema.has_function or schema.has_context_dependent_function)


def _body(
    schema: Any, node: onnx.NodeProto, version: int, types: Mapping[str, onnx.TypeProto]
) -> onnx.FunctionProto | None:
    """The newest body whose operator set is not newer than the model's."""
    body = onnx.FunctionProto()
    fixed: list[int] = [v for v in schema.function_opset_versions if v <= version]
    if not fixed and schema.name in EVER_THE_SAME:
        schema = onnx.defs.get_schema(schema.name, max_inclusive_version=NEWEST)
        fixed = schema.function_opset_versions[:1]
    if fixed:
        body.ParseFromString(schema.get_function_with_opset_version(max(fixed)))
        return body
    of_types: list[int] = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    if not of_types:
        return None
    given = [types[name].SerializeToString() if name else b"" for name in node.input]
    content: bytes = schema.get_context_dependent_function_with_opset_version(
        max(of_types), node.SerializeToString(), given
    )
    body.ParseFromString(content)
    return body if body.node else None


def _inlined(
    node: onnx.NodeProto,
    body: onnx.FunctionProto,
    types: Mapping[str, onnx.TypeProto],
    defaults: Sequence[onnx.AttributeProto],
) -> list[onnx.NodeProto]:
    """The body's nodes with the node's attributes, or their defaults, and tensors in place."""
    call = onnx.NodeProto()
    call.CopyFrom(node)
    call.domain, call.name = body.domain, ""
    given = {a.name for a in node.attribute}
    call.attribute.extend(a for a in defaults if a.name in body.attribute and a.name not in given)
    inputs = [helper.make_value_info(name, types[name]) for name in dict.fromkeys(node.input) if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([call], "call", inputs, outputs)
    opsets = [*body.opset_import]
    if all(o.domain != body.domain for o in opsets):
        opsets.append(helper.make_opsetid(body.domain, 1))
    model = helper.make_model(graph, functions=[body], opset_imports=opsets, ir_version=IR_VERSION)
    nodes = list(onnx.inliner.inline_local_functions(model).graph.node)
    return _renamed(nodes, next(name for name in node.output if name), {*node.input, *node.output})


def _renamed(nodes: Sequence[onnx.NodeProto], output: str, kept: set[str]) -> list[onnx.NodeProto]:
    """The nodes with inner tensors renamed after the output, so that no two bodies share a name."""

    def new(name: str) -> str:
        return name if not name or name in kept else f"{output}_{name}"

    for node in nodes:
        rename(node, new)
    return list(nodes)


def rename(node: onnx.NodeProto, new: Callable[[str], str]) -> None:
    """Give the tensors of a node, and of the graphs in it, other names."""
    for names in (node.input, node.output):
        names[:] = [new(n) for n in names]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for value in (*graph.input, *graph.output, *graph.initializer):
                value.name = new(value.name)
            for inner in graph.node:
                rename(inner, new)
