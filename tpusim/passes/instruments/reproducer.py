"""Crash reproducers: the module before the pass that raised, and the passes from there on, as files."""

from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.module import Model, save_model
from tpusim.ir.text import read_text
from tpusim.passes.base import Pass, Pipeline
from tpusim.passes.context import PassContext
from tpusim.passes.instruments.base import Instrument, Step
from tpusim.passes.text import parse_pipeline, print_pipeline

HEAD = "// tpusim opt --run-reproducer: "
"""What the file's first line begins with; the pipeline follows."""


class Kept(NamedTuple):
    """The module before a pass, the passes from there on to the end of the pipeline, and their context."""

    model: Model
    steps: tuple[Pass, ...]
    ctx: PassContext


class Reproducer(Instrument):
    """Writes a module, its weights and the remaining pipeline when a pass raises.

    path: the `.mlir` file. The module is the one before the outermost pass that raised, or before the pass that began
    what this one continues; what travels with it, a calibration table, is written next to it. wrote: the path, once it
    is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: Kept | None = None
        self._following: list[tuple[Pass, ...]] = []
        self.wrote: Path | None = None

    @override
    def before(self, step: Step) -> None:
        if _outermost(step) and not self._is_begun(step):
            self._kept = Kept(step.model.clone(), self._remaining(step), step.ctx)
        self._following.append(step.rest)

    def _is_begun(self, step: Step) -> bool:
        """Whether the pass continues what a pass of the same run began."""
        return step.step.continues and self._kept is not None and self._kept.ctx is step.ctx

    def _remaining(self, step: Step) -> tuple[Pass, ...]:
        """The pass and all after it, in the pipelines that they are in."""
        steps = step.step, *step.rest
        for around, following in zip(reversed(step.path[:-1]), reversed(self._following), strict=True):
            steps = Pipeline(steps, around.title), *following
        return steps

    @override
    def after(self, step: Step) -> None:
        self._following.pop()

    @override
    def failed(self, step: Step, error: Exception) -> None:
        if not self._following:
            return
        if _outermost(step) and self.wrote is None and self._kept is not None:
            self._write(self._kept)
            error.add_note(f"`tpusim opt --run-reproducer {self._path}` runs pass {step.name} again")
        self._following.pop()

    def _write(self, kept: Kept) -> None:
        alone = Pipeline(tuple(one.alone(kept.ctx, self._path) for one in kept.steps))
        save_model(kept.model, self._path, weight_file=f"{self._path.stem}_weights.npz")
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
