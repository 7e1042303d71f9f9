"""Commands of one head of attention."""

from typing import TYPE_CHECKING

from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import lmem_bytes
from tpusim.isa.region import DType, View
from tpusim.ops.attention.packed import bias_views, matrix_views
from tpusim.ops.framework.base import EmitContext, is_none

if TYPE_CHECKING:
    from tpusim.ops.attention.tpu import TpuAttention


def emit_local(ctx: EmitContext, op: "TpuAttention") -> None:
    """MM2 for queries, keys and values; MM2 for the scores; FN softmax; MM2 with the values; MM2 of the last layer.

    Work area: queries (overwritten by the mixed values), keys, values, scores, weights.
    """
    at, source = _Area(ctx), ctx.input(0)
    keys = source if is_none(op.keys) else ctx.input(1)
    sources = (source, keys, keys if is_none(op.values) else ctx.input(2))
    stored, biases = (
        source.dtype,
        bias_views(None if is_none(op.queries_bias) else ctx.input(4), op.has_bias.value.data, op.sizes),
    )
    whole = bool(op.fits)
    requants = [isa.Requant(*fit, rounding="half_away") for fit in op.fits] or [None] * 5
    made = [at.rows(x.shape[1], op.sizes.columns, stored, x.shape[0]) for x in sources]
    layers = zip(sources, matrix_views(ctx.input(3), op.sizes, ctx.chip), biases, made, requants, strict=False)
    for x, w, b, y, requant in layers:
        ctx.emit(isa.MatMul, left=x, right=w, bias=b, output=y, requant=requant)
    q, k, v = made
    scores = at.rows(q.shape[1], k.shape[1], stored if whole else "f32", q.shape[0])
    weights = at.rows(q.shape[1], k.shape[1], "u8" if whole else stored, q.shape[0])
    ctx.emit(isa.MatMul, left=q, right=k, output=scores, right_transpose=True, requant=requants[3])
    more = ([] if is_none(op.table) else [ctx.input(12)]) + ([] if is_none(op.mask) else [_mask(ctx.input(11))])
    function = functions.AttentionWeights(op.scale.value.data, integer=whole, mask=not is_none(op.mask))
    ctx.emit(isa.Fn, function=function, inputs=(scores, *more), output=weights)
    ctx.emit(isa.MatMul, left=weights, right=v, output=q, requant=requants[4])
    ctx.emit(isa.MatMul, left=q, right=ctx.input(9), bias=biases[3], output=ctx.output())


def _mask(view: View) -> View:
    """A mask with all its elements along w."""
    n, c, h, w = view.shape
    return view if w > 1 or h == 1 else View("lmem", view.address, (n, c, 1, h * w), view.dtype, "aligned")


class _Area:
    """Tensors one after the other in the work area."""

    def __init__(self, ctx: EmitContext) -> None:
        self._chip, self._free = ctx.chip, ctx.buffer()

    def rows(self, rows: int, columns: int, dtype: DType, batch: int) -> View:
        """The next matrix of each batch item, row r in lane r mod lanes."""
        shape = (batch, rows, 1, columns)
        view = View("lmem", self._free, shape, dtype, "aligned")
        self._free += lmem_bytes(shape, dtype, self._chip)
        return view


def emit_global(ctx: EmitContext, op: "TpuAttention") -> None:
    """FN attention with the operands that are not absent, in order."""
    function = functions.Attention(
        sizes=op.sizes, sources=1 + (not is_none(op.keys)) + (not is_none(op.values)), has_bias=op.has_bias.value.data,
        mask=not is_none(op.mask), scale=op.scale.value.data,
        requants=tuple((fit.multiplier, fit.rshift) for fit in op.fits),
    )  # fmt: skip
    inputs = tuple(ctx.input(i) for i, value in enumerate(op.operands) if not is_none(value))
    ctx.emit(isa.Fn, function=function, inputs=inputs, output=ctx.output())
