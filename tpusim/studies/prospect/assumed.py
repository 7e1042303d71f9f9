"""A calibration table without samples: thresholds are derived from the constants, and masks keep their magnitude."""

from math import prod

from xdsl.ir import SSAValue

from tpusim.calibration.table import CalibrationTable, Entry, as_printed
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Weighs, number_of
from tpusim.ops.patterns.masking import MASK, has_mask
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.pipelines import lowered

USUAL = 1.0
"""The threshold of inputs and of products with weights."""


def assumed_table(model: Model) -> CalibrationTable:
    """Thresholds for lowering a canonical module in order to see the forms of its ops; its integers mean nothing."""
    sizes: dict[SSAValue, float] = {}
    for op in model.ops:
        if isinstance(op, TopOp):
            sizes |= dict.fromkeys(op.results, _size(op, sizes, model))
    computed = [op for op in model.ops if isinstance(op, TopOp)]
    found = {op_name(op): Entry(size, -size, size) for op in computed if (size := sizes[op.results[0]])}
    return CalibrationTable({name: as_printed(entry) for name, entry in found.items()})


def assumed_lowering(canonical: Model, config: LoweringConfig, table: CalibrationTable | None = None) -> Model:
    """A canonical module lowered without a sample; table: thresholds, None: they are assumed.

    Raises the TpusimErrors of lowering.
    """
    if not (config.format.calibrated or config.qtable is not None):
        return PassManager(lowered(config)).run(canonical)
    ctx = PassContext(table=assumed_table(canonical) if table is None else table)
    steps = ImportCalibrationTable(asymmetric=config.asymmetric), *lowered(config)
    return PassManager(steps).run(canonical, ctx)


def _size(op: TopOp, sizes: dict[SSAValue, float], model: Model) -> float:
    """The threshold to assume for a result, from those of its operands."""
    operands = [sizes[v] for v in op.operands if v in sizes]
    if op.RANGE.fixed is not None:
        return max(map(abs, op.RANGE.fixed)) or USUAL
    if has_mask(op, model.weights) or (max(operands, default=0.0) >= MASK and not isinstance(op, Weighs)):
        return MASK
    if isinstance(op, Weighs) or not operands:
        return USUAL
    return _of_constant(op, prod(operands) if op.RANGE.product else max(operands))


def _of_constant(op: TopOp, size: float) -> float:
    """The threshold after an op that adds or multiplies by a constant."""
    number = abs(number_of(op) or 0.0)
    if op.RANGE.add_constant or op.RANGE.sub_constant:
        size += number
    elif number > 1:
        size *= number
    return min(max(size, USUAL), MASK / 2)
