"""Casts between floats and stored integers (numerics.md 8.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.field import Elements, Field, saturated
from tpusim.ir.types import uniform_of
from tpusim.isa.region import FLOATS, NARROW, numpy_dtype
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.families import is_set, zero_point
from tpusim.ops.view import chip_of_module
from tpusim.proof.meanings.stored import stored_float, type_of, without_zero


def cast(op: TpuCast, operands: Sequence[Any], field: Field) -> Elements | None:
    """By the type of the operand and that of the result."""
    chip = chip_of_module(op)
    if chip is None:
        return None
    (x,), known, dtype = operands, type_of(op.input), type_of(op.output)
    bf16_unit = chip.hardware.bf16_unit
    if known in FLOATS and dtype in FLOATS:
        return _narrowed(op, x, field, bf16_unit=bf16_unit)
    if known in FLOATS:
        return None if uniform_of(op.output) is None else _quantised(op, x, field, bf16_unit=bf16_unit)
    if dtype in FLOATS:
        return _dequantised(op, x, field, bf16_unit=bf16_unit)
    return saturated(field, x, dtype, known=known)


def _narrowed(op: TpuCast, x: Elements, field: Field, *, bf16_unit: bool) -> Elements:
    """One rounding, none to f32; a BF16 unit cuts the lower 16 bits off."""
    known, dtype = type_of(op.input), type_of(op.output)
    if dtype in (known, "f32"):
        return x
    if bf16_unit and dtype == "bf16":
        x = field.apply(("truncate",), x, x)
    if not op.as_interpreter:
        x = field.apply(("away", dtype), x)
    return stored_float(x, op.output, field)


def _quantised(op: TpuCast, x: Elements, field: Field, *, bf16_unit: bool) -> Elements:
    """Scaled by 1/s, rounded, plus the zero point; in the float type of the operand, or in BF16.

    A chip with a BF16 unit leaves what is not in BF16 to its processor, which divides in f32.
    """
    known, target = type_of(op.input), uniform_of(op.output)
    assert target is not None
    in_bf16 = is_set(op.truncated) or (bf16_unit and known == "bf16")
    step = 1.0 if op.unscaled else target.scale.data
    with np.errstate(over="ignore", divide="ignore"):
        if bf16_unit and not in_bf16:
            factor = np.float32(1) / np.float32(step)
        else:
            factor = np.float32(1 / np.float64(step)).astype(numpy_dtype("bf16" if in_bf16 else known))
    steps = ("bf16", *_steps(known)) if in_bf16 else _steps(known)
    return field.apply(("quantize", float(factor), zero_point(op.output), type_of(op.output), *steps), x)


def _steps(dtype: str) -> tuple[str]:
    """The type of 16 bits to which every step is rounded, empty for f32."""
    return (dtype if dtype in NARROW else "",)


def _dequantised(op: TpuCast, x: Elements, field: Field, *, bf16_unit: bool) -> Elements:
    """Without the zero point, times s in the type of the result or in BF16; plain integers are numbers of step 1."""
    source, dtype = uniform_of(op.input), type_of(op.output)
    if source is None:
        return field.apply(("dequantize", 1.0, dtype, False), x)
    with np.errstate(over="ignore"):
        step = np.float32(1 if op.unscaled else source.scale.data).astype(numpy_dtype("bf16" if bf16_unit else dtype))
    return field.apply(("dequantize", float(step), dtype, bf16_unit), without_zero(x, zero_point(op.input)))
