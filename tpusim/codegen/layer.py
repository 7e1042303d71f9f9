"""Global layers: ops that run from and to global memory as library kernels (layer_group.md DL-06)."""

from typing import Any

from tpusim.codegen.emitter import Emitter
from tpusim.codegen.views import gmem_view
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import Command, Fill
from tpusim.isa.layout import ceil_div, lmem_bytes
from tpusim.isa.region import View
from tpusim.ops.base import TensorSlice, TpuOp, Window, logical_shape
from tpusim.ops.structure import TopWeight


class GlobalContext:
    """The EmitContext of a global layer: operands are whole tensors in global memory."""

    local = False

    def __init__(self, emitter: Emitter, op: TpuOp, reason: str) -> None:
        self.chip = emitter.chip
        self._emitter = emitter
        self._op = op
        self._reason = reason

    def _view(self, value: Any) -> View:
        address = address_of(value)
        if address is None:
            raise ImportModelError(f"tensor '{value_name(value)}': an address is required; run `tpusim assign` first")
        return gmem_view(value, address, self.chip, constant=isinstance(value.owner, TopWeight))

    def input_slice(self, index: int) -> TensorSlice:
        """The whole operand."""
        return TensorSlice.whole(shape_of(self._op.operands[index]))

    def input(self, index: int, *, h: Window | None = None, w: Window | None = None) -> View:
        """The whole operand; windows are clipped to it by the caller and so are all of it."""
        del h, w
        return self._view(self._op.operands[index])

    def output_slice(self) -> TensorSlice:
        """The whole result."""
        return TensorSlice.whole(shape_of(self._op.results[0]))

    def output(self) -> View:
        """The whole result."""
        return self._view(self._op.results[0])

    def buffer(self) -> int:
        """A global layer has no work buffer of its own."""
        raise NotImplementedError(f"{self._op.name}: the global form may not use a local work buffer")

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a global kernel around the TIU command."""
        name = op_name(self._op)
        body = cls(id=0, dep=0, op=name, group=self._emitter.group, **fields)
        tiles, load, store = self._traffic()
        self._emitter.global_kernel(
            body=body, tiles=tiles, load_bytes=load, store_bytes=store, reason=self._reason, op=name, tensor=name
        )

    def move(self, source: View, target: View) -> None:
        """Append a GDMA copy that writes (a part of) the result."""
        name = op_name(self._op)
        self._emitter.move(source, target, op=name, tensor=name)

    def fill(self, target: View, value: float) -> None:
        """Append a GDMA fill that writes (a part of) the result."""
        name = op_name(self._op)
        self._emitter.add(Fill, output=target, value=value, op=name, tensor=name)

    def _traffic(self) -> tuple[int, int, int]:
        """(tiles, bytes loaded, bytes stored): activations move once, constants once per tile of rows."""
        values = [v for v in self._op.operands if is_tensor(v)]
        constants = [v for v in values if isinstance(v.owner, TopWeight)]
        moved = [v for v in values if v not in constants]
        result = self._op.results[0]
        active = sum(self._lmem(v) for v in (*moved, result))
        constant_bytes = sum(self._view(v).nbytes for v in constants)
        resident = ceil_div(constant_bytes, self.chip.lanes)
        room = self.chip.lmem_bytes - resident
        tiles = ceil_div(active, room) if room > 0 else 1
        load = sum(self._view(v).nbytes for v in moved) + constant_bytes * max(tiles, 1)
        return max(tiles, 1), load, self._view(result).nbytes

    def _lmem(self, value: Any) -> int:
        return lmem_bytes(logical_shape(shape_of(value)), self._view(value).dtype, self.chip)


def emit_layer(op: TpuOp, emitter: Emitter, reason: str) -> None:
    """All commands of one global layer; nothing for an op whose result is its operand's bytes."""
    if not op.in_place():
        op.emit(GlobalContext(emitter, op, reason))
