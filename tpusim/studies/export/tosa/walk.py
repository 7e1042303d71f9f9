"""What a form of an op is given: operands of the module as tensors of the TOSA function, in the forms that ops read."""

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import f32, i8, i16, i32
from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of, storage_dtype, tensor_of, uniform_of
from tpusim.ops.framework.families import zero_point
from tpusim.ops.structure import TopWeight, TpuLoad
from tpusim.studies.export.tosa.dialect import Rounding, RoundingAttr
from tpusim.studies.export.tosa.graph import BYTE, ELEMENTS, Body, Tensor, flag

TOP_BITS = 30
"""A multiplier is brought into [2^30, 2^31), so that the largest sums are legal operands of RESCALE."""
SHIFTS = 2, 62
"""The shifts that RESCALE takes."""


class Writer(Body):
    """A function of TOSA ops, with the module's values. chip: that of a lowered module."""

    weights: Mapping[str, np.ndarray]
    chip: ChipSpec | None
    tensors: dict[SSAValue, Tensor]
    op: Operation
    BOOL = ELEMENTS["bool"]
    FALSE = flag(False)

    # -------------------------------------------------------------------------------------------------- what forms call

    def refuse(self, why: str) -> UnsupportedError:
        """An error that says what TOSA cannot say of the op at hand."""
        return UnsupportedError(f"export --to tosa: {self.op.name} '{op_name(self.op)}': {why}")

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The elements of a weight, loaded or not, in the shape of its type; None for a computed value."""
        while isinstance(value.owner, TpuLoad) and value.owner.moved is None:
            value = value.owner.input
        if not isinstance(value.owner, TopWeight):
            return None
        return self.weights[op_name(value.owner)].reshape(shape_of(value))

    def needed(self, value: SSAValue, what: str) -> np.ndarray:
        """The elements of a weight. Raises UnsupportedError for a computed value."""
        found = self.array(value)
        if found is None:
            raise self.refuse(f"{what} must be constant, got a computed one")
        return found

    def stored(self, value: SSAValue) -> Tensor:
        """A value as it is stored."""
        array = self.array(value)
        if array is None:
            return self.tensors[value]
        return self.const(array.astype({"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype)))

    def float(self, value: SSAValue) -> Tensor:
        """A float value, or indices, in f32."""
        array = self.array(value)
        return self.real(self.stored(value)) if array is None else self.const(array.astype(np.float32))

    def integers(self, value: SSAValue, zero: int | None = None) -> Tensor:
        """The module's integers of a value minus its zero point (or `zero`), in i32."""
        x = self.stored(value)
        minus = (zero_point(value) if zero is None else zero) - x.offset
        if x.element == i32:
            return self.point("sub", x, self.scalar(minus, x.rank, "int32")) if minus else x
        if x.element == i16 and not minus:
            return self.cast(x, i32)
        return self._rescale(x, np.array([1]), np.array([0]), i32, minus, 0)

    # --------------------------------------------------------------------------------------------------------- requants

    def scaled(self, x: Tensor, m: "int | np.ndarray", r: "int | np.ndarray", *, away: bool = False) -> Tensor:
        """RSR(v*m, r) of i32, halves up or away from zero; arrays along the last axis."""
        m, r = (np.atleast_1d(np.asarray(p, np.int64)) for p in (m, r))
        if (m == 1).all() and not r.any():
            return x
        if (m < 0).any():
            signs = np.where(m < 0, -1, 1).astype(np.int32)
            x = self.mul(x, self.const(signs.reshape((1,) * (x.rank - 1) + (-1,))))
            m = np.abs(m)
        if away:
            zero = self.scalar(0, x.rank, "int32")
            positive = self._rescale(self.point("abs", x), m, r, i32, 0, 0)
            below = self.point("greater", zero, x, element=ELEMENTS["bool"])
            return self.point("select", below, self.point("sub", zero, positive), positive)
        return self._rescale(x, m, r, i32, 0, 0)

    def requantised(
        self, x: Tensor, m: "int | np.ndarray", r: "int | np.ndarray", to: SSAValue, *, away: bool = False,
        relu: bool = False,
    ) -> Tensor:  # fmt: skip
        """sat(RSR(v*m, r) + zero point) of i32 in the stored type of a value, at least its zero point with `relu`."""
        m, r = (np.atleast_1d(np.asarray(p, np.int64)) for p in (m, r))
        if away or (m < 0).any():
            return self.narrowed(self.scaled(x, m, r, away=away), to, relu=relu)
        return self._narrow(x, m, r, to, zero_point(to), relu)

    def narrowed(self, x: Tensor, to: SSAValue, zero: int | None = None, *, relu: bool = False) -> Tensor:
        """sat(v + zero) of i32 in the stored type of a value; zero: by default its zero point."""
        return self._narrow(x, np.array([1]), np.array([0]), to, zero_point(to) if zero is None else zero, relu)

    def _narrow(self, x: Tensor, m: np.ndarray, r: np.ndarray, to: SSAValue, zero: int, relu: bool) -> Tensor:
        dtype = self.dtype_of(to).name
        if dtype == "int32":
            y = self._rescale(x, m, r, i32, 0, 0) if (m != 1).any() or r.any() else x
            return self.point("maximum", y, self.scalar(0, x.rank, "int32")) if relu else y
        offset = {"int8": 0, "uint8": BYTE, "int16": 0}.get(dtype)
        if offset is None or (dtype == "int16" and zero):
            raise self.refuse(f"a result of int8, uint8, int16 or int32 is required, got {dtype}")
        y = self._rescale(x, m, r, ELEMENTS["int16" if dtype == "int16" else "int8"], 0, zero - offset, offset)
        ends = np.iinfo(dtype)
        return self.clamp(y, zero - offset, ends.max - offset) if relu and zero > ends.min else y

    def _rescale(
        self, x: Tensor, m: np.ndarray, r: np.ndarray, element: "object", zero_in: int, zero_out: int, offset: int = 0
    ) -> Tensor:
        """One RESCALE; several multipliers are along the last axis."""
        count = max(m.size, r.size)
        multipliers, shifts = normalised(np.broadcast_to(m, count), np.broadcast_to(r, count))
        if shifts.min() < SHIFTS[0] or shifts.max() > SHIFTS[1]:
            raise self.refuse(
                f"RESCALE needs shifts of {SHIFTS[0]} to {SHIFTS[1]}, got {shifts.min()} to {shifts.max()}"
            )
        per_channel = bool((multipliers != multipliers[0]).any() or (shifts != shifts[0]).any())
        if not per_channel:
            multipliers, shifts = multipliers[:1], shifts[:1]
        more = [
            self.const(multipliers.astype(np.int32)).value, self.const(shifts.astype(np.int8)).value,
            self.zero(x.element, zero_in), self.zero(element, zero_out),  # type: ignore[arg-type]
        ]  # fmt: skip
        properties = {
            "scale32": flag(True), "rounding_mode": RoundingAttr(Rounding.SINGLE), "per_channel": flag(per_channel),
            "input_unsigned": flag(False), "output_unsigned": flag(False),
        }  # fmt: skip
        if per_channel:
            return self.add("rescale", [x, *more], x.shape, element, offset, **properties)  # type: ignore[arg-type]
        return self.point("rescale", x, element=element, offset=offset, more=more, **properties)  # type: ignore[arg-type]

    def by_mode(
        self, x: Tensor, m: "int | np.ndarray", r: "int | np.ndarray", to: SSAValue, mode: str, *, relu: bool = False
    ) -> Tensor:
        """The requant of a product in a quant_mode: MultiplierShift by default (numerics.md 6)."""
        if mode in ("", "MultiplierShift"):
            return self.requantised(x, m, r, to, relu=relu)
        if mode == "OnlyShift":
            return self.requantised(x, np.ones_like(np.atleast_1d(r)), r, to, relu=relu)
        if mode != "QDM":
            raise self.refuse(f"a requant of MultiplierShift, OnlyShift or QDM is required, got {mode}")
        m, r = (np.atleast_1d(np.asarray(p, np.int64)) for p in (m, r))
        if (r < 0).any():
            x = self.point(
                "logical_left_shift", x, self.const(along(np.maximum(-r, 0).astype(np.int32), x.rank, x.rank - 1))
            )
        high = self.scaled(x, m, np.full_like(m, 31))
        return self.requantised(high, np.ones_like(r), np.maximum(r, 0), to, away=True, relu=relu)

    def times(self, x: Tensor, factor: int) -> Tensor:
        """The product of i32 and a number."""
        return x if factor == 1 else self.mul(x, self.scalar(factor, x.rank, "int32"))

    def require_exact(self, bound: int) -> None:
        """Raise UnsupportedError for products that a chip without wide multipliers rounds in f32."""
        if bound >= 1 << 24:
            raise self.refuse("products above 2^24 are rounded in f32 on this chip, which integers cannot say")

    def through(self, x: Tensor, value: SSAValue) -> Tensor:
        """f32 rounded to the float type of a value."""
        kind = ELEMENTS[self.dtype_of(value).name]
        return self.cast(self.cast(x, kind), f32)

    def dtype_of(self, value: SSAValue) -> np.dtype:
        """The stored type of a value."""
        return storage_dtype(tensor_of(value).element_type)

    def bools(self, x: Tensor, to: SSAValue) -> Tensor:
        """A tensor of truth values as 1 and 0 in the stored type of a value."""
        if uniform_of(to) is None:
            return self.real(x)
        one, zero = (self.scalar(value, x.rank, self.dtype_of(to).name) for value in (1, 0))
        return self.point("select", x, one, zero, element=i8, offset=one.offset)

    def rounded_away(self, x: Tensor) -> Tensor:
        """A float tensor rounded to integers, halves away from zero, in f32; at most 2^22 in magnitude."""
        x = self.clamp(x, -float(1 << 22), float(1 << 22))
        size = self.point("abs", x)
        whole = self.point("floor", size)
        half = self.point(
            "greater_equal", self.point("sub", size, whole), self.scalar(0.5, x.rank), element=ELEMENTS["bool"]
        )
        up = self.point("select", half, self.shift(whole, 1.0), whole)
        below = self.point("greater", self.scalar(0, x.rank), x, element=ELEMENTS["bool"])
        return self.point("select", below, self.scale(up, -1.0), up)


def normalised(m: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers of the same quotients m/2^r in [2^30, 2^31), as far as shifts of 62 allow, and their shifts."""
    pairs = [_normalised(int(a), int(b)) for a, b in zip(m, r, strict=True)]
    found = np.array(pairs, np.int64)
    return found[:, 0], found[:, 1]


def _normalised(m: int, r: int) -> tuple[int, int]:
    if m == 0:
        return 0, TOP_BITS
    left = min(TOP_BITS + 1 - m.bit_length(), SHIFTS[1] - r)
    if left >= 0:
        return m << left, r + left
    return (m >> -left, r + left) if m % (1 << -left) == 0 else (m, -1)


def along(array: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """An array (C,) with the axes around it that a tensor of that rank has around `axis`."""
    return array.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def to_last(x: Tensor, axis: int = 1) -> Sequence[int]:
    """The order that moves an axis to the end."""
    return [i for i in range(x.rank) if i != axis] + [axis]


def from_last(rank: int, axis: int = 1) -> Sequence[int]:
    """The order that moves the last axis to a place."""
    order = list(range(rank - 1))
    order.insert(axis, rank - 1)
    return order
