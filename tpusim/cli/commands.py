"""All subcommands: one dataclass each. Fields are options; `execute` does the work and says whether it succeeded."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console

from tpusim.cli.bench import Bench
from tpusim.cli.comparison import Compare
from tpusim.cli.debugger import Debug
from tpusim.cli.execution import Infer, Run, Simulate
from tpusim.cli.fidelity import Support
from tpusim.cli.options import In
from tpusim.cli.stages import Assign, Calibrate, Canonicalize, Codegen, Group, Import, Lower
from tpusim.cli.stream import Assemble, Disassemble
from tpusim.cli.why import Why


@dataclass
class Zoo:
    """Write one of the nine classic networks with seeded weights as ONNX."""

    name: tyro.conf.Positional[str]
    out: Annotated[In, tyro.conf.arg(metavar="OUT.onnx")]
    seed: int = 0
    """Seed of the weights."""

    def execute(self, console: Console) -> bool:
        """Write the network."""
        from tpusim import zoo

        zoo.save(self.name, self.out, self.seed)
        console.print(f"wrote {self.out}: {self.name}, seed {self.seed}", highlight=False)
        return True


@dataclass
class Chips:
    """List the chips and what they are made of."""

    def execute(self, console: Console) -> bool:
        """Print one line per chip."""
        from tpusim.chips import available, load

        for name in available():
            chip = load(name)
            console.print(
                f"{name}: {f'{chip.cores} cores of ' if chip.cores > 1 else ''}{chip.lanes} lanes x "
                f"{chip.lmem_bytes // 1024} KiB, modes {', '.join(chip.modes)}",
                highlight=False,
            )
        return True


COMMANDS: dict[str, type] = {
    "run": Run,
    "import": Import,
    "canonicalize": Canonicalize,
    "calibrate": Calibrate,
    "lower": Lower,
    "group": Group,
    "assign": Assign,
    "codegen": Codegen,
    "infer": Infer,
    "simulate": Simulate,
    "debug": Debug,
    "dis": Disassemble,
    "asm": Assemble,
    "compare": Compare,
    "why": Why,
    "bench": Bench,
    "zoo": Zoo,
    "chips": Chips,
    "support": Support,
}
"""Subcommand -> its class. `opt` is xDSL's own driver and handled in `main`."""
