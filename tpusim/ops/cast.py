"""`tpu.Cast`: between float and quantised integers (numerics.md 8.1)."""

from collections.abc import Sequence

import numpy as np
from tpusim_kernels import cast as kernels
from xdsl.irdl import irdl_op_definition

from tpusim.ir.types import UniformType, uniform_of
from tpusim.isa import commands as isa
from tpusim.ops.base import Array, EmitContext
from tpusim.ops.families import UnaryTpu, value_dtype


@irdl_op_definition
class TpuCast(UnaryTpu):
    """`tpu.Cast`: f32 -> uniform: sat(round-half-away(x * f32(1/s)) + z); uniform -> f32: f32(s) * (q - z)."""

    name = "tpu.Cast"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """As the chip: the reciprocal in double, narrowed; the product in f32; the zero point after rounding."""
        source, target = uniform_of(self.input), uniform_of(self.output)
        if target is not None and source is None:
            zero = target.zero_point.value.data
            return (kernels.quantize(operands[0], _reciprocal(target), zero, out_dtype=value_dtype(self.output)),)
        if source is not None and target is None:
            return (kernels.dequantize(operands[0], np.float32(source.scale.data), source.zero_point.value.data),)
        return (operands[0],)

    def accepts_margins(self) -> bool:
        """Element-wise: margins pass through."""
        return True

    def emit(self, ctx: EmitContext) -> None:
        """RQ rq0 to integers, DQ dq0 to float, else a copy."""
        source, target = uniform_of(self.input), uniform_of(self.output)
        views = {"input": ctx.input(0), "output": ctx.output()}
        if target is not None and source is None:
            ctx.emit(isa.Quantize, scale=float(_reciprocal(target)), zero_point=target.zero_point.value.data, **views)
        elif source is not None and target is None:
            ctx.emit(isa.Dequantize, scale=source.scale.data, zero_point=source.zero_point.value.data, **views)
        else:
            ctx.emit(isa.Arith, kind="copy", a=views["input"], output=views["output"])


def _reciprocal(uniform: UniformType) -> np.float32:
    return np.float32(1.0 / uniform.scale.data)
