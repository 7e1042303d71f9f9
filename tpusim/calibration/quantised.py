"""The calibration table of a quantised network: ranges and weight scales from its file, the rest measured."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from warnings import warn

from tpusim.calibration.stage import IMPORTED_METHOD, entries_of
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.errors import TableWarning
from tpusim.ir.attrs import op_name
from tpusim.ir.imported_scales import imported_ranges, imported_weight_scales, not_kept
from tpusim.ir.module import Model
from tpusim.ir.names import names_in
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Weighs

Measure = Callable[[], tuple[CalibrationTable, int]]
"""Measures a table of all tensors: (table, number of samples)."""


def imported_table(model: Model) -> CalibrationTable:
    """The ranges and scales of a canonical module; an empty table if it is not quantised.

    A threshold is 127 steps of signed bytes or 255 of unsigned bytes. A single scale of a filter is repeated by
    channel.
    """
    ops, ranges = [op for op in model.ops if isinstance(op, TopOp)], imported_ranges(model)
    imported = {op_name(op): ranges[name] for op, name in names_in(ops, ranges).items()}
    entries = {name: Entry(found.threshold, *found.limits) for name, found in imported.items()}
    return CalibrationTable(
        entries,
        imported=imported,
        weight_scales=dict(_weight_scales(model, ops)),
        header=(IMPORTED_METHOD,) * bool(imported),
    )


def _weight_scales(model: Model, ops: Sequence[TopOp]) -> list[tuple[str, tuple[float, ...]]]:
    found: list[tuple[str, tuple[float, ...]]] = []
    for op in ops:
        for value in op.operands[1:2]:
            scales = imported_weight_scales(value)
            rows = op.by_channel(model.weights[op_name(value.owner)]) if scales and isinstance(op, Weighs) else None  # type: ignore[arg-type]
            if rows is not None:
                found.append((f"{op_name(op)}_weight", scales * (len(rows) // len(scales))))
    return found


def completed_table(model: Model, measure: Measure) -> tuple[CalibrationTable, int]:
    """The module's table completed by measured entries for missing tensors, and the number of measured samples.

    Nothing is measured if no range is missing. Warns of scales that the import could not keep and of measured tensors.
    """
    table = imported_table(model)
    for note in not_kept(model):
        warn(TableWarning(f"quantised network: {note}"), stacklevel=3)
    ops = [op for op in model.ops if isinstance(op, TopOp)]
    missing = [op_name(op) for op in ops if op not in entries_of(ops, table)]
    if table.imported and not missing:
        return table, 0
    found, samples = measure()
    if not table.imported:
        return replace(found, weight_scales=table.weight_scales), samples
    shown = ", ".join(missing[:4]) + " ..." * (len(missing) > 4)
    told = f"quantised network: {len(missing)} tensors have no Q and DQ, they were measured: {shown}"
    warn(TableWarning(told), stacklevel=3)
    return replace(table, entries={**found.entries, **table.entries}, notes=found.notes), samples
