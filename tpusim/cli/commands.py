"""All subcommands: one dataclass each. Fields are options; `execute` does the work and says whether it succeeded."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from tpusim.cli.bench import Bench
from tpusim.cli.bisect import Bisect
from tpusim.cli.check import Check
from tpusim.cli.command import Command
from tpusim.cli.comparison import Compare
from tpusim.cli.correct_bias import CorrectBias
from tpusim.cli.debugger.options import Debug
from tpusim.cli.execution import Infer, Run, Simulate
from tpusim.cli.explore import Explore
from tpusim.cli.explore_diff import ExploreDiff
from tpusim.cli.explore_roofline import ExploreRoofline
from tpusim.cli.export import Export
from tpusim.cli.fidelity import Support
from tpusim.cli.fit import FitCommand
from tpusim.cli.inspect import Inspect
from tpusim.cli.npz import Npz
from tpusim.cli.options import In
from tpusim.cli.output import Output
from tpusim.cli.search_qtable import SearchQtable
from tpusim.cli.search_threshold import SearchThreshold
from tpusim.cli.stages import Assign, Calibrate, Canonicalize, Codegen, Group, Import, Lower
from tpusim.cli.stream import Assemble, Disassemble
from tpusim.cli.what_if import WhatIfCommand
from tpusim.cli.why import Why
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.chips import ChipSpec


@dataclass
class Zoo(Command):
    """Write one of the nine classic networks with seeded weights as ONNX."""

    says = "nothing more"

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """bvlc_alexnet, densenet121, inception_v1, inception_v2, resnet50, shufflenet, squeezenet, vgg19 or zfnet512."""
    out: Annotated[In, tyro.conf.arg(metavar="OUT.onnx")]
    seed: int = 0
    """Seed of the weights."""

    def execute(self, console: Output) -> bool:
        """Write the network as an ONNX file."""
        from tpusim import zoo

        zoo.save(self.name, self.out, self.seed)
        console.wrote(self.out, f"{self.name}, seed {self.seed}")
        return True


@dataclass
class Chips(Command):
    """List the chips and what they are made of; `show CHIP` all fields of one, `diff A B` those that differ."""

    says = "`chips` with all fields; of `diff` the `differences`"

    words: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[show CHIP | diff A B]")] = ()
    """What to do, with names or TOML files of chips; nothing: list those that ship."""

    def execute(self, console: Output) -> bool:
        """Print two lines per chip, or a line per field."""
        from tpusim.chips import available, differences, flattened, load

        match self.words:
            case ():
                chips = [load(name) for name in available()]
                lines = [line for one in chips for line in (_units(one), _rates(one))]
                console.result(chips=[flattened(one) for one in chips])
            case ("show", chip):
                fields = flattened(load(chip))
                lines = [f"{name} = {_toml(value)}" for name, value in fields.items()]
                console.result(chips=[fields])
            case ("diff", one, other):
                found = differences(load(one), load(other))
                lines = [f"{name}: {_toml(a)} | {_toml(b)}" for name, (a, b) in found.items()]
                console.result(differences=found)
            case words:
                raise ConfigError(f"chips {' '.join(words)}: show CHIP, diff CHIP CHIP, or no word at all is required")
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=len(self.words) > 0)
        return True


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


COMMANDS: dict[str, type] = {
    "run": Run,
    "check": Check,
    "inspect": Inspect,
    "fit": FitCommand,
    "import": Import,
    "canonicalize": Canonicalize,
    "calibrate": Calibrate,
    "lower": Lower,
    "group": Group,
    "assign": Assign,
    "codegen": Codegen,
    "export": Export,
    "infer": Infer,
    "simulate": Simulate,
    "debug": Debug,
    "dis": Disassemble,
    "asm": Assemble,
    "compare": Compare,
    "npz": Npz,
    "why": Why,
    "search-qtable": SearchQtable,
    "search-threshold": SearchThreshold,
    "correct-bias": CorrectBias,
    "bisect": Bisect,
    "bench": Bench,
    "explore": Explore,
    "explore-group": WhatIfCommand,
    "explore-diff": ExploreDiff,
    "explore-roofline": ExploreRoofline,
    "zoo": Zoo,
    "chips": Chips,
    "support": Support,
}
"""Subcommand -> its class. `opt` is xDSL's own driver and handled in `main`."""
