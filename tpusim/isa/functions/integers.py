"""Functions on integers, with the requants of their operands and results."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.rules import broadcast, counted, equal_shapes, joined, reduced


class AddInt(Function, frozen=True, tag="add_int"):
    """Integer sum (numerics.md 9.0): sat(relu(sum RSR((q_i - z_i)*m_i, r_i)) + z)."""

    multipliers: tuple[int, ...]
    rshifts: tuple[int, ...]
    operand_zero_points: tuple[int, ...]
    zero_point: int = 0
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Multiply and shift per operand, additions; two more for the relu."""
        return Steps(arithmetic=operands - 1 + 2 * self.relu, requants=operands)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier, a shift and a zero point per operand."""
        count = len(self.multipliers)
        if {count} != {len(self.rshifts), len(self.operand_zero_points)}:
            return Misfit(f"{count} multipliers, shifts and zero points", f"{len(self.rshifts)} shifts")
        return broadcast(operands, result, count)


class SubInt(Function, frozen=True, tag="sub_int"):
    """Integer difference (numerics.md 9.0): sat(relu(RSR(q_0*m_0, r_0) - RSR(q_1*m_1, r_1)))."""

    multipliers: tuple[int, int]
    rshifts: tuple[int, int]
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Multiply and shift per operand, one subtraction."""
        return Steps(arithmetic=1, requants=2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands that broadcast to the result."""
        return broadcast(operands, result, 2)


class MulInt(Function, frozen=True, tag="mul_int"):
    """Integer product (9.0): sat(RSR(relu(prod (q_i - z_i))*m, r) + z), or with the doubling multiplication (qdm)."""

    operand_zero_points: tuple[int, ...]
    multiplier: int
    rshift: int
    zero_point: int = 0
    relu: bool = False
    qdm: bool = False

    def made_of(self, operands: int) -> Steps:
        """A product for each operand and one requant."""
        return Steps(arithmetic=operands - 1, requants=1)

    def needs(self) -> Unit:
        """The doubling multiplication, if its mode is qdm."""
        return "qdm" if self.qdm else ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A zero point per operand."""
        return broadcast(operands, result, len(self.operand_zero_points))


class ConstInt(Function, frozen=True, tag="const_int"):
    """A tensor and a number (numerics.md 9.3): t = q*m; t + c, t - c (or c - t), max or min; RSR(t, r) + z; relu."""

    kind: Literal["add", "sub", "max", "min"]
    multiplier: int
    rshift: int
    constant: int
    zero_point: int = 0
    relu: bool = False
    reverse: bool = False

    def made_of(self, operands: int) -> Steps:
        """A product, a sum with the constant and one shift."""
        return Steps(arithmetic=2, requants=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return equal_shapes(operands, result)


class SumShift(Function, frozen=True, tag="sum_shift"):
    """One shift for the sum: sat(RSR(relu(sum q_i*m_i), r)) (numerics.md 9.0 Add, Sub)."""

    multipliers: tuple[int, ...]
    rshift: int
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Products, sums; one shift."""
        return Steps(arithmetic=2 * operands - 1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier per operand."""
        return broadcast(operands, result, len(self.multipliers))


class ExtremeShift(Function, frozen=True, tag="extreme_shift"):
    """One shift for all operands: the largest or smallest RSR(q_i*m_i, r), relu, saturated (9.0)."""

    kind: Literal["max", "min"]
    multipliers: tuple[int, ...]
    rshift: int
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Products, comparisons; one shift."""
        return Steps(arithmetic=2 * operands - 1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier per operand."""
        return broadcast(operands, result, len(self.multipliers))


IntReduceMode = Literal["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1"]


class ReduceInt(Function, frozen=True, tag="reduce_int"):
    """Reduction `mode` of integers over `axes`, times m / 2**r in f32, half up (numerics.md 11.3)."""

    OVER_INPUT: ClassVar[bool] = True

    mode: IntReduceMode
    axes: tuple[int, ...]
    multiplier: int
    rshift: int

    def made_of(self, operands: int) -> Steps:
        """One pass over the operand, one requant."""
        return Steps(arithmetic=1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The result has the elements left without the reduced axes."""
        return reduced(operands, self.axes, result)


class ConcatShift(Function, frozen=True, tag="concat_shift"):
    """Operands joined along `axis`, each sat(RSR(q_i*m_i, r_i)) (9.0 Concat)."""

    axis: int
    multipliers: tuple[int, ...]
    rshifts: tuple[int, ...]

    def made_of(self, operands: int) -> Steps:
        """One requant, which is a shift."""
        return Steps(arithmetic=0, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Parts of the result, with a multiplier and a shift each."""
        why = counted(operands, len(self.multipliers)) or joined(operands, self.axis, result)
        if why is None and len(self.rshifts) != len(self.multipliers):
            return Misfit(f"{len(self.multipliers)} shifts", f"{len(self.rshifts)}")
        return why
