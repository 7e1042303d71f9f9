"""`import_onnx`: walk the nodes once, evaluate what is constant, and let the mapper of its type read each node."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import NameLoc
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tpusim.border import is_float
from tpusim.errors import ImportModelError, TpusimError, UnsupportedError
from tpusim.frontend.onnx.duplicates import Duplicates
from tpusim.frontend.onnx.element_types import ElementTypes, dtype_of
from tpusim.frontend.onnx.folding import evaluate, foldable
from tpusim.frontend.onnx.model_file import (
    DEFAULT_DOMAINS,
    GraphInput,
    Source,
    check_inputs,
    declare_inputs,
    default_name,
    graph_inputs,
    live_nodes,
    model_label,
    opset_version,
    read_onnx,
    reads,
)
from tpusim.frontend.onnx.naming import Name, Naming
from tpusim.frontend.onnx.node import Node, as_float
from tpusim.frontend.onnx.table import MAPPERS
from tpusim.ir.attrs import framework_name, name_location, set_op_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, shape_of, tensor
from tpusim.ops.builder import ModuleBuilder
from tpusim.ops.building import BuildError
from tpusim.ops.structure import TopInput
from tpusim.ops.view import make_view


def import_onnx(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    onnx_names: bool = False,
) -> Model:
    """Import an ONNX model (path or ModelProto) as a verified module in state TOP_F32.

    input_shapes: static shapes for inputs, by name; they override what the model declares. name: `module.name`, by
    default the file's stem. onnx_names: call an op like its ONNX tensor, `y`, not as TPU-MLIR does, `y_Relu`.
    Raises ImportModelError for a file that is no valid ONNX model or inputs that are not static tensors of numbers, and
    UnsupportedError with one line per node that tpusim cannot import.
    """
    proto = read_onnx(source)
    label = model_label(source)
    nodes = live_nodes(proto.graph)
    used = {n for node in nodes for n in reads(node)} | {o.name for o in proto.graph.output}
    inputs = [i for i in graph_inputs(proto.graph, input_shapes, label) if i.name in used]
    check_inputs(inputs, label)
    importer = Importer(proto, inputs, label, onnx_names=onnx_names)
    for node in nodes:
        importer.read(node)
    return importer.finish(name or default_name(source))


class Importer:
    """One import; implements the `Tensors` that mappers see.

    An ONNX tensor is a constant (`_constants`, NumPy), a value of the module (`_values`), or an alias of another one
    (`_aliases`: outputs of Identity and Dropout, `_dropped` are those behind a Dropout; `_duplicates`: of nodes that
    repeat an earlier one). A tensor whose node could not be imported gets a stand-in value of the inferred shape where
    there is one, so that the nodes behind it are checked.
    """

    def __init__(
        self, proto: onnx.ModelProto, inputs: Sequence[GraphInput], label: str, *, onnx_names: bool = False
    ) -> None:
        self.opset = opset_version(proto)
        self._proto = proto
        self._label = label
        self._inputs = inputs
        self._problems = [
            f"initializer '{t.values.name}': sparse tensors are not supported" for t in proto.graph.sparse_initializer
        ]
        self._naming = Naming(live_nodes(proto.graph), [o.name for o in proto.graph.output], plain=onnx_names)
        self._aliases: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._duplicates = Duplicates(frozenset(o.name for o in proto.graph.output))
        self._initializers = {t.name: t for t in proto.graph.initializer}
        self._constants: dict[str, np.ndarray] = {}
        self._values: dict[str, SSAValue] = {}
        self._types = ElementTypes(proto, inputs)
        self._stand_ins = Block()
        names = {n for node in proto.graph.node for n in (*node.input, *node.output)}
        self._module = ModuleBuilder(located=self._located, reserved=names)
        for i in inputs:
            self._values[i.name] = self._module.input(i.name, i.shape or (), dtype_of(i.elem_type))

    def _located(self, tensor: str) -> NameLoc:
        name = self._naming.of(tensor)
        return name_location(name.text, name.onnx)

    # ------------------------------------------------------------------------------------------------------- Tensors

    @property
    def builder(self) -> ModuleBuilder:
        """The module under construction."""
        return self._module

    def value(self, name: str, *, integers: bool = False) -> SSAValue:
        """The value of a tensor; a float constant becomes a top.Weight in f32, once per tensor."""
        name = self._resolve(name)
        if name not in self._values:
            constant = self.constant(name)
            if constant is None:
                raise ImportModelError(f"tensor '{name}' is not available")
            floating = is_float(constant.dtype)
            if not floating and not integers:
                raise ImportModelError(f"a float32 tensor is required, '{name}' is a {constant.dtype} constant")
            real = constant if floating else as_float(constant, name)
            self._values[name] = self._module.constant(name, real.astype(np.float32, copy=False))
        return self._values[name]

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a constant tensor, None if the tensor is computed."""
        name = self._resolve(name)
        if name not in self._constants and name in self._initializers:
            self._constants[name] = numpy_helper.to_array(self._initializers[name])
        return self._constants.get(name)

    def is_integer(self, name: str) -> bool:
        """Whether a computed tensor is of an integer type; only asked where a network input is."""
        return self._types.mixed and not self._is_constant(name) and self._types.is_integer(name)

    # ------------------------------------------------------------------------------------------------------ the walk

    def _resolve(self, name: str) -> str:
        source = self._aliases.get(name, name)
        return self._duplicates.merged.get(source, source)

    def _is_constant(self, name: str) -> bool:
        return not name or self.constant(name) is not None

    def _is_known(self, name: str) -> bool:
        return self._is_constant(name) or self._resolve(name) in self._values

    def read(self, node: onnx.NodeProto) -> None:
        """Fold, alias or build one node; what cannot be imported is noted."""
        try:
            if not (self._alias(node) or self._fold(node) or self._merge(node)):
                self._build(node)
        except BuildError as error:
            self._problem(node, error.why)
        except (TpusimError, ValueError) as error:
            self._problem(node, str(error))

    def _alias(self, node: onnx.NodeProto) -> bool:
        """Identity, Dropout in inference, and a Cast of float32 to float32: the output is the input."""
        if node.domain not in DEFAULT_DOMAINS or not node.input:
            return False
        source = self._aliases.get(node.input[0], node.input[0])
        if node.op_type == "Dropout":
            self._require_inference(node)
        elif node.op_type == "Cast":
            if self._resolve(source) not in self._values or _attributes(node).get("to") != TensorProto.FLOAT:
                return False
        elif node.op_type != "Identity":
            return False
        self._aliases[node.output[0]] = source
        if node.op_type == "Dropout" or node.input[0] in self._dropped:
            self._dropped.add(node.output[0])
        return True

    def _require_inference(self, node: onnx.NodeProto) -> None:
        if len(node.input) > 2 and node.input[2]:
            training = self.constant(node.input[2])
            if training is None or bool(training.any()):
                raise ImportModelError("training_mode must be the constant false")
        self._refuse_outputs(node, self._used_outputs(node)[1:])

    def _fold(self, node: onnx.NodeProto) -> bool:
        """Evaluate a node of constants; Shape and Size need only the shape of their input."""
        if node.op_type in ("Shape", "Size") and node.domain in DEFAULT_DOMAINS and self._is_tensor(node.input[0]):
            self._constants[node.output[0]] = self._measure(node)
            return True
        if not foldable(node) or not all(self._is_constant(name) for name in node.input):
            return False
        feeds = {name: array for name in node.input if name and (array := self.constant(name)) is not None}
        self._constants |= evaluate(node, self._proto.opset_import, feeds)
        return True

    def _merge(self, node: onnx.NodeProto) -> bool:
        """A node that repeats an earlier one: the outputs are that one's."""
        return self._duplicates.merge(node, self.constant, (self._aliases.get(name, name) for name in node.input))

    def _is_tensor(self, name: str) -> bool:
        return self._resolve(name) in self._values and is_tensor(self._values[self._resolve(name)])

    def _measure(self, node: onnx.NodeProto) -> np.ndarray:
        shape = shape_of(self._values[self._resolve(node.input[0])])
        if node.op_type == "Size":
            return np.array(int(np.prod(shape)), np.int64)
        attributes = _attributes(node)
        return np.array(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)

    def _build(self, node: onnx.NodeProto) -> None:
        mapper = MAPPERS.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
        if mapper is None:
            raise UnsupportedError("tpusim has no such op")
        if not all(self._is_known(name) for name in node.input):
            return  # its input comes from a node that has been reported
        self._types.require_exact(node)
        read = Node(
            node.op_type, _node_name(node), tuple(node.input), tuple(node.output), _attributes(node), self
        )  # fmt: skip
        value = mapper(read)
        self._bind(node, value)
        for key in read.attributes.keys() - read.taken:
            if not self._is_default(node, key, read.attributes[key]):
                self._problem(node, f"attribute {key} = {str(read.attributes[key])[:60]} is not supported")

    def _bind(self, node: onnx.NodeProto, value: SSAValue | Sequence[SSAValue]) -> None:
        """Name the results: all values of the mapper; of a single one further results of its op are the others."""
        results = [value] if isinstance(value, SSAValue) else list(value)
        if isinstance(value, OpResult) and value.index == 0 and len(value.op.results) == len(node.output):
            results = list(value.op.results)
        self._values.update(zip(node.output, results, strict=False))
        self._refuse_outputs(node, [n for n in self._used_outputs(node) if n in node.output[len(results) :]])

    def _used_outputs(self, node: onnx.NodeProto) -> list[str]:
        return [name for i, name in enumerate(node.output) if i == 0 or (name and name in self._readable)]

    @cached_property
    def _readable(self) -> set[str]:
        """Names that a live node reads or the graph returns."""
        graph = self._proto.graph
        return {n for node in live_nodes(graph) for n in reads(node)} | {o.name for o in graph.output}

    def _refuse_outputs(self, node: onnx.NodeProto, names: Sequence[str]) -> None:
        if names:
            raise ImportModelError(f"output '{names[0]}' (number {list(node.output).index(names[0])}) is not supported")

    def _is_default(self, node: onnx.NodeProto, key: str, value: Any) -> bool:
        """Whether an attribute states what its absence means."""
        if not onnx.defs.has(node.op_type, self.opset, ""):
            return False
        known = onnx.defs.get_schema(node.op_type, self.opset, "").attributes.get(key)
        if known is None or known.default_value.type == onnx.AttributeProto.UNDEFINED:
            return False
        return bool(_attribute_value(known.default_value) == value)

    def _call(self, op: Operation, name: Name) -> None:
        set_op_name(op, name.text, name.onnx)

    # ------------------------------------------------------------------------------------------------------ problems

    def _problem(self, node: onnx.NodeProto, why: str) -> None:
        """Note one line about a node and give its outputs stand-ins."""
        version = opset_version(self._proto, node.domain)
        domain = "ai.onnx" if node.domain in DEFAULT_DOMAINS else node.domain
        self._problems.append(f"{node.op_type} '{_node_name(node)}' ({domain} opset {version}): {why}")
        for name in node.output:
            if name in self._inferred_shapes and not self._is_known(name):
                self._values[name] = self._stand_ins.insert_arg(
                    tensor(self._inferred_shapes[name]), len(self._stand_ins.args)
                )  # fmt: skip

    @cached_property
    def _inferred_shapes(self) -> dict[str, tuple[int, ...]]:
        """Static float32 shapes by ONNX shape inference; only asked for once something is wrong."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self._proto.graph)
        declare_inputs(graph, self._inputs)
        model = helper.make_model(graph, opset_imports=self._proto.opset_import)
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}
        return {v.name: shape for v in (*inferred.value_info, *inferred.output) if (shape := _float_shape(v))}

    # -------------------------------------------------------------------------------------------------------- finish

    def finish(self, name: str) -> Model:
        """The module; raises UnsupportedError if there were problems."""
        results = list(self._results())
        if self._problems:
            count = len(self._problems)
            listing = "\n".join(f"  {line}" for line in self._problems)
            raise UnsupportedError(
                f"model '{self._label}': {count} {'problem' if count == 1 else 'problems'} at import:\n{listing}\n"
                "replace these nodes before the export, or run them outside the network"
            )
        model = self._module.finish(results, name=name)
        types = [dtype_of(o.type.tensor_type.elem_type) for o in self._proto.graph.output]
        model.set_output_types(types)
        return model

    def _results(self) -> Iterator[SSAValue]:
        """The returned values; one that was renamed by an Identity takes the name of the graph output.

        An input, and a value that is returned under another name already, is returned as a view that has the name.
        """
        outputs = [o.name for o in self._proto.graph.output]
        for name in outputs:
            if not self._is_known(name):
                if not self._problems:
                    self._problems.append(f"graph output '{name}' is made by no node")
                continue
            if self._is_constant(name):
                self._problems.append(f"graph output '{name}' is constant; remove it from the outputs")
                continue
            value = self._values[self._resolve(name)]
            owner = value.owner
            if (
                isinstance(owner, Operation)
                and not isinstance(owner, TopInput)
                and framework_name(owner) not in outputs
            ):
                dropped = name in self._dropped
                self._call(owner, self._naming.returned_as(framework_name(owner), name, through_dropout=dropped))
            if (
                not isinstance(owner, Operation) or framework_name(owner) == name
            ):  # else it stands in for a refused node
                yield value
            else:
                copy = make_view(value)
                self._call(copy, self._naming.of(name))
                self._module.append(copy)
                yield copy.results[0]


def _node_name(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), "(unnamed)")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: _attribute_value(a) for a in node.attribute}


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    """The Python value: bytes decoded, tensors as arrays, lists as tuples."""
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in items)
    return value


def _float_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    tensor_type = value.type.tensor_type
    if tensor_type.elem_type != TensorProto.FLOAT or not tensor_type.HasField("shape"):
        return None
    dims = tuple(d.dim_value for d in tensor_type.shape.dim)
    return dims if all(dims) else None
