"""What an op may ask of a stage. Contexts are protocols that the stages implement, so that no import runs upward."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.formats import NumberFormat, UnitName
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import Command, FillKind, TransferKind
from tpusim.isa.region import View
from tpusim.ops.framework.logical import GroupType, Shape, TensorSlice, Window, Windows

Array: TypeAlias = Any
"""A JAX or NumPy array; None for an absent operand."""
FloatMode: TypeAlias = Literal["f32", "f16", "bf16", "f8e5m2"]
EIGHT_BITS: tuple[FloatMode, ...] = ("f8e5m2",)
"""Float types of 8 bits."""
NumberMode: TypeAlias = UnitName
"""The form of an operand: a float type, or its quantised integer."""
Holds: TypeAlias = Literal["real", "bool", "index", "integer"]
"""What a tensor of a top module holds. All are stored as f32: a bool is 0 or 1, an index a whole number from an op that
counts, an integer a whole number from a network input."""
OpT = type[IRDLOperation]


class Builder(Protocol):
    """What `make` of a top op may ask of the module that is being built (`builder.ModuleBuilder`)."""

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The data of a weight; None for a computed value."""
        ...

    def weight(self, name: str, array: np.ndarray, *, of: SSAValue | None = None) -> SSAValue:
        """Append a top.Weight. of: the weight that it is made from, whose place it takes if nothing reads it."""
        ...

    def none(self) -> SSAValue:
        """The value of the module's top.None."""
        ...

    def build(
        self,
        cls: OpT,
        operands: Sequence[SSAValue],
        attributes: Mapping[str, Attribute],
        name: str | Sequence[str],
    ) -> SSAValue:
        """Append an op with inferred f32 results; return the first result, whose `.owner.results` has the others.

        name: one name per result. Raises BuildError for operands that do not fit.
        """
        ...


class LoweringContext(Protocol):
    """What `lower` may ask of the lowering stage. Questions take values of the top module and return tpu values."""

    chip: ChipSpec
    asymmetric: bool
    """Whether integers have zero points in this run."""
    column_multipliers: bool
    """Whether matrix products get a multiplier per column of a constant matrix."""
    weights: WeightStore

    def format(self, op: Operation) -> NumberFormat:
        """The number format that is requested for this op."""
        ...

    def by_family(self, op: Operation, table: "Lowerings") -> SSAValue:
        """Lower an op by the first family of its format that accepts it; record the others as fallbacks."""
        ...

    def asks_for_float(self, op: Operation) -> bool:
        """Whether mode, quantisation table or an automatic mark requests float for an op (numerics.md 3.4, 13)."""
        ...

    def float_mode(self, op: Operation) -> FloatMode:
        """The float type in which the op runs if it does not run in integers (numerics.md 12)."""
        ...

    def float_type(self, op: Operation) -> Attribute:
        """The element type of `float_mode`."""
        ...

    def quant(self, value: SSAValue) -> QuantParams | None:
        """Scale and zero point of a top value; None if it is not calibrated."""
        ...

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The data of a constant; None for a computed value and for `none`."""
        ...

    def operand(self, value: SSAValue, mode: NumberMode, user: Operation, reader: str | None = None) -> SSAValue:
        """The lowered value of a top value, cast to a float type or to its quantised integer if necessary.

        reader: the name of the op that the cast has in its name (U-33); by default `user`'s, "" for none.
        """
        ...

    def stored(self, value: SSAValue) -> SSAValue | None:
        """The lowered value of a top value, in the type in which it is stored; None for a constant."""
        ...

    def stored_indices(self, value: SSAValue) -> SSAValue | None:
        """The lowered value of a top value if it is stored as plain integers (indices), else None."""
        ...

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """A new top.Weight in the tpu module. element: the type, if the array's dtype does not give it (4 bits)."""
        ...

    def float_weight(self, op: Operation, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight in the float type of `op`."""
        ...

    def none(self) -> SSAValue:
        """The top.None value of the tpu module."""
        ...

    def quantised_type(self, value: SSAValue) -> Attribute:
        """The uniform element type of a calibrated top value."""
        ...

    def build(
        self,
        cls: OpT,
        operands: Sequence[SSAValue],
        attributes: Mapping[str, Attribute],
        element: Attribute,
        shape: Shape,
        name: str,
    ) -> SSAValue:
        """Create a tpu op; returns its result."""
        ...

    def fallback(self, op: Operation, why: str) -> None:
        """Record that an op runs in float although integers were requested."""
        ...

    def decision(self, op: Operation, *identities: str) -> None:
        """Record that an op's form here follows `Decision:` lines of the specification ("DN-14", "DN-02 quirk")."""
        ...

    def reproduces(self, quirk: Quirk) -> bool:
        """Whether a quirk of TPU-MLIR is reproduced (numerics.md 17.2)."""
        ...

    def quirked(self, op: Operation, quirk: Quirk, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """TPU-MLIR's constants, or with the quirk off the corrected constants; a difference is reported (DN-02)."""
        ...


Lowerings: TypeAlias = Mapping[str, Callable[[LoweringContext], "SSAValue | str"]]
"""Family of number formats -> lowering method of an op, which returns the new value or why it declines."""


class EmitContext(Protocol):
    """What `emit` may ask of code generation: views of the slices of operands and result, and to emit commands."""

    chip: ChipSpec
    local: bool
    """True in a layer group (operands in LMEM), False in a global layer (operands in GMEM)."""
    group_type: GroupType
    """How the group sees the tensors; NORMAL in a global layer."""

    def input(self, index: int, *, d: Window | None = None, h: Window | None = None, w: Window | None = None) -> View:
        """The view of the part of operand `index` that this slice needs, or of a window of its depths, rows or columns.

        Local views are (n, c, h, w). In a 3D group n counts the depths too, with d outside (hardware.md 2.1).
        """
        ...

    def input_slice(self, index: int) -> TensorSlice:
        """The slice of operand `index` that is available."""
        ...

    def loaded_alone(self, index: int) -> bool:
        """Whether a load for this op alone brings operand `index` into local memory."""
        ...

    def output(self) -> View:
        """The view of the result's slice."""
        ...

    def output_slice(self) -> TensorSlice:
        """The slice of the result that is computed."""
        ...

    def buffer(self) -> int:
        """The LMEM byte offset of this op's work area."""
        ...

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a TIU command; a global layer puts it into a GlobalKernel."""
        ...

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Append a GDMA copy between views of GMEM (global layers of pure data movement); kind: of `Move`."""
        ...

    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """Append a GDMA constant fill of a view of GMEM (global layers); kind: of `Fill`."""
        ...


class SliceTable(Protocol):
    """A constant whose data depend on the slices of the group: each slice of the result reads another part.

    It is (1, lanes, h, w) in i16, the same in all lanes.
    """

    operand: ClassVar[int]
    """Its operand number."""

    def reaches(self, h: Windows, w: Windows) -> bool:
        """Whether its numbers are large enough for these windows of the result."""
        ...

    def windows(self, h: Windows, w: Windows) -> tuple[Windows, Windows]:
        """The windows of the table along h and w, one for each window of the result."""
        ...

    def data(self, h: Windows, w: Windows) -> np.ndarray:
        """The whole table, for all windows of the result."""
        ...


class ReorderContext(Protocol):
    """What `reorder_weights` may ask of the weight-reorder pass."""

    chip: ChipSpec
    weights: WeightStore

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The stored array of a constant; None for any other value."""
        ...

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """A new top.Weight next to the op that is reordered. element: the type, if it is not the array's."""
        ...

    def none(self) -> SSAValue:
        """The value of the module's top.None."""
        ...
