"""`tpusim debug`: the options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    Preprocessing,
    PreprocessOptions,
    compiled_of,
    require_count,
    require_ulps,
)
from tpusim.errors import CommandError, SimulationError

if TYPE_CHECKING:
    from tpusim.simulator.debugger import Debugger


@dataclass
class Debug:
    """Execute a program command by command: breakpoints, steps forwards and backwards, display of memory.

    Takes a program (7_model.tpusim), the folder of a run, or any network, which is compiled first. Reads commands from
    the terminal, or from a pipe; `help` lists them.
    """

    program: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PROGRAM|NETWORK")]
    input: Path | None = None
    """Inputs, npz keyed by input name; default: seeded random inputs (integers over their range, floats normal)."""
    check: Path | None = None
    """Tensors of flat inference (tpu_outputs.npz): wrong values stop the machine as they are produced."""
    dma: Literal["early", "late", "random"] = "early"
    """When the DMA delivers; random: any order of the queues that dependencies allow."""
    seed: int = 0
    """Seed of the random inputs, and of --dma random."""
    sanitize: bool = True
    """Check the program first; if the sanitizer refuses it, it is debugged without the sanitizer."""
    ulps: int | None = None
    """With --check: how far floats may differ, in units of the last place of the tensor's largest magnitude; default:
    256 in f32, 4 of the narrowest float where there are 16-bit ones."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    history: int = 256
    """MiB of overwritten bytes to keep for going back; to go further back, the program runs again from the start."""

    def execute(self, console: Console) -> bool:
        """Run the prompt of the debugger."""
        from tpusim.cli.debugger.prompt import Prompt

        require_ulps(self.ulps, self.check)
        require_count("--history", self.history, "keeps nothing, every step back runs the program again")
        require_count("--seed", self.seed, "is the first")
        debugger = self._debugger(console)
        inputs = f"of {self.input}" if self.input is not None else f"random, seed {self.seed}"
        Prompt(debugger, console).run(f"inputs {inputs}")
        return True

    def _debugger(self, console: Console) -> "Debugger":
        from tpusim.running.persistence import require_kept
        from tpusim.simulator.debugger import Debugger, random_inputs
        from tpusim.simulator.run import SimulatorOptions
        from tpusim.verify.npz import load_tensors

        program = compiled_of(
            self.program, (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        ).program
        inputs = load_tensors(self.input) if self.input is not None else random_inputs(program, self.seed)
        reference = None if self.check is None else load_tensors(require_kept(self.check))

        def made(*, sanitize: bool) -> Debugger:
            options = SimulatorOptions(dma=self.dma, seed=self.seed if self.dma == "random" else 0, sanitize=sanitize)
            kept = self.history << 20
            return Debugger(
                program, inputs, reference=reference, options=options, float_ulps=self.ulps, history_bytes=kept
            )

        if not self.sanitize:
            return made(sanitize=False)
        try:
            return made(sanitize=True)
        except (SimulationError, CommandError) as error:
            without = made(sanitize=False)  # raises again if no machine can run the program
            console.print(Text(f"the sanitizer refuses this program: {error}", "yellow"))
            console.print(Text("debugging it without the sanitizer", "yellow"))
            return without
