"""The results of a network in its framework: the first of the compared levels."""

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
    """Computes a network in its framework. Tensors have the framework's names; `as_called` renames them."""

    level: str
    """The name of the level in comparisons: `onnx` gives `top_vs_onnx`."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        """All intermediate tensors that the framework gives, and the results, for one set of inputs by name."""
        ...


class FunctionReference:
    """A Python function as the reference: from arrays by input name to any number of tensors by name.

    Only tensors with the same name in the module are compared; at least one is required.
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
    """Tensors by the framework's names, renamed to the module's ops whose results equal them.

    A tensor that the module lacks (a Conv before its batch norm) keeps its name.
    """
    names = {framework_name(op): op_name(op) for op in model.ops}
    called = {names[tensor]: array for tensor, array in tensors.items() if tensor in names}
    return {name: array for name, array in tensors.items() if name not in names and name not in called} | called
