"""`Cut`: a sub-network of a model, by the names of the tensors where it begins and ends."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import onnx
from onnx import TensorProto, helper

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.model_file import declare_inputs, graph_inputs, live_nodes, reads

AWAY = "_made_before_the_cut"


@dataclass(frozen=True)
class Cut:
    """Which tensors become the inputs and the outputs of a model, by ONNX name; none: they stay the model's.

    An input of the model that the outputs need beside `inputs` stays one. A new input of unknown type is float32.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether inputs or outputs are given, so that something is cut."""
        return bool(self.inputs or self.outputs)

    def of(
        self, model: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
    ) -> onnx.ModelProto:
        """The sub-network; the model itself if nothing is cut.

        Types and shapes of the new inputs are those that ONNX infers; `input_shapes` may also state them. Raises
        ImportModelError for a name that no tensor has, and if an output does not depend on an input.
        """
        if not self:
            return model
        self._require_known(model.graph, label)
        work = onnx.ModelProto()
        work.CopyFrom(model)
        types = _types(model, input_shapes, label)
        self._set_outputs(work.graph, types)
        self._set_inputs(work.graph, types)
        self._require_read(work.graph, label)
        return work

    def _require_known(self, graph: onnx.GraphProto, label: str) -> None:
        names = {i.name for i in graph.input} | {n for node in graph.node for n in node.output if n}
        unknown = [name for name in (*self.inputs, *self.outputs) if name not in names]
        if unknown:
            near = get_close_matches(unknown[0], names, n=3, cutoff=0.5)
            hint = f"; alike are {', '.join(map(repr, near))}" if near else ""
            listed = ", ".join(map(repr, unknown))
            raise ImportModelError(
                f"model '{label}': no tensor named {listed} to cut at, ONNX names are required{hint}"
            )

    def _set_outputs(self, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
        if self.outputs:
            del graph.output[:]
            graph.output.extend(types.get(name) or onnx.ValueInfoProto(name=name) for name in self.outputs)

    def _set_inputs(self, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
        """What made the new inputs makes tensors of other names; only a node whose other results are read stays."""
        given = {i.name for i in graph.input}
        for node in graph.node:
            node.output[:] = [f"{name}{AWAY}" if name in self.inputs else name for name in node.output]
        new = [name for name in dict.fromkeys(self.inputs) if name not in given]
        graph.input.extend(
            types.get(name) or helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in new
        )
        live = live_nodes(graph)
        del graph.node[:]
        graph.node.extend(live)

    def _require_read(self, graph: onnx.GraphProto, label: str) -> None:
        read = _all_read(graph)
        unread = [name for name in self.inputs if name not in read]
        if unread:
            raise ImportModelError(
                f"model '{label}': {', '.join(map(repr, self.outputs or ('the outputs',)))} do not depend on input "
                f"{', '.join(map(repr, unread))}; leave it out of --inputs, or cut at other outputs"
            )


def _all_read(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}


def _types(
    model: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
) -> dict[str, onnx.ValueInfoProto]:
    """Type, and shape where it is static, of every tensor that ONNX's inference knows."""
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


WHOLE = Cut()
"""The model as it is."""
