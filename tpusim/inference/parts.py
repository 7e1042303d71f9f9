"""The parts that are joined into a network's results: the part of every element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import SSAValue

from tpusim.inference.executor import Steps
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import Array, TopOp
from tpusim.ops.interfaces import Joins
from tpusim.ops.structure import TopNone, TopWeight

Parts = tuple[np.ndarray, Sequence[str]]
"""(the number of the part of every element, the names of the parts)."""


def parts_of(top: Model) -> Mapping[str, Parts]:
    """Parts of every result of a top module that is joined from others, by name of the result.

    Parts are followed through ops that only move elements, so that a part is what one op computed.
    """
    return {value_name(value): _Traced(top).parts(value) for value in top.results if _is_joined(value)}


def _is_joined(value: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, TopOp) and (isinstance(op, Joins) or (op.MOVES and _is_joined(op.operands[0])))


@dataclass
class _Traced:
    """Runs the ops that move elements on the numbers of parts."""

    top: Model
    names: list[str] = field(default_factory=list[str])

    def parts(self, value: SSAValue) -> Parts:
        numbers = np.asarray(self._numbers(value)).astype(np.int32)
        return numbers, tuple(self.names)

    def _numbers(self, value: SSAValue) -> Array:
        op = value.owner
        if isinstance(op, TopOp) and isinstance(op, Joins):
            return self._moved(op, [self._numbers(v) for v in op.operands], value)
        if isinstance(op, TopOp) and op.MOVES and all(_is_constant(v) for v in op.operands[1:]):
            constants = [self._constant(v) for v in op.operands[1:]]
            return self._moved(op, [self._numbers(op.operands[0]), *constants], value)
        self.names.append(value_name(value))
        return np.full(shape_of(value), len(self.names) - 1, np.float32)  # ops that move elements expect reals

    def _moved(self, op: TopOp, operands: list[Array], value: SSAValue) -> Array:
        results = Steps.of(self.top).results(op, operands)
        return next(result for of, result in zip(op.results, results, strict=True) if of is value)

    def _constant(self, value: SSAValue) -> Array:
        return self.top.weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, TopWeight | TopNone)
