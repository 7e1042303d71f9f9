"""`Reader`: fold, alias or build one node after the other; the nodes of a decomposition are read in its place."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from xdsl.ir import OpResult, SSAValue

from tpusim.errors import ImportModelError, TpusimError, UnsupportedError
from tpusim.frontend.onnx.advice import no_such_op
from tpusim.frontend.onnx.casts import target_of
from tpusim.frontend.onnx.decompositions import PARTS
from tpusim.frontend.onnx.element_types import type_of, typed
from tpusim.frontend.onnx.folding import GROWTH, evaluate, foldable
from tpusim.frontend.onnx.functions import function_nodes, has_function
from tpusim.frontend.onnx.integers import finished, finishes
from tpusim.frontend.onnx.known import Known
from tpusim.frontend.onnx.model_file import (
    DEFAULT_DOMAINS,
    GraphInput,
    Numbers,
    live_nodes,
    live_nodes_of,
    opset_version,
    reads,
    weight_bytes,
)
from tpusim.frontend.onnx.node import ConstantNeeded, Node
from tpusim.frontend.onnx.outcome import How
from tpusim.frontend.onnx.parts import Parts
from tpusim.frontend.onnx.table import MAPPERS, mapper_of
from tpusim.ir.attrs import flag
from tpusim.ir.types import shape_of
from tpusim.numbers.border import is_float
from tpusim.ops.framework.building import BuildError, TooLarge
from tpusim.ops.interfaces import DefaultAlpha
from tpusim.ops.patterns.recurrent import mark_parts

MOST_COMPUTED = 1 << 30
"""Bytes of the constants that are computed of a model with few weights."""
DEEPEST = 12
"""The deepest nesting of decompositions."""
PASSED_ON = frozenset({"Identity", "Dropout", "Cast"})
"""Nodes whose result is their input; a Cast only if it changes no number."""
REMOVED_LATE = frozenset({"Tile", "Resize", "Upsample", "Sum", "AveragePool"})
"""Nodes that TPU-MLIR's importer or patterns remove if they do nothing: the operand is returned under its name."""
MEASURED = frozenset({"Shape", "Size"})
"""Nodes that need only the extents of their input."""
OF_ONE_TYPE = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "MatMul", "Gemm", "Concat"})


