"""Weights whose integers have a scale of their own, on chips that tie the scale of a weight to their requant."""

from xdsl.ir import Operation, SSAValue

from tpusim.ir.own_scales import own_weight_scales
from tpusim.ops.framework.contexts import LoweringContext


def note_own_scales(op: Operation, ctx: LoweringContext, weight: SSAValue) -> None:
    """Record that a quantised network's weight gets other integers here."""
    if own_weight_scales(weight):
        ctx.decision(op, "DN-32")
