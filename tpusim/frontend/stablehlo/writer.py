"""`Writer`: the ONNX nodes of a StableHLO module, and its values so far."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tpusim.frontend.onnx.element_types import elem_type_of
from tpusim.frontend.onnx.growing import GrowingGraph
from tpusim.frontend.stablehlo.values import Computed, Constant, Shape, Value

OPSET, IR_VERSION = 23, 10


class Sums(NamedTuple):
    """A sum over windows that was written as an AveragePool, with what an average by another divisor needs.

    axes: of the value, in the order of the sum's tensor. counts: elements of each window, in that order.
    """

    average: Computed
    source: str
    options: dict[str, Any]
    axes: Sequence[int]
    counts: np.ndarray


class Writer(GrowingGraph):
    """The nodes so far; every method that adds one returns the value or the name of its result."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[Any, ...], str] = {}
        self._base = "value"
        self.shapes: dict[str, Shape] = {}
        self.window_sums: dict[str, Sums] = {}
        self.pieces: dict[str, tuple[int, list[Value]]] = {}
        """Tensor joined by updates -> the axis, and the parts along it."""
        self.resources: Callable[[], Mapping[str, bytes]] = dict
        """The bytes of constants that the module has at its end."""
        self.run: Callable[[Any, Sequence[Value]], list[Value]] = lambda block, given: []
        """Executes a block of instructions on values."""

    @contextmanager
    def at(self, place: str) -> Generator[None]:
        """Name what is added inside after a place of the program."""
        before, self._base = self._base, place or self._base
        try:
            yield
        finally:
            self._base = before

    # ----------------------------------------------------------------------------------------------------------- nodes

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node, or reuse an equal one; the name of its result."""
        key = (kind, tuple(inputs), repr(sorted(attributes.items())))
        return self._once(key, lambda: self.several(kind, inputs, 1, **attributes)[0])

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Append a node with `count` results; their names."""
        return self.append(kind, inputs, self._base, count, **attributes)

    def constant(self, array: Any, name: str = "") -> str:
        """Add a constant, once; its name."""
        return self.store(np.asarray(array), name or f"{self._base}_constant")

    def cast(self, name: str, dtype: np.dtype) -> str:
        """The elements of a tensor in another type."""
        return self.node("Cast", [name], to=elem_type_of(dtype))

    def indices(self, numbers: Sequence[int]) -> str:
        """Add a constant of int64 (n,)."""
        return self.constant(np.asarray(numbers, np.int64))

    # ---------------------------------------------------------------------------------------------------------- values

    def stored(self, value: Value, order: Sequence[int], *, whole: bool = False) -> str:
        """The name of a tensor with the value's axes in an order: its axis order[i] is axis i of the value.

        whole: repetitions are written out; else a repeated axis may have extent 1.
        """
        if isinstance(value, Constant):
            array = value.array if whole else once(value.array)
            return self.constant(array.transpose(np.argsort(order)), value.of)
        name = self._moved(value, [value.order[int(i)] for i in np.argsort(order)])
        if whole and value.repeats:
            shape = [0] * len(order)
            for size, wanted in zip(value.shape, order, strict=True):
                shape[wanted] = size
            name = self.node("Expand", [name, self.indices(shape)])
        return name

    def _moved(self, value: Computed, axes: Sequence[int]) -> str:
        """A tensor whose axis j is axis axes[j] of the value's tensor; where only axes of extent 1 move, a Reshape."""
        if list(axes) == list(range(len(value.stored))):
            return value.name
        kept, sizes = sorted(axes), [value.stored[a] for a in axes]
        long = [a for a in axes if value.stored[a] != 1]
        if list(axes) != kept and long == sorted(long):
            return self.reshaped(value.name, sizes)
        name = value.name
        if value.spare:
            name = self.node("Squeeze", [name, self.indices(value.spare)])
        return name if list(axes) == kept else self.node("Transpose", [name], perm=[kept.index(a) for a in axes])

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """A value without axes repeated to a shape; another value as it is."""
        if isinstance(value, Constant):
            return Constant(np.broadcast_to(value.array, tuple(shape)), value.of)
        rank = len(shape)
        if value.shape or not rank:
            return value
        name = self.reshaped(value.name, (1,) * rank)
        return Computed(name, (1,) * rank, value.dtype, tuple(range(rank)), tuple(shape))

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """A tensor with other extents; of reshapes in a row only the last is needed."""
        while (made := self.maker(name, "Reshape", "Squeeze")) is not None:
            name = str(made.input[0])
        return name if self.shapes.get(name) == tuple(shape) else self.node("Reshape", [name, self.indices(shape)])

    def _once(self, key: tuple[Any, ...], make: Callable[[], str]) -> str:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def plain(self, value: Value) -> str:
        """The name of a tensor that is the value."""
        return self.stored(value, range(len(value.shape)), whole=True)

    def in_axes(self, value: Value, axes: Sequence[int]) -> str:
        """The name of a tensor whose axis j is axis axes[j] of the value."""
        return self.stored(value, [int(i) for i in np.argsort(axes)], whole=True)

    def from_axes(self, name: str, axes: Sequence[int], shape: Shape, dtype: np.dtype) -> Computed:
        """The value of that shape whose axis axes[j] is axis j of a tensor."""
        stored = tuple(shape[a] for a in axes)
        return Computed(name, stored, dtype, tuple(int(i) for i in np.argsort(axes)), shape)

    def together(
        self, kind: str, values: Sequence[Value], shape: Shape, dtype: np.dtype, **attributes: Any
    ) -> Computed:
        """A node that computes element by element, in the order of axes that most elements have already."""
        if (kept := self._with_spare(kind, values, shape, dtype, attributes)) is not None:
            return kept
        layout = order_of(values, len(shape))
        names = [self.stored(v, layout) for v in values]
        inner = [inner_of(v) for v in values]
        sizes = tuple(max(part[i] for part in inner) if inner else 1 for i in range(len(shape)))
        stored = [0] * len(shape)
        for size, axis in zip(sizes, layout, strict=True):
            stored[axis] = size
        return Computed(self.node(kind, names, **attributes), tuple(stored), dtype, layout, shape)

    def _with_spare(
        self, kind: str, values: Sequence[Value], shape: Shape, dtype: np.dtype, attributes: dict[str, Any]
    ) -> Computed | None:
        """A node of one computed value and constants that are no longer than it, in the tensor's axes; else None."""
        computed = [v for v in values if isinstance(v, Computed)]
        if not computed or len({(v.order, len(v.stored)) for v in computed}) > 1 or not computed[0].spare:
            return None
        first = replace(computed[0], stored=tuple(map(max, *(v.stored for v in computed), computed[0].stored)))
        if any(size not in (1, inner) for v in values for size, inner in zip(inner_of(v), first.inner, strict=True)):
            return None
        names: list[str] = []
        for value in values:
            if isinstance(value, Constant):
                array, aligned = once(value.array), [1] * len(first.stored)
                for size, place in zip(array.shape, first.order, strict=True):
                    aligned[place] = size
                names.append(self.constant(array.transpose(np.argsort(first.order)).reshape(aligned), value.of))
            else:
                names.append(value.name)
        return Computed(self.node(kind, names, **attributes), first.stored, dtype, first.order, shape)

    def equal(self, one: Value, other: Value) -> Value:
        """Whether two values are equal, element by element."""
        return self.together("Equal", [one, other], one.shape, np.dtype(np.bool_))

    def maker(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The node of one of these kinds (of any without kinds) that makes a tensor, None if there is none."""
        node = self.makers.get(name)
        return node if node is not None and (node.op_type in kinds or not kinds) else None

    def source(self, name: str) -> str:
        """The tensor whose elements a tensor has in the same order."""
        while (made := self.maker(name, "Reshape", "Squeeze", "Cast")) is not None:
            if made.op_type == "Cast" and made.attribute[0].i not in (TensorProto.INT32, TensorProto.INT64):
                break
            name = str(made.input[0])
        return name

    def input_of(self, name: str, size: int) -> str:
        """The network's input from which indices come, also through JAX's counting of negative ones; else ""."""
        name = self.source(name)
        where = self.maker(name, "Where")
        if where is not None:
            name = self.source(str(where.input[2]))
            less, more = self.maker(where.input[0], "Less"), self.maker(where.input[1], "Add")
            if less is None or more is None or {self.source(less.input[0]), self.source(more.input[0])} != {name}:
                return ""
            if self.number(less.input[1]) != 0 or self.number(more.input[1]) != size:
                return ""
        return name if self.maker(name) is None and name not in self.initializers else ""

    def number(self, name: str) -> float | None:
        """The one number of a constant."""
        if name not in self.initializers:
            return None
        array = numpy_helper.to_array(self.initializers[name])
        return float(array.flat[0]) if array.size and (array == array.flat[0]).all() else None


def once(array: np.ndarray) -> np.ndarray:
    """An array without the repetitions that NumPy stores as strides of 0."""
    repeated = (step == 0 and size > 1 for step, size in zip(array.strides, array.shape, strict=True))
    return array[tuple(slice(0, 1) if repeats else slice(None) for repeats in repeated)]


def inner_of(value: Value) -> Shape:
    """The extents of a value without repetitions."""
    return once(value.array).shape if isinstance(value, Constant) else value.inner


def order_of(values: Sequence[Value], rank: int) -> tuple[int, ...]:
    """The order of axes of the largest computed value."""
    computed = [v for v in values if isinstance(v, Computed)]
    if not computed:
        return tuple(range(rank))
    largest = max(computed, key=lambda v: int(np.prod(v.inner)))
    kept = sorted(largest.order)
    return tuple(kept.index(axis) for axis in largest.order)


def order_to_join(values: Sequence[Value], rank: int) -> tuple[int, ...]:
    """As `order_of`; the axes in order if only axes of extent 1 are elsewhere, which a Reshape moves."""
    order = order_of(values, rank)
    largest = max((v for v in values if isinstance(v, Computed)), key=lambda v: int(np.prod(v.inner)))
    long = [place for place, size in zip(order, largest.inner, strict=True) if size != 1]
    return tuple(range(rank)) if long == sorted(long) else order
