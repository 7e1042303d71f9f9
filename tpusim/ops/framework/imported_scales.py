"""Weights imported with scales, on chips that tie the scale of a weight to the requant."""

from xdsl.ir import Operation, SSAValue

from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ops.framework.contexts import LoweringContext


def note_imported_scales(op: Operation, ctx: LoweringContext, weight: SSAValue) -> None:
    """Record that a weight of a quantised network gets other integers on this chip (DN-32)."""
    if imported_weight_scales(weight):
        ctx.decision(op, "DN-32")