class Reader(Known):
    """Reads nodes in order; raises for a node that cannot be imported.

    A node is read by its mapper, its decomposition or ONNX's function body. What fails is undone before the next is
    tried. `_wanted` are tensors that one of these needed to be constant.
    """

    def __init__(
        self, proto: onnx.ModelProto, inputs: Sequence[GraphInput], numbers: Numbers, *, onnx_names: bool
    ) -> None:
        super().__init__(proto, inputs, numbers, onnx_names=onnx_names)
        self._wanted: set[str] = set()
        self._made_from: dict[str, tuple[str, ...]] = {}
        self._depth = self._computed_bytes = 0

    def _read(self, node: onnx.NodeProto) -> How:
        self.types.note(node, self._opsets)
        self._made_from |= dict.fromkeys(node.output, tuple(reads(node)))
        if self._alias(node):
            return "passed on"
        if self._fold(node):
            return "folded"
        if self._merge(node):
            return "merged"
        if not is_imported(node, self._version(node.domain)):
            raise UnsupportedError(no_such_op(node.op_type, node.domain))
        for name in node.input:
            if not self._is_known(name):
                raise ImportModelError(f"tensor '{name}' is not available")
        return self._build(node)

    def _alias(self, node: onnx.NodeProto) -> bool:
        """Identity, Dropout in inference, and a Cast that changes no number: the output is the input."""
        if node.domain not in DEFAULT_DOMAINS or node.op_type not in PASSED_ON or not node.input:
            return False
        source = self._aliases.get(node.input[0], node.input[0])
        if node.op_type == "Dropout":
            self._require_inference(node)
        elif node.op_type == "Cast" and not (self._resolve(source) in self._values and self._changes_nothing(node)):
            return False
        self._aliases[node.output[0]] = source
        of_integers = node.op_type == "Cast" and not is_float(self.types.dtype(node.input[0]))
        if node.op_type == "Dropout" or of_integers or node.input[0] in self._dropped:
            self._dropped.add(node.output[0])
        return True

    def _changes_nothing(self, cast: onnx.NodeProto) -> bool:
        """Whether a Cast of a computed tensor is to float32, or to bools that are only read as truths (U-113)."""
        target = target_of(cast)
        return target == TensorProto.FLOAT or (
            target == TensorProto.BOOL and self._casts.read_as_truths(cast.output[0])
        )

    def _require_inference(self, node: onnx.NodeProto) -> None:
        if len(node.input) > 2 and node.input[2]:
            training = self.constant(node.input[2])
            if training is None:
                raise ConstantNeeded(node.input[2], "training modes")
            ratio = self.constant(node.input[1]) if node.input[1] else np.float32(0.5)
            if training.any() and (ratio is None or ratio.any()):
                raise ImportModelError("training_mode must be the constant false")
        for name in self._used_outputs(node)[1:]:
            self._constants[name] = np.ones(self._shape(node.input[0]), np.bool_)

    def _fold(self, node: onnx.NodeProto) -> bool:
        """Evaluate a node of constants; Shape and Size need only the shape of their input."""
        if node.op_type in MEASURED and node.domain in DEFAULT_DOMAINS and self._is_tensor(node.input[0]):
            self._constants[node.output[0]] = self._measure(node)
            return True
        if not foldable(node) or not all(self._is_constant(name) for name in node.input):
            return False
        feeds = {name: array for name in node.input if name and (array := self.constant(name)) is not None}
        found = evaluate(node, self._opsets, feeds)
        if node.op_type != "Constant":
            self._require_room(found.values())
        self._constants |= found
        for name, array in found.items():
            self.types.set(name, type_of(array))
        return True

    def _require_room(self, made: Iterable[np.ndarray]) -> None:
        """Raise ImportModelError if all constants that were computed so far take too much memory."""
        self._computed_bytes += sum(array.nbytes for array in made)
        most = max(MOST_COMPUTED, GROWTH * weight_bytes(self._proto.graph))
        if self._computed_bytes > most:
            raise ImportModelError(
                f"its inputs are constant, but with it the constants that are computed take {self._computed_bytes:,} "
                f"bytes, at most {most:,} are kept"
            )

    def _merge(self, node: onnx.NodeProto) -> bool:
        """Merge a node that repeats an earlier one, and return whether; nodes of decompositions are not merged."""
        return self._depth == 0 and self._duplicates.merge(
            node, self.constant, (self._aliases.get(name, name) for name in node.input)
        )

    def _measure(self, node: onnx.NodeProto) -> np.ndarray:
        shape = shape_of(self._values[self._resolve(node.input[0])])
        if node.op_type == "Size":
            return np.array(int(np.prod(shape)), np.int64)
        self.types.set(node.output[0], TensorProto.INT64)
        attributes = _attributes(node)
        return np.array(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)

    def _build(self, node: onnx.NodeProto) -> How:
        """Build a node by its mapper; if that fails, by its decomposition or by ONNX's function body."""
        refused: Exception | None = None
        ways: dict[How, Callable[[onnx.NodeProto], bool]] = {
            "mapped": self._by_mapper, "decomposed": self._by_parts, "function body": self._by_function
        }  # fmt: skip
        for how, way in ways.items():
            end = self._module.mark()
            try:
                if way(node):
                    return how
            except (TpusimError, ValueError) as error:
                gone = self._module.undo(end)
                self._values = {name: v for name, v in self._values.items() if v not in gone}
                if isinstance(error, ConstantNeeded):
                    self._wanted.add(error.tensor)
                too_large = isinstance(error.__cause__, TooLarge)
                if way == self._by_mapper and (isinstance(error, UnsupportedError) or too_large):
                    raise  # the node itself is invalid, so no other way can read it
                refused = refused or error
        raise refused or UnsupportedError(no_such_op(node.op_type, node.domain))

    def _by_mapper(self, node: onnx.NodeProto) -> bool:
        mapper = mapper_of(node)
        if mapper is None:
            return False
        if self._depth == 0 and node.op_type in OF_ONE_TYPE:
            self._require_one_type(node)
        result = self.types.dtype(node.output[0])
        source = self.types.dtype(node.input[0]) if node.input else result
        unfinished = finishes(node.op_type, source, result)
        read = self._node(node)
        if unfinished:
            read.outputs = (f"{node.output[0]}_exact",)
        value = mapper(read)
        is_operand = any(value is self._values.get(self._resolve(name)) for name in node.input)
        if self._depth == 0 and isinstance(value, SSAValue) and not is_operand and "alpha" not in read.attributes:
            _note_default_alpha(value)
        if unfinished:
            assert isinstance(value, SSAValue)  # ops of arithmetic have one result
            value = finished(self._module, value, node.op_type, result, node.output[0])
        if node.op_type in REMOVED_LATE and is_operand and not unfinished:
            self._dropped.add(node.output[0])
        self._bind(node, value)
        unread = [key for key in read.attributes.keys() - read.taken if not self._is_default(node, key, read)]
        if unread:
            found = str(read.attributes[min(unread)])[:60]
            raise ImportModelError(f"attribute {min(unread)} = {found} is not supported")
        return True

    def _require_one_type(self, node: onnx.NodeProto) -> None:
        found = list(dict.fromkeys(str(self.types.dtype(name)) for name in node.input if name))
        if len(found) > 1:
            raise ImportModelError(f"operands of one type are required, got {' and '.join(found)}")

    def _node(self, node: onnx.NodeProto) -> Node:
        return Node(node.op_type, node_name(node), tuple(node.input), tuple(node.output), _attributes(node), self)

    def _by_parts(self, node: onnx.NodeProto) -> bool:
        decompose = PARTS.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
        if decompose is None:
            return False
        parts, end = Parts(self._node(node), self._used_outputs(node)), self._module.mark()
        decompose(parts)
        self._read_inner(node, parts.nodes, parts.opset)
        if parts.whole:
            mark_parts(self._module.since(end), parts.whole, next(name for name in node.output if name))
        return True

    def _by_function(self, node: onnx.NodeProto) -> bool:
        given = {n: typed(self.types.of(n), self._shape(n)) for n in node.input if n}
        found = function_nodes(node, self._version(node.domain), self.opset, given)
        if found is None:
            return False
        self._read_inner(node, *found)
        return True

    def _version(self, domain: str) -> int:
        """The version of an operator set, of the model's or of the parts that are read."""
        return self.opset if domain in DEFAULT_DOMAINS else opset_version(self._proto, domain)

    def _read_inner(self, node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], opset: int) -> None:
        """Read the nodes of a decomposition that its results need. Raises for the first that cannot be read."""
        if self._depth > DEEPEST:
            raise UnsupportedError("its decomposition never ends: its parts decompose into further parts")
        outer = self.opset, self._opsets
        self.opset, self._opsets = opset, [helper.make_opsetid("", opset)]
        self._depth += 1
        needed = self._used_outputs(node)
        self._readable.update(name for inner in nodes for name in reads(inner))
        try:
            for inner in live_nodes_of(nodes, needed):
                try:
                    self._read(inner)
                except (TpusimError, ValueError) as error:
                    if isinstance(error, ConstantNeeded):
                        raise
                    why = error.why if isinstance(error, BuildError) else str(error)
                    raise ImportModelError(f"of its parts, {inner.op_type} '{node_name(inner)}': {why}") from error
        finally:
            self.opset, self._opsets = outer
            self._depth -= 1
        self._refuse_outputs(node, [name for name in needed if not self._is_known(name)])

    def _bind(self, node: onnx.NodeProto, value: SSAValue | Sequence[SSAValue | None]) -> None:
        """Name the results: the values of the mapper; if it gives one value, all results of that value's op."""
        results = [value] if isinstance(value, SSAValue) else list(value)
        if isinstance(value, OpResult) and value.index == 0 and len(value.op.results) == len(node.output):
            results = list(value.op.results)
        made = zip(node.output, results, strict=False)
        self._values.update((name, result) for name, result in made if result is not None)
        self._refuse_outputs(node, [n for n in self._used_outputs(node) if n in node.output[len(results) :]])

    def _used_outputs(self, node: onnx.NodeProto) -> list[str]:
        return [name for i, name in enumerate(node.output) if i == 0 or (name and name in self._readable)]

    def is_read(self, name: str) -> bool:
        """Whether a live node reads a tensor, or the graph returns it."""
        return name in self._readable

    @cached_property
    def _readable(self) -> set[str]:
        """Names that a live node reads or the graph returns."""
        graph = self._proto.graph
        return {n for node in live_nodes(graph) for n in reads(node)} | {o.name for o in graph.output}

    def _refuse_outputs(self, node: onnx.NodeProto, names: Sequence[str]) -> None:
        if names:
            raise ImportModelError(f"output '{names[0]}' (number {list(node.output).index(names[0])}) is not supported")

    def _is_default(self, node: onnx.NodeProto, key: str, read: Node) -> bool:
        """Whether an attribute has its default value."""
        if not onnx.defs.has(node.op_type, self.opset, ""):
            return False
        known = onnx.defs.get_schema(node.op_type, self.opset, "").attributes.get(key)
        if known is None or known.default_value.type == onnx.AttributeProto.UNDEFINED:
            return False
        return bool(_attribute_value(known.default_value) == read.attributes[key])


def _note_default_alpha(value: SSAValue) -> None:
    """Note that a node has no alpha, if its op has one (U-102)."""
    if isinstance(value.owner, DefaultAlpha):
        value.owner.default_alpha = flag(True)


def is_imported(node: onnx.NodeProto, version: int) -> bool:
    """Whether nodes of this type can be imported."""
    if node.domain not in DEFAULT_DOMAINS:
        return mapper_of(node) is not None or has_function(node.op_type, version, node.domain)
    known = node.op_type in PASSED_ON or node.op_type in MEASURED or node.op_type in MAPPERS or node.op_type in PARTS
    return known or has_function(node.op_type, version)


def node_name(node: onnx.NodeProto) -> str:
    """The name of a node in messages: its name, or else its first named output."""
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
