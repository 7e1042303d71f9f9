"""Address assignment as a pass."""

from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from tpusim.ir.module import Model, State
from tpusim.memory import AddressMode, assign_addresses, require_mode
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class AddressAssign(Pass):
    """Give every tensor an address in global memory.

    addr_mode: io_alone: no input and no result shares bytes with another tensor.
    """

    name = "address-assign"
    requires = frozenset({State.GROUPED})
    produces = State.ADDRESSED
    addr_mode: str = "basic"

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_mode(self.addr_mode)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return assign_addresses(model, cast("AddressMode", self.addr_mode))
