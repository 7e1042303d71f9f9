"""Global layers: ops that run from and to global memory as library kernels (layer_group.md DL-06)."""

from msgspec.structs import replace
from xdsl.ir import SSAValue

from tpusim.codegen.emitter import Emitter
from tpusim.codegen.holds import namer, source_name
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import address_of, is_tensor
from tpusim.isa.commands import Command, Fill
from tpusim.isa.layout import work_area
from tpusim.isa.region import View
from tpusim.ops.base import TpuOp
from tpusim.ops.emission import WholeContext


class GlobalContext(WholeContext):
    """The EmitContext of a global layer of an addressed module."""

    def __init__(self, emitter: Emitter, op: TpuOp, reason: str) -> None:
        super().__init__(op, emitter.chip)
        self._emitter = emitter
        self._reason = reason
        operands = [(source_name(v), self._view(v)) for v in op.operands if is_tensor(v)]
        self._name_of = namer(operands, op_name(op), emitter.chip)

    def address(self, value: SSAValue) -> int:
        """The address in the tensor's type."""
        address = address_of(value)
        if address is None:
            raise ImportModelError(f"tensor '{value_name(value)}': an address is required; run `tpusim assign` first")
        return address

    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Append a global kernel around the TIU command."""
        name = op_name(self.op)
        self._emitter.global_kernel(
            name_of=self._name_of,
            body=replace(body, group=self._emitter.group),
            tiles=tiles,
            load_bytes=load_bytes,
            store_bytes=store_bytes,
            reason=self._reason,
            work=(work_area(0, self.chip.lmem_bytes, self.chip),),  # the compiler keeps nothing there for it
            op=name,
            tensor=name,
        )

    def move(self, source: View, target: View) -> None:
        """Append a GDMA copy that writes (a part of) the result."""
        name = op_name(self.op)
        self._emitter.move(source, target, holds=self._name_of(source), op=name, tensor=name)

    def fill(self, target: View, value: float) -> None:
        """Append a GDMA fill that writes (a part of) the result."""
        name = op_name(self.op)
        self._emitter.add(Fill, output=target, value=value, op=name, tensor=name)


def emit_layer(op: TpuOp, emitter: Emitter, reason: str) -> None:
    """All commands of one global layer; nothing for an op whose result is its operand's bytes."""
    if not op.in_place():
        op.emit(GlobalContext(emitter, op, reason))
