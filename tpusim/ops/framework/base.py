"""The questions an op answers: `TopOp` (device independent) and `TpuOp` (one chip).

Names follow the interfaces of TPU-MLIR (FlopsInterface, InferenceInterface, LocalGenInterface ...). An op asks a stage
through the contexts of `tpusim.ops.framework.contexts`, which op modules import from here.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import ClassVar, cast

from tpusim_kernels.prim.smallfloat import narrowed, widened
from typing_extensions import override
from xdsl.dialects.builtin import IntegerAttr, IntegerType, NoneType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import opt_attr_def, traits_def
from xdsl.pattern_rewriter import RewritePattern
from xdsl.traits import EffectInstance, MemoryEffect
from xdsl.utils.exceptions import VerifyException

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.interfaces import ask, implementation
from tpusim.ir.attrs import LayerGroupAttr, flag, op_name
from tpusim.ir.module import OfChip
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype, uniform_of
from tpusim.ir.upstream import (
    FRAMEWORK,
    NOTES,
    Meaning,
    NotComputedError,
    Spelled,
    defined_attributes,
    entry,
    ir_name,
    meaning,
    refusal,
)
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.contexts import (
    Array,
    EmitContext,
    Holds,
    LoweringContext,
    Lowerings,
)
from tpusim.ops.framework.contexts import Builder as Builder
from tpusim.ops.framework.contexts import FloatMode as FloatMode
from tpusim.ops.framework.contexts import NumberMode as NumberMode
from tpusim.ops.framework.contexts import OpT as OpT
from tpusim.ops.framework.contexts import QuantParams as QuantParams
from tpusim.ops.framework.contexts import ReorderContext as ReorderContext
from tpusim.ops.framework.contexts import SliceTable as SliceTable
from tpusim.ops.framework.logical import IMAGES, Axis, GroupType, Shape, Window, fills_lanes
from tpusim.ops.framework.logical import TensorSlice as TensorSlice
from tpusim.ops.framework.logical import logical_shape as logical_shape  # op modules import it from here
from tpusim.ops.framework.moves import Way as Way
from tpusim.ops.interfaces import NARROWEST as NARROWEST
from tpusim.ops.interfaces import (
    Alignment,
    ChipInference,
    FloatLowering,
    FloatTypes,
    IntegerLowering,
    LocalGen,
    Lowering,
    Ranges,
    WorkArea,
    on_host,
)
from tpusim.ops.interfaces import Estimate as Estimate
from tpusim.ops.interfaces import FloatRule as FloatRule
from tpusim.ops.interfaces import RangeRule as RangeRule
from tpusim.ops.interfaces import Squares as Squares

# ------------------------------------------------------------------------------------------------------------- the ops


class OpEffects(MemoryEffect):
    """The effects that an op states itself (MemoryEffectsOpInterface)."""

    @classmethod
    @override
    def get_effects(cls, op: Operation) -> AbstractSet[EffectInstance] | None:
        """What the op's `effects` says."""
        return op.effects() if isinstance(op, ShapedOp) else None


class ShapedOp(Spelled):
    """An op whose result shapes follow from its operands and attributes (ShapeInterface)."""

    traits = traits_def(OpEffects())

    def effects(self) -> AbstractSet[EffectInstance] | None:
        """What an op does beyond computing its results: nothing. None: it stays where it is, used or not."""
        return frozenset()

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute the results from arrays of the operands' shapes (InferenceInterface)."""
        raise NotImplementedError

    def infer(self) -> tuple[Shape, ...]:
        """Infer the shapes of the results. Raises ValueError for operands that do not fit."""
        raise NotImplementedError

    def take_form(self) -> str:
        """Bring an op that TPU-MLIR wrote into the form that the class computes; return why that failed, or "".

        An axis is counted from the first one, or, as in the table, from the last one if the class computes with that.
        """
        axis = self.attributes.get("axis")
        computed = "axis" in defined_attributes(type(self))
        if isinstance(axis, IntegerAttr) and (axis.value.data < 0) == computed and self.operands:
            rank = len(shape_of(self.operands[0]))
            counted = axis.value.data + (rank if computed else -rank)
            self.attributes["axis"] = IntegerAttr(counted, cast("IntegerAttr[IntegerType]", axis).type)
        return ""

    @override
    def verify_(self) -> None:
        """Check that the declared result shapes are the inferred ones."""
        try:
            inferred = self.infer()
        except ValueError as error:
            raise VerifyException(f"{self.name} '{op_name(self)}': {error}") from error
        if refused := refusal(self):
            raise NotComputedError(f"{self.name} '{op_name(self)}': {refused}")
        declared = tuple(shape_of(r) for r in self.results)
        if inferred != declared:
            raise VerifyException(f"{self.name} '{op_name(self)}': result shapes {declared} must be {inferred}")


