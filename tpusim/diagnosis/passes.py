"""The first rewriting that changes numbers: compares a module before and after every pattern and pass on one sample."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpusim.errors import TpusimError
from tpusim.inference import run
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model

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


class PassCheck:
    """Runs a module after every rewriting, and remembers the first rewriting that changed numbers.

    inputs: one sample by input name. Tensors are compared with those of the previous module, by name; a tensor with a
    new name by the framework's tensor that it equals.
    """

    def __init__(self, model: Model, inputs: Tensors) -> None:
        self._inputs = inputs
        self._now = self._run(model)
        self.checked = 0
        self.first: Change | None = None

    def __call__(self, name: str, model: Model) -> None:
        """Check one rewriting; after the first change nothing more is run."""
        if self.first is not None:
            return
        self.checked += 1
        try:
            after = self._run(model)
        except TpusimError as error:
            raise type(error)(f"after {name} (rewriting {self.checked}): {error}") from error
        self.first = _first_change(name, self.checked, self._now, after)
        self._now = after

    def restart(self, model: Model) -> None:
        """Continue from another module without comparing it with the previous one."""
        if self.first is None:
            self._now = self._run(model)

    def _run(self, model: Model) -> dict[str, np.ndarray]:
        work = model.clone()
        names = {op_name(op): framework_name(op) for op in work.ops}
        return {names.get(name, name): array for name, array in run(work, self._inputs).items()}


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
