"""Goals of a network in mixed precision."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tpusim.errors import ConfigError

Tensors = Mapping[str, np.ndarray]
Results = Sequence[Tensors]
"""The results of every sample, by name."""


class Goal(Protocol):
    """A measure of results and the value that it must reach; larger is better."""

    @property
    def target(self) -> float:
        """The value that a trial must reach."""
        ...

    @property
    def name(self) -> str:
        """The name of the measure."""
        ...

    def value(self, found: Results, wanted: Results) -> float:
        """The measure of the results; wanted: those of the float network for the same samples."""
        ...


def cosine(found: Results, wanted: Results) -> float:
    """The least cosine of any result, averaged over the samples; in f64, because losses of 1e-6 are compared."""
    return float(np.mean([min(_cosine(f[name], w[name]) for name in w) for f, w in zip(found, wanted, strict=True)]))


def mean_cosine(found: Results, wanted: Results) -> float:
    """The mean of the cosines of all results, in the order of the results, and over the samples."""
    each = [
        np.mean([_cosine(one, other) for one, other in zip(f.values(), w.values(), strict=True)])
        for f, w in zip(found, wanted, strict=True)
    ]
    return float(np.mean(each))


def _cosine(found: np.ndarray, wanted: np.ndarray) -> float:
    """The cosine of two tensors; 1 for equal tensors, 0 if one of them is all zeros or not finite."""
    one, other = (array.astype(np.float64).ravel() for array in (found, wanted))
    if np.array_equal(one, other):
        return 1.0
    with np.errstate(all="ignore"):
        value = float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))
    return value if isfinite(value) else 0.0


@dataclass(frozen=True)
class Cosine:
    """The cosine with the float network."""

    target: float
    name: str = "cosine"

    def value(self, found: Results, wanted: Results) -> float:
        """The cosine of the two results (`cosine`)."""
        return cosine(found, wanted)


@dataclass(frozen=True)
class TopOne:
    """Top-1 accuracy: the share of images whose largest value of the first result is at the label; labels: classes."""

    labels: np.ndarray
    target: float
    name: str = "top-1"

    def value(self, found: Results, wanted: Results) -> float:
        """Top-1 of all images; a sample may have several."""
        del wanted
        scores = [next(iter(one.values())) for one in found]
        per = len(self.labels) // len(scores)
        best = np.concatenate([array.reshape(per, -1).argmax(axis=1) for array in scores])
        return int(np.count_nonzero(best == self.labels)) / len(self.labels)


@dataclass(frozen=True)
class UserMetric:
    """A user's function, called with the results and those of the float network."""

    function: Callable[[Results, Results], Any]
    target: float
    name: str = "metric"

    def value(self, found: Results, wanted: Results) -> float:
        """The function's number. Raises ConfigError unless it is finite."""
        try:
            number = float(self.function(found, wanted))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"metric '{self.name}': one number is required as its result ({error})") from error
        if not isfinite(number):
            raise ConfigError(f"metric '{self.name}': a finite number is required as its result, got {number}")
        return number

    @classmethod
    def read(cls, text: str, target: float) -> "UserMetric":
        """Read `file.py:function`; the file is executed. Raises ConfigError."""
        path, colon, name = text.rpartition(":")
        if not colon or not Path(path).is_file():
            raise ConfigError(f"metric '{text}': file.py:function is required, there is no file '{path}'")
        spec = importlib.util.spec_from_file_location("tpusim_user_metric", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"metric '{text}': a Python file is required, got '{path}'")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ConfigError(f"metric '{text}': {path} cannot be executed: {error}") from error
        function = getattr(module, name, None)
        if not callable(function):
            raise ConfigError(f"metric '{text}': {path} must have a function '{name}', it has none")
        return cls(function, target, name)
