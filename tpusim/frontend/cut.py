"""`Cut`: a sub-network of a model, given by its inputs and outputs, and inputs that are fixed to values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpusim.errors import ConfigError


@dataclass(frozen=True)
class Cut:
    """The tensors that become inputs and outputs of a model, by ONNX name; none: the model's inputs or outputs.

    An input of the model that the outputs need in addition to `inputs` stays an input. A new input of unknown type is
    float32. values: constants for inputs of the model: one number for all elements, one number per element in order, or
    an array of the input's shape. Stored as Python numbers and lists of them.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Convert arrays to numbers and lists. Raises ConfigError for other values."""
        object.__setattr__(self, "values", {name: _numbers(name, value) for name, value in self.values.items()})

    def __bool__(self) -> bool:
        """Whether inputs, outputs or values are given, so that something is cut."""
        return bool(self.inputs or self.outputs or self.values)


WHOLE = Cut()
"""Nothing is cut: the whole network."""


def _numbers(name: str, value: Any) -> Any:
    """A number, or lists of numbers."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ConfigError(f"input '{name}': an array of numbers is required, its rows differ in length") from error
    if array.dtype.kind not in "biufV":  # V: bfloat16 and smaller floats
        raise ConfigError(f"input '{name}': a number or an array of numbers is required, got {value!r:.60}")
    return array.tolist()
