"""`import_onnx`: read a model node by node, and report everything that cannot be imported in one error."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper
from xdsl.ir import Block, Operation, SSAValue

from tpusim.errors import TpusimError, first_line
from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.onnx.advice import no_such_op
from tpusim.frontend.onnx.cutting import cut_out
from tpusim.frontend.onnx.element_types import dtype_of
from tpusim.frontend.onnx.folding import SMALL, foldable
from tpusim.frontend.onnx.idioms import with_idioms
from tpusim.frontend.onnx.imported_scales import keep_scales
from tpusim.frontend.onnx.model_file import (
    DEFAULT_DOMAINS,
    GraphInput,
    Numbers,
    Source,
    check_inputs,
    declare_inputs,
    default_name,
    graph_inputs,
    live_nodes,
    model_label,
    opset_version,
    platform_of,
    read_onnx,
    reads,
)
from tpusim.frontend.onnx.naming import Name
from tpusim.frontend.onnx.node import ConstantNeeded
from tpusim.frontend.onnx.outcome import How, Inspection, Outcome
from tpusim.frontend.onnx.prequantised import Quantised, without_pairs
from tpusim.frontend.onnx.problems import NetworkRefused, Problems
from tpusim.frontend.onnx.reading import MEASURED, Reader, is_imported, node_name
from tpusim.ir.attrs import framework_name, set_op_name
from tpusim.ir.module import Model
from tpusim.ir.types import tensor
from tpusim.ops.framework.building import BuildError
from tpusim.ops.structure import TopInput
from tpusim.ops.view import make_view

LONG = 1 << 12
"""Elements of the longest vector of extents."""


def import_onnx(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    onnx_names: bool = False,
    cut: Cut = WHOLE,
) -> Model:
    """Import an ONNX model (path or ModelProto) as a verified module in state TOP_F32.

    input_shapes: static shapes for inputs, by name; they override what the model declares. name: `module.name`, by
    default the file's stem. onnx_names: call an op like its ONNX tensor, `y`, not `y_Relu` (U-16). cut: the
    tensors between which the network lies.
    Raises ImportModelError for a file that is no valid ONNX model or inputs that are not static tensors of numbers, and
    UnsupportedError with one line per node that tpusim cannot import.
    """
    importer = opened(source, input_shapes=input_shapes, onnx_names=onnx_names, cut=cut, pairs=False)
    importer.read_all()
    network = importer.finish(name or default_name(source), constants=False)
    assert network.model is not None  # a result that is constant is a problem
    return network.model


@dataclass
class Network:
    """What a model computes: `computed` names the module's results, `constants` holds those that are constant."""

    model: Model | None
    computed: list[str]
    constants: dict[str, np.ndarray]


def read_network(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    onnx_names: bool = False,
    constants: bool = True,
    cut: Cut = WHOLE,
) -> Network:
    """`import_onnx` for models of which some results, or all, may be constant (`constants`)."""
    importer = opened(source, input_shapes=input_shapes, onnx_names=onnx_names, cut=cut)
    importer.read_all()
    return importer.finish(name or default_name(source), constants=constants)


def opened(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    onnx_names: bool = False,
    cut: Cut = WHOLE,
    pairs: bool = True,
    mapped: bool = False,
) -> "Importer":
    """An importer of a checked model, before it reads nodes. pairs: keep Q and DQ nodes, do not remove them.

    mapped: large weights stay in their files, which must not change as long as the module is used.
    """
    label = model_label(source)
    proto = cut_out(cut, read_onnx(source, whole=False), input_shapes, label)
    proto, quantised = (proto, Quantised()) if pairs else without_pairs(proto)
    numbers = Numbers(source, mapped=mapped)
    proto = with_idioms(proto, numbers)
    nodes = live_nodes(proto.graph)
    used = {n for node in nodes for n in reads(node)} | {o.name for o in proto.graph.output}
    inputs = [i for i in graph_inputs(proto.graph, input_shapes, label) if i.name in used]
    check_inputs(inputs, label)
    return Importer(proto, inputs, label, numbers, onnx_names=onnx_names, quantised=quantised)


