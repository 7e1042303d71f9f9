"""Which scales of a quantised network lowering keeps and which it changes (DN-32)."""

from collections.abc import Callable, Iterable, Iterator
from math import isclose
from warnings import warn

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.errors import ModeWarning, option
from tpusim.ir.attrs import op_name
from tpusim.ir.imported_scales import ImportedRange, imported_ranges
from tpusim.ir.module import Model
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.types import uniform_of
from tpusim.ir.upstream import DECISIONS
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput

DECISION = "DN-32"


def mark_changed_scales(top: Model, quant: Callable[[SSAValue], QuantParams | None], lowered: Model) -> None:
    """Mark the tpu ops that store a tensor in other steps than the network; warn of them and of changed weights.

    top: the module before lowering, with propagated ranges; quant: scale and zero point of its values.
    """
    ranges = imported_ranges(top)
    if not ranges:
        return
    made = {op_name(op): op for op in lowered.ops if isinstance(op, TpuOp) and not isinstance(op, TpuCast)}
    weights = [name for name, op in made.items() if DECISION in _decisions(op)]
    changed = dict(_changed((op for op in top.ops if isinstance(op, TopOp)), quant, ranges, made))
    for name in changed.keys() & made.keys():
        if DECISION not in (known := _decisions(made[name])):
            made[name].attributes[DECISIONS] = ArrayAttr([StringAttr(d) for d in (*known, DECISION)])
    told = [f"'{name}' {why}" for name, why in changed.items()] + [f"weights of '{name}'" for name in weights]
    if told:
        shown = ", ".join(told[:4]) + " ..." * (len(told) > 4)
        warn(ModeWarning(f"{len(told)} scales of the quantised network are not kept: {shown}"), stacklevel=3)


def _decisions(op: Operation) -> list[str]:
    listed = op.attributes.get(DECISIONS)
    rows: tuple[Attribute, ...] = listed.data if isinstance(listed, ArrayAttr) else ()  # type: ignore[assignment]
    return [row.data for row in rows if isinstance(row, StringAttr)]


def _changed(
    ops: Iterable[TopOp],
    quant: Callable[[SSAValue], QuantParams | None],
    ranges: dict[str, ImportedRange],
    made: dict[str, TpuOp],
) -> Iterator[tuple[str, str]]:
    """(name, why) of inputs and of results that are stored as bytes."""
    for op in ops:
        imported, maker = ranges.get(op_name(op)), made.get(op_name(op))
        stored = isinstance(op, TopInput) or (maker is not None and uniform_of(maker.results[0]) is not None)
        found = quant(op.results[0]) if imported is not None and stored else None
        if imported is not None and found is not None and (why := _why_changed(found, imported)):
            yield op_name(op), why


def _why_changed(found: QuantParams, imported: ImportedRange) -> str:
    steps = f"in steps of {imported.scale:.6g}, now {found.scale:.6g}"
    if isclose(found.scale, imported.scale, rel_tol=1e-6) and (
        imported.symmetric or found.zero_point == found.limits[0] - imported.low
    ):
        return ""
    if not imported.symmetric and found.zero_point == 0:
        return f"has a zero point, which {option('asymmetric', True)} keeps ({steps})"
    return steps
