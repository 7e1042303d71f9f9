"""A second opinion on a lowered module: the tensors of an engine that owes nothing to the kernels of flat inference.

If both agree, an error of the network is one of its types, as the compiler chose them. A tensor on which they do not
agree is wrong in one of the two, whatever the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpusim.inference import run
from tpusim.ir.module import Model
from tpusim.registry import ENGINES

CLOSE = 1e-4
"""Floats agree within this share of a tensor's largest value: engines add in any order (docs/engines.md)."""


@dataclass(frozen=True)
class Difference:
    """A tensor on which both do not agree.

    differ: how many of its elements on all samples; largest: by how much at most, as stored.
    """

    name: str
    differ: int
    elements: int
    largest: float


@dataclass(frozen=True)
class SecondOpinion:
    """What an engine says of samples. different: in the order of execution; tensors: how many were compared of each."""

    engine: str
    samples: int
    tensors: int
    different: tuple[Difference, ...]


def second_opinion(engine: str, model: Model, samples: Sequence[Mapping[str, np.ndarray]]) -> SecondOpinion:
    """Compare all tensors of a lowered module on samples, of which at least one is given.

    Raises UnsupportedError for a module that the engine refuses, ConfigError if its packages are not installed.
    """
    other = ENGINES.get(engine)(model, "all")
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for sample in samples:
        theirs, ours = other(sample), run(model, sample)
        for name in (name for name in ours if name in theirs):
            found.setdefault(name, []).append(_apart(ours[name], np.asarray(theirs[name])))
    each = (_difference(name, parts) for name, parts in found.items())
    return SecondOpinion(engine, len(samples), len(found), tuple(one for one in each if one.differ))


def _apart(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far elements are apart, and which are too far."""
    one, other = ours.astype(np.float64), theirs.astype(np.float64).reshape(ours.shape)
    with np.errstate(invalid="ignore"):
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    finite = np.abs(one[np.isfinite(one)])
    limit = 0.0 if ours.dtype.kind in "iub" else CLOSE * float(finite.max(initial=0.0))
    return np.nan_to_num(apart, nan=np.inf), ~(apart <= limit)


def _difference(name: str, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Difference:
    return Difference(
        name,
        sum(int(far.sum()) for _, far in parts),
        sum(apart.size for apart, _ in parts),
        max((float(apart.max()) for apart, far in parts if far.any()), default=0.0),
    )
