"""An ONNX graph that grows op by op: names of tensors, element types, constants.

A value of a top module is a tensor of f32 numbers there, also where it holds bools or indices. Its ONNX tensor has the
type of the node that computes it, and is cast where a node requires another type.
"""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper
from typing_extensions import override
from xdsl.ir import Operation, SSAValue

from tpusim.errors import UnsupportedError
from tpusim.frontend.onnx.element_types import elem_type_of
from tpusim.frontend.onnx.growing import GrowingGraph
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import is_none
from tpusim.ops.structure import TopInput, TopWeight

REAL, BOOL, INDEX = np.dtype(np.float32), np.dtype(np.bool_), np.dtype(np.int64)


class Tensor(NamedTuple):
    """A tensor of the graph: its name and element type."""

    name: str
    dtype: np.dtype

    @override
    def __str__(self) -> str:
        return self.name


Inputs = Sequence[Tensor | str | None]
"""The inputs of a node; None is left out."""


class Nodes(GrowingGraph):
    """The nodes and constants of one graph. An op's form asks for its operands and adds nodes.

    names: the tensor of each op's result. weights: the module's. results: the element types of the network's results.
    """

    def __init__(
        self, names: Mapping[Operation, str], weights: WeightStore, results: Mapping[SSAValue, np.dtype]
    ) -> None:
        super().__init__(names.values())
        self._names = names
        self._weights = weights
        self._results = results
        self._tensors: dict[SSAValue, Tensor] = {}
        self._cast: dict[tuple[str, np.dtype], Tensor] = {}
        self._shared: dict[tuple[Any, ...], list[str]] = {}
        self._read: set[str] = set()
        self._returned: set[str] = set()
        self._base = ""

    # ------------------------------------------------------------------------------------------------ what forms call

    def add(self, kind: str, inputs: Inputs, *, dtype: np.dtype = REAL, **attributes: Any) -> Tensor:
        """Add a node with one result of that type; an input None is left out. Returns the result."""
        return Tensor(self.many(kind, inputs, **attributes)[0], dtype)

    def many(self, kind: str, inputs: Inputs, count: int = 1, **attributes: Any) -> list[str]:
        """Add a node with `count` results, and return their names."""
        named = ["" if i is None else str(i) for i in inputs]
        while named and not named[-1]:
            named.pop()
        self._read.update(named)
        return self.append(kind, named, f"{self._base}_{kind.lower()}", count, **attributes)

    def of_node(self, kind: str, inputs: Inputs, count: int, **attributes: Any) -> list[str]:
        """The results of a node that several ops have in common: it is added once."""
        key = kind, tuple(map(str, inputs)), tuple(sorted(attributes.items()))
        if key not in self._shared:
            self._shared[key] = self.many(kind, inputs, count, **attributes)
        return self._shared[key]

    def constant(self, array: np.ndarray, name: str = "") -> Tensor:
        """A constant; equal arrays are stored once."""
        return Tensor(self.store(array, name or f"{self._base}_constant"), array.dtype)

    def indices(self, values: Sequence[int]) -> Tensor:
        """A constant of int64 (n,): a shape, axes or places."""
        return self.constant(np.asarray(values, np.int64))

    def number(self, value: float) -> Tensor:
        """A constant f32 number without axes."""
        return self.constant(np.asarray(value, np.float32))

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The elements of a weight, None for a computed value."""
        return self._weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None

    def tensor(self, value: SSAValue, dtype: np.dtype | None = REAL) -> Tensor:
        """The tensor of a value in an element type; None: in the type that it has."""
        stored = self.array(value)
        if stored is not None:
            kept = stored.astype(dtype or (REAL if stored.dtype.kind == "f" else stored.dtype), copy=False)
            return self.constant(kept, op_name(value.owner))  # type: ignore[arg-type]
        tensor = self._tensors[value]
        return tensor if dtype is None else self.cast(tensor, dtype)

    def optional(self, value: SSAValue) -> Tensor | None:
        """The f32 tensor of an operand, None for an operand that is none."""
        return None if is_none(value) else self.tensor(value)

    def cast(self, tensor: Tensor, dtype: np.dtype) -> Tensor:
        """A tensor in another element type; a number is true unless it is 0."""
        if tensor.dtype == dtype:
            return tensor
        key = tensor.name, dtype
        if key not in self._cast:
            self._cast[key] = self.add("Cast", [tensor], dtype=dtype, to=elem_type_of(dtype))
        return self._cast[key]

    # ---------------------------------------------------------------------------------------------- what the walk calls

    def begin(self, op: Operation) -> None:
        """Name the nodes that follow after an op."""
        self._base = self._names[op]

    def declare(self, op: TopInput) -> onnx.ValueInfoProto:
        """Declare an input of the network in the type in which it is given."""
        if op.takes_frames:
            raise UnsupportedError(
                f"export: input '{op_name(op)}' takes frames of a camera, which ONNX cannot say; "
                "export the module before preprocessing is fused into it"
            )
        self._tensors[op.output] = Tensor(self._names[op], op.given)
        return _declared(self._names[op], op.given, shape_of(op.output))

    def define(self, op: Operation, tensor: Tensor) -> None:
        """Take a tensor for the result of an op; if a node of this op computes it, it gets the op's name.

        If the network returns it in another element type, the returned tensor has the name instead.
        """
        value, name = op.results[0], self._names[op]
        if self._results.get(value, tensor.dtype) != tensor.dtype:
            name = self.fresh(f"{name}_{tensor.dtype.name}")
        self._tensors[value] = self._renamed(tensor, name)

    def name_of(self, op: Operation) -> str:
        """The tensor that has the numbers of an op's result, before they are cast for a result of the network."""
        return self._tensors[op.results[0]].name

    def _renamed(self, tensor: Tensor, wanted: str) -> Tensor:
        maker = self.makers.pop(tensor.name, None)
        if maker is None or tensor.name in self._read:
            return tensor
        maker.output[list(maker.output).index(tensor.name)] = wanted
        for results in self._shared.values():
            results[:] = [wanted if name == tensor.name else name for name in results]
        return Tensor(wanted, tensor.dtype)

    def returned(self, value: SSAValue, dtype: np.dtype) -> onnx.ValueInfoProto:
        """Declare a result of the network. A tensor of another type is cast; one that is a result already is copied."""
        tensor = self.tensor(value, None)
        owner = value.owner
        name = self._names.get(owner, tensor.name) if isinstance(owner, Operation) else tensor.name
        if tensor != Tensor(name, dtype) or name in self._returned or isinstance(owner, TopWeight):
            name = self.fresh(f"{name}_result") if name in self._returned or name == tensor.name else name
            copied = tensor.dtype == dtype
            attributes: dict[str, Any] = {} if copied else {"to": elem_type_of(dtype)}
            node = helper.make_node("Identity" if copied else "Cast", [tensor.name], [name], name=name, **attributes)
            self.nodes.append(node)
        self._returned.add(name)
        return _declared(name, dtype, shape_of(value))


def _declared(name: str, dtype: np.dtype, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type_of(dtype), list(shape))


def tensor_names(ops: Sequence[Operation], results: Collection[SSAValue]) -> dict[Operation, str]:
    """A name for each op's tensor: that of the framework's tensor that it equals, else the op's name.

    If several ops equal one tensor of the framework, the last has its name, but a result of the network comes first.
    """
    places = sorted(range(len(ops)), key=lambda place: (ops[place].results[0] in results, place), reverse=True)
    names: dict[Operation, str] = {}
    taken: set[str] = set()
    stated = {framework_name(op) for op in ops}
    for op in (ops[place] for place in places):
        name = framework_name(op)
        if not name or name in taken:
            name = op_name(op) or op.name.partition(".")[2]
        number, free = 0, name
        while free in taken or (free in stated and free != framework_name(op)):
            number += 1
            free = f"{name}_{number}"
        taken.add(free)
        names[op] = free
    return names
