"""`tpusim codegen`: the commands of a module, and a file for boards where TPU-MLIR is."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.given import given as named
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    network_of,
    output_file,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.studies.upstream.road import Agreement


@dataclass
class Codegen(Command):
    """6_final.mlir -> 7_model.tpusim: TIU and GDMA commands; with --through-upstream a file for boards, too.

    TPU-MLIR's code generator takes the final module with its groups, addresses and coefficients and makes a .bmodel or
    .cvimodel, which runs on boards and in TPU-MLIR's simulator.
    """

    says = "the number of `commands`; with --through-upstream `upstream`: the file, its cycles and bytes, and results"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    out: OptionalPath = None
    """Program to write; default 7_model.tpusim in the input's folder."""
    through_upstream: str = ""
    """Also let TPU-MLIR's code generator make its file, in the folder upstream next to the program: the folder of a
    Python environment that has TPU-MLIR, or auto for the one that TPUSIM_UPSTREAM names."""
    input: OptionalPath = None
    """With --through-upstream: inputs, an npz keyed by input name, for TPU-MLIR's simulator; its results are compared
    with those of flat inference."""

    def execute(self, console: Output) -> bool:
        """Generate the program and write it; False if results of TPU-MLIR's simulator are others."""
        from tpusim.ir.content import is_module
        from tpusim.isa.stream import save
        from tpusim.passes import PassManager, codegen

        if self.input is not None and not self.through_upstream:
            raise ConfigError(f"--input {self.input}: needs --through-upstream; `tpusim simulate` runs the program")
        grouping = self.grouping
        if is_module(self.module) and network_of(self.module, ()).level in ("grouped", "final"):
            grouping = replace(grouping, cores=GroupingOptions().cores)  # it may run on another number of cores
        asked = (self.network, self.preprocessing, self.calibration, self.lowering, grouping)
        steps = codegen.Codegen(cores=named(self.grouping).get("cores", 0))
        final = network_of(self.module, asked).final
        program = PassManager(steps).program(final)
        path = output_file(self.module, "7_model.tpusim", self.out)
        save(program, path)
        console.result(commands=len(program.commands))
        console.wrote(path, f"{len(program.commands):,} commands")
        return not self.through_upstream or self._through_upstream(console, final, path.parent / "upstream")

    def _through_upstream(self, console: Output, final: "Model", folder: Path) -> bool:
        """Let TPU-MLIR make its file, and run that if there are inputs; False if a result is another."""
        from tpusim.cli.inputs import read_input
        from tpusim.studies.upstream.road import agreements, generate, simulated
        from tpusim.studies.upstream.tools import Tools

        tools = Tools.find(self.through_upstream)
        made = generate(final, folder, tools)
        costs = "" if made.cycles is None else f"{made.cycles:,} cycles, {made.moved_bytes:,} bytes in its profile"
        console.wrote(made.file, costs)
        found: list[Agreement] = []
        if self.input is not None:
            sample = read_input(self.input, lambda: final)
            found = agreements(final, sample, simulated(made, sample, final, tools))
        for one in found:
            console.tell(str(one))
        console.result(
            upstream={"file": str(made.file), "cycles": made.cycles, "moved_bytes": made.moved_bytes,
                      "results": [asdict(one) for one in found]}
        )  # fmt: skip
        return not any(one.differ for one in found)
