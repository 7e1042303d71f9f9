"""`Cut`: a sub-network of a model, given by its inputs and outputs, and inputs that are fixed to values."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tpusim.errors import ConfigError, ImportModelError, option
from tpusim.frontend.onnx.fixed import fix_inputs
from tpusim.frontend.onnx.model_file import declare_inputs, graph_inputs, live_nodes, reads

AWAY = "_made_before_the_cut"


@dataclass(frozen=True)
class Cut:
    """The tensors that become inputs and outputs of a model, by ONNX name; none: the model's inputs or outputs.

    An input of the model that the outputs need in addition to `inputs` stays an input. A new input of unknown type is
    float32. values: constants for inputs of the model: one number for all elements, one number per element in order, or
    an array of the input's shape. Stored as Python numbers and lists of them.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Convert arrays to numbers and lists. Raises ConfigError for other values."""
        object.__setattr__(self, "values", {name: _numbers(name, value) for name, value in self.values.items()})

    def __bool__(self) -> bool:
        """Whether inputs, outputs or values are given, so that something is cut."""
        return bool(self.inputs or self.outputs or self.values)

    def of(
        self, model: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
    ) -> onnx.ModelProto:
        """The sub-network; the model itself if nothing is cut.

        Types and shapes of the new inputs are those that ONNX infers; `input_shapes` may also state them. Raises
        ImportModelError for a name that no tensor has, for values that an input does not hold, and if an output does
        not depend on an input.
        """
        if not self:
            return model
        self._require_known(model.graph, label)
        if shaped := [name for name in self.values if name in (input_shapes or {})]:
            raise ImportModelError(
                f"model '{label}': input '{shaped[0]}' is fixed to a value, which says its shape; leave it out of "
                f"{option('input_shapes')}"
            )
        work = onnx.ModelProto()
        work.CopyFrom(model)
        fix_inputs(work.graph, self.values, label)
        if not (self.inputs or self.outputs):
            return work
        types = _types(work, input_shapes, label)
        self._set_outputs(work.graph, types)
        self._set_inputs(work.graph, types)
        self._require_read(work.graph, label)
        return work

    def _require_known(self, graph: onnx.GraphProto, label: str) -> None:
        names = {i.name for i in graph.input} | {n for node in graph.node for n in node.output if n}
        unknown = [name for name in (*self.inputs, *self.outputs) if name not in names]
        if unknown:
            near = get_close_matches(unknown[0], names, n=3, cutoff=0.5)
            hint = f"; similar names are {', '.join(map(repr, near))}" if near else ""
            listed = ", ".join(map(repr, unknown))
            raise ImportModelError(
                f"model '{label}': no tensor named {listed} to cut at, ONNX names are required{hint}"
            )

    def _set_outputs(self, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
        if self.outputs:
            del graph.output[:]
            graph.output.extend(types.get(name) or onnx.ValueInfoProto(name=name) for name in self.outputs)

    def _set_inputs(self, graph: onnx.GraphProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
        """Make tensors inputs: their producers get other output names, and stay only if other results are read."""
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
                f"{', '.join(map(repr, unread))}; leave it out of {option('inputs')}, or cut at other outputs"
            )


def _numbers(name: str, value: Any) -> Any:
    """A number, or lists of numbers."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ConfigError(f"input '{name}': an array of numbers is required, its rows differ in length") from error
    if array.dtype.kind not in "biufV":  # V: bfloat16 and smaller floats
        raise ConfigError(f"input '{name}': a number or an array of numbers is required, got {value!r:.60}")
    return array.tolist()


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


WHOLE = Cut()
"""The whole model."""
