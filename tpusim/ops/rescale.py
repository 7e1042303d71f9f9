"""Requants as ops: `tpu.MulShift` and `tpu.RequantInt`, and the lowering of ops that keep their input's scale.

Source: numerics.md 5.6 (transfers: best fit positive, 8 bit) and 6 (MulShift HALF_UP, RequantInt HALF_AWAY).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.prim.multiplier import best_fit, best_fit_positive
from typing_extensions import override
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.compat.quirks import Quirk
from tpusim.interfaces import Rules, rules
from tpusim.ir.attrs import int_attr, op_name, value_name
from tpusim.ir.modes import RequantModeAttr, RoundModeAttr, requant_mode, round_mode
from tpusim.ir.types import CalibratedType, UniformType, calibrated_range, element_of, retyped, set_type, shape_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import lmem_bytes
from tpusim.ops.framework.base import Array, EmitContext, LoweringContext, OpT, QuantParams, TensorSlice, TopOp
from tpusim.ops.framework.families import UnaryTpu, command_dtype, value_dtype, zero_point
from tpusim.ops.framework.logical import WITH_MM, GroupType
from tpusim.ops.interfaces import Inserted, LibraryKernel, Overwrites
from tpusim.ops.structure import TopInput


class Requantising(UnaryTpu):
    """Integers to integers of another scale, zero point or sign, by one multiplier and shift for the tensor."""

    ROUNDING: ClassVar[isa.Rounding]

    multiplier = attr_def(IntegerAttr)
    rshift = attr_def(IntegerAttr)

    @property
    def scaling(self) -> tuple[int, int]:
        """The requant's (multiplier, right shift)."""
        return self.multiplier.value.data, self.rshift.value.data

    @override
    def emit(self, ctx: EmitContext) -> None:
        requant = isa.Requant(*self.scaling, zero_point(self.output), self.ROUNDING)
        zero = zero_point(self.input)
        ctx.emit(isa.Rescale, input=ctx.input(0), output=ctx.output(), requant=requant, input_zero=zero)

    def _two_inputs(self, chip: ChipSpec, inputs: Sequence[TensorSlice | None]) -> int:
        assert inputs[0] is not None  # the operand is a tensor
        return 2 * lmem_bytes(inputs[0].shape, command_dtype(element_of(self.input)), chip)


@irdl_op_definition
class TpuMulShift(Requantising, Inserted, LibraryKernel, Overwrites):
    """`tpu.MulShift`: sat(RSR((q - z_in)*m, r, HALF_UP) + z_out)."""

    name = "tpu.MulShift"
    ALONE: ClassVar[str] = "a requant"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM
    ROUNDING: ClassVar[isa.Rounding] = "half_up"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        zeros = zero_point(self.input), zero_point(self.output)
        return (kernels.mulshift_int(operands[0], *self.scaling, *zeros, out_dtype=value_dtype(self.output)),)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """Only without zero points (layer_group.md 10.1, rule 6)."""
        del operand
        return not zero_point(self.input) and not zero_point(self.output)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """2*in with a zero point or from signed to unsigned, else 0 (layer_group.md 9.3)."""
        del output
        sign = value_dtype(self.input), value_dtype(self.output)
        needed = zero_point(self.input) or zero_point(self.output) or sign == ("int8", "uint8")
        return self._two_inputs(chip, inputs) if needed else 0


