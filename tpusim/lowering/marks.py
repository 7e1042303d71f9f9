"""Automatic float marks, set before propagation: ops whose values integers would ruin (docs/spec/numerics.md 3.4)."""

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, is_tensor
from tpusim.ops.framework.base import TopOp, holds
from tpusim.ops.interfaces import Weighs, number_of
from tpusim.ops.patterns.masking import MASK, has_mask
from tpusim.ops.patterns.recurrent import float_type_of_part
from tpusim.ops.structure import TopInput, TopWeight

MAX_THRESHOLD_RATIO = 64.0
"""An Add of operands whose thresholds differ by more than this runs in float."""
MIN_THRESHOLD = 1e-8
PART = "a recurrent node runs in float as a whole (numerics.md 12.1)"
INTEGERS = "integers of the network are computed exactly, in f32"


def counts(op: Operation) -> bool:
    """Whether an op computes integers of the network, which have no scale."""
    return isinstance(op, TopOp) and not isinstance(op, TopInput) and holds(op.results[0]) == "integer"


def float_marks(model: Model, masked: Mapping[Operation, str] | None = None) -> dict[Operation, str]:
    """Ops to lower in float, with the reason; masked: those that are because of `masks`."""
    marks, masked = dict[Operation, str](), masked or {}
    for op in model.ops:
        why = INTEGERS if counts(op) else masked.get(op)
        if why is None and isinstance(op, TopOp) and op.RANGE.sum_sign:
            why = _unbalanced(op)
        elif why is None and isinstance(op, TopOp) and (op.RANGE.difference or op.RANGE.sub_constant):
            why = _cancels(op, model)
        if why:
            marks[op] = why
    return marks


def parts(model: Model, chip: ChipSpec) -> dict[Operation, str]:
    """The parts of recurrent nodes, with the float type of the node on the chip (U-46, DN-34)."""
    return {op: PART for op in model.ops if isinstance(op, TopOp) and float_type_of_part(op, chip) and not counts(op)}


def masks(model: Model) -> dict[Operation, str]:
    """Ops that make or read a mask (minus infinity, the lowest float, -1e9), in whose scale the data is 0 (DN-31).

    A mask has a threshold of MASK or more and comes from a constant of that size, or from an input with nothing but
    zeros and large negative values. The result of a product with weights is data, however large.
    """
    found, largest = dict[Operation, str](), dict[SSAValue, float]()
    for op in model.ops:
        if not isinstance(op, TopOp):
            continue
        if any(v in largest for v in op.operands) or has_mask(op, model.weights):
            largest |= {v: size for v in op.results if (size := _size(v)) >= MASK and not isinstance(op, Weighs)}
        where = next((v for v in (*op.results, *op.operands) if v in largest), None)
        if where is not None and not isinstance(op, TopInput):
            found[op] = f"the threshold {largest[where]:.6g} of '{value_name(where)}' is that of a mask, not of data"
    return found


def _size(value: SSAValue) -> float:
    found = calibrated_range(value) if is_tensor(value) else None
    return 0.0 if found is None else max(abs(found[0]), abs(found[1]))


def _cancels(op: TopOp, model: Model) -> str | None:
    """Why a difference that is smaller than its operands loses its significant bits (Sub, SubConst)."""
    out = calibrated_range(op.results[0])
    if out is None:
        return None
    number = number_of(op)
    found = [_threshold(v, model) for v in op.operands] + [None if number is None else abs(number)]
    largest = max((f for f in found if f is not None), default=0.0)
    threshold = max(abs(out[0]), abs(out[1]))
    return (
        f"the result's threshold {threshold:.6g} is below an operand's {largest:.6g} (numerics.md 3.4)"
        if threshold < largest
        else None
    )


def _threshold(value: SSAValue, model: Model) -> float | None:
    """The largest magnitude of a calibrated value or a constant."""
    if isinstance(value.owner, TopWeight):
        return float(abs(model.weights[op_name(value.owner)]).max())
    found = calibrated_range(value)
    return None if found is None else max(abs(found[0]), abs(found[1]))


def _unbalanced(op: TopOp) -> str | None:
    ranges = [calibrated_range(v) for v in op.operands if is_tensor(v)]
    if len(ranges) != 2 or None in ranges:
        return None
    first, second = (max(abs(r[0]), abs(r[1])) for r in ranges if r is not None)
    if min(first, second) < MIN_THRESHOLD:
        return None
    ratio = max(first / second, second / first)
    if ratio <= MAX_THRESHOLD_RATIO:
        return None
    return f"operand thresholds differ {ratio:.0f} times, more than 64 (numerics.md 3.4)"
