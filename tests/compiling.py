"""Modules in every state and programs, made by pipelines of passes: tests do not call stages one after another.

Each function takes a module of an earlier state, which stays as it is, and runs one pipeline on its copy. Chips, modes
and other options are those of the passes; where a test has them as a configuration, it stands for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import CalibrationTable
from tpusim.chips import ChipSpec
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import Model, State
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.lowering.lower import Fallback
from tpusim.passes import Pass, PassContext, PassManager, pipelines
from tpusim.passes.context import Tensors
from tpusim.passes.lowering import ProcessorTpuOptimize, WeightReorder

Chip = str | ChipSpec | LoweringConfig
Mode = str | NumberFormat
Ranges = CalibrationTable | Tensors
"""A calibration table, or samples that are measured (method max, if nothing else is said)."""
MAX = CalibrationConfig("max", tune_samples=0)


@dataclass(frozen=True)
class Becomes(Pass):
    """A pass that claims to keep numbers and leaves another module."""

    name = "becomes"
    other: Model

    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return self.other.clone()


def to_canonical(model: Model, *also: str) -> Model:
    """An imported module, simplified. also: rewrites on request."""
    return PassManager(pipelines.canonical(also)).run(model)


def to_calibrated(model: Model, ranges: Ranges, *, asymmetric: bool = False) -> Model:
    """A canonical module with ranges."""
    return PassManager(_ranged(ranges, asymmetric=asymmetric)).run(model, _given(ranges))


def to_table(
    model: Model, samples: Tensors, config: CalibrationConfig = MAX, also: Sequence[str] = ()
) -> tuple[CalibrationTable, Counter[str]]:
    """The table that samples give, and how often each pattern fired. also: rewrites on request before."""
    ctx = PassContext(samples=samples)
    PassManager((*pipelines.canonical(also), *pipelines.calibrated(config=config)[:1])).run(model, ctx)
    assert ctx.table is not None
    return ctx.table, ctx.patterns


def to_tpu(
    model: Model, chip: Chip = "bm1684x", mode: Mode = "int8", ranges: Ranges | None = None, **more: Any
) -> Model:
    """A canonical module lowered for a chip, as the layer groups take it. ranges: unless the module has them."""
    return to_tpu_with_fallbacks(model, chip, mode, ranges, **more)[0]


def to_tpu_with_fallbacks(
    model: Model, chip: Chip = "bm1684x", mode: Mode = "int8", ranges: Ranges | None = None, **more: Any
) -> tuple[Model, list[Fallback]]:
    """As `to_tpu`, and the ops that fell back to float."""
    ctx = _given(ranges)
    tpu = PassManager(_lowered(chip, mode, ranges, more)).run(model, ctx)
    return tpu, ctx.fallbacks


def to_lowered(
    model: Model, chip: Chip = "bm1684x", mode: Mode = "int8", ranges: Ranges | None = None, **more: Any
) -> Model:
    """As `to_tpu`, without the chip's rewrites before layer groups."""
    return PassManager(_lowered(chip, mode, ranges, more)[:-1]).run(model, _given(ranges))


def to_reordered(
    model: Model, chip: Chip = "bm1684x", mode: Mode = "int8", ranges: Ranges | None = None, **more: Any
) -> Model:
    """A canonical module lowered as by `to_tpu`, or a lowered one, with its weights as the chip reads them."""
    before = () if model.state == State.LOWERED else _lowered(chip, mode, ranges, more)
    return PassManager((*before, WeightReorder())).run(model, _given(ranges))


def optimized(model: Model) -> Model:
    """A lowered module after the chip's rewrites before layer groups."""
    return PassManager(ProcessorTpuOptimize()).run(model)


def to_groups(model: Model, opt: str | LayerGroupConfig = "2", **more: Any) -> Model:
    """A lowered module in layer groups."""
    return PassManager(_grouped(opt, more)).run(model)


def to_addressed(model: Model, opt: str | LayerGroupConfig = "2", **more: Any) -> Model:
    """A lowered module, or one in layer groups, with addresses."""
    return PassManager((*_grouped_unless(model, opt, more), *pipelines.commands()[:1])).run(model)


def to_program(model: Model, opt: str | LayerGroupConfig = "2", *, share: int = 0, **more: Any) -> Program:
    """The commands of a lowered module, of one in layer groups, or of one with addresses.

    share: how many cores share the steps of every group; 0: as the module says.
    """
    assign, codegen = pipelines.commands(cores=share)
    before = () if model.state == State.ADDRESSED else (*_grouped_unless(model, opt, more), assign)
    return PassManager((*before, codegen)).program(model)


def _given(ranges: Ranges | None) -> PassContext:
    return PassContext(table=ranges) if isinstance(ranges, CalibrationTable) else PassContext(samples=ranges)


def _ranged(ranges: Ranges, *, asymmetric: bool) -> tuple[Pass, ...]:
    steps = pipelines.calibrated(config=MAX, asymmetric=asymmetric)
    return steps[-1:] if isinstance(ranges, CalibrationTable) else steps


def _lowered(chip: Chip, mode: Mode, ranges: Ranges | None, more: dict[str, Any]) -> tuple[Pass, ...]:
    config = chip if isinstance(chip, LoweringConfig) else LoweringConfig(chip, mode, **more)
    before = () if ranges is None else _ranged(ranges, asymmetric=config.asymmetric)
    return (*before, *pipelines.lowered(config))


def _grouped(opt: str | LayerGroupConfig, more: dict[str, Any]) -> tuple[Pass, ...]:
    config = opt if isinstance(opt, LayerGroupConfig) else LayerGroupConfig(opt, **more)
    return pipelines.grouped(config)[:-1]  # the machine computes ops of the host in NumPy, not by flat kernels


def _grouped_unless(model: Model, opt: str | LayerGroupConfig, more: dict[str, Any]) -> tuple[Pass, ...]:
    return () if model.state == State.GROUPED else _grouped(opt, more)
