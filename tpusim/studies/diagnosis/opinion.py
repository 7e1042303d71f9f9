"""A second opinion on a lowered module: the tensors of an engine that owes nothing to the kernels of flat inference.

If both agree, an error of the network is one of its types, as the compiler chose them. A tensor on which they do not
agree is wrong in one of the two, whatever the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpusim.inference import run
from tpusim.ir.module import Model
from tpusim.registry import ENGINES

CLOSE = 1e-4
"""Floats agree within this share of a tensor's largest value: engines add in any order (docs/engines.md)."""


@dataclass(frozen=True)
class Difference:
    """A tensor on which both do not agree: how many of its elements differ, and by how much at most, as stored."""

    name: str
    differ: int
    elements: int
    largest: float


@dataclass(frozen=True)
class SecondOpinion:
    """What an engine says of one sample. different: in the order of execution; tensors: how many were compared."""

    engine: str
    tensors: int
    different: tuple[Difference, ...]


def second_opinion(engine: str, model: Model, sample: Mapping[str, np.ndarray]) -> SecondOpinion:
    """Compare all tensors of a lowered module. Raises UnsupportedError for a module that the engine refuses.

    Raises ConfigError if the engine's packages are not installed.
    """
    theirs = ENGINES.get(engine)(model, "all")(sample)
    ours = {name: array for name, array in run(model, sample).items() if name in theirs}
    found = (_difference(name, array, np.asarray(theirs[name])) for name, array in ours.items())
    return SecondOpinion(engine, len(ours), tuple(one for one in found if one is not None))


def _difference(name: str, ours: np.ndarray, theirs: np.ndarray) -> Difference | None:
    exact = ours.dtype.kind in "iub"
    one, other = ours.astype(np.float64), theirs.astype(np.float64).reshape(ours.shape)
    with np.errstate(invalid="ignore"):
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    finite = np.abs(one[np.isfinite(one)])
    limit = 0.0 if exact else CLOSE * float(finite.max(initial=0.0))
    differ = ~(apart <= limit)
    if not differ.any():
        return None
    return Difference(name, int(differ.sum()), ours.size, float(np.nan_to_num(apart, nan=np.inf).max()))
