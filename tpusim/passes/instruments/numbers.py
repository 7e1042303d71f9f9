"""The first rewriting that changes numbers: compares a module before and after every pattern and pass on one sample."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from tpusim.errors import TpusimError
from tpusim.inference import run
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model
from tpusim.ops.structure import TopInput
from tpusim.passes.instruments.base import Instrument, Step

Tensors = Mapping[str, np.ndarray]

FLOAT_TOLERANCE = 1e-4
"""How far a float tensor may change, relative to its largest magnitude: constants are folded in f64 and narrowed once,
and sums of thousands of f32 products are taken in another order. Integers may not change at all."""


@dataclass(frozen=True)
class Change:
    """A rewriting that changed a tensor. firing: its number among the checked rewritings, from 1; moved, largest: the
    greatest difference and the greatest magnitude before; allowed: the tolerated share of that magnitude.
    """

    rewriting: str
    firing: int
    tensor: str
    moved: float
    largest: float
    allowed: float

    def __str__(self) -> str:
        share = self.moved / self.largest if self.largest else float("inf")
        return (
            f"{self.rewriting} (rewriting {self.firing}) changed numbers: '{self.tensor}' by {self.moved:.6g}, "
            f"{share:.3g} of its largest magnitude {self.largest:.6g}; {self.allowed:g} is allowed"
        )


class NumbersChanged(Instrument):
    """Runs the module after every pattern and pass that keeps numbers, and remembers the first that changed some.

    inputs: one sample by input name, or the function that gives it for the first module. Tensors are compared with
    those of the module before, by name, and where a name is new, by the framework's tensor that it equals. After a pass
    that changes numbers on purpose, and after the first change, nothing is compared with what was before. Once inputs
    are others than those of the sample (frames in place of images), no module is run any more, which the report says.
    """

    watches_patterns = True

    def __init__(self, inputs: Tensors | Callable[[Model], Tensors]) -> None:
        self._inputs = inputs
        self._sample: Tensors = {}
        self._now: Tensors | None = None
        self._beyond = ""
        self.checked = 0
        self.first: Change | None = None

    @override
    def before(self, step: Step) -> None:
        if self._now is not None or self.first is not None or self._beyond:
            return
        if self._sample and not _takes(step.model, self._sample):
            self._beyond = step.name  # frames in place of images: the sample does not say what they were
            return
        self._sample = self._inputs(step.model) if callable(self._inputs) else self._inputs
        self._now = self._run(step.model)

    @override
    def after(self, step: Step) -> None:
        if step.step.reads_only or step.step.composite:
            return
        if all(one.exact for one in step.path):
            self._check(step.name, step.model)
        else:
            self._now = None

    @override
    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        if fired and all(one.exact for one in step.path):
            self._check(pattern, step.model)

    @override
    def report(self) -> Iterator[str]:
        if self.first is None:
            rest = f"; not checked from {self._beyond} on, which takes other inputs than the sample"
            yield f"verify-passes: {self.checked} patterns and passes changed no numbers{rest if self._beyond else ''}"
        else:
            yield f"verify-passes: {self.first}"

    def _check(self, name: str, model: Model) -> None:
        """Check one; after the first change nothing more is run."""
        if self.first is not None or self._now is None:
            return
        self.checked += 1
        try:
            after = self._run(model)
        except TpusimError as error:
            raise type(error)(f"after {name} (rewriting {self.checked}): {error}") from error
        self.first = _first_change(name, self.checked, self._now, after)
        self._now = after

    def _run(self, model: Model) -> dict[str, np.ndarray]:
        work = model.clone()
        names = {op_name(op): framework_name(op) for op in work.ops}
        return {names.get(name, name): array for name, array in run(work, self._sample).items()}


def _takes(model: Model, sample: Tensors) -> bool:
    """Whether the inputs of a module are those of a sample."""
    inputs = [op for op in model.ops if isinstance(op, TopInput)]
    return not any(op.takes_frames or op_name(op) not in sample for op in inputs)


def _first_change(rewriting: str, firing: int, before: Tensors, after: Tensors) -> Change | None:
    """The first tensor in program order that changed; None if all common tensors are the same."""
    for name, now in after.items():
        was = before.get(name)
        if was is None or was.size != now.size:
            continue
        moved, largest = _distance(was, now)
        allowed = 0.0 if np.issubdtype(was.dtype, np.integer) and was.dtype == now.dtype else FLOAT_TOLERANCE
        if not moved <= allowed * largest:  # NaN too
            return Change(rewriting, firing, name, moved, largest, allowed)
    return None


def _distance(was: np.ndarray, now: np.ndarray) -> tuple[float, float]:
    """(greatest difference, greatest magnitude before); values that are not finite must not change."""
    a, b = was.astype(np.float64).ravel(), now.astype(np.float64).ravel()
    finite = np.isfinite(a)
    largest = float(np.abs(a[finite]).max(initial=0.0))
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("nan"), largest
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)), largest
