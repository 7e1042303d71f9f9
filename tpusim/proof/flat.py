"""The module over a finite field, op by op: what every tensor is for all inputs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.codegen.program import coefficients_of
from tpusim.field import Elements, Field
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.framework.host_functions import host_function_of, layer_of, layer_operands
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TopInput, TopNone, TopWeight, TpuGroup, TpuStore, TpuYield, Transfer
from tpusim.proof.uncut import UncutContext, weight_of
from tpusim.registry import FIELD_OPS
from tpusim.simulator.field import FieldMachine, NotJudged
from tpusim.simulator.memory import Region

_PADDING = 1 << 24
"""Elements are numbered from here on where they move, so that padding is told apart."""


@dataclass
class FlatElements:
    """Elements of every tensor by name; what is not judged is missing.

    stated, uncut: ops judged by their field meaning, and by their commands on whole tensors. unjudged: op -> why.
    """

    tensors: dict[str, Elements] = field(default_factory=dict[str, Elements])
    inputs: dict[str, Elements] = field(default_factory=dict[str, Elements])
    stated: list[str] = field(default_factory=list[str])
    uncut: dict[str, str] = field(default_factory=dict[str, str])
    unjudged: dict[str, str] = field(default_factory=dict[str, str])


class FlatProof:
    """Interprets the ops of an addressed module."""

    def __init__(self, model: Model, field: Field) -> None:
        self._start(model, field)
        self._chip: ChipSpec = chips.of(model)
        start, image = model.number("module.coeff_addr"), coefficients_of(model)
        region = Region("coefficients", start, image.size, writable=False)
        self._constants = FieldMachine(self._chip, (region,), image, 64, field=field)

    def _start(self, model: Model, field: Field) -> None:
        self._model, self._field = model, field
        self._values: dict[SSAValue, Elements | None] = {}
        self.found = FlatElements()

    def run(self) -> FlatElements:
        """The elements of all tensors."""
        self._values = dict.fromkeys(self._model.body.args)
        self._block(self._model.body)
        return self.found

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._step(op)

    def _step(self, op: Operation) -> None:
        if isinstance(op, TopInput):
            self._values[op.output] = self._input(op)
        elif isinstance(op, TopWeight | TopNone):
            self._values[op.results[0]] = None
        elif isinstance(op, TpuGroup):
            self._block(op.body.block)
            last = op.body.block.last_op
            assert isinstance(last, TpuYield)
            for result, value in zip(op.results, last.operands, strict=True):
                self._values[result] = self._values[value]
        elif isinstance(op, Transfer):
            self._transfer(op)
        elif self._is_inside(op):
            self._values.update(dict.fromkeys(op.results))
        elif isinstance(op, TpuOp):
            self._record(op, self._computed(op))

    def _input(self, op: TopInput) -> Elements:
        found = self._field.random(shape_of(op.output), "input", op_name(op))
        self.found.inputs[op_name(op)] = found
        return found

    def _record(self, op: TopOp | TpuOp, results: Iterable[Elements | None]) -> None:
        for value, elements in zip(op.results, results, strict=True):
            self._values[value] = elements
            if elements is not None:
                self.found.tensors[value_name(value)] = elements

    def _transfer(self, op: Transfer) -> None:
        given = self._values[op.input]
        if given is None or weight_of(op.output) is not None:
            self._values[op.output] = given
            return
        found = moved(op, given, self._field)
        self._values[op.output] = found
        if isinstance(op, TpuStore):
            self.found.tensors.setdefault(op.tensor, found)

    def _is_inside(self, op: Operation) -> bool:
        """Whether the result of an op exists in a host function only."""
        return layer_of(op) is not op

    def _read_by(self, op: Operation) -> Sequence[SSAValue]:
        """What the layer of an op reads."""
        return layer_operands(op)

    def _computed(self, op: TopOp | TpuOp) -> Sequence[Elements | None]:
        read = self._read_by(op)
        given = [self._values[value] for value in read]
        missing = [
            value
            for value, elements in zip(read, given, strict=True)
            if elements is None and weight_of(value) is None and not isinstance(value.owner, TopNone)
        ]
        if missing:
            return [None] * len(op.results)
        try:
            return self._judged(op, given)
        except NotJudged as why:
            self.found.unjudged[op_name(op)] = f"{op.name}: {why}"
            return [None] * len(op.results)

    def _judged(self, op: TopOp | TpuOp, given: Sequence[Elements | None]) -> Sequence[Elements]:
        assert isinstance(op, TpuOp)  # an addressed module has no other
        if is_in_place(op):
            self.found.stated.append(op_name(op))
            source = given[0]
            assert source is not None
            return [source.reshape(shape_of(op.results[0]))]
        uncut = UncutContext(op, self._chip, self._constants)
        if op.name in FIELD_OPS and host_function_of(op) is None:
            operands = [
                uncut.constant(value) if weight_of(value) is not None else elements
                for value, elements in zip(op.operands, given, strict=True)
            ]
            found = FIELD_OPS.get(op.name)(op, operands, self._field)
            if found is not None:
                self.found.stated.append(op_name(op))
                return [found.reshape(shape_of(op.results[0]))]
        self.found.uncut[op_name(op)] = op.name
        return uncut.computed(given)


def moved(op: Transfer, x: Elements, field: Field) -> Elements:
    """What a transfer makes of elements: it moves them, and may set a border around them."""
    numbers = (np.arange(x.size) + _PADDING).reshape(x.shape)
    places = np.asarray(op.inference([numbers])[0])
    border = field.constant(op.pad_value) if isinstance(op, TpuStore) else 0
    return np.where(places >= _PADDING, x.reshape(-1)[np.maximum(places - _PADDING, 0)], border)
