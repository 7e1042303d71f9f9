"""What an op means by the commands of its whole tensors: its commands in global memory, without tiles and slices.

This is the meaning of an op that `registry.FIELD_OPS` does not have. It shows that cutting, placing, moving and
scheduling keep what the op's commands compute. That these commands are right for the op is shown by
values alone, so a proof counts such ops and names them.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import ImportModelError
from tpusim.field import Elements
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import Command, Fill, FillKind, Move, MoveRows, TransferKind
from tpusim.isa.layout import align, extent
from tpusim.isa.region import View
from tpusim.kernel_library import Piece
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.emission import WholeContext
from tpusim.ops.framework.host_functions import layer_operands
from tpusim.ops.framework.views import gmem_view
from tpusim.ops.structure import TopWeight, Transfer
from tpusim.simulator import handlers
from tpusim.simulator.field import FieldMachine
from tpusim.simulator.memory import Region


def weight_of(value: SSAValue) -> TopWeight | None:
    """The constant of a value, before its loads."""
    owner: Any = value.owner
    while isinstance(owner, Transfer) and owner.mapping is None:
        owner = owner.input.owner
    return owner if isinstance(owner, TopWeight) else None


class UncutContext(WholeContext):
    """An EmitContext that executes the commands of one op at once, on memory with its operands and its result."""

    def __init__(self, op: TpuOp, chip: ChipSpec, constants: FieldMachine) -> None:
        super().__init__(op, chip)
        self._places: dict[SSAValue, int] = {}
        start = end = align(constants.regions[0].stop, chip.gmem_align_bytes) + chip.gmem_align_bytes
        for value in dict.fromkeys((*layer_operands(op), *op.results)):
            if is_tensor(value) and weight_of(value) is None:
                self._places[value] = end
                end = align(extent(self._view(value), chip).stop, chip.gmem_align_bytes)
        self._constants, self._region = constants, Region("tensors", start, end - start, writable=True)

    @cached_property
    def memory(self) -> FieldMachine:
        """Memory with the op's operands and its result, apart from that of other ops."""
        return self._constants.with_region(self._region)

    def computed(self, operands: Sequence[Elements | None]) -> tuple[Elements, ...]:
        """The results of the op's layer. Raises NotJudged for a command without a field meaning."""
        for value, elements in zip(layer_operands(self.op), operands, strict=True):
            if value in self._places and elements is not None:
                self.memory.write(self._view(value), elements)
        self.layer()
        return tuple(self.memory.read(self._view(value)).reshape(shape_of(value)) for value in self.op.results)

    def constant(self, value: SSAValue) -> Elements:
        """The elements of a constant operand."""
        return self._constants.read(self._view(value)).reshape(shape_of(value))

    def _view(self, value: SSAValue) -> View:
        return gmem_view(value, self.address(value), self.chip, constant=weight_of(value) is not None)

    def address(self, value: SSAValue) -> int:
        """That of a constant in the module; others are placed one after the other."""
        weight = weight_of(value)
        if weight is None:
            return self._places[value]
        address = address_of(weight.output)
        if address is None:
            raise ImportModelError(f"weight '{value_name(value)}': an address is required; give the final module")
        return address

    def _execute(self, command: Command) -> None:
        handlers.execute(command, self.memory)

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Execute the command on whole tensors."""
        self._execute(cls(id=0, dep=0, op=op_name(self.op), **fields))

    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Execute the body of a library kernel."""
        del tiles, load_bytes, store_bytes
        self._execute(body)

    def host(self, body: Command) -> None:
        """Execute the body of a call of the host."""
        self._execute(body)

    def tiled(self, pieces: tuple[Piece, ...]) -> None:
        """Never asked for: `emit` takes whole tensors."""
        raise NotImplementedError

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Execute a copy in global memory."""
        self._execute(Move(id=0, dep=0, op=op_name(self.op), input=source, output=target, kind=kind))

    def rows(self, command: MoveRows) -> None:
        """Execute a gather of rows in global memory."""
        self._execute(command)

    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """Execute a fill in global memory."""
        self._execute(Fill(id=0, dep=0, op=op_name(self.op), output=target, value=value, kind=kind))
