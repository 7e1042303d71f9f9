"""`tpu.Cast`: between float and quantised integers (numerics.md 8.1)."""

from collections.abc import Sequence

import numpy as np
from tpusim_kernels import cast as kernels
from xdsl.irdl import irdl_op_definition

from tpusim.ir.types import UniformType, element_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.ops.base import Array, EmitContext
from tpusim.ops.families import UnaryTpu, value_dtype


@irdl_op_definition
class TpuCast(UnaryTpu):
    """`tpu.Cast`: float -> uniform: sat(round-half-away(x * f32(1/s)) + z); uniform -> float: s * (q - z).

    To f16 and bf16 the scale is rounded to the type first and the product once; float to float rounds once.
    """

    name = "tpu.Cast"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """As the chip: the reciprocal in double, narrowed; the product in f32; the zero point after rounding."""
        source, target = uniform_of(self.input), uniform_of(self.output)
        if target is not None and source is None:
            zero = target.zero_point.value.data
            return (kernels.quantize(operands[0], _reciprocal(target), zero, out_dtype=value_dtype(self.output)),)
        if source is not None and target is None:
            return (kernels.dequantize(operands[0], self._step(source), source.zero_point.value.data),)
        return (operands[0],)

    def _step(self, source: UniformType) -> np.float32:
        """The scale that multiplies integers: rounded to a 16-bit result type first (numerics.md 8.1)."""
        kind = storage_dtype(element_of(self.output))
        return np.float32(np.float32(source.scale.data).astype(kind))

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
            ctx.emit(isa.Dequantize, scale=float(self._step(source)), zero_point=source.zero_point.value.data, **views)
        else:
            ctx.emit(isa.Arith, kind="copy", a=views["input"], output=views["output"])


def _reciprocal(uniform: UniformType) -> np.float32:
    return np.float32(1.0 / uniform.scale.data)
