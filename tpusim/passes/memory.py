"""Address assignment as a pass."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim.ir.module import Model, State
from tpusim.memory import assign_addresses
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class AddressAssign(Pass):
    """Give every tensor an address in global memory."""

    name = "address-assign"
    requires = frozenset({State.GROUPED})
    produces = State.ADDRESSED

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return assign_addresses(model)
