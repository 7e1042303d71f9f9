"""`output_int16`: integer products that an op in float reads keep 16 bits (numerics.md 2.2, 3.4)."""

from typing import NamedTuple

from xdsl.ir import Attribute

from tpusim.ir.types import UniformType
from tpusim.ops.framework.base import LoweringContext, QuantParams, TopOp


class Output(NamedTuple):
    """The scale, zero point and element type of a result."""

    quant: QuantParams
    element: Attribute


def stored_output(op: TopOp, ctx: LoweringContext, *, wide: bool) -> Output:
    """The 8-bit type of a result. wide: int16 with the scale times 255/65535.

    Decision (DN-29): an unsigned range, or one with a zero point, keeps 8 bits, because int16 would cover half of it.
    """
    quant = ctx.quant(op.results[0])
    assert quant is not None  # the op is lowered to integers
    if not wide:
        return Output(quant, ctx.quantised_type(op.results[0]))
    if ctx.asymmetric or not quant.signed:
        ctx.decision(op, "DN-29")
        return Output(quant, ctx.quantised_type(op.results[0]))
    scale = quant.scale * 255 / 65535
    return Output(QuantParams.of(scale), UniformType.of(scale, bits=16))
