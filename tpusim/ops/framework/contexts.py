"""What an op may ask of a stage: contexts as protocols, which the stages implement, so that no import runs upward."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.formats import ModeName, NumberFormat
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import Command, TransferKind
from tpusim.isa.region import View
from tpusim.ops.framework.logical import GroupType, Shape, TensorSlice, Window, Windows

Array: TypeAlias = Any
"""A JAX or NumPy array; None for an absent operand."""
FloatMode: TypeAlias = Literal["f32", "f16", "bf16"]
NumberMode: TypeAlias = ModeName
"""What an operand is asked for as: a float type, or the integer it is quantised to."""
Holds: TypeAlias = Literal["real", "bool", "index", "integer"]
"""What a tensor of a top module stands for, all of it stored as f32: a bool is 0 or 1, an index a whole number that an
op counted, an integer one of a network input."""
OpT = type[IRDLOperation]


class Builder(Protocol):
    """What `make` of a top op may ask of the module that a front end builds (`builder.ModuleBuilder`)."""

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The data of a weight, None for a computed value."""
        ...

    def weight(self, name: str, array: np.ndarray, *, of: SSAValue | None = None) -> SSAValue:
        """A new top.Weight. of: the weight it is made of, whose place it takes where nothing reads that."""
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
        """Append an op with inferred f32 results; the first of them, the others are `.owner.results`.

        name: of an op with several results a name for each. Raises BuildError for operands that do not fit.
        """
        ...


class LoweringContext(Protocol):
    """What `lower` may ask of the lowering stage. Values of the top module go in, values of the tpu module come out."""

    chip: ChipSpec
    asymmetric: bool
    """Whether integers have zero points in this run."""
    column_multipliers: bool
    """Whether matrix products get a multiplier per column of a constant matrix."""
    weights: WeightStore

    def format(self, op: Operation) -> NumberFormat:
        """The number format this op is asked for."""
        ...

    def by_family(self, op: Operation, table: "Lowerings") -> SSAValue:
        """Lower an op by the first family of its format that takes it; those that decline are recorded as fallbacks."""
        ...

    def asks_for_float(self, op: Operation) -> bool:
        """Whether the mode, the quantisation table or an automatic mark puts an op into float (numerics.md 3.4, 13)."""
        ...

    def float_mode(self, op: Operation) -> FloatMode:
        """The float type the op computes in when it does not compute in integers (numerics.md 12)."""
        ...

    def float_type(self, op: Operation) -> Attribute:
        """The element type that belongs to `float_mode`."""
        ...

    def quant(self, value: SSAValue) -> QuantParams | None:
        """Scale and zero point of a top value; None if it is not calibrated."""
        ...

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The constant behind a value, None if it is computed or `none`."""
        ...

    def operand(self, value: SSAValue, mode: NumberMode, user: Operation, reader: str = "") -> SSAValue:
        """The lowered value of a top value as float or as its quantised integer; a tpu.Cast is inserted if needed.

        reader: the op that gives the cast its name (U-33), where that is not `user`.
        """
        ...

    def stored(self, value: SSAValue) -> SSAValue | None:
        """The lowered value of a top value, in whatever type it is stored; None for a constant."""
        ...

    def stored_indices(self, value: SSAValue) -> SSAValue | None:
        """The lowered value of a top value that is stored as plain integers (indices), None for any other."""
        ...

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """A new top.Weight in the tpu module; `element` where the array's dtype does not say the type (4 bits)."""
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
        """Record that an op runs in float although integers were asked for."""
        ...

    def decision(self, op: Operation, *identities: str) -> None:
        """Record that an op's form here follows `Decision:` lines of the specification ("DN-14", "DN-02 quirk")."""
        ...

    def reproduces(self, quirk: Quirk) -> bool:
        """Whether a quirk of upstream is reproduced (numerics.md 17.2)."""
        ...

    def quirked(self, op: Operation, quirk: Quirk, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Upstream's constants, or the corrected ones with the quirk off; a difference is reported (DN-02)."""
        ...


Lowerings: TypeAlias = Mapping[str, Callable[[LoweringContext], "SSAValue | str"]]
"""Family of number formats -> lowering method of an op: the value that stands for it, or why the method declines."""


class EmitContext(Protocol):
    """What `emit` may ask of code generation: views of this slice's operands, and a place for the commands."""

    chip: ChipSpec
    local: bool
    """True inside a layer group (operands in LMEM), False for a global layer (operands in GMEM)."""
    group_type: GroupType
    """How the group sees the tensors; NORMAL for a global layer."""

    def input(self, index: int, *, d: Window | None = None, h: Window | None = None, w: Window | None = None) -> View:
        """The view of operand `index` that this slice needs, optionally only a window of its depths, rows or columns.

        Local views are (n, c, h, w); in a 3D group n counts the depths too, d outside (hardware.md 2.1).
        """
        ...

    def input_slice(self, index: int) -> TensorSlice:
        """Which part of operand `index` is at hand."""
        ...

    def loaded_alone(self, index: int) -> bool:
        """Whether a load that is for this op alone brings operand `index` into local memory."""
        ...

    def output(self) -> View:
        """The view of the result slice to write."""
        ...

    def output_slice(self) -> TensorSlice:
        """Which part of the result is to be computed."""
        ...

    def buffer(self) -> int:
        """LMEM byte offset of this op's work buffer."""
        ...

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a TIU command (inside a GlobalKernel for a global layer)."""
        ...

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Append a GDMA copy between views of GMEM (global layers of pure data movement); kind: of `Move`."""
        ...

    def fill(self, target: View, value: float) -> None:
        """Append a GDMA constant fill of a view of GMEM (global layers of pure data movement)."""
        ...


class SliceTable(Protocol):
    """A constant whose data depend on how the group of its op is cut: each slice of the result has a part of its own.

    It lies in all lanes, (1, lanes, h, w) i16.
    """

    operand: ClassVar[int]
    """The number of the operand that it is."""

    def reaches(self, h: Windows, w: Windows) -> bool:
        """Whether its numbers are large enough for these windows of the result."""
        ...

    def windows(self, h: Windows, w: Windows) -> tuple[Windows, Windows]:
        """Its windows along h and w for those of the result, as many along each axis."""
        ...

    def data(self, h: Windows, w: Windows) -> np.ndarray:
        """All of it for the windows of the result."""
        ...


class ReorderContext(Protocol):
    """What `reorder_weights` may ask of the weight-reorder pass."""

    chip: ChipSpec
    weights: WeightStore

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The stored array behind a value; None if it is not a constant."""
        ...

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """A new top.Weight next to the op being reordered, of the array's type or the one given."""
        ...

    def none(self) -> SSAValue:
        """The value of the module's top.None."""
        ...
