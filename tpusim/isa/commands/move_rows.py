"""Gather of rows in global memory (GDMA): its command, legality and time."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.move import Move
from tpusim.isa.finding import Finding
from tpusim.isa.region import View, is_packed


def rows(command: "MoveRows", chip: ChipSpec) -> Finding | None:
    """A gather of rows needs a chip with it, operands in global memory, three axes, and one i32 index for each row."""
    if not chip.gather_gbs:
        return Finding("a chip that gathers rows", chip.name, "use fn gather")
    source, target, indices = command.input, command.output, command.indices
    for name, view in command.operands():
        if view.memory != "gmem" or view.interleave > 1 or is_packed(view.dtype):
            return Finding(f"{name} in gmem, of whole bytes and not packed", str(view), "use fn gather")
    if len(source.shape) != 3 or indices.dtype != "i32" or len(indices.shape) != 1:  # noqa: PLR2004  outer, axis, inner
        got = f"{source.shape} and {indices.dtype} {indices.shape}"
        return Finding("an input of three axes and one axis of i32 indices", got, "correct the views")
    wanted = (source.shape[0], indices.shape[0], source.shape[2])
    if target.shape == wanted and target.dtype == source.dtype:
        return None
    return Finding(f"the output to be {source.dtype} {wanted}", f"{target.dtype} {target.shape}", "correct one view")


class MoveRows(Move, frozen=True, kw_only=True, tag="move_rows"):
    """Rows copied inside global memory by index (GDMA gather): output[a, i, b] = input[a, indices[i], b].

    input: (outer, length, inner); output: (outer, count, inner) of its type; indices: (count,) i32; a negative
    index counts from the end. Only chips with a rate for it have the command; it includes the load of the indices.
    """

    inputs_ = ("input", "indices")
    four_bits = ("input", "output", "indices")
    rules = (rows,)

    indices: View

    def traffic(self) -> tuple[int, int]:
        """The rows, and the indices that it loads."""
        return self.indices.nbytes + self.output.nbytes, self.output.nbytes

    def dma_ns(self, chip: ChipSpec) -> float:
        """A load of the indices into every lane, then the rows; even short rows cost only their bytes."""
        copied = self.indices.nbytes * chip.lanes / (chip.matrix_gbs or chip.kernel_gbs or chip.bandwidth.s2l)
        gathered = self.output.nbytes / (chip.gather_gbs or chip.bandwidth.s2s)
        return chip.latency_ns("s2l") + copied + chip.latency_ns("s2s") + gathered
