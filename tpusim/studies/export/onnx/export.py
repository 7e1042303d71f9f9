"""`export_onnx`: a top module as an ONNX model."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import helper
from xdsl.dialects.builtin import NoneType

from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopWeight
from tpusim.studies.export.onnx.forms import form_of
from tpusim.studies.export.onnx.graph import Nodes, tensor_names

OPSET = 20
"""The operator set of the nodes: the first with Gelu."""
IR_VERSION = 9


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model, and the names of its tensors by the names of the module's ops."""

    proto: onnx.ModelProto
    tensors: Mapping[str, str]


def export_onnx(model: Model) -> OnnxModel:
    """A top module as an ONNX model of operator set OPSET, whatever the module was imported from.

    Inputs and results have the names and element types that the network's framework gives them. A tensor has the name
    of the framework's tensor that it equals, unless another tensor has that name.

    Raises ImportModelError for a lowered module, UnsupportedError for an op that no ONNX nodes compute.
    """
    model.require_state("TOP_F32", "TOP_CALIBRATED", stage="export --to onnx")
    walked = [op for op in model.ops if isinstance(op, TopOp) and not isinstance(op, TopWeight)]
    walked = [op for op in walked if op.results and not isinstance(op.results[0].type, NoneType)]
    names = tensor_names(walked, set(model.results))
    nodes = Nodes(names, model.weights, dict(zip(model.results, model.output_types, strict=True)))
    inputs: list[onnx.ValueInfoProto] = []
    for op in walked:
        nodes.begin(op)
        if isinstance(op, TopInput):
            inputs.append(nodes.declare(op))
        else:
            nodes.define(op, form_of(op)(op, nodes))
    outputs = [nodes.returned(v, dtype) for v, dtype in zip(model.results, model.output_types, strict=True)]
    graph = helper.make_graph(nodes.nodes, model.name, inputs, outputs, list(nodes.initializers.values()))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tpusim")
    proto.ir_version = IR_VERSION
    return OnnxModel(proto, {op_name(op): nodes.name_of(op) for op in walked})
