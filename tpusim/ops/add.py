"""Addition of n tensors: `top.Add` and `tpu.Add` (numerics.md 9.0, 9.3, 9.5)."""

from collections.abc import Sequence
from typing import ClassVar

from tpusim_kernels import arith as kernels
from tpusim_kernels.prim.multiplier import best_fit_positive, bm1684_right_shift
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, ints_attr, op_name, value_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import DType, View
from tpusim.ops.base import (
    Array,
    EmitContext,
    ImportContext,
    LoweringContext,
    OnnxNode,
    RangeRule,
    TensorSlice,
)
from tpusim.ops.families import (
    NaryTop,
    NaryTpu,
    constant_operand,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)


@irdl_op_definition
class TopAdd(NaryTop):
    """`top.Add`: sum of two or more tensors, numpy broadcasting, optional relu."""

    name = "top.Add"
    ONNX: ClassVar[tuple[str, ...]] = ("Add", "Sum")
    RANGE: ClassVar[RangeRule] = RangeRule(sum_sign=True)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """Add and Sum; one operand is the identity."""
        values = [ctx.value(name) for name in node.inputs]
        if len(values) == 1:
            return values[0]
        return ctx.build(cls, values, relu_attributes(), node.outputs[0])

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 sum from left to right, relu."""
        return (limited(kernels.add_float(tuple(operands), do_relu=relu_of(self)), self),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Add with one 8-bit multiplier and shift per operand, else in float."""
        if ctx.mode(self) == "int8":
            lowered = self._lower_int8(ctx)
            if isinstance(lowered, SSAValue):
                return lowered
            ctx.fallback(self, lowered)
        operands = [ctx.operand(v, ctx.float_mode(self), self) for v in self.inputs]
        attributes = relu_attributes(relu_of(self), relu_limit_of(self))
        return ctx.build(TpuAdd, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_int8(self, ctx: LoweringContext) -> SSAValue | str:
        """The integer form, or why there is none."""
        out = ctx.quant(self.output)
        if out is None:
            return "the output is not calibrated"
        operands: list[SSAValue] = []
        multipliers: list[int] = []
        shifts: list[int] = []
        for value in self.inputs:
            constant = ctx.array(value)
            scale = _operand_scale(ctx, value)
            if scale is None:
                return f"operand '{value_name(value)}' is not calibrated"
            fit = multiplier_and_shift(scale, out.scale, ctx.chip)
            if fit is None:
                return f"operand '{value_name(value)}' would need a multiplier outside 0..127"
            multipliers.append(fit[0])
            shifts.append(fit[1])
            operands.append(
                ctx.operand(value, "int8", self)
                if constant is None
                else ctx.weight(value_name(value) + "_int8", constant_operand(constant)[0])
            )
        attributes: dict[str, Attribute] = {
            **relu_attributes(relu_of(self)), "multipliers": ints_attr(multipliers), "rshifts": ints_attr(shifts)
        }  # fmt: skip
        return ctx.build(
            TpuAdd, operands, attributes, ctx.quantised_type(self.output), shape_of(self.output), op_name(self)
        )


def _operand_scale(ctx: LoweringContext, value: SSAValue) -> float | None:
    """Scale of an operand; a constant has its own (numerics.md 9.3)."""
    constant = ctx.array(value)
    if constant is not None:
        return constant_operand(constant)[1]
    quant = ctx.quant(value)
    return None if quant is None else quant.scale


def multiplier_and_shift(s_in: float, s_out: float, chip: ChipSpec) -> tuple[int, int] | None:
    """8-bit (m, r) of s_in/s_out: best fit, or numerics.md 5.4 on a chip without multipliers; None: no valid pair."""
    if chip.requant_words > 0:
        try:
            return best_fit_positive(s_in / s_out)
        except ValueError:
            return None
    m, r = bm1684_right_shift(1.0, s_in, s_out)
    return (m, r) if r >= 0 and 0 <= m <= 127 else None


@irdl_op_definition
class TpuAdd(NaryTpu):
    """`tpu.Add`: integers sat(relu(sum RSR((q_i - z_i)*m_i, r_i)) + z), or f32."""

    name = "tpu.Add"

    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Each operand multiplied, shifted and rounded on its own, then summed."""
        if self.multipliers is None or self.rshifts is None:
            return (limited(kernels.add_float(tuple(operands), do_relu=relu_of(self)), self),)
        y = kernels.add_int(
            tuple(operands),
            ints(self.multipliers),
            ints(self.rshifts),
            tuple(zero_point(v) for v in self.inputs),
            zero_point(self.output),
            do_relu=relu_of(self),
            out_dtype=value_dtype(self.output),
        )
        return (y,)

    @property
    def _partial(self) -> DType:
        """Type of the scaled operands: 16 bits hold one product; a sum that is kept needs 32."""
        return "i16" if len(self.inputs) == 2 and not zero_point(self.output) else "i32"

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two scaled operands (layer_group.md 9.3: i8: 2*out*2)."""
        del inputs
        return 0 if self.multipliers is None else 2 * lmem_bytes(output.shape, self._partial, chip)

    def emit(self, ctx: EmitContext) -> None:
        """f32: additions; int8: AR mul+shift per operand and a saturating addition (codegen.md DC-04)."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.multipliers is None or self.rshifts is None:
            self.emit_chain(ctx, "add", views, ctx.output(), relu_limit_of(self))
            return
        requants = [isa.Requant(m, r) for m, r in zip(ints(self.multipliers), ints(self.rshifts), strict=True)]
        zeros = [zero_point(v) for v in self.inputs]
        if not ctx.local:
            self._emit_global(ctx, views, requants, zeros)
            return
        shape = ctx.output_slice().shape
        total = activation_view(ctx.buffer(), shape, self._partial, ctx.chip)
        free = ctx.buffer() + lmem_bytes(shape, self._partial, ctx.chip)
        scaled: list[View] = []
        for i, (view, requant, zero) in enumerate(zip(views, requants, zeros, strict=True)):
            target = activation_view(free if i else ctx.buffer(), view.shape, self._partial, ctx.chip)  # type: ignore[arg-type]
            ctx.emit(isa.Rescale, input=view, output=target, requant=requant, input_zero=zero)
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
        params: dict[str, float | int | str | bool] = {"relu": relu_of(self), "z": zero_point(self.output)}
        for i, (requant, zero) in enumerate(zip(requants, zeros, strict=True)):
            params |= {f"m{i}": requant.multiplier, f"r{i}": requant.rshift, f"z{i}": zero}
        ctx.emit(isa.Fn, function="add_int", inputs=tuple(views), output=ctx.output(), params=params)
