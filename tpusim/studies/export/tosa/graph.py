"""A function of TOSA ops that grows op by op: tensors, constants, shapes, and moves that cancel.

A tensor of bytes is int8 in TOSA, whose products know no other. Unsigned bytes are stored as byte - 128, and `offset`
of the tensor is what is added to get the module's integer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import (
    BoolAttr,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    TensorType,
    bf16,
    f16,
    f32,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir import Operation as XdslOperation

from tpusim.ir.attrs import name_location
from tpusim.studies.export.tosa.dialect import CLASSES, INDEX, OPS, Nan, NanAttr, ShapeType, TosaOp

Shape: TypeAlias = Sequence[int]
ELEMENTS: Mapping[str, Attribute] = {
    "int8": i8, "int16": i16, "int32": i32, "float32": f32, "float16": f16, "bfloat16": bf16, "bool": i1,
}  # fmt: skip
"""TOSA's element types by the NumPy names of what they store."""
FLOATS = (f32, f16, bf16)
MAX_RANK = 6
"""Axes of a tensor at level 8k."""
BYTE = 128
"""The offset of unsigned bytes."""
POINTWISE = {
    "add", "sub", "mul", "intdiv", "pow", "maximum", "minimum", "arithmetic_right_shift", "logical_left_shift", "equal",
    "greater", "greater_equal", "select", "logical_and", "logical_or", "logical_xor", "logical_not", "abs", "ceil",
    "floor", "exp", "log", "reciprocal", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf", "clamp", "cast", "table",
    "rescale",
}  # fmt: skip
"""Ops that compute every element by itself: a transpose of their operands can follow them instead."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the function. offset: what is added to a stored number to get the module's."""

    value: SSAValue
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its axes."""
        return cast("TensorType[Attribute]", self.value.type).get_shape()

    @property
    def element(self) -> Attribute:
        """The type of its elements."""
        return cast("TensorType[Attribute]", self.value.type).element_type

    @property
    def rank(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its elements are floats."""
        return self.element in FLOATS


def as_given(array: np.ndarray) -> np.ndarray:
    """An array of the module as the function takes it: unsigned bytes as byte - 128 in int8."""
    return (array.astype(np.int16) - BYTE).astype(np.int8) if array.dtype == np.uint8 else array


def longs(values: Sequence[int]) -> Attribute:
    """Numbers as an attribute `array<i64: ...>`."""
    return DenseArrayBase.from_list(i64, list(map(int, values)))


def number(value: int, kind: Any = i32) -> Attribute:
    """An integer as an attribute."""
    return IntegerAttr(value, kind)


def flag(value: bool) -> Attribute:
    """A bool as the attribute `true` or `false`."""
    return BoolAttr.from_bool(value)


PROPERTIES: Mapping[str, Mapping[str, Attribute]] = {
    name: {"nan_mode": NanAttr(Nan.PROPAGATE)} for name, (_, properties) in OPS.items() if "nan_mode" in properties
}
"""Properties that an op always has: NaN is propagated."""


