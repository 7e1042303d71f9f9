"""Crash reproducers: the module before the pass that raised, and the passes from there on, as files."""

from pathlib import Path

from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.module import Model, save_model
from tpusim.ir.text import read_text
from tpusim.passes.base import Pass, Pipeline
from tpusim.passes.instruments.base import Instrument, Step
from tpusim.passes.text import parse_pipeline, print_pipeline

HEAD = "// tpusim opt --run-reproducer: "
"""What the file's first line begins with; the pipeline follows."""


class Reproducer(Instrument):
    """Writes a module, its weights and the remaining pipeline when a pass raises.

    path: the `.mlir` file. The module is the one before the outermost pass that raised; what travels with it, a
    calibration table, is written next to it. wrote: the path, once it is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: list[tuple[Model, tuple[Pass, ...]]] = []
        self.wrote: Path | None = None

    @override
    def before(self, step: Step) -> None:
        kept = step.model.clone() if _outermost(step) else step.model
        self._before.append((kept, (step.step, *step.rest)))

    @override
    def after(self, step: Step) -> None:
        self._before.pop()

    @override
    def failed(self, step: Step, error: Exception) -> None:
        if not self._before:
            return
        if _outermost(step) and self.wrote is None:
            self._write(step)
            error.add_note(f"`tpusim opt --run-reproducer {self._path}` runs pass {step.name} again")
        self._before.pop()

    def _write(self, step: Step) -> None:
        model, steps = self._before[-1]
        for around, (_, following) in zip(reversed(step.path[:-1]), reversed(self._before[:-1]), strict=True):
            steps = (Pipeline(steps, around.title), *following[1:])
        alone = Pipeline(tuple(one.alone(step.ctx, self._path) for one in steps))
        save_model(model, self._path, weight_file=f"{self._path.stem}_weights.npz")
        text = self._path.read_text(encoding="utf-8")
        self._path.write_text(f"{HEAD}{print_pipeline(alone)}\n{text}", encoding="utf-8")
        self.wrote = self._path


def _outermost(step: Step) -> bool:
    """Whether the pass is no step of another one; pipelines around it do not count."""
    return not isinstance(step.step, Pipeline) and all(isinstance(one, Pipeline) for one in step.path[:-1])


def read_reproducer(path: Path) -> Pipeline:
    """The pipeline of a reproducer. Raises ConfigError for a file that is none."""
    first = read_text(path).partition("\n")[0]
    if not first.startswith(HEAD):
        raise ConfigError(f"{path}: a reproducer is required, whose first line begins with '{HEAD.strip()}'")
    return parse_pipeline(first.removeprefix(HEAD))
