"""Ops that every chip computes with one macro command in global memory, in float or on indices."""

from typing import ClassVar

from typing_extensions import override
from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import EmitContext, FloatMode, LoweringContext, OpT, TopOp, TpuOp, reads_indices


class MacroTop(TopOp):
    """An op that is lowered to `TPU` with the same attributes; the operands numbered in INDICES are stored as int32."""

    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")

    TPU: ClassVar[OpT]

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """`TPU` in the float type of the op; indices are int32, as operands and as results."""
        operands = [
            indices_of(ctx, self, i) if i in self.INDICES else ctx.operand(v, ctx.float_mode(self), self)
            for i, v in enumerate(self.operands)
        ]
        element: Attribute = i32 if self.result_holds() == "index" else ctx.float_type(self)
        shape = shape_of(self.results[0])
        return ctx.build(self.TPU, operands, dict(self.attributes), element, shape, op_name(self))

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """Whether the op computes on indices or integers, which a 16-bit float cannot represent exactly."""
        del chip, wanted
        others = [v for i, v in enumerate(self.operands) if i not in self.INDICES]
        return len(others) == len(self.operands) and reads_indices(self)


def indices_of(ctx: LoweringContext, op: TopOp, number: int) -> SSAValue:
    """An operand that holds indices: int32 if it is a constant or stored as int32, else whole numbers in f32."""
    value = op.operands[number]
    constant = ctx.array(value)
    if constant is not None:
        name = value_name(value) + ("" if constant.dtype == "int32" else "_int32")
        return ctx.weight(name, constant.astype("int32"))
    stored = ctx.stored_indices(value)
    return ctx.operand(value, "f32", op) if stored is None else stored


class MacroTpu(TpuOp):
    """An op that is one `fn` command in global memory."""

    def function(self) -> functions.Function:
        """The macro function of the command."""
        raise NotImplementedError

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return f"{self.name.removeprefix('tpu.')} runs in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        inputs = tuple(ctx.input(i) for i in range(len(self.operands)))
        ctx.emit(isa.Fn, function=self.function(), inputs=inputs, output=ctx.output())