@irdl_op_definition
class TpuRequantInt(Requantising, Inserted):
    """`tpu.RequantInt`: sat(RSR((q - z_in)*m, r, HALF_AWAY_FROM_ZERO) + z_out); its modes are always the same."""

    name = "tpu.RequantInt"
    ROUNDING: ClassVar[isa.Rounding] = "half_away"

    quant_mode = opt_attr_def(RequantModeAttr)
    round_mode = opt_attr_def(RoundModeAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        zeros = zero_point(self.input), zero_point(self.output)
        return (kernels.requant_int(operands[0], *self.scaling, *zeros, out_dtype=value_dtype(self.output)),)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """2*in for 8-bit inputs (layer_group.md 9.3)."""
        del output
        return self._two_inputs(chip, inputs) if value_dtype(self.input) in ("int8", "uint8") else 0


TOO_LARGE = "the input's scale is more than 126 times the output's (numerics.md 5.1)"
"""Why an op runs in float by decision DN-08."""


def positive_fit(ctx: LoweringContext, op: Operation, scale: float) -> tuple[int, int] | None:
    """8-bit multiplier and shift of a scale by the positive best fit (numerics.md 5.1).

    None for a scale above 126.5, which no multiplier fits. `op` then runs in float (decision DN-08).
    """
    try:
        return best_fit_positive(scale)
    except ValueError:
        ctx.decision(op, "DN-08")
        return None


class Rescaling(Rules):
    """How a family of chips changes the scale of bytes."""

    def fit(self, ctx: LoweringContext, op: Operation, scale: float) -> tuple[int, int] | None:
        """8-bit multiplier and right shift of a quotient of scales; None: no multiplier fits, so `op` runs in float."""
        return positive_fit(ctx, op, scale)


def requantised_indices(ctx: LoweringContext, indices: SSAValue, quant: QuantParams, name: str) -> SSAValue:
    """int32 indices as 8-bit integers: tpu.RequantInt by the 32-bit best fit of 1/s instead of two casts (U-47)."""
    m, r = best_fit(1.0 / quant.scale)
    attributes: dict[str, Attribute] = {"multiplier": int_attr(m), "rshift": int_attr(r)}
    attributes["quant_mode"] = requant_mode("MultiplierShift")
    element = UniformType.of(quant.scale, quant.zero_point, signed=quant.signed)
    return ctx.build(TpuRequantInt, [indices], attributes, element, shape_of(indices), name)


def requantised(
    ctx: LoweringContext, op: Operation, operand: SSAValue, source: QuantParams, target: SSAValue, name: str = ""
) -> SSAValue | None:
    """`operand`, stored as `source`, as integers of the type of the top value `target`; None: no multiplier fits.

    It is the operand itself if the types are equal, else a tpu.MulShift, or a tpu.RequantInt if a zero point is not 0.
    name: of the new op; by default that of U-33.
    """
    wanted = ctx.quant(target)
    if wanted is None or source == wanted:
        return operand
    fit = rules(ctx.chip, Rescaling).fit(ctx, op, source.scale / wanted.scale)
    if fit is None:
        return None
    m, r = fit
    cls: OpT = TpuMulShift
    attributes: dict[str, Attribute] = {"multiplier": int_attr(m), "rshift": int_attr(r)}
    if source.zero_point or wanted.zero_point:
        cls = TpuRequantInt
        attributes["quant_mode"] = requant_mode("MultiplierShift")
        attributes["round_mode"] = round_mode("HalfAwayFromZero")
    name = name or f"{value_name(operand)}_to_{op_name(op)}"
    return ctx.build(cls, [operand], attributes, ctx.quantised_type(target), shape_of(operand), name)


def requantised_operand(ctx: LoweringContext, op: Operation, value: SSAValue) -> SSAValue | str:
    """A calibrated operand as integers of the result's type, or why that is not possible."""
    source = ctx.quant(value)
    assert source is not None  # callers ask before
    operand = requantised(ctx, op, ctx.operand(value, "int8", op), source, op.results[0])
    too_large = f"the scale of operand '{value_name(value)}' is more than 126 times the output's"
    return too_large if operand is None else operand


def lowered_once(values: Sequence[SSAValue], lower: Callable[[SSAValue], SSAValue | str]) -> list[SSAValue] | str:
    """`lower` of each operand, or the first reason why it declines; an operand that occurs twice is lowered once."""
    lowered: dict[SSAValue, SSAValue] = {}
    for value in dict.fromkeys(values):
        operand = lower(value)
        if isinstance(operand, str):
            return operand
        lowered[value] = operand
    return [lowered[value] for value in values]


def lower_as_stored(op: Operation, ctx: LoweringContext, cls: OpT, attributes: Mapping[str, Attribute]) -> SSAValue:
    """Lower a view or a repetition in the type in which its operand is stored, whatever the op's mode (U-43).

    A cast then comes before the next op, of the operand's range. On a chip whose only float unit is BF16, a network
    input is quantised before its view instead.
    """
    value, result = op.operands[0], op.results[0]
    stored = ctx.stored(value)
    if stored is None or (ctx.chip.hardware.bf16_unit and isinstance(stored.owner, TopInput)):
        return lower_same_scale(op, ctx, cls, attributes)
    found = calibrated_range(value)
    if found is not None:
        set_type(result, retyped(result, CalibratedType.of(*found)))
    return ctx.build(cls, [stored], attributes, element_of(stored), shape_of(result), op_name(op))


def lower_same_scale(
    op: Operation,
    ctx: LoweringContext,
    cls: OpT,
    attributes: Mapping[str, Attribute],
    why_not: str | None = None,
    float_attributes: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Lower an op of one operand whose stored integers keep their meaning (MaxPool, Reshape, Permute).

    Threshold propagation makes input and output ranges equal (numerics.md 3.3). If it could not, the bytes are moved
    as they are (U-104); with the quirk off the input is requantised first. If no multiplier fits, or if `why_not` gives
    a reason, the op runs in float with `float_attributes`.
    """
    value, result, name = op.operands[0], op.results[0], op_name(op)
    indices = ctx.stored_indices(value) if isinstance(op, TopOp) and op.MOVES else None
    if indices is not None:  # int32 stays int32 (numerics.md 3.5 step 9)
        return ctx.build(cls, [indices], attributes, element_of(indices), shape_of(result), name)

    def in_integers(ctx: LoweringContext) -> SSAValue | str:
        source, target = ctx.quant(value), ctx.quant(result)
        if why_not is not None or source is None or target is None:
            return why_not or "input or output is not calibrated"
        operand: SSAValue | None = ctx.operand(value, "int8", op)
        theirs, ours = (np.array([q.scale, q.zero_point]) for q in (target, source))
        if (ctx.quirked(op, Quirk.MOVED_RAW_BYTES, theirs, ours) != theirs).any():
            operand = requantised(ctx, op, operand, source, result)
        if operand is None:
            return TOO_LARGE
        return ctx.build(cls, [operand], attributes, ctx.quantised_type(result), shape_of(result), name)

    def in_float(ctx: LoweringContext) -> SSAValue:
        operands = [ctx.operand(value, ctx.float_mode(op), op)]
        return ctx.build(cls, operands, float_attributes or attributes, ctx.float_type(op), shape_of(result), name)

    return ctx.by_family(op, {"integer": in_integers, "float": in_float})
