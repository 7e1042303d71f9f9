"""Functions by tables of floats or of channels, and the normalisation that uses them (numerics.md 10, 12.1)."""

from collections.abc import Sequence
from typing import Any

from tpusim.field import Elements, Field
from tpusim.field.selected import channels_around
from tpusim.ops.activation.lut_bf16 import TpuLutBF16
from tpusim.ops.frames import TpuScaleLut
from tpusim.ops.lrn import TpuLRN
from tpusim.proof.meanings.stored import stored_float


def float_lut(op: TpuLutBF16, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of the element, named by both tables, the kind of their entries, and their range."""
    x, *tables = operands
    key = ("float table", op.lut_mode.data.lower(), op.min_range.value.data, op.max_range.value.data)
    return stored_float(field.apply(key, x, *(field.row(t).reshape(()) for t in tables)), op.output, field)


def channel_lut(op: TpuScaleLut, operands: Sequence[Any], field: Field) -> Elements | None:
    """The entry of the channel's table that the byte names."""
    del op
    x, tables = operands
    rows = field.row(tables.reshape(x.shape[1], -1), (1,)).reshape(-1, *(1,) * (x.ndim - 2))
    return field.apply(("table",), x, rows)


def lrn(op: TpuLRN, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of the element and the channels around it; its power is computed, or looked up in tables."""
    x, *tables = operands
    names = ("size", "alpha", "bias") if tables else ("size", "alpha", "beta", "bias")
    key = ("lrn_tables" if tables else "lrn", *((name, op.constants[name]) for name in names))
    given = (field.row(table).reshape(()) for table in tables)
    return stored_float(field.apply(key, x, channels_around(field, x, op.constants["size"]), *given), op.output, field)
