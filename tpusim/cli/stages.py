"""Subcommands of one compiler stage each. Fields are options; `execute` does the work and says whether it succeeded."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
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
    WorkerOptions,
    Working,
    network_of,
    output_file,
    save,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.running.network import Network as GivenNetwork

BEFORE_GROUPS = ("top", "canonical", "calibrated", "tpu")


@dataclass
class Import(Command):
    """Import a model: ONNX or TFLite -> 1_top.mlir."""

    says = "nothing more"

    model: NetworkPath
    out: OptionalPath = None
    """Module to write; default 1_top.mlir in the model's folder."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()

    def execute(self, console: Output) -> bool:
        """Import one model and write its module."""
        top = network_of(self.model, (self.network, self.preprocessing)).top
        return save(console, top, output_file(self.model, "1_top.mlir", self.out))


@dataclass
class Canonicalize(Command):
    """Apply op patterns and fusions: 1_top.mlir -> 2_canonical.mlir."""

    says = "`patterns`: how often each fired"

    module: NetworkPath
    out: OptionalPath = None
    """Module to write; default 2_canonical.mlir in the input's folder."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    also: tuple[str, ...] = ()
    """Optional patterns, which change numbers: gelu_tanh, mul_too_large, weight_equalization, where_too_large; with
    samples: smoothquant, softmax_correction."""
    verify_passes: bool = False
    """Run the module after every pattern that fires, and fail at the first that changes numbers."""
    data: str | None = None
    """Calibration samples for --also smoothquant and softmax_correction, or the sample of --verify-passes (by default
    random:1): npz, folder or random:N[:SEED]."""

    def execute(self, console: Output) -> bool:
        """Apply patterns and print how often each fired; False if one changed numbers."""
        from tpusim.calibration.smooth import measured_rewrites
        from tpusim.cli.instruments import DATA, numbers_of
        from tpusim.cli.rewriting import show_check
        from tpusim.passes import PassContext, PassManager
        from tpusim.passes.pipelines import canonical

        measured = measured_rewrites(self.also)
        if self.data is not None and not (self.verify_passes or measured):
            raise ConfigError(f"--data {self.data}: needs --verify-passes, nothing else runs the module")
        if self.data is None and measured:
            raise ConfigError(f"--also {measured[0]}: needs --data, the samples that decide about its factors")
        top = network_of(self.module, (self.network, self.preprocessing)).earliest
        check = numbers_of(self.data or DATA) if self.verify_passes else None
        ctx, steps = PassContext(), canonical(self.also, self.data or DATA)
        model = PassManager(steps, () if check is None else (check,)).run(top, ctx)
        patterns = dict(sorted(ctx.patterns.items()))
        console.result(patterns=patterns)
        for name, count in patterns.items():
            console.print(f"{name}: {count}", highlight=False)
        saved = save(console, model, output_file(self.module, "2_canonical.mlir", self.out))
        return saved and (check is None or show_check(console, check))


@dataclass
class Calibrate(Command):
    """2_canonical.mlir + samples -> cali_table and 3_calibrated.mlir."""

    says = "`thresholds` by tensor"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    asymmetric: bool = False
    """Types carry the measured (min, max), for lowering with zero points."""
    state: OptionalPath = None
    """File with the state of the calibration, from which a killed one continues; removed when the table is written."""
    working: Working = WorkerOptions()
    out_table: OptionalPath = None
    """Table to write; default cali_table in the input's folder."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Measure (or read) thresholds and put them into the module."""
        from tpusim.calibration.stage import require_names, save_table
        from tpusim.cli.progress import LiveProgress
        from tpusim.passes import PassContext, PassManager
        from tpusim.passes.pipelines import calibrated
        from tpusim.running.artefacts import need

        listed = self.calibration.table
        for flag, value in (("--out-table", self.out_table), ("--state", self.state)):
            if listed is not None and value is not None:
                raise ConfigError(f"{flag} {value}: nothing is measured with --table {listed}; leave one out")
        ctx = PassContext(workers=self.working.workers(), calibration_state=self.state)
        network = network_of(self.module, (self.network, self.preprocessing, self.calibration))
        model, config = network.canonical, network.config.calibration
        *measure, put = calibrated(listed, config, asymmetric=self.asymmetric)
        if measure:
            require_names(model)
            ctx.samples = network.calibrating()
            with LiveProgress(console) as progress, progress.stage("calibrate"):
                ctx.progress = progress.progress
                PassManager(measure).run(model, ctx)
            path = output_file(self.module, "cali_table", self.out_table)
            save_table(path, need(ctx.table, "the table"), config, ctx.measured, module=self.module.name)
            if self.state is not None and ctx.measured:
                self.state.unlink()
            console.wrote(path)
        ranged = PassManager(put).run(model, ctx)
        console.result(thresholds={n: entry.threshold for n, entry in need(ctx.table, "the table").entries.items()})
        return save(console, ranged, output_file(self.module, "3_calibrated.mlir", self.out))


