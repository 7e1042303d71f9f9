"""`tpusim chips`: the chips and their fields."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.chips import ChipSpec


@dataclass
class Chips(Command):
    """List the chips and what they are made of; `show CHIP` all fields of one, `diff A B` those that differ."""

    says = "`chips` with all fields, `faulty` chips of packages and why; of `diff` the `differences`"

    words: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[show CHIP | diff A B]")] = ()
    """What to do, with names or TOML files of chips; nothing: list all."""

    def execute(self, console: Output) -> bool:
        """Print two lines per chip, one per chip of a package that cannot be loaded, or a line per field."""
        from tpusim.chips import described, differences, loadable

        match self.words:
            case ():
                chips, faulty = loadable()
                lines = [line for one in chips for line in (_units(one), _rates(one))]
                lines += [f"{name}: {why}" for name, why in faulty.items()]
                console.result(chips=[described(one) for one in chips], faulty=faulty)
            case ("show", chip):
                fields = described(_fitting(chip))
                lines = [f"{name} = {_toml(value)}" for name, value in fields.items()]
                console.result(chips=[fields])
            case ("diff", one, other):
                found = differences(_fitting(one), _fitting(other))
                lines = [f"{name}: {_toml(a)} | {_toml(b)}" for name, (a, b) in found.items()]
                console.result(differences=found)
            case words:
                raise ConfigError(f"chips {' '.join(words)}: show CHIP, diff CHIP CHIP, or no word at all is required")
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return True


def _fitting(name: str) -> "ChipSpec":
    """The chip of this name or file. Raises ConfigError for ops in it that do not exist, too."""
    from tpusim.chips import load
    from tpusim.lowering.chip_forms import require_fitting_rules

    chip = load(name)
    require_fitting_rules(chip)
    return chip


def _toml(value: object) -> str:
    """A field's value as in a chip's file; "-" where it has none."""
    return "-" if value is None else json.dumps(value)


def _units(chip: "ChipSpec") -> str:
    cores = f"{chip.cores} cores of " if chip.cores > 1 else ""
    memory = f"{chip.lanes} lanes x {chip.lmem_bytes // 1024} KiB in {chip.lmem_banks} banks"
    return f"{chip.name}: {cores}{memory}, modes {', '.join(chip.modes)}"


def _rates(chip: "ChipSpec") -> str:
    """The model's figures; the chips' files say which of them are assumed."""
    from tpusim.isa.cycles import peak_macs

    tops = 2 * peak_macs(1, chip) * chip.tiu_mhz * chip.cores / 1e6
    clocks = f"TIU {chip.tiu_mhz:g} MHz, DMA {chip.dma_mhz:g} MHz"
    return f"    {tops:.1f} INT8 TOPS, {clocks}, loads {chip.bandwidth.s2l:g} GB/s, stores {chip.bandwidth.l2s:g} GB/s"
