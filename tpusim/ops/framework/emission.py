"""EmitContexts for code generation and for the group cost: views of an op's operands and result, local or global.

`emit` of an op asks an EmitContext for views and gives it commands. Code generation puts the views at addresses. The
search for layer groups only needs the time of the commands, before anything has an address.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import ImportModelError
from tpusim.interfaces import ask
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import is_tensor, shape_of
from tpusim.isa.commands import Command, FillKind, Fn, MoveRows, TransferKind
from tpusim.isa.functions import HostFunction
from tpusim.isa.layout import ceil_div, lmem_bytes
from tpusim.isa.region import View
from tpusim.kernel_library import Piece, tiles
from tpusim.ops.framework.base import GroupType, TpuOp, logical_shape
from tpusim.ops.framework.host_functions import host_function_of
from tpusim.ops.framework.logical import AXES, Axis, TensorSlice, Window, logical_axes
from tpusim.ops.framework.views import gmem_view, inside, lmem_view, lmem_window
from tpusim.ops.interfaces import Alignment, needed_window, on_host, slice_table_of
from tpusim.ops.structure import TopWeight


@dataclass(frozen=True)
class Placed:
    """An operand's slice in local memory, and where it is."""

    have: TensorSlice
    address: int
    constant: bool
    aligned: bool


class SliceContext(ABC):
    """The EmitContext of one op of a group at one step; subclasses give the addresses of operands and result."""

    local = True

    def __init__(self, op: TpuOp, chip: ChipSpec, kind: GroupType, out: TensorSlice) -> None:
        self.op = op
        self.chip = chip
        self.group_type = kind
        self._out = out

    @abstractmethod
    def placed(self, index: int) -> Placed:
        """The operand's slice in local memory."""

    @abstractmethod
    def loaded_alone(self, index: int) -> bool:
        """Whether the operand is loaded for this op alone."""

    @abstractmethod
    def output_address(self) -> int:
        """The LMEM byte offset of the result."""

    @abstractmethod
    def where(self) -> str:
        """The step of the group's loop, for messages."""

    @abstractmethod
    def buffer(self) -> int:
        """The LMEM byte offset of the work area."""

    @abstractmethod
    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Emit one TIU command; the context adds its id, op and step."""

    def input_slice(self, index: int) -> TensorSlice:
        """The slice of the operand that is in local memory."""
        return self.placed(index).have

    def input(self, index: int, *, d: Window | None = None, h: Window | None = None, w: Window | None = None) -> View:
        """The part of the operand's slice that this op's output slice needs."""
        value, at = self.op.operands[index], self.placed(index)
        view = lmem_view(value, at.address, at.have.shape, self.chip, constant=at.constant, aligned=at.aligned)
        table = slice_table_of(self.op)
        if at.constant and (
            index in ask(self.op, Alignment, self.chip).compact_operands(self.chip)
            or (table and table.operand == index)
        ):
            return view
        want = TensorSlice(
            self._need("n", index, at.have.n),
            self._need("c", index, at.have.c),
            h or self._need("h", index, at.have.h),
            w or self._need("w", index, at.have.w),
            d or self._need("d", index, at.have.d),
        )
        if not all(inside(getattr(want, axis), getattr(at.have, axis)) for axis in AXES):
            raise ImportModelError(
                f"{self.op.name} '{op_name(self.op)}' at {self.where()}: the slice of '{value_name(value)}' "
                f"{at.have} does not contain what is needed, {want}; the group's slices are inconsistent"
            )
        return lmem_window(view, at.have, want, self.chip)

    def _need(self, axis: Axis, index: int, have: Window) -> Window:
        """The window of an operand that the output slice needs, clipped to the tensor."""
        length = logical_axes(shape_of(self.op.operands[index]), self.group_type, self.chip)[AXES.index(axis)]
        if length == 1:
            return 0, 1
        need = needed_window(self.op, self.chip, axis, getattr(self._out, axis), index)
        if need is None:
            return have
        start = max(need[0], 0)
        return start, min(need[0] + need[1], length) - start

    def output_slice(self) -> TensorSlice:
        """The result slice of this step."""
        return self._out

    def output(self) -> View:
        """The view of the result's slice in local memory."""
        value = self.op.results[0]
        return lmem_view(value, self.output_address(), self._out.shape, self.chip, constant=False, aligned=True)

    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """Not available inside a group, where TIU commands move data."""
        raise NotImplementedError(f"{self.op.name}: no GDMA copies inside a layer group")

    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """Not available inside a group, where TIU commands fill tensors."""
        raise NotImplementedError(f"{self.op.name}: no GDMA fills inside a layer group")


