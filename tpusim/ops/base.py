"""The questions an op answers: `TopOp` (device independent) and `TpuOp` (one chip), and the contexts stages hand in.

Names follow the interfaces of TPU-MLIR (FlopsInterface, InferenceInterface, LocalGenInterface ...). The contexts are
protocols: an op says what it needs from a stage, the stage implements it, so that no import runs upward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from tpusim_kernels.prim.smallfloat import narrowed, widened
from xdsl.dialects.builtin import NoneType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.pattern_rewriter import RewritePattern
from xdsl.utils.exceptions import VerifyException

from tpusim.chips import ChipSpec
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import Command
from tpusim.isa.region import View

Array: TypeAlias = Any
"""A JAX or NumPy array; None for an absent operand."""
Shape: TypeAlias = tuple[int, ...]
Window: TypeAlias = tuple[int, int]
"""(index of the first element, number of elements) along one axis."""
Axis: TypeAlias = Literal["n", "c", "d", "h", "w"]
FloatMode: TypeAlias = Literal["f32", "f16", "bf16"]
NumberMode: TypeAlias = Literal["int8", "f32", "f16", "bf16"]
OpT = type[IRDLOperation]


def logical_shape(shape: Shape) -> tuple[int, int, int, int]:
    """(n, c, h, w) of a tensor of any rank: left aligned, w the product of axes >= 3 (layer_group.md 3, NORMAL)."""
    n, c, h, *rest = (*shape, 1, 1, 1)
    return n, c, h, int(np.prod(rest, dtype=np.int64))


@dataclass(frozen=True)
class TensorSlice:
    """A window per logical axis of one tensor."""

    n: Window
    c: Window
    h: Window
    w: Window

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, c, h, w) sizes."""
        return self.n[1], self.c[1], self.h[1], self.w[1]

    @classmethod
    def whole(cls, shape: Shape) -> "TensorSlice":
        """The whole tensor."""
        n, c, h, w = logical_shape(shape)
        return cls((0, n), (0, c), (0, h), (0, w))


# ----------------------------------------------------------------------------------------------- contexts of the stages


@dataclass
class OnnxNode:
    """One ONNX node with its attributes as Python values; `take` marks an attribute as understood."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    taken: set[str] = field(default_factory=set[str])

    def take(self, key: str, default: Any = None) -> Any:
        """The attribute's value, or `default`."""
        self.taken.add(key)
        return self.attributes.get(key, default)

    def refuse(self, why: str) -> ImportModelError:
        """An error that names this node; raise it."""
        return ImportModelError(f"{self.op_type} '{self.name}': {why}")


class ImportContext(Protocol):
    """What `from_onnx` may ask of the frontend."""

    opset: int

    def value(self, name: str) -> SSAValue:
        """The SSA value of an ONNX tensor (a constant becomes a top.Weight); `none` for the empty name."""
        ...

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a constant tensor, None if the tensor is computed."""
        ...

    def weight(self, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight holding `array`."""
        ...

    def none(self) -> SSAValue:
        """The top.None value."""
        ...

    def build(self, cls: OpT, operands: Sequence[SSAValue], attributes: Mapping[str, Attribute], name: str) -> SSAValue:
        """Create an op with inferred result shape, f32, at location `name`; returns its first result."""
        ...


@dataclass(frozen=True)
class QuantInfo:
    """Scale, zero point and signedness of a tensor's stored integers (numerics.md 2.2)."""

    scale: float
    zero_point: int
    signed: bool

    @property
    def dtype(self) -> str:
        """The NumPy name: int8 or uint8."""
        return "int8" if self.signed else "uint8"


