"""Tpu ops of a tensor and a number: integer and float forms, commands (numerics.md 9.3)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from tpusim_kernels import arith as kernels
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.ops.framework.base import Array, EmitContext, TensorSlice
from tpusim.ops.framework.families import (
    Requanted,
    UnaryTpu,
    command_dtype,
    limited,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.framework.logical import EVERY_TYPE, WITH_MM, GroupType
from tpusim.ops.interfaces import FusingRewrites, LibraryKernel, Margins, SharedWindows
from tpusim.ops.patterns.lowered_numbers import FuseCastToF8MulConst

Kind = Literal["mul", "add", "sub", "max", "min"]


def float_result(kind: Kind, x: Array, number: float, *, relu: bool, reverse: bool) -> Array:
    """The float op of this kind, then the relu. reverse: number - x."""
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


class ConstTpu(Requanted, UnaryTpu, LibraryKernel, SharedWindows):
    """Integers: q*m combined with C, shifted right by r (HALF_UP), relu, saturation. Floats: the op itself."""

    KIND: ClassVar[Kind]
    ALONE: ClassVar[str] = "an op with a constant"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"),)

    const_val = attr_def(FloatAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def constant(self) -> int:
        """The integer constant C."""
        return int(self.const_val.value.data)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
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

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: twice the operand for a MulConst; 32-bit sums for the others (layer_group.md 9.3)."""
        if self.scaling is None or inputs[0] is None:
            return 0
        stored = lmem_bytes(inputs[0].shape, command_dtype(element_of(self.input)), chip)
        if self.KIND == "mul":
            return 2 * stored
        return lmem_bytes(output.shape, "i32", chip) if self._needs_sum else 0

    @property
    def _needs_sum(self) -> bool:
        """Whether an intermediate result is wider than a byte."""
        return self.KIND in ("add", "sub") or self.scaling != (1, 0)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Floats: AR. Integers: RQ (MulConst), AR on bytes, or AR mul, AR with C in 32 bits and RQ; global: FN."""
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
            zero, relu = zero_point(self.output), relu_of(self)
            function = functions.ConstInt(self.KIND, m, r, self.constant, zero, relu, reversed_(self))
            ctx.emit(isa.Fn, function=function, inputs=(x,), output=out)
        else:
            self._emit_sum(ctx, m, requant)

    def _emit_float(self, ctx: EmitContext, x: Any, out: Any) -> None:
        limit, number, kind = relu_limit_of(self), self.const_val.value.data, str(self.KIND)
        if self.KIND == "sub":  # x - c is x + (-c), c - x is -x + c; both round once
            kind, number = "add", number if reversed_(self) else -number
        if reversed_(self):
            ctx.emit(isa.Arith, kind="mul", a=x, b=-1.0, output=out)
            x = out
        ctx.emit(isa.Arith, kind=kind, a=x, b=number, output=out, relu=relu_of(self), relu_limit=limit)

    def _emit_sum(self, ctx: EmitContext, m: int, requant: isa.Requant) -> None:
        """T = q*m, then C in 32 bits (C - t is (-t) + C, t - C is t + (-C)), then the requant."""
        total = activation_view(ctx.buffer(), ctx.output_slice().shape, "i32", ctx.chip)
        reverse, constant, kind = reversed_(self), float(self.constant), str(self.KIND)
        if self.KIND == "sub":
            kind, constant = "add", constant if reverse else -constant
        ctx.emit(isa.Arith, kind="mul", a=ctx.input(0), b=float(-m if reverse else m), output=total)
        ctx.emit(isa.Arith, kind=kind, a=total, b=constant, output=total)
        ctx.emit(isa.Rescale, input=total, output=ctx.output(), requant=requant, relu=relu_of(self))


@irdl_op_definition
class TpuMulConst(ConstTpu, FusingRewrites):
    """`tpu.MulConst`: relu(RSR((q - z_in)*m, r) + z_out), or x*c."""

    name = "tpu.MulConst"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE
    KIND: ClassVar[Kind] = "mul"

    @classmethod
    @override
    def fusing_patterns(cls, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A product of 8-bit floats takes in the cast of its result."""
        del chip
        return (FuseCastToF8MulConst(),)


@irdl_op_definition
class TpuAddConst(ConstTpu):
    """`tpu.AddConst`: sat(relu(RSR(q*m + C, r))), or x + c."""

    name = "tpu.AddConst"
    MARGINS: ClassVar[Margins] = "read"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM
    KIND: ClassVar[Kind] = "add"


@irdl_op_definition
class TpuSubConst(ConstTpu):
    """`tpu.SubConst`: sat(relu(RSR(q*m - C, r)) + z_out), C - q*m if reversed; or x - c, c - x."""

    name = "tpu.SubConst"
    MARGINS: ClassVar[Margins] = "read"
    KIND: ClassVar[Kind] = "sub"

    is_reverse = opt_attr_def(BoolAttr)


@irdl_op_definition
class TpuMaxConst(ConstTpu):
    """`tpu.MaxConst`: sat(relu(RSR(max(q*m, C), r))), or max(x, c)."""

    name = "tpu.MaxConst"
    KIND: ClassVar[Kind] = "max"


@irdl_op_definition
class TpuMinConst(ConstTpu):
    """`tpu.MinConst`: sat(relu(RSR(min(q*m, C), r))), or min(x, c)."""

    name = "tpu.MinConst"
    KIND: ClassVar[Kind] = "min"
