"""Subcommands of one compiler stage each. Fields are options; `execute` does the work and says whether it succeeded."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from tpusim.cli.options import (
    Grouping,
    GroupingOptions,
    In,
    Lowering,
    LoweringOptions,
    Method,
    Network,
    NetworkOptions,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    WorkerOptions,
    Working,
    beside,
    load,
    require_count,
    save,
)
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.module import Model


@dataclass
class Import:
    """Import an ONNX model: ONNX -> 1_top.mlir."""

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    out: OptionalPath = None
    """Module to write; default 1_top.mlir beside the model."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()

    def execute(self, console: Console) -> bool:
        """Import one model and write its module."""
        from tpusim.frontend import import_onnx
        from tpusim.images import with_preprocess

        model = import_onnx(self.model, input_shapes=self.network.shapes(), cut=self.network.cut())
        preprocess = self.preprocessing.preprocess()
        if preprocess is not None:
            with_preprocess(model, preprocess, self.preprocessing.which())
        return save(console, model, beside(self.model, "1_top.mlir", self.out))


@dataclass
class Canonicalize:
    """Apply op patterns and fusions: 1_top.mlir -> 2_canonical.mlir."""

    module: Annotated[In, tyro.conf.arg(metavar="1_top.mlir")]
    out: OptionalPath = None
    """Module to write; default 2_canonical.mlir beside the input."""
    also: tuple[str, ...] = ()
    """Patterns on request, which change numbers: gelu_tanh, mul_too_large, weight_equalization, where_too_large; by
    samples: smoothquant, softmax_correction."""
    verify_passes: bool = False
    """Run the module after every pattern that fires, and fail at the first that changes numbers."""
    data: str | None = None
    """Calibration samples for --also smoothquant and softmax_correction, or the sample of --verify-passes (by default
    random:1): npz, folder or random:N[:SEED]."""

    def execute(self, console: Console) -> bool:
        """Apply patterns and say which fired how often; False if one changed numbers."""
        from tpusim.calibration.smooth import measured_rewrites, patterns_of
        from tpusim.canonicalize import canonicalize
        from tpusim.cli.rewriting import check_of, show_check

        measured = measured_rewrites(self.also)
        if self.data is not None and not (self.verify_passes or measured):
            raise ConfigError(f"--data {self.data}: needs --verify-passes, nothing else runs the module")
        if self.data is None and measured:
            raise ConfigError(f"--also {measured[0]}: needs --data, the samples that decide about its factors")
        top = load(self.module)
        check = check_of(top, self.data or "random:1") if self.verify_passes else None
        model, patterns = canonicalize(top, patterns_of(self.also), check)
        model, patterns = self._by_samples(model, patterns)
        for name, count in sorted(patterns.items()):
            console.print(f"{name}: {count}", highlight=False)
        saved = save(console, model, beside(self.module, "2_canonical.mlir", self.out))
        return saved and (check is None or show_check(console, check))

    def _by_samples(self, model: "Model", patterns: dict[str, int]) -> "tuple[Model, dict[str, int]]":
        """What is rewritten by samples, and how much."""
        from tpusim.calibration.samples import Samples
        from tpusim.calibration.smooth import rewritten
        from tpusim.images import images_of
        from tpusim.inference import input_specs

        if self.data is None:
            return model, patterns
        samples = Samples(self.data, input_specs(model), shuffled=True, images=images_of(model))
        model, counts = rewritten(model, self.also, samples)
        return model, patterns | counts