class LoweringContext(Protocol):
    """What `lower` may ask of the lowering stage. Values of the top module go in, values of the tpu module come out."""

    chip: ChipSpec
    asymmetric: bool
    """Whether integers have zero points in this run."""
    weights: WeightStore

    def mode(self, op: Operation) -> NumberMode:
        """The number mode this op is to be lowered in."""
        ...

    def float_mode(self, op: Operation) -> FloatMode:
        """The float type the op computes in when it does not compute in integers (numerics.md 12)."""
        ...

    def float_type(self, op: Operation) -> Attribute:
        """The element type of `float_mode`."""
        ...

    def quant(self, value: SSAValue) -> QuantInfo | None:
        """Scale and zero point of a top value; None if it is not calibrated."""
        ...

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The constant behind a value, None if it is computed or `none`."""
        ...

    def operand(self, value: SSAValue, mode: NumberMode, user: Operation) -> SSAValue:
        """The lowered value of a top value as float or as its quantised integer; a tpu.Cast is inserted if needed."""
        ...

    def weight(self, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight in the tpu module."""
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


class EmitContext(Protocol):
    """What `emit` may ask of code generation: views of this slice's operands, and a place for the commands."""

    chip: ChipSpec
    local: bool
    """True inside a layer group (operands in LMEM), False for a global layer (operands in GMEM)."""

    def input(self, index: int, *, h: Window | None = None, w: Window | None = None) -> View:
        """The view of operand `index` that this slice needs, optionally only a window of its rows or columns."""
        ...

    def input_slice(self, index: int) -> TensorSlice:
        """Which part of operand `index` is at hand."""
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

    def move(self, source: View, target: View) -> None:
        """Append a GDMA copy between views of GMEM (global layers of pure data movement)."""
        ...

    def fill(self, target: View, value: float) -> None:
        """Append a GDMA constant fill of a view of GMEM (global layers of pure data movement)."""
        ...


class ReorderContext(Protocol):
    """What `reorder_weights` may ask of the weight-reorder pass."""

    chip: ChipSpec
    weights: WeightStore

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The constant behind a value."""
        ...

    def weight(self, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight next to the op being reordered."""
        ...

    def none(self) -> SSAValue:
        """A top.None value."""
        ...


# ------------------------------------------------------------------------------------------------------------- the ops


@dataclass(frozen=True)
class RangeRule:
    """What an op does to calibrated ranges (numerics.md 3.1 and 3.3; the numbers are the steps of 3.3).

    fixed: the output range is this, whatever was measured (Softmax).
    forward_first: step 1, forward: step 9, output takes the input's range. backward: step 5, input takes the output's.
    sign: step 2, the sign rule. unify: step 4, all inputs and the output share one range; for Concat only if the
    signs agree (unify_skips_mixed_signs). mirrored: the output range is (-th, th) (Abs).
    backward_keep_min: step 5, input takes the output's max and keeps its min. product: step 3, the sign rule of a
    product. sum_sign: step 2, Add.
    forward_without_multiplier: step 9 on chips without requant multipliers only (AvgPool on BM1684).
    difference: 3.1, step 3 and the mark of 3.4 for Sub. add_constant, sub_constant: step 2 (and the mark for SubConst).
    """

    fixed: tuple[float, float] | None = None
    mirrored: bool = False
    forward_first: bool = False
    forward: bool = False
    backward: bool = False
    backward_keep_min: bool = False
    sign: bool = False
    forward_without_multiplier: bool = False
    sum_sign: bool = False
    product: bool = False
    unify: bool = False
    unify_skips_mixed_signs: bool = False
    difference: bool = False
    add_constant: bool = False
    sub_constant: bool = False


@dataclass(frozen=True)
class FloatRule:
    """Which float type an op runs in on a chip that has 16-bit floats (numerics.md 12); others use f32.

    int8: where the op has no integer form in INT8 mode. f16, bf16: in those modes.
    """

    int8: FloatMode = "f16"
    f16: FloatMode = "f16"
    bf16: FloatMode = "bf16"


