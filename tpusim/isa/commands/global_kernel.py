"""A whole layer that a kernel of the library computes in global memory."""

from typing import Any, Self

from tpusim.isa.commands.base import Command, TiuCommand
from tpusim.isa.decoding import kind_of
from tpusim.isa.region import View
from tpusim.registry import COMMANDS


class GlobalKernel(Command, frozen=True, tag="global"):
    """A whole layer computed from and to GMEM by a library kernel that tiles internally (layer_group.md DL-06).

    body: the TIU command with GMEM operands that says what is computed; it never runs on its own.
    tiles: internal tiles; coefficients are loaded once per tile, inputs and outputs move once.
    Both engines are busy for max(TIU, DMA); ids and dependencies count on the TIU engine. Its tiles lie in local
    memory, anywhere in `work`; one may be stored before the next is loaded, so the result is apart from the operands.
    """

    outputs_ = ()

    body: TiuCommand
    tiles: int = 1
    load_bytes: int = 0
    store_bytes: int = 0
    reason: str = ""
    """Why this layer is not in local memory."""

    def reads(self) -> tuple[View, ...]:
        """The operands that the body reads."""
        return self.body.reads()

    def writes(self) -> tuple[View, ...]:
        """The results that the body writes."""
        return self.body.writes()

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """As of any command, with the body's class; op and group of the body are the kernel's unless it says others."""
        body = {"id": 0, "dep": 0, "op": fields.get("op", ""), "group": fields.get("group", -1), **fields["body"]}
        kind = kind_of(COMMANDS, body["cmd"])
        if issubclass(kind, GlobalKernel) or kind.engine != "tiu":
            raise ValueError(f"a TIU command is required for a global kernel to compute, got '{body['cmd']}'")
        return super().decoded(fields | {"body": kind.decoded(body)})
