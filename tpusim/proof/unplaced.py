"""The tensors of a module over a finite field, whatever its state: of top ops, or lowered, without addresses.

A constant is what its bytes are, wherever they lie, so that passes may move and repack them. An op of the top dialect
moves elements, or is an uninterpreted function of the elements at one place, or else of its whole operands; a relu in
it is a relu after it. So is an op of the tpu dialect, or a form of it, without a field meaning.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from typing_extensions import override
from xdsl.ir import Operation, SSAValue

from tpusim.field import Elements, Field
from tpusim.field.integers import clamped
from tpusim.field.selected import of_whole
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.upstream import OWN, REMARKS
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.framework.families import NaryTop, UnaryTop, command_dtype, relu_limit_of, relu_of
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.relu import TopRelu
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.proof.flat import FlatProof
from tpusim.proof.uncut import weight_of
from tpusim.registry import FIELD_OPS

_RELU = ("do_relu", "relu_limit")


class UnplacedProof(FlatProof):
    """Interprets the ops of a module."""

    def __init__(self, model: Model, field: Field) -> None:
        self._start(model, field)

    @override
    def _step(self, op: Operation) -> None:
        if isinstance(op, TopOp) and not isinstance(op, TopInput | TopWeight | TopNone):
            self._record(op, self._computed(op))
        else:
            super()._step(op)

    @override
    def _is_inside(self, op: Operation) -> bool:
        """Never: every op is judged by itself."""
        return False

    @override
    def _read_by(self, op: Operation) -> Sequence[SSAValue]:
        return op.operands

    @override
    def _judged(self, op: TopOp | TpuOp, given: Sequence[Elements | None]) -> Sequence[Elements]:
        operands = [
            self._constant(weight) if (weight := weight_of(value)) is not None else elements
            for value, elements in zip(op.operands, given, strict=True)
        ]
        first = operands[0]
        if isinstance(op, TpuOp) and is_in_place(op) and first is not None:
            return [first.reshape(shape_of(op.results[0]))]
        found = self._top(op, operands) if isinstance(op, TopOp) else self._stated(op, operands)
        if found is not None:
            return [found.reshape(shape_of(op.results[0]))]
        self.found.uncut[op_name(op)] = op.name
        present, results = [x for x in operands if x is not None], enumerate(op.results)
        return [self._rectified(op, of_whole(self._field, (*_key(op), i), present, shape_of(v))) for i, v in results]

    def _stated(self, op: TpuOp, operands: Sequence[Elements | None]) -> Elements | None:
        return FIELD_OPS.get(op.name)(op, operands, self._field) if op.name in FIELD_OPS else None

    def _top(self, op: TopOp, operands: Sequence[Elements | None]) -> Elements | None:
        """What an op that moves elements, or computes each by itself, makes of them; None for any other."""
        if isinstance(op, TopRelu):
            return self._rectified(op, cast("Elements", operands[0]))
        if op.MOVES and not op.INDICES:
            return np.asarray(op.inference(cast("list[np.ndarray]", operands))[0], np.int64)
        if isinstance(op, NaryTop) or (isinstance(op, UnaryTop) and not hasattr(op, "axis")):
            found = self._field.apply(_key(op), *(x for x in operands if x is not None))
            return self._rectified(op, np.broadcast_to(found, shape_of(op.results[0])))
        return None

    def _rectified(self, op: Operation, x: Elements) -> Elements:
        limit = relu_limit_of(op)
        relu = isinstance(op, TopRelu) or (isinstance(op, TopOp) and relu_of(op))
        return clamped(self._field, x, 0, limit if limit >= 0 else None) if relu else x

    def _constant(self, weight: TopWeight) -> Elements:
        """The elements of a constant by their bytes."""
        array = np.ascontiguousarray(self._model.weights[op_name(weight)])
        cells = self._field.apply(("constant byte",), np.arange(256))[array.reshape(-1).view(np.uint8)]
        found = self._field.of_bytes(cells.reshape(array.size, -1), command_dtype(element_of(weight.output)))
        return found.reshape(shape_of(weight.output))


def _key(op: TopOp | TpuOp) -> tuple[str, ...]:
    """The name of an op as a function: its class and attributes; without the relu of a top op, which is apart."""
    stated = {name.removeprefix(OWN): value for name, value in op.attributes.items() if name not in REMARKS}
    without = _RELU if isinstance(op, TopOp) else ()
    return (op.name, *sorted(f"{name}={value}" for name, value in stated.items() if name not in without))
