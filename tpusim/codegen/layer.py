"""Global layers: ops that run from and to global memory, in tiles or as library kernels (layer_group.md DL-06)."""

from collections.abc import Iterator
from math import prod
from typing import Any, cast

import numpy as np
from msgspec.structs import replace
from xdsl.ir import SSAValue

from tpusim.codegen.emitter import Emitter
from tpusim.codegen.provenance import namer, source_name
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import (
    Command,
    Fill,
    FillKind,
    GlobalKernel,
    HostCall,
    Move,
    MoveRows,
    Place,
    Source,
    TransferKind,
    slice_owner,
    tile_step,
)
from tpusim.isa.layout import work_area
from tpusim.isa.region import View, itemsize
from tpusim.isa.stream import Location
from tpusim.kernel_library import Piece, Transfer, turns_of
from tpusim.ops.framework.base import TpuOp, logical_shape
from tpusim.ops.framework.emission import WholeContext
from tpusim.ops.framework.host_functions import layer_operands
from tpusim.ops.structure import TopWeight


class GlobalContext(WholeContext):
    """The EmitContext of a global layer of an addressed module."""

    def __init__(self, emitter: Emitter, op: TpuOp, reason: str) -> None:
        super().__init__(op, emitter.chip)
        self._emitter = emitter
        self._reason = reason
        read = [value for value in layer_operands(op) if is_tensor(value)]
        operands = [(Source(source_name(v)), self._view(v)) for v in read]
        self._name_of = namer(operands, Source(op_name(op)), emitter.chip)
        self._constants = {source_name(v) for v in read if isinstance(v.owner, TopWeight)}
        self._tensors = [self._view(v) for v in (*read, op.results[0])]
        self._tiles = 0
        self._results: list[tuple[int, Transfer]] = []
        """(command index of every tile, its store) of the op's last command."""

    def address(self, value: SSAValue) -> int:
        """The address in the tensor's type."""
        address = address_of(value)
        if address is None:
            raise ImportModelError(f"tensor '{value_name(value)}': an address is required; run `tpusim assign` first")
        return address

    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Append a global kernel around the TIU command."""
        work = work_area(0, self.chip.lmem_bytes, self.chip)  # the compiler places nothing in local memory
        self._whole(GlobalKernel, body, tiles=tiles, load_bytes=load_bytes, store_bytes=store_bytes, work=(work,))

    def host(self, body: Command) -> None:
        """Append a call of the host that computes the TIU command."""
        self._whole(HostCall, body)

    def _whole(self, kind: type[GlobalKernel], body: Command, **fields: Any) -> None:
        name, body = op_name(self.op), replace(body, group=self._emitter.group)
        self._emitter.add(kind, name_of=self._name_of, body=body, reason=self._reason, op=name, tensor=name, **fields)

    def tiled(self, pieces: tuple[Piece, ...]) -> None:
        """Append the tiles; every second tile has the same addresses in local memory."""
        first, self._tiles = self._tiles, self._tiles + pieces[-1].number + 1
        self._results.clear()
        for turn in turns_of(pieces):
            self._emitter.begin_row()
            if turn.loads is not None:
                self._load(first, turn.loads)
            if turn.computes is not None:
                self._compute(first, turn.computes)
            if turn.stores is not None and turn.stores.store is not None:
                self._store(first, turn.stores.number, turn.stores.store)
        self._emitter.end_rows()

    def _load(self, first: int, piece: Piece) -> None:
        for load in piece.loads:
            source = self._name_of(load.outside)
            start, whole = (None, None) if source.name in self._constants else self._window(load)
            self._emitter.add(
                Move, input=load.outside, output=load.inside, kind=load.kind, width=load.width, start=start,
                whole=whole, op=_load(source), step=tile_step(first + piece.number), sources=(source,),
            )  # fmt: skip

    def _compute(self, first: int, piece: Piece) -> None:
        names = [
            slice_owner(
                _load(self._name_of(operand.outside)), tile_step(first + tile), self._emitter.group, loaded=True
            )
            for operand, tile in zip(piece.operands, piece.loaded, strict=True)
        ]
        step = tile_step(first + piece.number)
        names += [slice_owner(op_name(self.op), step, self._emitter.group)] * piece.kept
        body = piece.body
        self._emitter.add(type(body), op=op_name(self.op), step=step, sources=tuple(names), **body.content)
        if piece.store is not None:
            self._results.append((len(self._emitter.commands) - 1, piece.store))

    def _store(self, first: int, number: int, store: Transfer) -> None:
        name, step = op_name(self.op), tile_step(first + number)
        start, whole = self._window(store)
        self._emitter.add(
            Move, input=store.inside, output=store.outside, kind=store.kind, width=store.width, start=start,
            whole=whole, op=name, step=step, tensor=name, sources=(slice_owner(name, step, self._emitter.group),),
        )  # fmt: skip

    def _window(self, moved: Transfer) -> tuple[Place, Place]:
        """The window of a transfer in its tensor: by the form, or by its address if the command covers a part."""
        base = self._base(moved.outside)
        if base is None or prod(moved.whole) == base.elements:
            return moved.start, moved.whole
        n, c, h, w = logical_shape(base.shape)
        place = (moved.outside.address - base.address) // itemsize(base.dtype)
        start = (int(i) for i in np.unravel_index(place, (n, c, 1, h, w)))
        return cast("Place", tuple(start)), (n, c, 1, h, w)

    def _base(self, view: View) -> View | None:
        """The tensor that contains a view."""
        return next((t for t in self._tensors if t.address <= view.address < t.address + t.nbytes), None)

    def locations(self) -> Iterator[Location]:
        """The places of the result's tiles in local memory, for tiles with the tensor's order of axes."""
        shape = shape_of(self.op.results[0])
        for command, store in self._results:
            if store.in_order and prod(store.whole) == prod(shape):
                yield Location(command, op_name(self.op), store.inside, store.start, store.whole, shape)

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Append a GDMA copy that writes (a part of) the result."""
        name = op_name(self.op)
        self._emitter.move(source, target, kind=kind, holds=self._name_of(source), op=name, tensor=name)

    def rows(self, command: MoveRows) -> None:
        """Append a gather of rows that writes the result."""
        name, fields = op_name(self.op), {field: getattr(command, field) for field in ("input", "indices", "output")}
        self._emitter.add(MoveRows, name_of=self._name_of, op=name, tensor=name, **fields)

    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """Append a GDMA fill that writes (a part of) the result."""
        name = op_name(self.op)
        self._emitter.add(Fill, output=target, value=value, kind=kind, op=name, tensor=name)


def emit_layer(op: TpuOp, emitter: Emitter, reason: str) -> None:
    """All commands of one global layer."""
    context = GlobalContext(emitter, op, reason)
    context.layer()
    emitter.locations.extend(context.locations())


def _load(source: Source) -> str:
    """The name of a tensor's loads, as in a group."""
    return f"load_{source.name}"