def inspect_onnx(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    cut: Cut = WHOLE,
) -> Inspection:
    """`import_onnx` with the outcome of every node; refused nodes are part of the result, no error is raised.

    Large weights stay in the model's external files.
    """
    importer = opened(source, input_shapes=input_shapes, cut=cut, pairs=False, mapped=True)
    importer.read_all()
    try:
        model, refusal = importer.finish(default_name(source), constants=False).model, None
    except NetworkRefused as error:
        model, refusal = None, error
    return Inspection(tuple(importer.outcomes), model, refusal)


class Importer(Reader):
    """One import: reads every node and builds the network; `outcomes` has the outcome of each node.

    A tensor whose node could not be imported gets a stand-in value of the inferred shape if that is known, so that the
    nodes after it can be checked.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        inputs: Sequence[GraphInput],
        label: str,
        numbers: Numbers,
        *,
        onnx_names: bool = False,
        quantised: Quantised | None = None,
    ) -> None:
        super().__init__(proto, inputs, numbers, onnx_names=onnx_names)
        self._inputs, self._quantised = inputs, quantised or Quantised()
        self.nodes = live_nodes(proto.graph)
        self.outcomes: list[Outcome] = []
        self._after_refusal: set[str] = set()
        self._foldable: set[str] = set()
        self._problems = Problems(label)
        self._shortage: MemoryError | None = None
        for t in proto.graph.sparse_initializer:
            self._problems.of_model(f"initializer '{t.values.name}': sparse tensors are not supported")
        self._stand_ins = Block()

    def read_all(self) -> None:
        """Read every node that the outputs need."""
        for node in self.nodes:
            self.read(node)

    def read(self, node: onnx.NodeProto) -> None:
        """Fold, alias or build one node; what cannot be imported is noted."""
        end = self._module.mark()
        how, why = self._tried(node)
        if why:
            self._problem(node, why)
        inputs = tuple(n for n in reads(node) if self._resolve(n) in self._values and n not in self._after_refusal)
        inputs = tuple(n for n in inputs if n not in self._wanted)  # such an input is a parameter, not data
        if how in ("refused", "after a refusal") or self._after_refusal & reads(node):
            self._after_refusal.update(node.output)
        made = () if how == "refused" else tuple(self._module.since(end))
        self.outcomes.append(Outcome(node_name(node), node.op_type, how, made, why, inputs, tuple(node.output)))

    def _tried(self, node: onnx.NodeProto) -> tuple[How, str]:
        """The outcome of a node, and the reason if it is refused."""
        if not all(self._is_known(name) for name in node.input):
            if self._would_fold(node) or is_imported(node, self._version(node.domain)):
                return "after a refusal", ""  # its input comes from a node that has been reported
            return "refused", no_such_op(node.op_type, node.domain)
        try:
            return self._read(node), ""
        except BuildError as error:
            return "refused", error.why
        except ConstantNeeded as error:
            self._wanted.add(error.tensor)
            return "refused", str(error)
        except (TpusimError, ValueError) as error:
            return "refused", str(error)
        except ArithmeticError as error:  # unexpected numbers in the model
            return "refused", f"its numbers lead nowhere: {first_line(error)}"
        except MemoryError as error:
            self._shortage = self._shortage or error
            return "refused", f"there is not enough memory for what its numbers say ({first_line(error)})"

    def _would_fold(self, node: onnx.NodeProto) -> bool:
        """Whether a node would be constant if all nodes before it were imported; then its op need not be supported."""
        of_constants = foldable(node) and all(self._is_constant(n) or n in self._foldable for n in node.input)
        if node.domain not in DEFAULT_DOMAINS or not (of_constants or node.op_type in MEASURED):
            return False
        self._foldable.update(node.output)
        return True

    def _problem(self, node: onnx.NodeProto, why: str) -> None:
        """Note one line about a node and give its outputs stand-ins."""
        version = opset_version(self._proto, node.domain)
        domain = "ai.onnx" if node.domain in DEFAULT_DOMAINS else node.domain
        self._problems.of_node(node.op_type, node_name(node), f"{domain} opset {version}", why)
        for name in node.output:
            if name in self._inferred_shapes and not self._is_known(name):
                self._values[name] = self._stand_ins.insert_arg(
                    tensor(self._inferred_shapes[name]), len(self._stand_ins.args)
                )  # fmt: skip

    @cached_property
    def _inferred_shapes(self) -> dict[str, tuple[int, ...]]:
        """Static float32 shapes by ONNX shape inference; only needed after a problem."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self._proto.graph)
        kept = [node for node in graph.node if node.op_type != "Size"]  # whose number onnx follows one by one
        del graph.node[:]
        graph.node.extend(kept)
        declare_inputs(graph, self._inputs)
        model = helper.make_model(graph, opset_imports=self._proto.opset_import)
        try:
            inferred = onnx.shape_inference.infer_shapes(model).graph
            if not any(_is_long(value) for value in (*inferred.value_info, *inferred.output)):
                inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}
        return {v.name: shape for v in (*inferred.value_info, *inferred.output) if (shape := _float_shape(v))}

    def finish(self, name: str, *, constants: bool) -> Network:
        """The network. Raises NetworkRefused if there were problems; without `constants` a constant result is one."""
        fixed = self._fixed_results() if constants else {}
        outputs = [o for o in self._proto.graph.output if o.name not in fixed]
        results = list(self._results([o.name for o in outputs]))
        if self._problems:
            wanted = self._ancestors(self._wanted)
            raise self._problems.refusal(wanted, small=self._are_small(wanted)) from self._shortage
        names = [o.name for o in outputs]
        if not results and fixed:
            return Network(None, names, fixed)
        model = self._module.finish(results, name=name, platform=platform_of(self._proto))
        model.set_output_types([dtype_of(o.type.tensor_type.elem_type) for o in outputs])
        keep_scales(model, self._quantised, self.nodes, self.outcomes)
        return Network(model, names, fixed)

    def _fixed_results(self) -> dict[str, np.ndarray]:
        names = [o.name for o in self._proto.graph.output]
        return {name: array for name in names if (array := self.constant(name)) is not None}

    def _ancestors(self, tensors: set[str]) -> frozenset[str]:
        """The network inputs that tensors are computed from."""
        found, left = set[str](), list(tensors)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(self._made_from.get(name, ()))
        return frozenset(found & {i.name for i in self._inputs})

    def _are_small(self, names: frozenset[str]) -> bool:
        """Whether inputs have few elements, like inputs that control a network."""
        return all(prod(i.shape or ()) <= SMALL for i in self._inputs if i.name in names)

    def _results(self, outputs: Sequence[str]) -> Iterator[SSAValue]:
        """The returned values; a value that an Identity renames takes the name of the graph output.

        An input, and a value that is returned under another name already, is returned as a view that has the name.
        """
        for name in outputs:
            if not self._is_known(name):
                if not self._problems:
                    self._problems.of_model(f"graph output '{name}' is made by no node")
                continue
            if self._is_constant(name):
                self._problems.of_model(f"graph output '{name}' is constant; remove it from the outputs")
                continue
            value = self._values[self._resolve(name)]
            owner = value.owner
            if (
                isinstance(owner, Operation)
                and not isinstance(owner, TopInput)
                and framework_name(owner) not in outputs
            ):
                kept = name in self._dropped
                _call(owner, self._naming.returned_as(framework_name(owner), name, kept=kept))
            if (
                not isinstance(owner, Operation) or framework_name(owner) == name
            ):  # otherwise it is the stand-in of a refused node
                yield value
            else:
                copy = make_view(value)
                _call(copy, self._naming.of(name))
                self._module.append(copy)
                yield copy.results[0]


def _call(op: Operation, name: Name) -> None:
    set_op_name(op, name.text, name.onnx)


def _is_long(value: onnx.ValueInfoProto) -> bool:
    """Whether a vector has more elements than extents have; onnx follows the elements of every vector one by one."""
    dims = value.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > LONG


def _float_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    tensor_type = value.type.tensor_type
    if tensor_type.elem_type != TensorProto.FLOAT or not tensor_type.HasField("shape"):
        return None
    dims = tuple(d.dim_value for d in tensor_type.shape.dim)
    return dims if all(dims) else None
