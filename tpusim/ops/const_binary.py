"""A tensor and a number: MulConst, AddConst, SubConst, MaxConst and MinConst (numerics.md 5.6, 9.0, 9.3).

Mul, Add, Sub, Max and Min with a scalar weight become these; ONNX Neg is MulConst by -1. In integers `const_val` is the
integer C of numerics.md 9.3, and one rounding right shift follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.prim.multiplier import best_fit, bm1684_multiplier, bm1684_right_shift
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from tpusim_kernels.prim.table import Bytes, byte_table
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, float_attr, int_attr, op_name, set_op_name
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.ops.activation.tpu import TABLE_SHAPE, TpuLut
from tpusim.ops.base import (
    Array,
    EmitContext,
    FloatMode,
    ImportContext,
    LoweringContext,
    OnnxNode,
    OpT,
    QuantInfo,
    RangeRule,
    TensorSlice,
)
from tpusim.ops.families import (
    UnaryTop,
    UnaryTpu,
    command_dtype,
    constant_of,
    is_set,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.logical import EVERY_TYPE, WITH_MM, GroupType
from tpusim.ops.minmax import TpuMax, TpuMin
from tpusim.ops.rescale import TOO_LARGE, TpuMulShift, positive_fit, requantised

LARGEST = {"f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127}
"""The largest finite number of the 16-bit types."""
ACCUMULATOR = 2**31
"""The accumulator is 32 bits wide and never wraps (numerics.md DN-03)."""
LARGEST_TERM = 255 * 127
"""|q*m| of a byte and an 8-bit multiplier."""
EXTRA_DECREMENTS = 5
"""BM1684 Max/MinConst: how often r may be lowered while C saturates (numerics.md 9.3)."""

Kind = Literal["mul", "add", "sub", "max", "min"]


@dataclass(frozen=True)
class Constants:
    """What the integer form needs: q*m, a constant C, then a right shift by r."""

    multiplier: int
    rshift: int
    constant: float = 0.0


class ConstTop(UnaryTop):
    """A tensor and the number `const_val`, with an optional relu."""

    TPU: ClassVar[OpT]
    KIND: ClassVar[Kind]

    const_val = attr_def(FloatAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def number(self) -> float:
        """The constant."""
        return self.const_val.value.data

    def scalar_operand(self) -> float | None:
        """The constant."""
        return self.number

    def flops(self) -> int:
        """One per element, one for a relu."""
        return super().flops() * (1 + relu_of(self))

    def extra(self) -> dict[str, Attribute]:
        """Attributes beside the constant and the relu."""
        return {}

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32, relu."""
        y = float_result(self.KIND, operands[0], self.number, relu=relu_of(self), reverse=reversed_(self))
        return (limited(y, self),)

    def integer_form(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> Constants | str:
        """Multiplier, shift and C for input and output quantisation, or why there are none."""
        raise NotImplementedError

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """The tpu op in integers if input and output are calibrated, else in float."""
        if ctx.mode(self) == "int8":
            lowered = self._lower_int8(ctx)
            if isinstance(lowered, SSAValue):
                return lowered
            ctx.fallback(self, lowered)
        attributes = {"const_val": self.const_val, **self.extra()}
        attributes |= relu_attributes(relu_of(self), relu_limit_of(self))
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        return ctx.build(self.TPU, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_int8(self, ctx: LoweringContext) -> SSAValue | str:
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        if ctx.chip.requant == "qdm":
            return self.build_table(ctx, x, y)
        found = self.integer_form(ctx, x, y)
        if isinstance(found, str):
            return found
        if abs(found.constant) + LARGEST_TERM >= ACCUMULATOR:
            return f"the constant {self.number:.6g} leaves 32 bits"
        return self.build_int8(ctx, ctx.operand(self.input, "int8", self), found)

    def build_table(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue | str:
        """CV18xx: the op, and its relu, as a lookup table (numerics.md 10); or why there is none."""
        number, reverse, relu, kind = self.number, reversed_(self), relu_of(self), self.KIND

        def function(values: np.ndarray) -> np.ndarray:
            found = values * number if kind == "mul" else (number - values if reverse else values - number)
            return np.maximum(found, 0.0) if relu else found

        entries = byte_table(function, Bytes(x.scale, 0, x.signed), Bytes(y.scale, 0, y.signed))
        name = op_name(self)
        operands = [ctx.operand(self.input, "int8", self), ctx.weight(name + "_table", entries.reshape(TABLE_SHAPE))]
        return ctx.build(TpuLut, operands, {}, ctx.quantised_type(self.output), shape_of(self.output), name)

    def build_int8(self, ctx: LoweringContext, operand: SSAValue, found: Constants) -> SSAValue | str:
        """The tpu op on the operand's bytes."""
        attributes: dict[str, Attribute] = {
            "const_val": float_attr(found.constant), "multiplier": int_attr(found.multiplier),
            "rshift": int_attr(found.rshift), **self.extra(), **relu_attributes(relu_of(self)),
        }  # fmt: skip
        element = ctx.quantised_type(self.output)
        return ctx.build(self.TPU, [operand], attributes, element, shape_of(self.output), op_name(self))


def float_result(kind: Kind, x: Array, number: float, *, relu: bool, reverse: bool) -> Array:
    """Apply the float op, then the relu."""
    match kind:
        case "mul":
            return kernels.mulconst_float(x, number, do_relu=relu)
        case "add":
            return kernels.addconst_float(x, number, do_relu=relu)
        case "sub":
            return kernels.subconst_float(x, number, do_relu=relu, is_reverse=reverse)
        case "max":
            y = kernels.clip_float(x, number, np.inf)
        case "min":
            y = kernels.clip_float(x, -np.inf, number)
    return kernels.relu_float(y) if relu else y


def reversed_(op: Operation) -> bool:
    """Whether the constant is the minuend (SubConst)."""
    attribute = op.attributes.get("is_reverse")
    return isinstance(attribute, IntegerAttr) and bool(attribute.value.data)


def shifted_constant(ctx: LoweringContext, op: "ConstTop", x: QuantInfo, y: QuantInfo) -> Constants | str:
    """m, r and C of AddConst and SubConst (numerics.md 9.3)."""
    number = op.number
    if ctx.chip.requant == "shift":
        r = max(bm1684_right_shift(1.0, x.scale, y.scale)[1], 0)
        return Constants(bm1684_multiplier(1.0, r, x.scale, y.scale), r, float(_int16(number * 2.0**r / y.scale)))
    fit = positive_fit(ctx, op, x.scale / y.scale)
    if fit is None:
        return TOO_LARGE
    m, r = fit
    return Constants(m, r, float(round_half_away(number / y.scale)) * 2.0**r)


def _int16(value: float) -> int:
    return int(saturate_np(round_half_away(value), "int16"))


class ConstTpu(UnaryTpu):
    """q*m, combined with C, shifted right by r with HALF_UP, relu, saturated; or the float op on `const_val`."""

    KIND: ClassVar[Kind]

    const_val = attr_def(FloatAttr)
    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift), None in float."""
        if self.multiplier is None or self.rshift is None:
            return None
        return self.multiplier.value.data, self.rshift.value.data

    @property
    def constant(self) -> int:
        """C."""
        return int(self.const_val.value.data)

    def accepts_margins(self) -> bool:
        """Element-wise: reads any window."""
        return True

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers exactly, f32."""
        (x,), relu, reverse = operands, relu_of(self), reversed_(self)
        if self.scaling is None:
            y = float_result(self.KIND, x, self.const_val.value.data, relu=relu, reverse=reverse)
            return (limited(y, self),)
        (m, r), c, out = self.scaling, self.constant, value_dtype(self.output)
        match self.KIND:
            case "mul":
                y = kernels.mulconst_int(
                    x, m, r, zero_point(self.input), zero_point(self.output), do_relu=relu, out_dtype=out
                )
            case "add":
                y = kernels.addconst_int(x, m, r, c, do_relu=relu, out_dtype=out)
            case "sub":
                y = kernels.subconst_int(
                    x, m, r, c, zero_point(self.output), is_reverse=reverse, do_relu=relu, out_dtype=out
                )
            case "max":
                y = kernels.maxconst_int(x, m, r, c, do_relu=relu, out_dtype=out)
            case "min":
                y = kernels.minconst_int(x, m, r, c, do_relu=relu, out_dtype=out)
        return (y,)

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """2*in of MulConst and AddConst (layer_group.md 9.3); the sums here are kept in 32 bits, so 4*in."""
        if self.scaling is None or inputs[0] is None:
            return 0
        stored = lmem_bytes(inputs[0].shape, command_dtype(element_of(self.input)), chip)
        if self.KIND == "mul":
            return 2 * stored
        return lmem_bytes(output.shape, "i32", chip) if self._needs_sum else 0

    @property
    def _needs_sum(self) -> bool:
        """Whether an intermediate result wider than a byte exists."""
        return self.KIND in ("add", "sub") or self.scaling != (1, 0)

    def emit(self, ctx: EmitContext) -> None:
        """Floats: one AR command; integers: AR mul and AR with C in 32 bits, RQ; global: FN const_int."""
        x, out = ctx.input(0), ctx.output()
        if self.scaling is None:
            self._emit_float(ctx, x, out)
            return
        m, r = self.scaling
        requant = isa.Requant(m if self.KIND == "mul" else 1, r, zero_point(self.output))
        if self.KIND == "mul":
            zero = zero_point(self.input)
            ctx.emit(isa.Rescale, input=x, output=out, requant=requant, input_zero=zero, relu=relu_of(self))
        elif not self._needs_sum:
            ctx.emit(isa.Arith, kind=self.KIND, a=x, b=float(self.constant), output=out, relu=relu_of(self))
        elif not ctx.local:
            params: dict[str, float | int | str | bool] = {
                "kind": self.KIND, "m": m, "r": r, "c": self.constant, "z": zero_point(self.output),
                "relu": relu_of(self), "reverse": reversed_(self),
            }  # fmt: skip
            ctx.emit(isa.Fn, function="const_int", inputs=(x,), output=out, params=params)
        else:
            self._emit_sum(ctx, m, requant)

    def _emit_float(self, ctx: EmitContext, x: Any, out: Any) -> None:
        limit, number, kind = relu_limit_of(self), self.const_val.value.data, str(self.KIND)
        if self.KIND == "sub":  # x - c is x + (-c); c - x is -x + c, each one rounding
            kind, number = "add", number if reversed_(self) else -number
        if reversed_(self):
            ctx.emit(isa.Arith, kind="mul", a=x, b=-1.0, output=out)
            x = out
        ctx.emit(isa.Arith, kind=kind, a=x, b=number, output=out, relu=relu_of(self), relu_limit=limit)

    def _emit_sum(self, ctx: EmitContext, m: int, requant: isa.Requant) -> None:
        """q*m, then C: c - t is (-t) + c, t - c is t + (-c)."""
        total = activation_view(ctx.buffer(), ctx.output_slice().shape, "i32", ctx.chip)
        reverse, constant, kind = reversed_(self), float(self.constant), str(self.KIND)
        if self.KIND == "sub":
            kind, constant = "add", constant if reverse else -constant
        ctx.emit(isa.Arith, kind="mul", a=ctx.input(0), b=float(-m if reverse else m), output=total)
        ctx.emit(isa.Arith, kind=kind, a=total, b=constant, output=total)
        ctx.emit(isa.Rescale, input=total, output=ctx.output(), requant=requant, relu=relu_of(self))


# ------------------------------------------------------------------------------------------------------------- MulConst


@irdl_op_definition
class TpuMulConst(ConstTpu):
    """`tpu.MulConst`: relu(RSR((q - z_in)*m, r) + z_out), or x*c."""

    name = "tpu.MulConst"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE
    KIND: ClassVar[Kind] = "mul"


@irdl_op_definition
class TopMulConst(ConstTop):
    """`top.MulConst`: x * const_val, optional relu."""

    name = "top.MulConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    ONNX: ClassVar[tuple[str, ...]] = ("Neg",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    TPU: ClassVar[OpT] = TpuMulConst
    KIND: ClassVar[Kind] = "mul"

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX Neg: times -1."""
        attributes = {"const_val": float_attr(-1.0), **relu_attributes()}
        return ctx.build(cls, [ctx.value(node.inputs[0])], attributes, node.outputs[0])

    def forwarded_range(self, source: tuple[float, float]) -> tuple[float, float]:
        """The ends times the constant (3.3 step 9), cut at 0 by a relu; the range stays if nothing were left of it."""
        ends = sorted(end * self.number for end in source)
        low, high = (max(e, 0.0) for e in ends) if relu_of(self) else ends
        return (low, high) if self.number and (low, high) != (0.0, 0.0) else source

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Mul by a scalar weight."""
        return (MulToMulConst(weights),)

    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """A constant outside the range of the 16-bit type (numerics.md 12.2, 12.3)."""
        del chip
        return abs(self.number) > LARGEST[wanted]

    def integer_form(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> Constants | str:
        """(m, r) of s_in/s_out*c: best fit general, 8 bit; BM1684 by numerics.md 5.4."""
        if ctx.chip.requant == "shift":
            r = max(bm1684_right_shift(self.number, x.scale, y.scale)[1], 0)
            return Constants(bm1684_multiplier(self.number, r, x.scale, y.scale), r)
        try:
            return Constants(*best_fit(x.scale / y.scale * self.number, 8))
        except ValueError as error:
            return str(error)

    def build_int8(self, ctx: LoweringContext, operand: SSAValue, found: Constants) -> SSAValue | str:
        """tpu.MulShift where the chip has multipliers and no relu follows, else tpu.MulConst."""
        if ctx.chip.requant == "shift" or relu_of(self):
            return super().build_int8(ctx, operand, found)
        attributes = {"multiplier": int_attr(found.multiplier), "rshift": int_attr(found.rshift)}
        element = ctx.quantised_type(self.output)
        return ctx.build(TpuMulShift, [operand], attributes, element, shape_of(self.output), op_name(self))


# --------------------------------------------------------------------------------------------------- AddConst, SubConst


@irdl_op_definition
class TpuAddConst(ConstTpu):
    """`tpu.AddConst`: sat(relu(RSR(q*m + C, r))), or x + c."""

    name = "tpu.AddConst"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM
    KIND: ClassVar[Kind] = "add"


@irdl_op_definition
class TopAddConst(ConstTop):
    """`top.AddConst`: x + const_val, optional relu."""

    name = "top.AddConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    RANGE: ClassVar[RangeRule] = RangeRule(add_constant=True)
    TPU: ClassVar[OpT] = TpuAddConst
    KIND: ClassVar[Kind] = "add"

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Add of a scalar weight."""
        return (AddToAddConst(weights),)

    def build_table(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue | str:
        """CV18xx has no rule for it (DN-13)."""
        del x, y
        ctx.decision(self, "DN-13")
        return "this chip has no integer form of it (numerics.md 9.3)"

    def integer_form(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> Constants | str:
        """Symmetric only (numerics.md 12.1)."""
        if ctx.asymmetric:
            return "there is no integer form with zero points (numerics.md 12.1)"
        return shifted_constant(ctx, self, x, y)


@irdl_op_definition
class TpuSubConst(ConstTpu):
    """`tpu.SubConst`: sat(relu(RSR(q*m - C, r)) + z_out), C - q*m if reversed; or x - c, c - x."""

    name = "tpu.SubConst"
    KIND: ClassVar[Kind] = "sub"

    is_reverse = opt_attr_def(BoolAttr)


@irdl_op_definition
class TopSubConst(ConstTop):
    """`top.SubConst`: x - const_val, or const_val - x if `is_reverse`; optional relu."""

    name = "top.SubConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    RANGE: ClassVar[RangeRule] = RangeRule(sub_constant=True)
    TPU: ClassVar[OpT] = TpuSubConst
    KIND: ClassVar[Kind] = "sub"

    is_reverse = opt_attr_def(BoolAttr)

    def extra(self) -> dict[str, Attribute]:
        """Which of the two is the minuend."""
        return {"is_reverse": flag(is_set(self.is_reverse))}

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Sub with a scalar weight."""
        return (SubToSubConst(weights),)

    def integer_form(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> Constants | str:
        """As AddConst; with zero points C contains z_in*m."""
        found = shifted_constant(ctx, self, x, y)
        if isinstance(found, str) or not x.zero_point:
            return found
        return Constants(found.multiplier, found.rshift, found.constant + x.zero_point * found.multiplier)


# --------------------------------------------------------------------------------------------------- MaxConst, MinConst


class ExtremeConstTop(ConstTop):
    """The larger or smaller of an element and a number; input and output share one scale."""

    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    TENSORS: ClassVar[OpT]
    """The op of two tensors, to which CV18xx lowers with a constant one."""

    def build_table(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue | str:
        """CV18xx: the largest or smallest of two tensors, one full of to_int8(c/s, half up) (numerics.md 9.3)."""
        name, shape = op_name(self), shape_of(self.output)
        operand = requantised(ctx, self, ctx.operand(self.input, "int8", self), x, self.output, name + "_requant")
        assert operand is not None  # small multipliers always fit
        stored = np.full(shape, saturate_np(round_half_away(self.number / y.scale), "int8"), np.int8)
        operands = [operand, ctx.weight(name + "_const", stored)]
        attributes = relu_attributes(relu_of(self))
        return ctx.build(self.TENSORS, operands, attributes, ctx.quantised_type(self.output), shape, name)

    def integer_form(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> Constants | str:
        """Multiplier 1, no shift, C = round(c/s) + z (DN-15); BM1684: m and r of 5.4, lowered while C saturates.

        The scale is the output's, to which `build_int8` requantises an operand that propagation left with another one.
        """
        if ctx.chip.requant != "shift":
            return Constants(1, 0, float(round_half_away(self.number / y.scale)) + y.zero_point)
        r = max(bm1684_right_shift(1.0, y.scale, y.scale)[1], 0)
        for _ in range(EXTRA_DECREMENTS):
            if abs(round_half_away(self.number * 2.0**r / y.scale)) <= np.iinfo(np.int16).max:
                break
            r -= 1
        if r <= 0:
            return f"the constant {self.number:.6g} leaves 16 bits"
        return Constants(bm1684_multiplier(1.0, r, y.scale, y.scale), r, float(_int16(self.number * 2.0**r / y.scale)))

    def _lower_int8(self, ctx: LoweringContext) -> SSAValue | str:
        y = ctx.quant(self.output)
        if relu_of(self) and y is not None and y.zero_point:
            return "relu with a zero point"
        return super()._lower_int8(ctx)

    def build_int8(self, ctx: LoweringContext, operand: SSAValue, found: Constants) -> SSAValue | str:
        """The tpu op on bytes of the output's scale, or why there is none."""
        source = ctx.quant(self.input)
        assert source is not None  # held by the caller
        if ctx.asymmetric:
            ctx.decision(self, "DN-15")
        same = requantised(ctx, self, operand, source, self.output, op_name(self) + "_requant")
        return TOO_LARGE if same is None else super().build_int8(ctx, same, found)


@irdl_op_definition
class TpuMaxConst(ConstTpu):
    """`tpu.MaxConst`: sat(relu(RSR(max(q*m, C), r))), or max(x, c)."""

    name = "tpu.MaxConst"
    KIND: ClassVar[Kind] = "max"


@irdl_op_definition
class TopMaxConst(ExtremeConstTop):
    """`top.MaxConst`: max(x, const_val), optional relu."""

    name = "top.MaxConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    TPU: ClassVar[OpT] = TpuMaxConst
    TENSORS: ClassVar[OpT] = TpuMax
    KIND: ClassVar[Kind] = "max"

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Max with a scalar weight."""
        return (MaxToMaxConst(weights),)


@irdl_op_definition
class TpuMinConst(ConstTpu):
    """`tpu.MinConst`: sat(relu(RSR(min(q*m, C), r))), or min(x, c)."""

    name = "tpu.MinConst"
    KIND: ClassVar[Kind] = "min"


@irdl_op_definition
class TopMinConst(ExtremeConstTop):
    """`top.MinConst`: min(x, const_val), optional relu."""

    name = "top.MinConst"
    SPEC: ClassVar[tuple[str, ...]] = ("9.3", "5.6")
    TPU: ClassVar[OpT] = TpuMinConst
    TENSORS: ClassVar[OpT] = TpuMin
    KIND: ClassVar[Kind] = "min"

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Min with a scalar weight."""
        return (MinToMinConst(weights),)


# ------------------------------------------------------------------------------------------------------------- rewrites


@dataclass
class ToConst(RewritePattern):
    """A binary op of a tensor and a scalar weight -> the op with a number; name and relu stay."""

    weights: WeightStore

    FROM: ClassVar[str]
    TO: ClassVar[type[ConstTop]]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The tensor must have the result's shape, the weight one element."""
        if op.name != self.FROM or len(op.operands) != 2:
            return
        for index, other in ((0, 1), (1, 0)):
            x, constant = op.operands[index], constant_of(op.operands[other], self.weights)
            if constant is None or constant.size != 1 or constant_of(x, self.weights) is not None:
                continue
            if shape_of(x) == shape_of(op.results[0]):
                self._replace(op, x, float(constant.reshape(-1)[0]), index == 1, rewriter)
                return

    def _replace(self, op: Operation, x: SSAValue, number: float, reverse: bool, rewriter: PatternRewriter) -> None:
        attributes = {"const_val": float_attr(number), **relu_attributes(relu_of(op), relu_limit_of(op))}
        if self.TO is TopSubConst:
            attributes["is_reverse"] = flag(reverse)
        new = self.TO.create(operands=[x], result_types=[op.results[0].type], attributes=attributes)
        set_op_name(new, op_name(op))
        rewriter.replace(op, new)


class MulToMulConst(ToConst):
    """Mul by a scalar weight -> MulConst."""

    FROM: ClassVar[str] = "top.Mul"
    TO: ClassVar[type[ConstTop]] = TopMulConst


class AddToAddConst(ToConst):
    """Add of a scalar weight -> AddConst."""

    FROM: ClassVar[str] = "top.Add"
    TO: ClassVar[type[ConstTop]] = TopAddConst


class SubToSubConst(ToConst):
    """Sub with a scalar weight -> SubConst, reversed if the weight is the minuend."""

    FROM: ClassVar[str] = "top.Sub"
    TO: ClassVar[type[ConstTop]] = TopSubConst


class MaxToMaxConst(ToConst):
    """Max with a scalar weight -> MaxConst."""

    FROM: ClassVar[str] = "top.Max"
    TO: ClassVar[type[ConstTop]] = TopMaxConst


class MinToMinConst(ToConst):
    """Min with a scalar weight -> MinConst."""

    FROM: ClassVar[str] = "top.Min"
    TO: ClassVar[type[ConstTop]] = TopMinConst
