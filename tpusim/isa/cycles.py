"""How long one command takes: TIU cycles (hardware.md 5.1) as TPU-MLIR's profile counts (U-87), and its transfers.

cycles = ceil(operations / rate), with the waste of alignment counted as operations. Decision: no start-up; the profile
(`compiler_profile_*.txt`, bm1684x and bm1688) has none. A command stands for all commands that TPU-MLIR issues for it:
the lane copies, sums and requants around a product, the steps of a cast. Each command states its time
(`Command.cycles`, `Command.dma_ns`); a hardware family that counts otherwise has its formulas in `tpusim.isa.families`.
"""

from functools import lru_cache

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.families import FORMULAS, Formulas
from tpusim.isa.steps import array


def _peak_macs(size: int, chip: ChipSpec) -> int:
    lanes, _, depth, pixels = array(chip, size, 1)
    return lanes * depth * pixels


def _cycles(command: Command, chip: ChipSpec) -> int:
    return command.cycles(chip)


def _dma_ns(command: Command, chip: ChipSpec) -> float:
    return command.dma_ns(chip)


_REFERENCE = Formulas(_cycles, _dma_ns, _peak_macs)


def _formulas(chip: ChipSpec) -> Formulas:
    return FORMULAS.get(chip.hardware.cycle_model, _REFERENCE)


def peak_macs(size: int, chip: ChipSpec) -> int:
    """Multiply-accumulates of all lanes per TIU cycle at most, for elements of `size` bytes."""
    return _formulas(chip).peak_macs(size, chip)


def tiu_cycles(command: Command, chip: ChipSpec) -> int:
    """TIU cycles of a compute command. Raises CommandError for a class without a formula."""
    return _formulas(chip).cycles(command, chip)


def tiu_ns(command: Command, chip: ChipSpec) -> float:
    """Nanoseconds for which a command keeps the TIU busy; for a global kernel, its body."""
    if command.engine == "gdma" or not command.on_chip:
        return 0.0
    return tiu_cycles(command.computed, chip) * 1000 / chip.tiu_mhz


def dma_ns(command: Command, chip: ChipSpec) -> float:
    """Nanoseconds for which a command keeps GDMA busy; for a global kernel, its loads and stores."""
    return _formulas(chip).dma_ns(command, chip)


def command_ns(command: Command, chip: ChipSpec) -> float:
    """Nanoseconds for which a command keeps its engine busy; a global kernel both, for the longer of its times (DL-06).

    The first load and the last store of a global kernel overlap with nothing; with a single tile nothing overlaps. On a
    chip whose engines do not overlap, a global kernel takes the sum of its times.
    """
    return _kept_ns(command.form, chip)


@lru_cache(1 << 14)
def _kept_ns(form: Command, chip: ChipSpec) -> float:
    return timed_ns(form, chip)


def timed_ns(command: Command, chip: ChipSpec) -> float:
    """The same as `command_ns`, computed for this command without the cache."""
    compute, transfer = tiu_ns(command, chip), dma_ns(command, chip)
    if not compute or not transfer or not chip.engines_overlap:
        return compute + transfer
    return max(compute, transfer) + min(compute, transfer) / command.pieces(chip)