class ShapedOp(IRDLOperation):
    """An op whose result shapes follow from its operands and attributes (ShapeInterface)."""

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The op's function on arrays of the operands' shapes (InferenceInterface)."""
        raise NotImplementedError

    def infer(self) -> tuple[Shape, ...]:
        """Shapes of the results. Raises ValueError for operands that do not fit."""
        raise NotImplementedError

    def verify_(self) -> None:
        """The declared result shapes are the inferred ones."""
        try:
            inferred = self.infer()
        except ValueError as error:
            raise VerifyException(f"{self.name} '{op_name(self)}': {error}") from error
        declared = tuple(shape_of(r) for r in self.results)
        if inferred != declared:
            raise VerifyException(f"{self.name} '{op_name(self)}': result shapes {declared} must be {inferred}")


class TopOp(ShapedOp):
    """A device-independent op; its `inference` is the float function."""

    ONNX: ClassVar[tuple[str, ...]] = ()
    """ONNX node types this class imports."""
    RANGE: ClassVar[RangeRule] = RangeRule()
    """How the op takes part in threshold propagation."""
    FLOAT: ClassVar[FloatRule] = FloatRule()
    """Which float type the op runs in."""

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue | Sequence[SSAValue]:
        """Import one node; returns the value of its first output, or the values of all of them."""
        raise NotImplementedError

    def flops(self) -> int:
        """Operations of one run; a multiply-add counts 2 (numerics.md 16, DN-27)."""
        return 0

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """The op's own rewrites; they may read and add weights."""
        del weights
        return ()

    def scalar_operand(self) -> float | None:
        """The constant of an op of a tensor and a number (AddConst ...), None for any other op."""
        return None

    def forwarded_range(self, source: tuple[float, float]) -> tuple[float, float]:
        """The range of the result where propagation step 9 hands the operand's on: the same unless the op scales."""
        return source

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """Build the tpu op(s) for this op on the context's chip; returns the value that stands for the result."""
        raise NotImplementedError


class TpuOp(ShapedOp):
    """An op of one chip; its `inference` computes exactly what the chip computes."""

    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = ()
    """Operands that are not EU-aligned in local memory (hardware.md 2.3)."""

    def compute(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """`inference` with 16-bit float operands widened to f32 and results narrowed once (numerics.md 8.2)."""
        results = self.inference([None if x is None else widened(x) for x in operands])
        return tuple(narrowed(y, storage_dtype(element_of(r))) for y, r in zip(results, self.results, strict=True))

    def needs_concrete_weights(self) -> bool:
        """Whether `inference` must see the weights' data, not tracers (packed coefficients)."""
        return False

    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        return 0

    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Replace weight operands by their layout on the chip (weight-reorder pass); nothing by default."""

    # LocalGenInterface

    def why_global(self, chip: ChipSpec) -> str | None:
        """Why this op cannot run from local memory; None if it can (layer_group.md 2)."""
        del chip
        return "tpusim has no local form of this op"

    def can_slice(self, axis: Axis) -> bool:
        """AllowDataSplit: whether the result may be cut along `axis` (layer_group.md 4)."""
        del axis
        return True

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """Which window of `operand` a window of the result needs; None: cannot be cut so (layer_group.md 7.2).

        The window may reach outside the operand; the caller clips it.
        """
        del axis, operand
        return window

    def accepts_margins(self) -> bool:
        """Whether the op can read its window out of a larger slice shared with other users (layer_group.md 7.3)."""
        return False

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Work-buffer bytes per lane for one slice (layer_group.md 9.3)."""
        del chip, output, inputs
        return 0

    # codegen

    def in_place(self) -> bool:
        """Whether the result may be the first operand's bytes in global memory (hardware.md 3.3)."""
        return False

    def emit(self, ctx: EmitContext) -> None:
        """Commands that compute one slice (local) or the whole result (global)."""
        raise NotImplementedError


def is_none(value: SSAValue) -> bool:
    """Whether the value is `none`."""
    return isinstance(value.type, NoneType)