class TopOp(ShapedOp, Lowering, IntegerLowering, FloatLowering, FloatTypes, Ranges):
    """A device-independent op; its `inference` is the float function.

    An op that front ends build has a class method `make` (building.py). An op that only rewrites create has none.
    """

    HOLDS: ClassVar[Holds] = "real"
    """What the numbers of the results are: real numbers, bools, indices or integers."""
    INDICES: ClassVar[tuple[int, ...]] = ()
    """Operands that are places of elements."""
    MOVES: ClassVar[bool] = False
    """Whether the op only moves elements of its first operand. Its result then holds what the operand holds."""
    SPEC: ClassVar[tuple[str, ...]] = ()
    """Sections of numerics.md that define the op; every class names at least one (tpusim.fidelity.spec.SECTIONS)."""

    @override
    def verify_(self) -> None:
        """Check the result shapes, and refuse unknown attributes: a misspelt one would silently do nothing."""
        super().verify_()
        known = set(type(self).get_irdl_definition().attributes)
        for key in self.attributes.keys() - known - NOTES - {FRAMEWORK}:
            if meaning(self.name, key) is not Meaning.UNKNOWN:
                continue
            near = get_close_matches(key, known, 1)
            hint = f", did you mean '{near[0]}'" if near else ""
            listed = ", ".join(sorted(known)) or "none"
            raise VerifyException(f"{self.name} '{op_name(self)}': unknown attribute '{key}'{hint}; it has {listed}")

    def result_holds(self) -> Holds:
        """What the results hold: HOLDS, unless it depends on operands or attributes."""
        return self.HOLDS

    def flops(self) -> int:
        """Count the operations of one run; a multiply-add counts 2 (numerics.md 16, DN-27)."""
        return 0

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Rewrites that start at this op; they may read and add weights."""
        del weights
        return ()

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return ctx.by_family(self, self.lowerings())

    def lowerings(self) -> Lowerings:
        """The lowering method for each family of number formats; an op with other families extends the table.

        A method returns the value that replaces the result, or the reason why it declines. Then the next family is
        tried.
        """
        return {
            "integer": lambda ctx: ask(self, IntegerLowering, ctx.chip).lower_integer(ctx),
            "float": lambda ctx: ask(self, FloatLowering, ctx.chip).lower_float(ctx),
        }

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Decline: by default an op has no form in 8-bit integers."""
        del ctx
        return f"{self.name.removeprefix('top.')} has no integer form (numerics.md 12.1)"

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        raise NotImplementedError


