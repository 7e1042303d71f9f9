"""A sub-network of an ONNX model, as a `Cut` says."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import onnx
from onnx import TensorProto, helper

from tpusim.errors import ImportModelError, option
from tpusim.frontend.cut import Cut
from tpusim.frontend.onnx.fixed import fix_inputs
from tpusim.frontend.onnx.model_file import declare_inputs, graph_inputs, live_nodes, reads

AWAY = "_made_before_the_cut"


def cut_out(
    cut: Cut, model: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
) -> onnx.ModelProto:
    """The sub-network; the model itself if nothing is cut.

    Types and shapes of the new inputs are those that ONNX infers; `input_shapes` may also state them. Raises
    ImportModelError for a name that no tensor has, for values that an input does not hold, and if an output does
    not depend on an input.
    """
    if not cut:
        return model
    _require_known(cut, model.graph, label)
    if shaped := [name for name in cut.values if name in (input_shapes or {})]:
        raise ImportModelError(
            f"model '{label}': input '{shaped[0]}' is fixed to a value, which says its shape; leave it out of "
            f"{option('input_shapes')}"
        )
    work = onnx.ModelProto()
    work.CopyFrom(model)
    fix_inputs(work.graph, cut.values, label)
    if not (cut.inputs or cut.outputs):
        return work
    types = _types(work, input_shapes, label)
    _set_outputs(cut, work.graph, types)
    _set_inputs(cut, work.graph, types)
    _require_read(cut, work.graph, label)
    return work


def _require_known(cut: Cut, graph: onnx.GraphProto, label: str) -> None:
    names = {i.name for i in graph.input} | {n for node in graph.node for n in node.output if n}
    unknown = [name for name in (*cut.inputs, *cut.outputs) if name not in names]
    if unknown:
        near = get_close_matches(unknown[0], names, n=3, cutoff=0.5)
        hint = f"; similar names are {', '.join(map(repr, near))}" if near else ""
        listed = ", ".join(map(repr, unknown))
        raise ImportModelError(f"model '{label}': no tensor named {listed} to cut at, ONNX names are required{hint}")


def _set_outputs(cut: Cut, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
    if cut.outputs:
        del graph.output[:]
        graph.output.extend(types.get(name) or onnx.ValueInfoProto(name=name) for name in cut.outputs)


def _set_inputs(cut: Cut, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Make tensors inputs: their producers get other output names, and stay only if other results are read."""
    given = {i.name for i in graph.input}
    for node in graph.node:
        node.output[:] = [f"{name}{AWAY}" if name in cut.inputs else name for name in node.output]
    new = [name for name in dict.fromkeys(cut.inputs) if name not in given]
    graph.input.extend(types.get(name) or helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in new)
    live = live_nodes(graph)
    del graph.node[:]
    graph.node.extend(live)


def _require_read(cut: Cut, graph: onnx.GraphProto, label: str) -> None:
    read = _all_read(graph)
    unread = [name for name in cut.inputs if name not in read]
    if unread:
        raise ImportModelError(
            f"model '{label}': {', '.join(map(repr, cut.outputs or ('the outputs',)))} do not depend on input "
            f"{', '.join(map(repr, unread))}; leave it out of {option('inputs')}, or cut at other outputs"
        )


def _all_read(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}


def _types(
    model: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
) -> dict[str, onnx.ValueInfoProto]:
    """Type, and static shape if known, of every tensor that ONNX's inference knows."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    stated = {i.name for i in graph.input}
    shapes = {name: shape for name, shape in (input_shapes or {}).items() if name in stated}
    declare_inputs(graph, graph_inputs(graph, shapes, label))
    probe = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        inferred = onnx.shape_inference.infer_shapes(probe, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError):
        inferred = model.graph
    values = (*model.graph.value_info, *model.graph.output, *inferred.value_info, *inferred.output)
    return {value.name: value for value in values}
