"""The time of an op's or a transfer's commands, before addresses are assigned."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name
from tpusim.isa.commands import (
    ChannelRescale,
    Command,
    Fill,
    FillKind,
    GlobalKernel,
    Move,
    MoveRows,
    Rescale,
    TransferKind,
    tile_step,
)
from tpusim.isa.cycles import command_ns
from tpusim.isa.region import View
from tpusim.kernel_library import Piece, Transfer, turns_of
from tpusim.layer_group.slicing import extents
from tpusim.ops.framework.base import TensorSlice, TpuOp
from tpusim.ops.framework.emission import Placed, SliceContext, WholeContext
from tpusim.ops.framework.views import gmem_view, lmem_view, transfers
from tpusim.ops.interfaces import is_in_place, on_host
from tpusim.schedule import Subgraph, Transferred


def slice_ns(
    op: TpuOp,
    graph: Subgraph,
    out: TensorSlice,
    have: Mapping[SSAValue, TensorSlice],
    chip: ChipSpec,
    *,
    one_bank: bool = False,
) -> float:
    """Time of an op of a group for one slice of its result and operands; one_bank: all slices lie in one bank."""
    bench = _Bench(op, graph, out, have, chip, one_bank=one_bank)
    op.emit(bench)
    return bench.ns


def transfer_ns(transfer: Transferred, part: TensorSlice, graph: Subgraph, chip: ChipSpec) -> float:
    """Time of the DMA commands of one slice; 0 for an empty slice."""
    if 0 in part.shape:
        return 0.0
    value = transfer.value
    constant = value in graph.constants
    whole = gmem_view(value, 0, chip, constant=constant)
    local = lmem_view(value, 0, part.shape, chip, constant=constant, aligned=value not in graph.compact)
    moved = transfers(whole, extents(value, graph, chip), part, local, chip)
    if transfer.kind == "store":
        return sum(_move_ns(each.inside, each.outside, chip) for each in moved)
    kind = "channels" if value in graph.copied_by_loads else ""
    return sum(_move_ns(each.outside, each.inside, chip, kind) for each in moved)


def global_ns(op: TpuOp, chip: ChipSpec) -> float:
    """Time of an op outside any group; 0 if its result shares its operand's bytes, or the host computes it."""
    bench = _GlobalBench(op, chip)
    if not is_in_place(op) and not on_host(op, chip):
        op.emit(bench)
    return bench.ns


def _move_ns(source: View, target: View, chip: ChipSpec, kind: TransferKind = "") -> float:
    return command_ns(Move(id=0, dep=0, op="", input=source, output=target, kind=kind), chip)


class _Bench(SliceContext):
    """Adds up the time of the commands of one op's slice; every address is 0."""

    def __init__(
        self,
        op: TpuOp,
        graph: Subgraph,
        out: TensorSlice,
        have: Mapping[SSAValue, TensorSlice],
        chip: ChipSpec,
        *,
        one_bank: bool,
    ) -> None:
        super().__init__(op, chip, graph.kind, out)
        self._graph = graph
        self._have = have
        self._twice = (Rescale, ChannelRescale) if one_bank else ()
        self.ns = 0.0

    def placed(self, index: int) -> Placed:
        """Where the operand's slice lies while the op is costed; its address is always 0."""
        value = self.op.operands[index]
        graph = self._graph
        return Placed(self._have[value], 0, value in graph.constants, value not in graph.compact)

    def loaded_alone(self, index: int) -> bool:
        """Whether the operand is loaded into the group and no other op of the group reads it."""
        value = self.op.operands[index]
        return value in self._graph.inputs and len(self._graph.users(value)) == 1

    def output_address(self) -> int:
        """0: the result has no address yet."""
        return 0

    def where(self) -> str:
        """The slice that is computed, as text."""
        return str(self.output_slice())

    def buffer(self) -> int:
        """0: the work area has no address yet."""
        return 0

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Add a TIU command's nanoseconds to the sum."""
        ns = command_ns(cls(id=0, dep=0, op=op_name(self.op), **fields), self.chip)  # type: ignore[arg-type]
        self.ns += 2 * ns if cls in self._twice else ns


class _GlobalBench(WholeContext):
    """Adds up the time of a global layer; every address is 0."""

    def __init__(self, op: TpuOp, chip: ChipSpec) -> None:
        super().__init__(op, chip)
        self.ns = 0.0

    def address(self, value: SSAValue) -> int:
        """0: tensors have no addresses yet."""
        del value
        return 0

    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Add a global kernel's nanoseconds to the sum."""
        kernel = GlobalKernel(
            id=0, dep=0, op="", body=body, tiles=tiles, load_bytes=load_bytes, store_bytes=store_bytes  # type: ignore[arg-type]
        )  # fmt: skip
        self.ns += command_ns(kernel, self.chip)

    def host(self, body: Command) -> None:
        """Nothing: the clock is the chip's."""
        del body

    def tiled(self, pieces: tuple[Piece, ...]) -> None:
        """Count the tiles: in each turn the time of the longer engine, or the sum if engines do not overlap."""
        for turn in turns_of(pieces):
            store = turn.stores.store if turn.stores else None
            dma = sum(self._transfer_ns(each, load=True) for each in (turn.loads.loads if turn.loads else ()))
            dma += self._transfer_ns(store, load=False) if store else 0.0
            tiu = self._computing_ns(turn.computes) if turn.computes else 0.0
            self.ns += max(tiu, dma) if self.chip.engines_overlap else tiu + dma

    def _computing_ns(self, piece: Piece) -> float:
        return command_ns(replace(piece.body, step=tile_step(piece.number)), self.chip)  # type: ignore[arg-type]

    def _transfer_ns(self, moved: Transfer, *, load: bool) -> float:
        source, target = (moved.outside, moved.inside) if load else (moved.inside, moved.outside)
        move = Move(id=0, dep=0, op="", input=source, output=target, kind=moved.kind, width=moved.width)
        return command_ns(move, self.chip)

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Count a copy by the GDMA."""
        self.ns += _move_ns(source, target, self.chip, kind)

    def rows(self, command: MoveRows) -> None:
        """Count a gather by the GDMA."""
        self.ns += command_ns(command, self.chip)

    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """Count a fill by the GDMA."""
        self.ns += command_ns(Fill(id=0, dep=0, op="", output=target, value=value, kind=kind), self.chip)
