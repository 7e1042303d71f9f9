"""A whole layer that a kernel of the library computes in global memory, and its time."""

from typing import Any, Self

from tpusim.chips import ChipSpec
from tpusim.isa import transfers
from tpusim.isa.commands.base import Command, Engine, TiuCommand
from tpusim.isa.decoding import kind_of
from tpusim.isa.region import View, itemsize
from tpusim.registry import COMMANDS

_PARTS = 8
"""What a tile of a kernel loads and stores fills one of this many equal parts of local memory (F-28)."""
_CAST_PARTS = 32
"""What a tile of a cast loads and stores fills one of this many equal parts of local memory (F-27)."""


class GlobalKernel(Command, frozen=True, tag="global"):
    """A whole layer computed from and to GMEM by a library kernel that tiles internally (layer_group.md DL-06).

    body: the TIU command that is computed, with GMEM operands; it never runs by itself.
    tiles: internal tiles; coefficients are loaded once per tile, inputs and outputs move once.
    Both engines are busy for max(TIU, DMA); ids and dependencies count on the TIU engine. Its tiles lie in local
    memory, anywhere in `work`; one tile may be stored before the next is loaded, so the result overlaps no operand.
    """

    outputs_ = ()
    works = "TIU and GDMA together"
    memory = "gmem"

    body: TiuCommand
    tiles: int = 1
    load_bytes: int = 0
    store_bytes: int = 0
    reason: str = ""
    """Why this layer is computed in global memory."""

    def reads(self) -> tuple[View, ...]:
        """The operands that the body reads."""
        return self.body.reads()

    def writes(self) -> tuple[View, ...]:
        """The results that the body writes."""
        return self.body.writes()

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """The command, with the class of its body; the body has the kernel's op and group unless it states others."""
        body = {"id": 0, "dep": 0, "op": fields.get("op", ""), "group": fields.get("group", -1), **fields["body"]}
        kind = kind_of(COMMANDS, body["cmd"])
        if issubclass(kind, GlobalKernel) or kind.engine != "tiu":
            raise ValueError(f"a TIU command is required for a global kernel to compute, got '{body['cmd']}'")
        return super().decoded(fields | {"body": kind.decoded(body)})

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The TIU computes the tiles that the GDMA moves."""
        return "tiu", "gdma"

    @property
    def stage(self) -> str:
        """Its stage is a kernel in global memory."""
        return "global"

    @property
    def computed(self) -> Command:
        """The body, which is computed."""
        return self.body

    def traffic(self) -> tuple[int, int]:
        """The bytes that its tiles load and store, and what the body states in addition."""
        load, store = self.body.traffic() if self.body.counts_transfers else (0, 0)
        return self.load_bytes + load, self.store_bytes + store

    def dma_ns(self, chip: ChipSpec) -> float:
        """Loads and stores, with one latency each per tile (DL-06); by runs on chips where runs count."""
        if self.body.counts_transfers:
            return 0.0
        if (known := self.body.kernel_transfers(chip)) is not None:
            return known.ns
        load, store = chip.kernel_gbs or chip.bandwidth.s2l, chip.kernel_gbs or chip.bandwidth.l2s
        loaded, stored = float(self.load_bytes), float(self.store_bytes)
        if chip.dma_run_bytes:
            loaded *= _lengthened(self.reads(), self.body, chip)
            stored *= _lengthened(self.writes(), self.body, chip)
        waits = max(self.tiles, self.body.kernel_tiles(chip))
        return waits * (chip.latency_ns("s2l") + chip.latency_ns("l2s")) + loaded / load + stored / store

    def pieces(self, chip: ChipSpec) -> float:
        """Number of pieces that it is cut in; one piece is moved while another is computed. A fraction, to avoid jumps.

        Decision: a piece's operands and result fill an eighth of local memory; the rest is for buffers and transfers.
        A piece of a cast fills a 32nd (in TPU-MLIR's profiles a 30th and a 34th). A kernel is written
        for its chip: a variant of the chip with more or less local memory has tiles of the same size.
        """
        parts = _CAST_PARTS if self.body.casts else _PARTS
        room = chip.kernel_memory_bytes or chip.lanes * chip.lmem_bytes
        moved = (self.load_bytes + self.store_bytes) * parts / room
        return max(1.0, moved, self.body.kernel_tiles(chip))


def _lengthened(views: tuple[View, ...], body: Command, chip: ChipSpec) -> float:
    """Factor by which the transfers of a kernel's operands take longer than their bytes alone."""
    size = sum(view.nbytes for view in views)
    return sum(_kernel_bytes(view, body, chip) for view in views) / size if size else 1.0


def _kernel_bytes(view: View, body: Command, chip: ChipSpec) -> float:
    """Equivalent bytes of the transfer of a kernel's operand, by matrix rows, channel planes or shares of lanes."""
    size = itemsize(view.dtype)
    if body.fills_lanes(chip):
        least = max(1, transfers.CAST_BYTES // min(itemsize(v.dtype) for _, v in body.operands()))
        return transfers.over_lanes(view, least, chip)
    run = body.kernel_run(view, chip) * size
    return transfers.by_runs(view.nbytes, run, transfers.pages(view, run, chip), chip)
