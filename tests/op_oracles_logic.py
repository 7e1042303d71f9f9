"""What the integer comparisons and selections compute, element by element in Python, from docs/spec/numerics.md 9.0."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpusim.ir.types import element_of, shape_of, storage_dtype

Array = np.ndarray

HOLDS: dict[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq,
    "NotEqual": operator.ne,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
    "Xor": lambda a, b: bool(a) != bool(b),
}


def spread(x: Array, op: Any) -> list[int]:
    """The operand's elements in the result's shape, as Python integers."""
    return np.broadcast_to(x, shape_of(op.results[0])).reshape(-1).tolist()


def gathered(found: Sequence[int], op: Any) -> Array:
    return np.array(found, storage_dtype(element_of(op.results[0]))).reshape(shape_of(op.results[0]))


def compare(op: Any, operands: Sequence[Array]) -> Array:
    rule = HOLDS[op.mode.data]
    a, b = (spread(x, op) for x in operands)
    return gathered([int(rule(x, y)) for x, y in zip(a, b, strict=True)], op)


def compare_const(op: Any, operands: Sequence[Array]) -> Array:
    rule, number = HOLDS[op.mode.data], int(op.const_val.value.data)
    swap = op.inversed is not None and bool(op.inversed.value.data)
    return gathered([int(rule(number, q) if swap else rule(q, number)) for q in spread(operands[0], op)], op)


def where(op: Any, operands: Sequence[Array | None]) -> Array:
    numbers = (op.x_const_val.value.data, op.y_const_val.value.data)
    assert operands[0] is not None
    condition = spread(operands[0], op)
    true, false = (
        [int(n)] * len(condition) if x is None else spread(x, op) for x, n in zip(operands[1:], numbers, strict=True)
    )
    return gathered([t if c else f for c, t, f in zip(condition, true, false, strict=True)], op)


def arg(op: Any, operands: Sequence[Array]) -> Array:
    """The first (or last) place of the extreme along the axis; numbers are compared, nothing is rounded."""
    rows = np.moveaxis(operands[0], op.axis.value.data, -1)
    best = max if op.mode.data == "ArgMax" else min
    found: list[int] = []
    for row in rows.reshape(-1, rows.shape[-1]).tolist():
        places = [i for i, v in enumerate(row) if v == best(row)]
        found.append(places[-1] if bool(op.select_last_index.value.data) else places[0])
    return gathered(found, op)


ORACLES: dict[str, Callable[[Any, Sequence[Any]], Array]] = {
    "tpu.Arg": arg,
    "tpu.Compare": compare,
    "tpu.CompareConst": compare_const,
    "tpu.Where": where,
}