@dataclass
class Lower(Command):
    """3_calibrated.mlir -> 4_tpu.mlir for a chip and mode."""

    says = "the module's `card`: which ops are exact, which in float and why"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    out: OptionalPath = None
    """Module to write; default 4_tpu.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Lower one module and print its fidelity card."""
        from tpusim.cli.show import fidelity_table
        from tpusim.fidelity import card_of
        from tpusim.passes import PassManager
        from tpusim.passes.pipelines import lowered

        asked = (self.network, self.preprocessing, self.calibration, self.lowering)
        given = network_of(self.module, asked)
        model = PassManager(lowered(given.lowering)).run(given.calibrated)
        console.result(card=card_of(model).to_json())
        console.detail(fidelity_table(card_of(model)))
        return save(console, model, output_file(self.module, "4_tpu.mlir", self.out))


@dataclass
class Group(Command):
    """4_tpu.mlir -> 5_grouped.mlir: weights into chip layout, then layer groups.

    With --show, --plot or --write-groups an already grouped module (5_grouped.mlir, 6_final.mlir) is only read.
    """

    says = "`groups`: ops, sections, local memory; global layers with their reason"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    show: bool = False
    """Print every group: ops, sections, rows of the pipeline, local memory by row."""
    group: int | None = None
    """With --show or --plot: only the group of this number (the `#` of the table of `tpusim run`), however large."""
    exact_packing: bool = False
    """With --show: the least local memory of each group (OR-Tools, extra `exact`), at most 10 s per group."""
    plot: OptionalPath = None
    """Folder for pictures of local memory and pipeline, two SVG files per group."""
    write_groups: OptionalPath = None
    """Write the groups as a file that --force takes."""
    out: OptionalPath = None
    """Module to write; default 5_grouped.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Group one module, or read a grouped module; print or draw it."""
        if self.group is not None and not self.show and self.plot is None:
            raise ConfigError(f"--group {self.group}: needs --show or --plot")
        if self.exact_packing and not self.show:
            raise ConfigError("--exact-packing: needs --show")
        reads = self.show or self.plot is not None or self.write_groups is not None
        given = self._opened(reads=reads)
        if reads and given.level not in ("", *BEFORE_GROUPS):
            model = given.final if given.level == "final" else given.grouped
        else:
            model = self._grouped(given)
            save(console, model, output_file(self.module, "5_grouped.mlir", self.out))
        self._show(console, model)
        return True

    def _opened(self, *, reads: bool) -> "GivenNetwork":
        """The network. Raises ConfigError for options that have no effect on an already grouped module."""
        from tpusim.ir.content import is_module

        asked = (self.network, self.preprocessing, self.calibration, self.lowering)
        if reads and is_module(self.module):
            given = network_of(self.module, asked)
            useless = self.grouping.given() + ["--out"] * (self.out is not None)
            if given.level not in BEFORE_GROUPS and useless:
                raise ConfigError(
                    f"{self.module}: the module is grouped already, so {' and '.join(useless)} would do nothing; "
                    "give 4_tpu.mlir to group again"
                )
            if given.level not in BEFORE_GROUPS:
                return given
        return network_of(self.module, (*asked, self.grouping))

    def _grouped(self, given: "GivenNetwork") -> "Model":
        from tpusim.passes import PassManager
        from tpusim.passes.pipelines import grouped

        return PassManager(grouped(given.config.layer_group)).run(given.tpu)

    def _show(self, console: Output, model: "Model") -> None:
        from tpusim.cli.grouping import as_json, packing_lines, show
        from tpusim.layer_group import groups_text, views
        from tpusim.verify.npz import write_atomically

        found = list(views(model)) if self.show or self.plot is not None or console.as_json else []
        console.result(groups=[as_json(view) for view in found])
        if self.show:
            lines = [
                *show(found, self.group, console.width),
                *(packing_lines(found, self.group) if self.exact_packing else ()),
            ]
            for line in lines:
                console.tell(line)
            if self.group is None:
                console.tell(_against_bounds(model))
        if self.plot is not None:
            from tpusim.cli.plot import plot

            for path in plot(found, self.plot, self.group):
                console.wrote(path)
        if self.write_groups is not None:
            content = groups_text(model).encode()
            write_atomically(self.write_groups, lambda file: file.write(content))
            console.wrote(self.write_groups)


def _against_bounds(model: "Model") -> str:
    """A grouped module's traffic and cycles compared with its lower bounds, from its commands."""
    from tpusim.cli.show import bounds_line
    from tpusim.errors import TpusimError
    from tpusim.ir.module import State
    from tpusim.layer_group import lower_bounds
    from tpusim.passes import PassManager
    from tpusim.passes.codegen import Codegen
    from tpusim.passes.pipelines import commands
    from tpusim.simulator import timeline

    try:
        program = PassManager(Codegen() if model.state == State.ADDRESSED else commands()).program(model)
    except TpusimError as error:  # a module written by hand is still shown
        return f"Whole module: traffic and cycles unknown, for it does not compile: {error}"
    found = timeline(program, program.header.chip_spec)
    return f"Whole module: {bounds_line(found.load_bytes + found.store_bytes, found.cycles, lower_bounds(model))}"


@dataclass
class Assign(Command):
    """5_grouped.mlir -> 6_final.mlir: every tensor gets its address in global memory."""

    says = "nothing more"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    out: OptionalPath = None
    """Module to write; default 6_final.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Assign global addresses and write the module."""
        from tpusim.passes import PassManager
        from tpusim.passes.memory import AddressAssign

        asked = (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        grouped = network_of(self.module, asked).grouped
        return save(
            console, PassManager([AddressAssign()]).run(grouped), output_file(self.module, "6_final.mlir", self.out)
        )