class TpuOp(ShapedOp, Alignment, LocalGen, WorkArea):
    """An op of one chip; its `inference` computes exactly what the chip computes."""

    traits = traits_def(OfChip())

    COPIED_OPERANDS: ClassVar[tuple[int, ...]] = ()
    """Constant operands that a load puts into every lane."""
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = ()
    """Operands that are not EU-aligned in local memory (hardware.md 2.3)."""
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = IMAGES
    """Types of group that may contain this op (layer_group.md 3)."""
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ((),)
    """Sets of attributes: on quantised integers the op must have all attributes of one set. No set: floats only."""

    group_info = opt_attr_def(LayerGroupAttr, attr_name="ginfo")

    @override
    def verify_(self) -> None:
        """Check the result shapes, and that an op on quantised integers has its requant.

        Without a requant the integers would count as floats.
        """
        super().verify_()
        tensors = [v for v in (*self.operands, *self.results) if is_tensor(v)]
        forms = self.integer_forms() if any(uniform_of(v) is not None for v in tensors) else ((),)
        if any(all(is_stated(self, name) for name in form) for form in forms):
            return
        wanted = ", or ".join(" and ".join(form) for form in forms)
        required = f"quantised integers require {wanted}" if wanted else "the op has no form on quantised integers"
        types = ", ".join(str(element_of(v)) for v in tensors)
        raise VerifyException(
            f"{self.name} '{op_name(self)}': {required}, got neither with {types}; add them, or compute in float "
            "between tpu.Cast"
        )

    @override
    def take_form(self) -> str:
        """A requant with the defaults of TPU-MLIR on floats is none."""
        known = entry(self.name)
        if known and not any(uniform_of(v) for v in (*self.operands, *self.results) if is_tensor(v)):
            for name in {name for form in self.INTEGER_FORMS for name in form} & self.attributes.keys():
                stated = known.attributes.get(name)
                if stated and stated.changes_nothing(self.attributes[name]):
                    del self.attributes[name]
        return super().take_form()

    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """The sets of this op: INTEGER_FORMS, unless they depend on attributes or types."""
        return self.INTEGER_FORMS

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """Operands that are not EU-aligned on this chip: COMPACT_OPERANDS, unless the chip changes them."""
        del chip
        return self.COMPACT_OPERANDS

    def compute(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """Compute the results as a chip does.

        16-bit float operands are widened to f32 and the results are narrowed once (numerics.md 8.2).
        """
        operands = [x if x is None or isinstance(x, tuple) else widened(x) for x in operands]
        asked = implementation(self, ChipInference, chip)
        results = self.inference(operands) if asked is None else asked.inference_on(operands, chip)
        types = [storage_dtype(element_of(r)) for r in self.results]
        finite = chip.hardware.bf16_unit and any(t.itemsize == 2 and t.kind != "u" for t in types)
        return tuple(narrowed(y, t, finite=finite) for y, t in zip(results, types, strict=True))

    # LocalGenInterface

    def why_not_local(self, chip: ChipSpec) -> str | None:
        """Why the op cannot run from local memory; None if it can.

        It cannot if the host computes it, if `why_global` says so, or if the chip's file does.
        """
        if on_host(self, chip):
            return "the host's processor computes it in system memory"
        return ask(self, LocalGen, chip).why_global(chip) or (
            f"{self.name} has no form in local memory" if chip.is_global(self.name) else None
        )

    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """Why this op, which can be local, cannot be in a group of type `kind`; None if it can (layer_group.md 3)."""
        if kind not in self.GROUP_TYPES:
            return f"{self.name} is not an op of {kind} groups"
        if kind is GroupType.SMALL_C and not fills_lanes(shape_of(self.operands[0]), chip.lanes):
            return f"the leading axes of {shape_of(self.operands[0])} do not fill {chip.lanes} lanes"
        if kind is GroupType.GROUP_3D and chip.hardware.batch_packing:
            return self._why_no_packed_depth()
        return None

    def _why_no_packed_depth(self) -> str | None:
        """A 3D group puts the depth on the batch axis, along which elements below 4 bytes share words (4N, 2N)."""
        for value in (*self.operands, *self.results):
            if is_none(value) or len(shape_of(value)) < 5 or shape_of(value)[2] == 1:
                continue
            dtype = storage_dtype(element_of(value))
            if dtype.itemsize < 4:
                return f"batches of {dtype.name} are packed in words, which 3D groups cannot hold"
        return None

    def can_slice(self, axis: Axis) -> bool:
        """AllowDataSplit: whether the result may be cut along `axis` (layer_group.md 4)."""
        del axis
        return True

    def can_slice_in(self, axis: Axis, kind: GroupType) -> bool:
        """AllowDataSplit in a group of type `kind`, for ops whose axes differ by type."""
        del kind
        return self.can_slice(axis)

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of `operand` that a window of the result needs; None: it cannot be cut (layer_group.md 7.2).

        The window may reach outside the operand; the caller clips it.
        """
        del axis, operand
        return window

    # codegen

    def emit(self, ctx: EmitContext) -> None:
        """Emit the commands that compute one slice (local) or the whole result (global).

        An op of the host may have none. Raises UnsupportedError for it outside a host function.
        """
        del ctx
        raise UnsupportedError(
            f"{self.name} '{op_name(self)}': a host function is required, the op has no command; run the pass "
            "outline-host-functions before address-assign"
        )


def is_stated(op: Operation, name: str) -> bool:
    """Whether an op has an attribute; a flag that is false counts as absent."""
    stated = op.attributes.get(ir_name(op, name))
    return stated is not None and stated != flag(False)


def holds(value: SSAValue) -> Holds:
    """What a value of a top module holds."""
    owner = value.owner
    while isinstance(owner, TopOp) and owner.MOVES:
        owner = owner.operands[0].owner
    return owner.result_holds() if isinstance(owner, TopOp) else "real"


def reads_indices(op: Operation) -> bool:
    """Whether an operand of a top op holds indices or integers, which bytes and 16-bit floats hold inexactly."""
    return any(holds(value) in ("index", "integer") for value in op.operands)


def is_none(value: SSAValue) -> bool:
    """Whether the value is the `none` that stands for an absent operand."""
    return isinstance(value.type, NoneType)
