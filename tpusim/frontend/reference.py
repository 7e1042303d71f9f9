"""What a network's own framework computes, whatever it is: the first of the levels that are compared."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import numpy as np

from tpusim.errors import ConfigError
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model

Tensors = dict[str, np.ndarray]
Function: TypeAlias = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Tensors by name from network inputs by name."""


class Reference(Protocol):
    """Computes a network as its framework does. Tensors have the framework's names (`as_called` has the module's)."""

    level: str
    """What comparisons call it: `onnx` gives `top_vs_onnx`."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        """All intermediate tensors that the framework gives, and the results, for one set of inputs by name."""
        ...


class FunctionReference:
    """A Python function as the reference: it takes arrays by input name, and gives as many tensors as it likes.

    Only tensors that the module has under the same name are compared; there must be one.
    """

    level = "function"

    def __init__(self, function: Function) -> None:
        self._function = function

    def run(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        """Call the function. Raises ConfigError if it gives something else than arrays by name."""
        found = self._function(inputs)
        if not isinstance(found, Mapping) or not all(isinstance(v, np.ndarray) for v in found.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"reference: a dict of NumPy arrays by tensor name is required, got {type(found).__name__}"
            )
        return dict(found)


def as_called(model: Model, tensors: Mapping[str, np.ndarray]) -> Tensors:
    """Tensors by the framework's name -> the same under the names of the module's ops that equal them.

    A tensor that the module does not have (a Conv before its batch norm) keeps its name.
    """
    names = {framework_name(op): op_name(op) for op in model.ops}
    called = {names[tensor]: array for tensor, array in tensors.items() if tensor in names}
    return {name: array for name, array in tensors.items() if name not in names and name not in called} | called
