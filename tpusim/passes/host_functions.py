"""Outlining of host functions as a pass."""

from dataclasses import dataclass, replace
from itertools import count

from typing_extensions import override
from xdsl.ir import Block, Operation

from tpusim import chips
from tpusim.inference.host_functions import compiled
from tpusim.ir.attrs import op_name
from tpusim.ir.functions import HOST
from tpusim.ir.module import Model, State
from tpusim.ops.framework.host_functions import HostFunction, outlined
from tpusim.ops.structure import TopWeight, make_weight
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class OutlineHostFunctions(Pass):
    """Make functions of adjacent ops that only the host computes, and compile each to StableHLO once.

    The code is a constant with the name of the function, so that the program has it and the machine needs no op. A
    program without this pass calls the host for one op at a time, which the machine computes in NumPy.
    """

    name = "outline-host-functions"
    requires = frozenset({State.GROUPED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        chip, body = chips.of(model), model.body
        taken = {op_name(op) for op in body.walk()} | set(model.weights)
        names = (name for number in count() if (name := f"{HOST[0]}{number}") not in taken)
        for function in list(outlined(body, chip, lambda: next(names))):
            code = make_weight(model.weights, function.name, compiled(function, chip, model.weights))
            _put_before(function, code, body)
            replace(function, code=code).mark()
        return model


def _put_before(function: HostFunction, code: TopWeight, body: Block) -> None:
    """Put the code, then the constants that only this function reads, before its members, as its text has them."""
    members = set[Operation](function.members)
    read = {value.owner for value in function.arguments if all(use.operation in members for use in value.uses)}
    constants = [op for op in body.ops if isinstance(op, TopWeight) and op in read]
    for op in constants:
        op.detach()
    body.insert_ops_before([code, *constants], function.members[0])