@dataclass
class Calibrate:
    """2_canonical.mlir + samples -> cali_table and 3_calibrated.mlir."""

    module: Annotated[In, tyro.conf.arg(metavar="2_canonical.mlir")]
    data: str = "random:8"
    """Samples: npz keyed by input name, a folder of npz, npy or images, a .txt list of
    them, or random:N[:SEED]."""
    samples: int = 0
    """How many samples to use; 0: all."""
    method: Method = "kl"
    """How thresholds are found; each as upstream's --cali_method."""
    asymmetric: bool = False
    """Types carry the measured (min, max), for lowering with zero points."""
    tune_num: int = 5
    """How many samples tune the thresholds of kl and aciq, as upstream; 0: they stay as measured."""
    table: OptionalPath = None
    """Use this calibration table instead of measuring."""
    state: OptionalPath = None
    """File of what was measured so far: a killed calibration continues from it; removed when the table is written."""
    working: Working = WorkerOptions()
    out_table: OptionalPath = None
    """Table to write; default cali_table beside the input."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Measure (or read) thresholds and put them into the module."""
        from tpusim.calibration.own import with_own
        from tpusim.calibration.samples import Samples
        from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate, require_names, save_table
        from tpusim.calibration.table import read_table
        from tpusim.cli.show import LiveProgress
        from tpusim.images import images_of
        from tpusim.inference import input_specs

        require_count("--samples", self.samples, "uses all")
        require_count("--tune-num", self.tune_num, "tunes nothing")
        if self.table is not None and self.out_table is not None:
            raise ConfigError(
                f"--out-table {self.out_table}: nothing is measured with --table {self.table}; leave one out"
            )
        if self.table is not None and self.state is not None:
            raise ConfigError(f"--state {self.state}: nothing is measured with --table {self.table}; leave one out")
        workers = self.working.workers()
        model = load(self.module)
        if self.table is not None:
            table = read_table(self.table)
        else:
            require_names(model)
            config = CalibrationConfig(self.method, max_samples=self.samples, tune_samples=self.tune_num)
            found = Samples(self.data, input_specs(model), self.samples, shuffled=True, images=images_of(model))
            with LiveProgress(console) as progress, progress.stage("calibrate"):
                table, count = with_own(
                    model,
                    lambda: calibrate(model, found, config, progress.progress, state=self.state, workers=workers),
                )
            path = beside(self.module, "cali_table", self.out_table)
            save_table(path, table, config, count, module=self.module.name)
            if self.state is not None and count:
                self.state.unlink()
            console.print(f"wrote {path}", highlight=False)
        return save(
            console,
            apply_table(model, table, asymmetric=self.asymmetric),
            beside(self.module, "3_calibrated.mlir", self.out),
        )


@dataclass
class Lower:
    """3_calibrated.mlir -> 4_tpu.mlir for a chip and mode."""

    module: Annotated[In, tyro.conf.arg(metavar="3_calibrated.mlir")]
    lowering: Lowering = LoweringOptions()
    out: OptionalPath = None
    """Module to write; default 4_tpu.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Lower one module and print its fidelity card."""
        from tpusim.cli.show import fidelity_table
        from tpusim.fidelity import card_of
        from tpusim.lowering import lower, optimize_for_chip

        config = self.lowering.config()
        model = optimize_for_chip(lower(load(self.module), config)[0])
        console.print(fidelity_table(card_of(model)))
        return save(console, model, beside(self.module, "4_tpu.mlir", self.out))


