"""Runs of ops that may work from local memory (layer_group.md 2)."""

from collections.abc import Iterator

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, shape_of
from tpusim.ops.framework.base import TpuOp, logical_shape
from tpusim.ops.interfaces import Volumes
from tpusim.ops.structure import TopNone, TopWeight


def base_groups(model: Model, chip: ChipSpec) -> Iterator[tuple[list[TpuOp], str | None]]:
    """(ops, None) for runs of ops that can be local, ([op], reason) for an op that cannot; constants do not count."""
    run: list[TpuOp] = []
    for op in model.ops:
        if isinstance(op, TopWeight | TopNone):
            continue
        why = op.why_not_local(chip) or _too_long(op, chip) if isinstance(op, TpuOp) else ""
        if why is None:
            assert isinstance(op, TpuOp)
            run.append(op)
            if isinstance(op, Volumes) and op.slides_over_depth():
                *parts, run = _apart(run)
                yield from ((part, None) for part in parts)
            continue
        if run:
            yield run, None
            run = []
        if isinstance(op, TpuOp):
            yield [op], why
    if run:
        yield run, None


def _apart(run: list[TpuOp]) -> list[list[TpuOp]]:
    """Cut a run that ends at an op with windows over volumes: earlier ops that broadcast along depth stay alone."""
    parts: list[list[TpuOp]] = [[]]
    for op in run:
        if isinstance(op, Volumes) and op.broadcasts_depth():
            parts.extend(([op], []))
        else:
            parts[-1].append(op)
    return [part for part in parts if part]


def _too_long(op: TpuOp, chip: ChipSpec) -> str | None:
    """Why an axis of an activation exceeds the longest axis of a command's operand; only rows could be cut."""
    values = [v for v in (*op.operands, *op.results) if is_tensor(v) and not isinstance(v.owner, TopWeight)]
    longest = max((max(logical_shape(shape_of(v))[1:]) for v in values), default=0)
    return None if longest <= chip.max_axis else f"an axis of {longest}, above {chip.max_axis}"