@dataclass
class Body:
    """The ops and constants of one function."""

    block: Block
    ops: list[XdslOperation] = field(default_factory=list[XdslOperation])
    location: Any = None
    _constants: dict[tuple[Any, ...], SSAValue] = field(default_factory=dict[tuple[Any, ...], SSAValue])
    _first: list[XdslOperation] = field(default_factory=list[XdslOperation])
    _made: dict[tuple[Any, ...], Tensor] = field(default_factory=dict[tuple[Any, ...], Tensor])

    def begin(self, name: str) -> None:
        """Ops that follow have the location of a name."""
        self.location = name_location(name)

    # -------------------------------------------------------------------------------------------------------- constants

    def const(self, array: np.ndarray) -> Tensor:
        """A constant; equal arrays are one. Unsigned bytes get their offset."""
        offset = BYTE if array.dtype == np.uint8 else 0
        array = np.ascontiguousarray(as_given(array))
        kind = TensorType(ELEMENTS[array.dtype.name], array.shape)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            splat = array.size > 1 and (array.reshape(-1)[:1].tobytes() * array.size) == key[2]
            data = BytesAttr(array.reshape(-1)[:1].tobytes() if splat else key[2])
            self._constants[key] = self._constant("const", DenseIntOrFPElementsAttr(cast("Any", kind), data), kind)
        return Tensor(self._constants[key], offset)

    def dims(self, values: Shape) -> SSAValue:
        """A shape as a constant."""
        values = tuple(map(int, values))
        key = "shape", values
        if key not in self._constants:
            extents = DenseIntOrFPElementsAttr.from_list(TensorType(INDEX, (len(values),)), list(values))
            self._constants[key] = self._constant("const_shape", extents, ShapeType(IntAttr(len(values))))
        return self._constants[key]

    def _constant(self, name: str, values: Attribute, kind: Attribute) -> SSAValue:
        op = CLASSES[name].create(properties={"values": values}, result_types=[kind])
        self._first.append(op)
        return op.results[0]

    def scalar(self, value: float, rank: int, dtype: str = "float32") -> Tensor:
        """A constant number with so many axes of one element."""
        return self.const(np.full((1,) * rank, value, dtype))

    def zero(self, element: Attribute, value: float = 0) -> SSAValue:
        """A zero point, or what a pad consists of: one element, as stored."""
        return self.scalar(value, 1, next(name for name, kind in ELEMENTS.items() if kind == element)).value

    # -------------------------------------------------------------------------------------------------------------- ops

    def add(
        self, name: str, operands: Sequence["Tensor | SSAValue"], shape: Shape, element: Attribute, offset: int = 0,
        **properties: Attribute,
    ) -> Tensor:  # fmt: skip
        """An op with one result of that shape and type; equal ops are one."""
        values = [o.value if isinstance(o, Tensor) else o for o in operands]
        properties = {**PROPERTIES.get(name, {}), **properties}
        key = name, tuple(values), tuple(shape), element, tuple(properties.items())
        if key not in self._made:
            kind = TensorType(element, list(shape))
            op = CLASSES[name].create(operands=values, properties=properties, result_types=[kind])
            if self.location is not None:
                op.location = self.location
            self.ops.append(op)
            self._made[key] = Tensor(op.results[0])
        return Tensor(self._made[key].value, offset)

    def point(
        self, name: str, *operands: Tensor, element: Attribute | None = None, offset: int = 0,
        more: Sequence[SSAValue] = (), **properties: Attribute,
    ) -> Tensor:  # fmt: skip
        """An op of every element; operands are broadcast as NumPy does. more: operands without an axis of elements.

        Where all operands are transposed in one way, the op comes before the transpose.
        """
        rank = max(o.rank for o in operands)
        operands = tuple(self.reshape(o, (1,) * (rank - o.rank) + o.shape) for o in operands)
        orders = {self._order(o) for o in operands if any(size > 1 for size in o.shape)}
        if len(orders) == 1 and (order := next(iter(orders))) is not None:
            back = [self._source(o, order) for o in operands]
            y = self.point(name, *back, element=element, offset=offset, more=more, **properties)
            return self.transpose(y, order)
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        kind = element or operands[-1].element
        return self.add(name, [*operands, *more], shape, kind, offset, **properties)

    def _order(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The order of axes of a transposed tensor."""
        owner = tensor.value.owner
        if isinstance(owner, TosaOp) and owner.name == "tosa.transpose":
            return cast("DenseArrayBase[Any]", owner.properties["perms"]).get_values()
        return None

    def _source(self, tensor: Tensor, order: tuple[int, ...]) -> Tensor:
        """What a transposed tensor was before; one of a single element in the same rank."""
        if self._order(tensor) is not None:
            return Tensor(cast("TosaOp", tensor.value.owner).inputs[0], tensor.offset)
        return self.transpose(tensor, np.argsort(order).tolist())

    # ------------------------------------------------------------------------------------------------------------ moves

    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        """The elements in another shape; one extent may be -1."""
        shape = tuple(map(int, shape))
        if -1 in shape:
            place, known = shape.index(-1), -prod(shape)
            shape = (*shape[:place], prod(x.shape) // known, *shape[place + 1 :])
        return x if x.shape == shape else self.add("reshape", [x, self.dims(shape)], shape, x.element, x.offset)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """The axes in another order; two orders become one. Axes of one element are moved by a reshape."""
        order, shape = tuple(map(int, order)), x.shape
        if order == tuple(range(len(order))):
            return x
        wanted = tuple(shape[axis] for axis in order)
        if (before := self._order(x)) is not None:
            source = Tensor(cast("TosaOp", x.value.owner).inputs[0], x.offset)
            return self.transpose(source, [before[axis] for axis in order])
        long = [axis for axis in order if shape[axis] > 1]
        if long == sorted(long):
            return self.reshape(x, wanted)
        perms = DenseArrayBase.from_list(i32, list(order))
        return self.add("transpose", [x], wanted, x.element, x.offset, perms=perms)

    def slice(self, x: Tensor, starts: Shape, sizes: Shape) -> Tensor:
        """A part of a tensor."""
        if tuple(sizes) == x.shape:
            return x
        return self.add("slice", [x, self.dims(starts), self.dims(sizes)], sizes, x.element, x.offset)

    def pad(self, x: Tensor, sides: Sequence[tuple[int, int]], value: float = 0) -> Tensor:
        """A tensor with so many elements before and after each axis. value: as stored."""
        padding = self.zero(x.element, value)
        for axis, (before, after) in enumerate(sides):
            if before or after:  # along one of three axes, because MLIR counts both ends of an axis at level 8k
                shape = (*x.shape[:axis], x.shape[axis] + before + after, *x.shape[axis + 1 :])
                outer, size, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
                flat = self.reshape(x, (outer, x.shape[axis], inner)), self.dims((0, 0, before, after, 0, 0))
                padded = self.add("pad", [*flat, padding], (outer, size, inner), x.element, x.offset)
                x = self.reshape(padded, shape)
        return x

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after another along an axis; they have one offset."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.add("concat", parts, shape, parts[0].element, parts[0].offset, axis=number(axis))

    def tile(self, x: Tensor, counts: Shape) -> Tensor:
        """A tensor repeated along its axes."""
        if all(c == 1 for c in counts):
            return x
        shape = [c * size for c, size in zip(counts, x.shape, strict=True)]
        return self.add("tile", [x, self.dims(counts)], shape, x.element, x.offset)

    def reduce(self, kind: str, x: Tensor, axis: int) -> Tensor:
        """`reduce_KIND` along an axis, which keeps one element."""
        shape = [1 if i == axis else size for i, size in enumerate(x.shape)]
        return self.add(f"reduce_{kind}", [x], shape, x.element, x.offset, axis=number(axis))

    # ---------------------------------------------------------------------------------------------------------- numbers

    def cast(self, x: Tensor, element: Attribute) -> Tensor:
        """A tensor in another element type, which has its stored numbers."""
        return x if x.element == element else self.point("cast", x, element=element)

    def real(self, x: Tensor) -> Tensor:
        """A tensor of floats or indices as f32; bools are 0 and 1."""
        if x.element == i1:
            return self.point("select", x, self.scalar(1, x.rank), self.scalar(0, x.rank), element=f32)
        return self.cast(x, f32)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of floats or of i32."""
        return self.point("mul", x, y, more=[self.zero(i8)])

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """A float tensor times a number."""
        return self.mul(x, self.scalar(factor, x.rank))

    def shift(self, x: Tensor, term: float) -> Tensor:
        """A float tensor plus a number."""
        return self.point("add", x, self.scalar(term, x.rank))

    def clamp(self, x: Tensor, low: float, high: float) -> Tensor:
        """A tensor of floats or stored bytes between two numbers, as stored."""
        if x.is_float:
            ends = [FloatAttr(value, cast("Any", x.element)) for value in (low, high)]
        else:
            ends = [number(int(value), x.element) for value in (low, high)]
        return self.point("clamp", x, element=x.element, offset=x.offset, min_val=ends[0], max_val=ends[1])

    def relu(self, x: Tensor, limit: float = -1.0) -> Tensor:
        """The larger of 0 and a float tensor, at most `limit` if that is not negative."""
        return self.point("maximum", x, self.scalar(0, x.rank)) if limit < 0 else self.clamp(x, 0.0, limit)

    # ----------------------------------------------------------------------------------------------------------- result

    def finish(self, results: Sequence[SSAValue]) -> None:
        """Put the ops that results need into the block, constants first."""
        needed: set[XdslOperation] = set()
        waiting = [r.owner for r in results]
        while waiting:
            op = waiting.pop()
            if isinstance(op, XdslOperation) and op not in needed:
                needed.add(op)
                waiting.extend(v.owner for v in op.operands)
        kept = [op for op in (*self._first, *self.ops) if op in needed]
        for op in (*self._first, *self.ops):
            if op not in needed:
                op.drop_all_references()
        self.block.add_ops(kept)
