"""Addition of n tensors: `top.Add` and `tpu.Add` (numerics.md 9.0, 9.3, 9.5)."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.arith_shift import sum_int
from tpusim_kernels.prim.narrow import all_small
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import floats, ints, ints_attr, value_name
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import DType, View
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    EmitContext,
    FloatRule,
    LoweringContext,
    OpT,
    RangeRule,
    Shape,
    TensorSlice,
)
from tpusim.ops.framework.families import (
    ArithmeticTop,
    NaryTpu,
    built_in_integers,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.framework.logical import EVERY_TYPE, GroupType
from tpusim.ops.interfaces import Overwrites
from tpusim.ops.rescale import positive_fit

MOST_TERMS = 64
"""The largest number of tensors whose scaled bytes are summed in int32."""
DIFFERENCE = (1.0, -1.0)
"""The coefficients of tpu.Add that stand for a difference."""
Scaling = tuple[int, int]
"""(8-bit multiplier, right shift)."""
Fit = Callable[[float, float], Scaling | None]
"""(operand's scale, output's scale) -> scaling of the operand; None: no multiplier fits."""
Stored = Callable[[np.ndarray, float], tuple[np.ndarray, Scaling | None]]
"""(constant operand, output's scale) -> (its integers, their scaling)."""


class ScaledTop(ArithmeticTop):
    """A sum or difference whose operands are scaled to the output separately."""

    def with_multipliers(self, ctx: LoweringContext, fit: Fit, stored: Stored) -> SSAValue | str:
        """`TPU` with one multiplier and shift per operand, or why that is not possible."""
        out = ctx.quant(self.output)
        if out is None:
            return "the output is not calibrated"
        operands: list[SSAValue] = []
        scalings: list[Scaling] = []
        for value in self.inputs:
            constant, quant = ctx.array(value), ctx.quant(value)
            if constant is not None:
                integers, scaling = stored(constant, out.scale)
            elif quant is not None:
                integers, scaling = None, fit(quant.scale, out.scale)
            else:
                return f"operand '{value_name(value)}' is not calibrated"
            if scaling is None:
                return f"operand '{value_name(value)}' would need a multiplier outside 0..127"
            scalings.append(scaling)
            operands.append(
                ctx.operand(value, "int8", self)
                if integers is None
                else ctx.weight(value_name(value) + "_int8", integers)
            )
        multipliers, shifts = zip(*scalings, strict=True)
        attributes: dict[str, Attribute] = {
            **relu_attributes(relu_of(self)), "multipliers": ints_attr(multipliers), "rshifts": ints_attr(shifts)
        }  # fmt: skip
        return built_in_integers(self, ctx, self.TPU, operands, attributes)


@irdl_op_definition
class TpuAdd(NaryTpu, Overwrites):
    """`tpu.Add`: the sum of n tensors, in integers or in f32.

    On bytes: sat(relu(sum RSR((q_i - z_i)*m_i, r_i)) + z), or, with one shift for all operands,
    sat(floor(relu(sum q_i*m_i)/2^r + 0.5)). On int32: sat(relu(sum q_i)). In float `coeff` [1, -1] makes it a - b.
    """

    name = "tpu.Add"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multipliers", "rshifts"),)
    ALONE: ClassVar[str] = "a sum"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)
    coeff = opt_attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The shape to which the operands broadcast. Raises ValueError for coefficients other than 1, 1 and 1, -1."""
        if self.coeff is not None and floats(self.coeff) not in (DIFFERENCE, (1.0,) * len(self.inputs)):
            raise ValueError(f"coeff [1, 1] or [1, -1] is required, got {list(floats(self.coeff))}")
        return super().infer()

    @property
    def is_difference(self) -> bool:
        """Whether the coefficients stand for the first operand minus the second."""
        return self.coeff is not None and floats(self.coeff) == DIFFERENCE

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """On bytes each operand is multiplied, shifted and rounded before the sum."""
        if value_dtype(self.output) == "int32":
            ones, zeros = (1,) * len(operands), (0,) * len(operands)
            y = kernels.add_int(tuple(operands), ones, zeros, zeros, 0, do_relu=relu_of(self), out_dtype="int32")
            return (y,)
        if self.multipliers is None or self.rshifts is None:
            kernel = kernels.sub_float if self.is_difference else kernels.add_float
            return (limited(kernel(tuple(operands), do_relu=relu_of(self)), self),)
        if self._common_shift is not None:
            y = sum_int(
                tuple(operands), self._common_shift, ms=ints(self.multipliers), do_relu=relu_of(self),
                out_dtype=value_dtype(self.output),
            )  # fmt: skip
            return (y,)
        ms, rs = ints(self.multipliers), ints(self.rshifts)
        y = kernels.add_int(
            tuple(operands),
            ms,
            rs,
            tuple(zero_point(v) for v in self.inputs),
            zero_point(self.output),
            do_relu=relu_of(self),
            out_dtype=value_dtype(self.output),
            small=all_small(ms, rs) and len(operands) <= MOST_TERMS,
        )
        return (y,)

    @property
    def _common_shift(self) -> int | None:
        """The shift of all operands; None if each operand has a shift."""
        shifts = () if self.rshifts is None else ints(self.rshifts)
        return shifts[0] if len(shifts) == 1 else None

    @override
    def may_overwrite(self, operand: int) -> bool:
        """Integers are first scaled into the work area. A chain of floats reads two operands before it writes."""
        return self.multipliers is not None or operand < 2

    @property
    def work_type(self) -> DType:
        """Type of the scaled operands and their sum: 16 bits for two operands, else 32.

        A sum of two that saturates in 16 bits saturates in 8 bits too, whatever zero point is added. A longer sum may
        return into the range.
        """
        return "i16" if len(self.inputs) == 2 else "i32"

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two scaled operands: 2*out*2 on bytes (layer_group.md 9.3)."""
        del inputs
        if self.multipliers is None:
            return 0
        return 2 * max(lmem_bytes(output.shape, self.work_type, chip), 2 * lmem_bytes(output.shape, "i8", chip))

    @override
    def emit(self, ctx: EmitContext) -> None:
        """f32: AR additions or a subtraction. Bytes: RQ per operand, then saturating additions (codegen.md DC-04)."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.multipliers is None or self.rshifts is None:
            self.emit_chain(ctx, "sub" if self.is_difference else "add", views, ctx.output(), relu_limit_of(self))
            return
        if self._common_shift is not None:
            emit_weighted_sum(ctx, self, ints(self.multipliers), self._common_shift)
            return
        requants = [isa.Requant(m, r) for m, r in zip(ints(self.multipliers), ints(self.rshifts), strict=True)]
        zeros = [zero_point(v) for v in self.inputs]
        if not ctx.local:
            self._emit_global(ctx, views, requants, zeros)
            return
        shape = ctx.output_slice().shape
        total = activation_view(ctx.buffer(), shape, self.work_type, ctx.chip)
        free = ctx.buffer() + lmem_bytes(shape, self.work_type, ctx.chip)
        scaled: list[View] = []
        for i, (view, requant, zero) in enumerate(zip(views, requants, zeros, strict=True)):
            copied = not i and view.shape != shape and (len(views) > 2 or bool(zero_point(self.output)))
            target = activation_view(free if i or copied else ctx.buffer(), view.shape, self.work_type, ctx.chip)  # type: ignore[arg-type]
            ctx.emit(isa.Rescale, input=view, output=target, requant=requant, input_zero=zero)
            if copied:  # the sum is larger than the first operand, and replaces it
                ctx.emit(isa.Arith, kind="copy", a=target, output=total)
                target = total
            scaled = [*scaled, target]
            if len(scaled) == 2:
                last = i == len(views) - 1
                out = ctx.output() if last and not zero_point(self.output) else total
                ctx.emit(isa.Arith, kind="add", a=scaled[0], b=scaled[1], output=out, relu=last and relu_of(self))
                scaled = [out]
        if zero_point(self.output):
            shift = isa.Requant(zero_point=zero_point(self.output))
            ctx.emit(isa.Rescale, input=total, output=ctx.output(), requant=shift)

    def _emit_global(self, ctx: EmitContext, views: list[View], requants: list[isa.Requant], zeros: list[int]) -> None:
        function = functions.AddInt(
            multipliers=tuple(requant.multiplier for requant in requants),
            rshifts=tuple(requant.rshift for requant in requants),
            operand_zero_points=tuple(zeros),
            zero_point=zero_point(self.output),
            relu=relu_of(self),
        )
        ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=ctx.output())


@irdl_op_definition
class TopAdd(ScaledTop):
    """`top.Add`: sum of two or more tensors, numpy broadcasting, optional relu."""

    name = "top.Add"
    SPEC: ClassVar[tuple[str, ...]] = ("9.5", "9.3", "5.6")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(sum_sign=True)
    TPU: ClassVar[OpT] = TpuAdd

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The sum from left to right in f32, then relu."""
        return (limited(kernels.add_float(tuple(operands), do_relu=relu_of(self)), self),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Add with the best fit for each operand, or why that is not possible."""

        def fit(s_in: float, s_out: float) -> Scaling | None:
            return positive_fit(ctx, self, s_in / s_out)

        def stored(constant: np.ndarray, s_out: float) -> tuple[np.ndarray, Scaling | None]:
            integers, scale = stored_constant(constant)
            return integers, fit(scale, s_out)

        return self.with_multipliers(ctx, fit, stored)


def stored_constant(constant: np.ndarray) -> tuple[np.ndarray, float]:
    """(integers, scale) of a constant operand: (round-half-away(c*127/max|c|), max|c|/127) in f64 (numerics.md 9.3).

    Without negative values 255 replaces 127.
    """
    dtype, largest, limit = byte_limits(constant)
    return saturate_np(round_half_away(constant.astype(np.float64) * limit / largest), dtype), largest / limit


def byte_limits(constant: np.ndarray) -> tuple[Literal["int8", "uint8"], float, int]:
    """(byte type, largest magnitude or 1, largest byte) of a constant; unsigned without negative values."""
    signed = bool((constant < 0).any())
    return (
        "int8" if signed else "uint8",
        float(np.abs(constant.astype(np.float64)).max()) or 1.0,
        127 if signed else 255,
    )


def emit_weighted_sum(ctx: EmitContext, op: NaryTpu, multipliers: Sequence[int], shift: int) -> None:
    """Emit a sum of two products with one shift. Local: AR products, their AR sum with relu, RQ. Global: FN sum_shift.

    A product of bytes fits 15 bits, so the sum of two fits 16.
    """
    views = [ctx.input(i) for i in range(len(op.inputs))]
    if not ctx.local:
        function = functions.SumShift(tuple(multipliers), shift, relu_of(op))
        ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=ctx.output())
        return
    shape = ctx.output_slice().shape
    step = lmem_bytes(shape, "i16", ctx.chip)
    products = [activation_view(ctx.buffer() + i * step, shape, "i16", ctx.chip) for i in range(2)]
    for view, m, product in zip(views, multipliers, products, strict=True):
        ctx.emit(isa.Arith, kind="mul", a=view, b=float(m), output=product)
    ctx.emit(isa.Arith, kind="add", a=products[0], b=products[1], output=products[0], relu=relu_of(op))
    ctx.emit(isa.Rescale, input=products[0], output=ctx.output(), requant=isa.Requant(1, shift))
