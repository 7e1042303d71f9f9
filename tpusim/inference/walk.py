"""A lazy run of a module, op by op, to examine every tensor of a large network in little memory."""

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from xdsl.ir import SSAValue

from tpusim.inference.executor import Environment, Steps, check_inputs, last_uses
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ops.framework.base import Array, ShapedOp
from tpusim.ops.structure import TopNone, TopWeight

Made = Callable[[SSAValue, np.ndarray], Array]
"""A function that gives the array that later ops read instead of a result."""


class Walk:
    """Tensors of one run by name. Each is computed when it or a later one is read, and dropped when it is taken.

    names: of the tensors that are kept until they are taken. made: called with every result of an op. A tensor that no
    remaining op reads is dropped. Raises ConfigError for inputs that do not fit.
    """

    def __init__(
        self, model: Model, inputs: Mapping[str, np.ndarray], names: Collection[str], made: Made | None = None
    ) -> None:
        self.names, self._made = names, made
        self._kept: dict[str, np.ndarray] = {}
        self._steps = self._walked(model, inputs)

    def see(self, name: str) -> np.ndarray | None:
        """A tensor that was not taken yet; None if it is not among the names."""
        if name not in self.names:
            return None
        while name not in self._kept:
            next(self._steps)
        return self._kept[name]

    def take(self, name: str) -> np.ndarray:
        """A tensor, which is then dropped."""
        self.see(name)
        return self._kept.pop(name)

    def _walked(self, model: Model, inputs: Mapping[str, np.ndarray]) -> Iterator[None]:
        steps, values, last = Steps.of(model), Environment(), last_uses(model)
        values.update(zip(model.body.args, check_inputs(model, inputs), strict=True))
        for op in model.ops:
            steps.step(op, values)
            computes = isinstance(op, ShapedOp) and not isinstance(op, TopWeight | TopNone)
            for value in op.results if computes else ():
                computed = np.asarray(values[value])
                if (name := value_name(value)) in self.names:
                    self._kept[name] = computed
                if self._made is not None:
                    values[value] = self._made(value, computed)
            for value in last.get(op, ()):
                values.pop(value, None)
            yield
