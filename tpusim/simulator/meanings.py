"""Which function computes a macro function: the registry's `MEANINGS`, by its name."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import Fn
from tpusim.isa.functions import Function
from tpusim.isa.region import View
from tpusim.registry import MEANINGS
from tpusim.simulator.integer import is_float

Operands = tuple[np.ndarray, ...]


@cache
def meaning_of(kind: type[Function]) -> Callable[[Any, Operands, View], np.ndarray]:
    """The Python function that computes a class of functions. Raises SimulationError if none is registered."""
    name = str(kind.__struct_config__.tag)
    if name not in MEANINGS:
        raise SimulationError(
            f"macro function '{name}': a meaning is required, none is registered; register a function of it, its "
            f"operands and its result under that name (entry points {MEANINGS.group})"
        )
    return MEANINGS.get(name)


def function(command: Fn, operands: Operands) -> np.ndarray:
    """The result of a macro command."""
    result = meaning_of(type(command.function))(command.function, operands, command.output)
    return result.astype(np.float32) if is_float(command.output.dtype) else result
