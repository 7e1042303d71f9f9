"""What a pass sees in addition to the module: its weights, what is not IR, and the instruments that watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline

from tpusim.errors import ImportModelError
from tpusim.ir.module import Model, ModelContext
from tpusim.ir.rewriting import watching
from tpusim.passes.instruments.base import Instrument, Step

if TYPE_CHECKING:  # what stages make: a pipeline without them imports none
    from tpusim.calibration.table import CalibrationTable
    from tpusim.host.workers import Workers
    from tpusim.isa.stream import Program
    from tpusim.layer_group import Costs
    from tpusim.lowering import Conversion
    from tpusim.lowering.lower import Fallback
    from tpusim.passes.base import Pass

Tensors = Iterable[Mapping[str, np.ndarray]]
"""Samples: arrays by input name."""


@dataclass
class PassContext(ModelContext):
    """The context of one run of a pipeline.

    Given by the caller: table, samples (of the calibration passes), costs (of layer groups that are known already),
    workers, progress and calibration_state (of the calibration: a file that it continues from). Made by passes: table,
    measured (number of samples that it was measured with), patterns (firings by class name), conversion (the lowering
    in progress), fallbacks, program.
    """

    table: CalibrationTable | None = None
    samples: Tensors | None = None
    costs: Costs | None = None
    workers: Workers | None = None
    progress: Callable[[int], None] | None = None
    calibration_state: Path | None = None
    measured: int = 0
    patterns: Counter[str] = field(default_factory=Counter[str])
    conversion: Conversion | None = None
    fallbacks: list[Fallback] = field(default_factory=list["Fallback"])
    program: Program | None = None
    instruments: tuple[Instrument, ...] = ()
    path: tuple[Pass, ...] = ()
    """The passes that run: one, and if it consists of steps the step that runs."""

    def model(self, module: ModuleOp) -> Model:
        """The module with its weights."""
        return Model(module, self.weights)

    def run(self, steps: Sequence[Pass], module: ModuleOp) -> None:
        """Apply passes in order, watched by the instruments. Raises ImportModelError for a module in a wrong state."""
        rest = list(steps)

        def between(done: ModulePass | None, op: ModuleOp, following: ModulePass | None) -> None:
            if done is not None:
                self._after(op)
            if following is not None:
                self._before(rest.pop(0), op, tuple(rest))

        depth, watched = len(self.path), any(one.watches_patterns for one in self.instruments)
        try:
            with watching(self if watched else None):
                PassPipeline(tuple(steps), between).apply(self, module)
        except Exception as error:
            if len(self.path) > depth:
                step = Step(self.path, self.model(module), self)
                for instrument in self.instruments:
                    instrument.failed(step, error)
            raise
        finally:
            self.path = self.path[:depth]

    def tried(self, pattern: str, model: Model, seconds: float, *, fired: bool) -> None:
        """A rewrite pattern was tried; see `tpusim.ir.rewriting.Watch`."""
        step = Step(self.path, model, self)
        for instrument in self.instruments:
            if instrument.watches_patterns:
                instrument.tried(pattern, step, seconds, fired=fired)

    def _before(self, step: Pass, module: ModuleOp, rest: tuple[Pass, ...]) -> None:
        model = self.model(module)
        self.path = (*self.path, step)
        for instrument in self.instruments:
            instrument.before(Step(self.path, model, self, rest))
        if model.state and model.state not in step.requires:
            raise ImportModelError(
                f"pass {step.name}: a module in state {' or '.join(sorted(step.requires))} is required, "
                f"'{model.name}' is in state {model.state}; run the passes in order"
            )

    def _after(self, module: ModuleOp) -> None:
        step = Step(self.path, self.model(module), self)
        for instrument in reversed(self.instruments):
            instrument.after(step)
        self.path = self.path[:-1]