class WholeContext(ABC):
    """The EmitContext of a global layer: operands are whole tensors in global memory."""

    local = False
    group_type = GroupType.NORMAL

    def __init__(self, op: TpuOp, chip: ChipSpec) -> None:
        self.op = op
        self.chip = chip

    @abstractmethod
    def address(self, value: SSAValue) -> int:
        """The address of a tensor in global memory, in bytes."""

    @abstractmethod
    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Emit one global kernel, which cuts its operands into tiles."""

    @abstractmethod
    def host(self, body: Command) -> None:
        """Emit a call of the host, which computes the command."""

    @abstractmethod
    def move(self, source: View, target: View, *, kind: TransferKind = "") -> None:
        """A GDMA copy that writes (a part of) the result; kind: of `Move`."""

    @abstractmethod
    def rows(self, command: MoveRows) -> None:
        """A GDMA gather of rows that writes the result."""

    @abstractmethod
    def fill(self, target: View, value: float, *, kind: FillKind = "") -> None:
        """A GDMA fill that writes (a part of) the result; kind: of `Fill`."""

    @abstractmethod
    def tiled(self, pieces: tuple[Piece, ...]) -> None:
        """Emit the tiles of a command: while a tile is computed, the next is loaded and the previous stored."""

    def layer(self) -> None:
        """Emit all commands of the op; for the last op of a host function, emit the call of that function."""
        function = host_function_of(self.op)
        if function is None:
            self.op.emit(self)
            return
        read = tuple(self._view(value) for value in function.operands)
        called, name = HostFunction(symbol=function.name), op_name(self.op)
        self.host(Fn(id=0, dep=0, op=name, function=called, inputs=read, output=self.output()))

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Emit a command as a call of the host, a gather of rows, tiles, or a global kernel.

        It becomes a global kernel if it has no form over four axes that can be cut into tiles.
        """
        body = cls(id=0, dep=0, op=op_name(self.op), **fields)
        if on_host(self.op, self.chip):
            self.host(body)
        elif isinstance(body, MoveRows):
            self.rows(body)
        elif pieces := tiles(body, self.chip):
            self.tiled(pieces)
        else:
            self.kernel(body, *self._traffic(body))

    def _view(self, value: SSAValue) -> View:
        return gmem_view(value, self.address(value), self.chip, constant=isinstance(value.owner, TopWeight))

    def input_slice(self, index: int) -> TensorSlice:
        """The whole operand as a slice."""
        return TensorSlice.whole(shape_of(self.op.operands[index]))

    def input(self, index: int, *, d: Window | None = None, h: Window | None = None, w: Window | None = None) -> View:
        """The whole operand for any window; callers clip windows to the operand."""
        del d, h, w
        return self._view(self.op.operands[index])

    def loaded_alone(self, index: int) -> bool:
        """Never: no operand is in local memory."""
        del index
        return False

    def output_slice(self) -> TensorSlice:
        """The whole result as a slice."""
        return TensorSlice.whole(shape_of(self.op.results[0]))

    def output(self) -> View:
        """The whole result as a view."""
        return self._view(self.op.results[0])

    def buffer(self) -> int:
        """Not available in a global layer, which has no work area."""
        raise NotImplementedError(f"{self.op.name}: the global form may not use a local work buffer")

    def _traffic(self, body: Command) -> tuple[int, int, int]:
        """(tiles, bytes loaded, bytes stored) of a global kernel (DL-06).

        If operands and result do not fit local memory, either the activations are cut and the constants loaded for each
        tile, or the reverse, whichever moves fewer bytes. Tiles of activations take one half of local memory, those of
        constants the other. Only constants that this command reads count.
        """
        if (known := body.kernel_transfers(self.chip)) is not None:
            return 1, known.loaded, known.stored
        values = [v for v in self.op.operands if is_tensor(v) and body.loads]
        moved = [v for v in values if not isinstance(v.owner, TopWeight)]
        constants = [v for v in values if v not in moved and self._is_read(v, body)]
        result = self.op.results[0]
        active = sum(self._lmem(v) for v in (*moved, result))
        moved_bytes = sum(self._view(v).nbytes for v in moved)
        constant_bytes = sum(self._view(v).nbytes for v in constants)
        fixed, store = ceil_div(constant_bytes, self.chip.lanes), self._view(result).nbytes
        if active + fixed <= self.chip.lmem_bytes:
            return 1, moved_bytes + constant_bytes, store
        rows, columns = (max(1, ceil_div(2 * size, self.chip.lmem_bytes)) for size in (active, fixed))
        by_rows, by_columns = moved_bytes + constant_bytes * rows, constant_bytes + moved_bytes * columns
        return (rows, by_rows, store) if by_rows <= by_columns else (columns, by_columns, store)

    def _is_read(self, value: SSAValue, body: Command) -> bool:
        whole = self._view(value)
        return any(whole.address <= view.address < whole.address + whole.nbytes for view in body.reads())

    def _lmem(self, value: SSAValue) -> int:
        return lmem_bytes(logical_shape(shape_of(value)), self._view(value).dtype, self.chip)
