"""Element-wise maximum and minimum: `top.Max`, `tpu.Max`, `top.Min` and `tpu.Min` (numerics.md 3.3 step 4, 9.0)."""

import logging
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from tpusim_kernels import arith as kernels
from tpusim_kernels.arith_shift import extreme_int
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.types import element_of, shape_of, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, EmitContext, LoweringContext, OpT, QuantParams, RangeRule, Shape
from tpusim.ops.framework.families import (
    ArithmeticTop,
    NaryTpu,
    command_dtype,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
)
from tpusim.ops.framework.logical import WITH_SMALL_C, GroupType
from tpusim.ops.interfaces import Overwrites
from tpusim.ops.rescale import lowered_once, requantised_operand

Kernel = Callable[..., Array]

LOG = logging.getLogger(__name__)


class ExtremeTop(ArithmeticTop):
    """The largest or smallest of two or more tensors, numpy broadcasting, optional relu."""

    RANGE: ClassVar[RangeRule] = RangeRule(unify=True)
    FLOAT_KERNEL: ClassVar[Kernel]

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (limited(_relu(type(self).FLOAT_KERNEL(tuple(operands)), relu_of(self)), self),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        return self.on_bytes(ctx, lambda ctx: ctx.quantised_type(self.output))

    def on_bytes(self, ctx: LoweringContext, stored_type: Callable[[LoweringContext], Attribute]) -> SSAValue | str:
        """The tpu op on raw bytes, with a result of `stored_type`, or why that is not possible."""
        operands = self._integers(ctx)
        if isinstance(operands, str):
            return operands
        attributes, element = relu_attributes(relu_of(self)), stored_type(ctx)
        return ctx.build(self.TPU, operands, attributes, element, shape_of(self.output), op_name(self))

    def _integers(self, ctx: LoweringContext) -> list[SSAValue] | str:
        """The operands as the output's integers, or why that is not possible.

        Range propagation makes the scales equal (numerics.md 3.3 step 4). If it could not, the bytes are compared as
        they are (U-55). Decision: bytes whose sign differs from the output's are requantised first.
        """
        out = ctx.quant(self.output)
        if out is None:
            return "the output is not calibrated"
        if relu_of(self) and out.zero_point:
            return "relu with a zero point"
        return lowered_once(self.inputs, lambda value: self._integer(ctx, value, out))

    def _integer(self, ctx: LoweringContext, value: SSAValue, out: QuantParams) -> SSAValue | str:
        constant, quant = ctx.array(value), ctx.quant(value)
        if constant is not None:
            LOG.warning(
                "%s '%s': a computed operand is required in INT8, got the constant '%s', at which TPU-MLIR's back end "
                "stops or compares other bytes; give the op a float mode in the quantisation table (%s:F16)",
                self.name, op_name(self), value_name(value), op_name(self),
            )  # fmt: skip
            stored = round_half_away(constant.astype("float64") / out.scale) + out.zero_point
            return ctx.weight(value_name(value) + "_int8", saturate_np(stored, out.dtype))
        if quant is None:
            return f"operand '{value_name(value)}' is not calibrated"
        same_sign = quant.dtype == out.dtype
        return ctx.operand(value, "int8", self) if same_sign else requantised_operand(ctx, self, value)


def _relu(y: Array, relu: bool) -> Array:
    return kernels.relu_float(y) if relu else y


class ExtremeTpu(NaryTpu, Overwrites):
    """The largest or smallest of raw bytes of one stored type, or of floats; optional relu.

    With multipliers it compares floor(q_i*m_i/2^r + 0.5), with one shift for all operands.
    """

    KIND: ClassVar[Literal["max", "min"]]
    FLOAT_KERNEL: ClassVar[Kernel]
    INTEGER_KERNEL: ClassVar[Kernel]

    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)

    @property
    def scaling(self) -> tuple[tuple[int, ...], int] | None:
        """(multipliers, their common shift); None on raw bytes and in float."""
        if self.multipliers is None or self.rshifts is None:
            return None
        return ints(self.multipliers), ints(self.rshifts)[0]

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        return f"{chip.name} compares in global memory only" if chip.is_global(self.name) else super().why_global(chip)

    @override
    def may_overwrite(self, operand: int) -> bool:
        """The chain of commands reads two operands before it writes."""
        return self.scaling is None and operand < 2

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The broadcast shape. Raises ValueError for operands of another stored type than the output."""
        out = command_dtype(element_of(self.output))
        if any(command_dtype(element_of(v)) != out for v in self.inputs):
            raise ValueError("operands of the output's stored type are required; requantise the others first")
        return super().infer()

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        kind = type(self)
        if self.scaling is not None:
            ms, r = self.scaling
            y = extreme_int(
                tuple(operands), r, ms=ms, largest=kind.KIND == "max", do_relu=relu_of(self),
                out_dtype=value_dtype(self.output),
            )  # fmt: skip
            return (y,)
        if uniform_of(self.output) is not None:
            return (kind.INTEGER_KERNEL(tuple(operands), do_relu=relu_of(self)),)
        return (limited(_relu(kind.FLOAT_KERNEL(tuple(operands)), relu_of(self)), self),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """AR max or min from left to right; with multipliers FN extreme_shift."""
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.scaling is not None:
            ms, r = self.scaling
            function = functions.ExtremeShift(self.KIND, tuple(ms), r, relu_of(self))
            ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=ctx.output())
            return
        limit = -1.0 if uniform_of(self.output) is not None else relu_limit_of(self)
        self.emit_chain(ctx, self.KIND, views, ctx.output(), limit)


@irdl_op_definition
class TpuMax(ExtremeTpu):
    """`tpu.Max`: the larger of two tensors, element by element."""

    name = "tpu.Max"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_SMALL_C
    KIND: ClassVar[Literal["max", "min"]] = "max"
    FLOAT_KERNEL: ClassVar[Kernel] = staticmethod(kernels.max_float)
    INTEGER_KERNEL: ClassVar[Kernel] = staticmethod(kernels.max_int)


@irdl_op_definition
class TpuMin(ExtremeTpu):
    """`tpu.Min`: the smaller of two tensors, element by element."""

    name = "tpu.Min"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_SMALL_C
    KIND: ClassVar[Literal["max", "min"]] = "min"
    FLOAT_KERNEL: ClassVar[Kernel] = staticmethod(kernels.min_float)
    INTEGER_KERNEL: ClassVar[Kernel] = staticmethod(kernels.min_int)


@irdl_op_definition
class TopMax(ExtremeTop):
    """`top.Max`: the larger of two tensors, element by element."""

    name = "top.Max"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "3.3")
    TPU: ClassVar[OpT] = TpuMax
    FLOAT_KERNEL: ClassVar[Kernel] = staticmethod(kernels.max_float)


@irdl_op_definition
class TopMin(ExtremeTop):
    """`top.Min`: the smaller of two tensors, element by element."""

    name = "top.Min"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "3.3")
    TPU: ClassVar[OpT] = TpuMin
    FLOAT_KERNEL: ClassVar[Kernel] = staticmethod(kernels.min_float)