@dataclass
class Group:
    """4_tpu.mlir -> 5_grouped.mlir: weights into chip layout, then layer groups.

    With --show, --plot or --write-groups a module that is grouped already (5_grouped.mlir, 6_final.mlir) is only read.
    """

    module: Annotated[In, tyro.conf.arg(metavar="4_tpu.mlir")]
    grouping: Grouping = GroupingOptions()
    show: bool = False
    """Print every group: ops, sections, rows of the pipeline, local memory by row."""
    group: int | None = None
    """With --show or --plot: only the group of this number (the `#` of the table of `tpusim run`), however large."""
    exact_packing: bool = False
    """With --show: how little local memory each group can do with (OR-Tools, extra `exact`), at most 10 s a group."""
    plot: OptionalPath = None
    """Folder for pictures of local memory and pipeline, two SVG files per group."""
    write_groups: OptionalPath = None
    """Write the groups as a file that --force takes."""
    out: OptionalPath = None
    """Module to write; default 5_grouped.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Group one module, or read a grouped one; show what was asked for."""
        if self.group is not None and not self.show and self.plot is None:
            raise ConfigError(f"--group {self.group}: needs --show or --plot")
        if self.exact_packing and not self.show:
            raise ConfigError("--exact-packing: needs --show")
        model = load(self.module)
        reads = self.show or self.plot is not None or self.write_groups is not None
        if not (reads and model.state in ("TPU_DIVIDED", "TPU_ADDRESSED")):
            model = self._grouped(model)
            save(console, model, beside(self.module, "5_grouped.mlir", self.out))
        elif given := self.grouping.given() + ["--out"] * (self.out is not None):
            raise ConfigError(
                f"{self.module}: the module is grouped already, so {' and '.join(given)} would do nothing; "
                "give 4_tpu.mlir to group again"
            )
        self._show(console, model)
        return True

    def _grouped(self, model: "Model") -> "Model":
        from tpusim.grouping import divide
        from tpusim.lowering import reorder_weights

        config = self.grouping.config()
        if model.state != "TPU_REORDERED":
            model = reorder_weights(model)
        return divide(model, config)

    def _show(self, console: Console, model: "Model") -> None:
        from tpusim.cli.grouping import packing_lines, show
        from tpusim.layer_group import groups_text, views
        from tpusim.verify.npz import write_atomically

        found = list(views(model)) if self.show or self.plot is not None else []
        if self.show:
            lines = [*show(found, self.group), *(packing_lines(found, self.group) if self.exact_packing else ())]
            for line in lines:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            if self.group is None:
                console.print(_against_bounds(model), markup=False, highlight=False, soft_wrap=True)
        if self.plot is not None:
            from tpusim.cli.plot import plot

            for path in plot(found, self.plot, self.group):
                console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
        if self.write_groups is not None:
            content = groups_text(model).encode()
            write_atomically(self.write_groups, lambda file: file.write(content))
            console.print(f"wrote {self.write_groups}", markup=False, highlight=False, soft_wrap=True)


def _against_bounds(model: "Model") -> str:
    """A grouped module's traffic and cycles against its lower bounds, from the commands it becomes."""
    from tpusim.cli.show import bounds_line
    from tpusim.codegen import generate
    from tpusim.errors import TpusimError
    from tpusim.layer_group import lower_bounds
    from tpusim.memory import assign_addresses
    from tpusim.simulator import timeline

    try:
        program = generate(assign_addresses(model) if model.state == "TPU_DIVIDED" else model)
    except TpusimError as error:  # a module that a hand wrote is still shown
        return f"Whole module: traffic and cycles unknown, for it does not compile: {error}"
    found = timeline(program, program.header.chip_spec)
    return f"Whole module: {bounds_line(found.load_bytes + found.store_bytes, found.cycles, lower_bounds(model))}"


@dataclass
class Assign:
    """5_grouped.mlir -> 6_final.mlir: every tensor gets its address in global memory."""

    module: Annotated[In, tyro.conf.arg(metavar="5_grouped.mlir")]
    out: OptionalPath = None
    """Module to write; default 6_final.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Assign global addresses and write the module."""
        from tpusim.memory import assign_addresses

        return save(console, assign_addresses(load(self.module)), beside(self.module, "6_final.mlir", self.out))


@dataclass
class Codegen:
    """6_final.mlir -> 7_model.tpusim: TIU and GDMA commands."""

    module: Annotated[In, tyro.conf.arg(metavar="6_final.mlir")]
    cores: int = 0
    """How many cores share the steps of every group; 0: as many as the module was grouped for."""
    out: OptionalPath = None
    """Program to write; default 7_model.tpusim beside the input."""

    def execute(self, console: Console) -> bool:
        """Generate the program and write it."""
        from tpusim.codegen import generate
        from tpusim.isa.stream import save

        program = generate(load(self.module), self.cores)
        path = beside(self.module, "7_model.tpusim", self.out)
        save(program, path)
        console.print(f"wrote {path}: {len(program.commands):,} commands", highlight=False)
        return True
