"""A float network on several samples at once, op by op: each op is one function that computes sample after sample.

As in a whole graph, a call starts once for all samples. But an op compiles in little memory, is shared by all equal
ops, and is kept on disk. Nothing is merged over samples, so the bits are those of one sample alone.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tpusim_kernels
from tpusim_kernels.lazy import jax, lax
from tpusim_kernels.store import Stored, text_of
from xdsl.ir import Operation

from tpusim.inference.executor import Environment, Steps, check_inputs
from tpusim.ir.attrs import value_name
from tpusim.ir.described import described
from tpusim.ir.module import Model
from tpusim.ops.framework.base import Array, ShapedOp


class Stacked:
    """A top module as a function of lists of samples. keep: names of the tensors to return."""

    def __init__(self, model: Model, keep: Sequence[str]) -> None:
        self._model, self._keep, self._steps = model, tuple(keep), Steps.of(model)
        self._functions: dict[str, Stored] = {}
        self._by_op: dict[Operation, Stored] = {}

    def __call__(self, samples: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """The kept tensors of every sample. Raises ConfigError for inputs that do not fit."""
        rows = [check_inputs(self._model, sample) for sample in samples]
        with jax.enable_x64(True):
            found = self._run([np.stack(column) for column in zip(*rows, strict=True)], len(rows))
        return [{name: found[name][i] for name in self._keep} for i in range(len(rows))]

    def _run(self, arguments: Sequence[np.ndarray], count: int) -> dict[str, np.ndarray]:
        """The kept tensors by name, each of all samples."""
        stacked: Environment = dict(zip(self._model.body.args, arguments, strict=True))
        single, found = Environment(), dict[str, np.ndarray]()
        for op in self._model.ops:
            if isinstance(op, ShapedOp) and any(v in stacked for v in op.operands):
                parts = [[values[v] for v in op.operands if v in values] for values in (single, stacked)]
                stacked.update(
                    zip(op.results, self._function(op, [v in stacked for v in op.operands])(*parts), strict=True)
                )
            else:
                self._steps.step(op, single)
            for value in op.results:
                if (name := value_name(value)) in self._keep:
                    found[name] = np.asarray(stacked[value]) if value in stacked else _repeated(single[value], count)
        return found

    def _function(self, op: ShapedOp, mapped: Sequence[bool]) -> Stored:
        """An op's function of (operands that all samples share, operands of every sample)."""
        if op not in self._by_op:
            text = _text(op, mapped)
            self._by_op[op] = self._functions.setdefault(
                text, Stored(self._body(op, mapped), lambda: _identity(op, text))
            )
        return self._by_op[op]

    def _body(self, op: ShapedOp, mapped: Sequence[bool]) -> Any:
        def each_sample(shared: list[Any], stacked: list[Any]) -> Any:
            def one(own: list[Any]) -> Any:
                sources = iter(shared), iter(own)
                return self._steps.results(op, [next(sources[is_own]) for is_own in mapped])

            return cast("Any", lax).map(one, stacked)

        return each_sample


def _repeated(array: Array, count: int) -> np.ndarray:
    """An array that all samples share, repeated for each sample."""
    single = np.asarray(array)
    return np.broadcast_to(single, (count, *single.shape))


def _text(op: ShapedOp, mapped: Sequence[bool]) -> str:
    """A text of everything that an op's function depends on except the program."""
    return repr((described(op), list(mapped)))


def _identity(op: ShapedOp, text: str) -> str | None:
    """The name of the compiled function: the op and the texts of both packages; None for an op of another package."""
    if not type(op).__module__.startswith("tpusim."):
        return None
    texts = text_of(Path(tpusim_kernels.__file__).parent), text_of(Path(__file__).parents[1])
    return hashlib.sha256(repr((text, texts)).encode()).hexdigest()
