"""Lower bounds of every grouping: bytes that must move at least once, and the cycles of the multiplications alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict
from xdsl.ir import Block, Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import stored_bytes
from tpusim.isa.cycles import peak_macs
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.slicing import element_bytes_of
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import GathersRows, macs_of, on_host
from tpusim.ops.structure import TopInput, TopWeight, TpuGroup


@dataclass(frozen=True)
class LowerBounds:
    """Bounds of one run of a module.

    compulsory_bytes: every constant, network input and network output that the chip uses moves once.
    mac_cycles: every op's multiply-accumulates at the peak rate of its element type, one op after the other, shared by
    the module's cores.
    dma_cycles: loads of constants and network inputs, or stores of the outputs if these are longer, at the highest rate
    of any transfer of the chip, on all cores at once; overlap: whether the engines work in parallel.
    """

    compulsory_bytes: int
    mac_cycles: int
    dma_cycles: int = 0
    overlap: bool = True

    @property
    def cycles(self) -> int:
        """The lower bound of every program: the longer engine, or the sum if engines do not overlap."""
        both = self.mac_cycles, self.dma_cycles
        return max(both) if self.overlap else sum(both)

    def traffic_ratio(self, moved_bytes: int) -> float:
        """Bytes moved over the compulsory ones; 0 without any."""
        return moved_bytes / self.compulsory_bytes if self.compulsory_bytes else 0.0

    def cycle_ratio(self, cycles: int) -> float:
        """Cycles over those of the multiplications; 0 without any."""
        return cycles / self.mac_cycles if self.mac_cycles else 0.0


def lower_bounds(model: Model) -> LowerBounds:
    """The bounds of a module with chip-layout weights, before or after grouping."""
    chip = chips.of(model)
    ops = list(_ops(model))
    once = {op.results[0] for op in ops if isinstance(op, TopInput | TopWeight) and _is_loaded(op.results[0], chip)}
    made = dict.fromkeys(value for value in model.results if not _of_host(value.owner, chip))
    cores = model.number("module.cores") or 1
    loaded, stored = (sum(map(stored_bytes, values)) for values in (once, made))
    return LowerBounds(
        loaded + stored,
        ceil_div(sum(_mac_cycles(op, chip) for op in ops if isinstance(op, TpuOp)), cores),
        int(max(loaded, stored) / (_peak_gbs(chip, ops) * cores) * chip.tiu_mhz / 1000),
        chip.engines_overlap,
    )


def _is_loaded(value: SSAValue, chip: ChipSpec) -> bool:
    """Whether a command of the chip, and not only the host, reads a value."""
    return any(not _of_host(use.operation, chip) for use in value.uses)


def _of_host(op: Operation | Block, chip: ChipSpec) -> bool:
    return isinstance(op, TpuOp) and on_host(op, chip)


def _peak_gbs(chip: ChipSpec, ops: Sequence[Operation]) -> float:
    """The highest rate of any transfer of a core, in bytes per nanosecond, including gathered rows if there are any."""
    gathered = chip.gather_gbs if any(isinstance(op, GathersRows) for op in ops) else 0.0
    rates = chip.kernel_gbs, chip.matrix_gbs, chip.matrix_store_gbs, chip.several_cores_gbs, gathered
    return max(*rates, *(float(rate) for rate in asdict(chip.bandwidth).values()))


def _ops(model: Model) -> Iterator[Operation]:
    """The ops of a module and of its groups."""
    for op in model.ops:
        yield from op.body.block.ops if isinstance(op, TpuGroup) else (op,)


def _mac_cycles(op: TpuOp, chip: ChipSpec) -> int:
    macs = macs_of(op)
    return ceil_div(macs, peak_macs(element_bytes_of(op.operands[0]), chip)) if macs else 0


def products(model: Model) -> tuple[dict[str, int], int]:
    """(op name -> its multiply-accumulates if any, element bytes of most of them; 1 without any)."""
    macs: dict[str, int] = {}
    widths: dict[int, int] = {}
    for op in _ops(model):
        if count := macs_of(op):
            macs[op_name(op)] = count
            width = element_bytes_of(op.operands[0])
            widths[width] = widths.get(width, 0) + count
    return macs, max(widths, key=lambda width: widths[width], default=1)
