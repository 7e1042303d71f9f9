"""`output_int16`: integer products in front of an op in float keep 16 bits (numerics.md 2.2, 3.4)."""

from typing import NamedTuple

from xdsl.ir import Attribute

from tpusim.ir.types import UniformType
from tpusim.ops.framework.base import LoweringContext, QuantParams, TopOp


class Output(NamedTuple):
    """Scale and zero point of a result, and its element type."""

    quant: QuantParams
    element: Attribute


def stored_output(op: TopOp, ctx: LoweringContext, *, wide: bool) -> Output:
    """The result's 8-bit type; `wide`: int16 with the scale times 255/65535.

    Decision (DN-29): a range without negative values, or with a zero point, stays 8 bits wide: int16 of that scale ends
    at half of it.
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
