"""One dataclass per subcommand. Fields are options; `execute` does the work and says whether it succeeded."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro
from rich.console import Console

from tpusim.cli.debugger import Debug
from tpusim.cli.fidelity import Support
from tpusim.cli.stream import Assemble, Disassemble
from tpusim.errors import ConfigError
from tpusim.verify.npz import load_tensors, save_tensors

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.layer_group import LayerGroupConfig

Mode = Literal["int8", "f32", "f16", "bf16"]
Opt = Literal["1", "2", "off"]
Shapes = Literal["0", "1"]
Timing = Literal["early", "late", "random"]
In = tyro.conf.Positional[Path]
OptionalPath = Path | None


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`NAME=1x3x224x224` -> {"NAME": (1, 3, 224, 224)}. Raises ConfigError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        parts = dims.replace(",", "x").strip("[]").split("x")
        if not equals or not name or not all(p.strip().isdigit() for p in parts):
            raise ConfigError(f"--input-shapes {text}: NAME=1x3x224x224 is required")
        shapes[name] = tuple(int(p) for p in parts)
    return shapes


def _beside(path: Path, name: str, out: OptionalPath) -> Path:
    """The output file: as asked, or the usual artefact name beside the input."""
    return out or path.parent / name


@dataclass(frozen=True)
class GroupSteps:
    """What is done to layer groups once they are chosen; see docs/layer_group.md."""

    timestep_moves: bool = True
    """Move loads to earlier rows and stores to later ones where the DMA is slower than the ops beside it."""
    in_place: bool = False
    """Let results take the bytes of operands that die there, where a group would not fit otherwise."""
    group_overlap: bool = True
    """Load a group's first step beside the last ops of the group before, store its last beside the first ops after."""
    timestep_combine: bool = True
    """Make one row of two, and exchange a load and a store, where that is quicker (groups of up to 100 ops)."""


Steps = Annotated[GroupSteps, tyro.conf.arg(name="")]


def _grouping(command: "Run | Group") -> "LayerGroupConfig":
    """What the options of a command say about layer groups."""
    from tpusim.layer_group import LayerGroupConfig, read_groups

    forced = read_groups(command.force) if command.force else ()
    shapes, cores = command.shape_secs_search_strategy, command.cores
    return LayerGroupConfig(command.layer_group, forced, shapes, cores, **asdict(command.steps))


@dataclass
class Run:
    """Take an ONNX model all the way: import, calibrate, lower, group, generate commands, simulate, verify."""

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    chip: str = "bm1684x"
    """Chip to compile for."""
    mode: Mode = "int8"
    """Number format."""
    asymmetric: bool = False
    """Quantise with zero points."""
    qtable: str | None = None
    """Quantisation table: a file of `name MODE` lines, or name:MODE,name:MODE."""
    quirks_off: tuple[str, ...] = ()
    """Quirks of TPU-MLIR not to reproduce, by name (uint8_filter_zp_zero ...)."""
    matmul_perchannel: bool = False
    """Quantise the constant matrix of an INT8 MatMul by columns (BM1684X, BM1688, CV186X)."""
    data: str = "random:8"
    """Calibration samples: npz keyed by input name, a folder of npz/npy, or random:N[:SEED]."""
    samples: int = 0
    """How many calibration samples to use; 0: all."""
    method: Literal["kl", "max"] = "kl"
    """How thresholds are found."""
    table: OptionalPath = None
    """Use this calibration table instead of measuring."""
    labels: OptionalPath = None
    """Class indices (npz or npy) of the test samples; reports top-1 on every level."""
    test_data: str | None = None
    """Samples the labels belong to; default: the calibration samples."""
    local_samples: int = 0
    """How many labelled samples the local-memory machine runs; 0: all."""
    input_shapes: tuple[str, ...] = ()
    """Static input shapes, NAME=1x3x224x224 each."""
    layer_group: Opt = "2"
    """1: group greedily from the tail; 2: minimise the estimated time; off: every op alone."""
    shape_secs_search_strategy: Shapes = "0"
    """With --layer-group 2, 0: the first sections that fit; 1: search for better ones where the groups are cut."""
    cores: int = 1
    """How many cores of the chip share the steps of every group (bm1688 has 2, bm1690 has 8)."""
    force: OptionalPath = None
    """File (TOML, or JSON by its name) of pinned groups; the rest is searched."""
    steps: Steps = GroupSteps()
    dma: Timing = "early"
    """When the simulated DMA delivers; random: any order of the queues that dependencies allow."""
    seed: int = 0
    """With --dma random: which order."""
    out: OptionalPath = None
    """Folder for the artefacts; default out/MODEL_CHIP_MODE."""
    to: str = "verify"
    """Last stage to run."""

    def execute(self, console: Console) -> bool:
        """Run all stages; True if every comparison passed."""
        from tpusim.calibration.stage import CalibrationConfig
        from tpusim.cli.show import LiveProgress, show_run
        from tpusim.lowering import LoweringConfig
        from tpusim.pipeline import RunConfig, run
        from tpusim.simulator import SimulatorOptions

        config = RunConfig(
            model=self.model,
            lowering=LoweringConfig(
                self.chip, self.mode, self.asymmetric, self.qtable, self.quirks_off, self.matmul_perchannel
            ),
            calibration=CalibrationConfig(self.method, max_samples=self.samples),
            layer_group=_grouping(self),
            simulator=SimulatorOptions(dma=self.dma, seed=self.seed),
            data=self.data,
            test_data=self.test_data,
            labels=self.labels,
            table=self.table,
            input_shapes=parse_shapes(self.input_shapes),
            out=self.out or Path("out") / f"{self.model.stem}_{self.chip}_{self.mode}",
            to=self.to,
            local_samples=self.local_samples,
        )
        with LiveProgress(console) as progress:
            result = run(config, progress)
        show_run(console, result)
        return result.report is None or result.report.passed


@dataclass
class Import:
    """ONNX -> 1_top.mlir."""

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    out: OptionalPath = None
    """Module to write; default 1_top.mlir beside the model."""
    input_shapes: tuple[str, ...] = ()
    """Static input shapes, NAME=1x3x224x224 each."""

    def execute(self, console: Console) -> bool:
        """Import one model."""
        from tpusim.frontend import import_onnx

        model = import_onnx(self.model, input_shapes=parse_shapes(self.input_shapes))
        return _save(console, model, _beside(self.model, "1_top.mlir", self.out))


@dataclass
class Canonicalize:
    """1_top.mlir -> 2_canonical.mlir."""

    module: Annotated[In, tyro.conf.arg(metavar="1_top.mlir")]
    out: OptionalPath = None
    """Module to write; default 2_canonical.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Apply patterns and say which fired how often."""
        from tpusim.canonicalize import canonicalize

        model, patterns = canonicalize(_load(self.module))
        for name, count in sorted(patterns.items()):
            console.print(f"{name}: {count}", highlight=False)
        return _save(console, model, _beside(self.module, "2_canonical.mlir", self.out))


@dataclass
class Calibrate:
    """2_canonical.mlir + samples -> cali_table and 3_calibrated.mlir."""

    module: Annotated[In, tyro.conf.arg(metavar="2_canonical.mlir")]
    data: str = "random:8"
    """Samples: npz keyed by input name, a folder of npz/npy, or random:N[:SEED]."""
    samples: int = 0
    """How many samples to use; 0: all."""
    method: Literal["kl", "max"] = "kl"
    """How thresholds are found."""
    asymmetric: bool = False
    """Types carry the measured (min, max), for lowering with zero points."""
    use_table: OptionalPath = None
    """Take this table instead of measuring."""
    table: OptionalPath = None
    """Table to write; default cali_table beside the input."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Measure (or read) thresholds and put them into the module."""
        from tpusim.calibration.samples import load_samples
        from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
        from tpusim.calibration.table import read_table, write_table
        from tpusim.cli.show import LiveProgress
        from tpusim.inference import input_specs

        model = _load(self.module)
        if self.use_table is not None:
            table = read_table(self.use_table)
        else:
            config = CalibrationConfig(self.method, max_samples=self.samples)
            found = load_samples(self.data, input_specs(model), self.samples)
            with LiveProgress(console) as progress, progress.stage("calibrate"):
                table, count = calibrate(model, found, config, progress.progress)
            path = _beside(self.module, "cali_table", self.table)
            write_table(path, table, method=self.method, samples=count, bins=config.bins, tune=0)
            console.print(f"wrote {path}", highlight=False)
        return _save(
            console,
            apply_table(model, table, asymmetric=self.asymmetric),
            _beside(self.module, "3_calibrated.mlir", self.out),
        )


@dataclass
class Lower:
    """3_calibrated.mlir -> 4_tpu.mlir for a chip and mode."""

    module: Annotated[In, tyro.conf.arg(metavar="3_calibrated.mlir")]
    chip: str = "bm1684x"
    """Chip to compile for."""
    mode: Mode = "int8"
    """Number format."""
    asymmetric: bool = False
    """Quantise with zero points."""
    qtable: str | None = None
    """Quantisation table: a file of `name MODE` lines, or name:MODE,name:MODE."""
    quirks_off: tuple[str, ...] = ()
    """Quirks of TPU-MLIR not to reproduce, by name (uint8_filter_zp_zero ...)."""
    matmul_perchannel: bool = False
    """Quantise the constant matrix of an INT8 MatMul by columns (BM1684X, BM1688, CV186X)."""
    out: OptionalPath = None
    """Module to write; default 4_tpu.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Lower one module."""
        from tpusim.cli.show import fidelity_table
        from tpusim.fidelity import card_of
        from tpusim.lowering import LoweringConfig, lower

        config = LoweringConfig(
            self.chip, self.mode, self.asymmetric, self.qtable, self.quirks_off, self.matmul_perchannel
        )
        model, _ = lower(_load(self.module), config)
        console.print(fidelity_table(card_of(model)))
        return _save(console, model, _beside(self.module, "4_tpu.mlir", self.out))


@dataclass
class Group:
    """4_tpu.mlir -> 5_grouped.mlir: weights into chip layout, then layer groups.

    With --show, --plot or --write-groups a module that is grouped already (5_grouped.mlir, 6_final.mlir) is only read.
    """

    module: Annotated[In, tyro.conf.arg(metavar="4_tpu.mlir")]
    layer_group: Opt = "2"
    """1: group greedily from the tail; 2: minimise the estimated time; off: every op alone."""
    shape_secs_search_strategy: Shapes = "0"
    """With --layer-group 2, 0: the first sections that fit; 1: search for better ones where the groups are cut."""
    cores: int = 1
    """How many cores of the chip share the steps of every group (bm1688 has 2, bm1690 has 8)."""
    force: OptionalPath = None
    """File (TOML, or JSON by its name) of pinned groups; the rest is searched."""
    steps: Steps = GroupSteps()
    show: bool = False
    """Print every group: ops, sections, rows of the pipeline, local memory by row."""
    group: int | None = None
    """With --show or --plot: this group only, however large."""
    plot: OptionalPath = None
    """Folder for pictures of local memory and pipeline, two per group (extra `plot`)."""
    write_groups: OptionalPath = None
    """Write the groups as a file that --force takes."""
    out: OptionalPath = None
    """Module to write; default 5_grouped.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Group one module, or read a grouped one; show what was asked for."""
        model = _load(self.module)
        reads = self.show or self.plot is not None or self.write_groups is not None
        if not (reads and model.state in ("TPU_DIVIDED", "TPU_ADDRESSED")):
            model = self._grouped(model)
            _save(console, model, _beside(self.module, "5_grouped.mlir", self.out))
        elif self.force is not None or self.out is not None:
            raise ConfigError(
                f"{self.module}: the module is grouped already, so --force and --out do nothing; give 4_tpu.mlir"
            )
        self._show(console, model)
        return True

    def _grouped(self, model: "Model") -> "Model":
        from tpusim.layer_group import group_layers
        from tpusim.lowering import reorder_weights

        config = _grouping(self)
        if model.state != "TPU_REORDERED":
            model = reorder_weights(model)
        return group_layers(model, config)

    def _show(self, console: Console, model: "Model") -> None:
        from tpusim.cli.grouping import show
        from tpusim.layer_group import groups_text, views
        from tpusim.verify.npz import write_atomically

        if self.group is not None and not self.show and self.plot is None:
            raise ConfigError(f"--group {self.group}: needs --show or --plot")
        found = list(views(model)) if self.show or self.plot is not None else []
        if self.show:
            for line in show(found, self.group):
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
    from tpusim.chips import load
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
    found = timeline(program, load(program.header.chip))
    return f"Whole module: {bounds_line(found.load_bytes + found.store_bytes, found.cycles, lower_bounds(model))}"


@dataclass
class Assign:
    """5_grouped.mlir -> 6_final.mlir: global-memory addresses."""

    module: Annotated[In, tyro.conf.arg(metavar="5_grouped.mlir")]
    out: OptionalPath = None
    """Module to write; default 6_final.mlir beside the input."""

    def execute(self, console: Console) -> bool:
        """Assign addresses."""
        from tpusim.memory import assign_addresses

        return _save(console, assign_addresses(_load(self.module)), _beside(self.module, "6_final.mlir", self.out))


@dataclass
class Codegen:
    """6_final.mlir -> 7_model.tpusim: TIU and GDMA commands."""

    module: Annotated[In, tyro.conf.arg(metavar="6_final.mlir")]
    cores: int = 0
    """How many cores share the steps of every group; 0: as many as the module was grouped for."""
    out: OptionalPath = None
    """Program to write; default 7_model.tpusim beside the input."""

    def execute(self, console: Console) -> bool:
        """Generate the program."""
        from tpusim.codegen import generate
        from tpusim.isa.stream import save

        program = generate(_load(self.module), self.cores)
        path = _beside(self.module, "7_model.tpusim", self.out)
        save(program, path)
        console.print(f"wrote {path}: {len(program.commands):,} commands", highlight=False)
        return True


@dataclass
class Infer:
    """Run a model flat: an .onnx in ONNX Runtime, any .mlir stage in JAX."""

    model: Annotated[In, tyro.conf.arg(metavar="MODEL")]
    input: Path
    """Inputs, npz keyed by input name."""
    out: OptionalPath = None
    """Tensors to write; default MODEL_outputs.npz beside the model."""
    all_tensors: bool = False
    """Write every tensor, not only the network's results."""
    input_shapes: tuple[str, ...] = ()
    """Static input shapes for an .onnx, NAME=1x3x224x224 each."""

    def execute(self, console: Console) -> bool:
        """Run one sample."""
        inputs = load_tensors(self.input)
        tensors = self._onnx(inputs) if self.model.suffix == ".onnx" else self._module(inputs)
        path = self.out or self.model.with_name(f"{self.model.stem}_outputs.npz")
        save_tensors(path, tensors)
        console.print(f"wrote {path}: {len(tensors)} tensors", highlight=False)
        return True

    def _onnx(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        from tpusim.frontend import OnnxReference
        from tpusim.frontend.onnx_file import read_onnx

        proto = read_onnx(self.model)
        names = None if self.all_tensors else [o.name for o in proto.graph.output]
        return OnnxReference(self.model, names, input_shapes=parse_shapes(self.input_shapes)).run(inputs)

    def _module(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        from tpusim.inference import Graph, run

        model = _load(self.model)
        return run(model, inputs) if self.all_tensors else Graph(model)(inputs)


@dataclass
class Simulate:
    """Run a program on the local-memory machine."""

    program: Annotated[In, tyro.conf.arg(metavar="7_model.tpusim")]
    input: Path
    """Inputs, npz keyed by input name."""
    out: OptionalPath = None
    """Tensors to write; default local_outputs.npz beside the program."""
    trace: OptionalPath = None
    """Chrome trace to write; default trace.json beside the program."""
    dma: Timing = "early"
    """When the DMA delivers; random: any order of the queues that dependencies allow."""
    seed: int = 0
    """With --dma random: which order."""
    no_sanitize: bool = False
    """Skip the checks that make the machine trustworthy (bounds stay)."""
    chip: str = ""
    """Refuse a program that is for another chip."""
    check: OptionalPath = None
    """Tensors of flat inference (tpu_outputs.npz): compare every slice and store with them, stop at the first error."""
    collect: bool = False
    """With --check: go on and list all commands that produced wrong values."""
    ulps: int = 256
    """With --check: how far floats may differ, in units of the last place of the tensor's largest magnitude."""

    def execute(self, console: Console) -> bool:
        """Simulate one sample; True if nothing was found wrong."""
        from tpusim.cli.show import engines_line, estimate, ops_table
        from tpusim.cli.stream import show_check
        from tpusim.isa.stream import load
        from tpusim.simulator import Checker, Simulator, SimulatorOptions, trace
        from tpusim.verify.npz import write_atomically

        program = load(self.program, self.chip)
        options = SimulatorOptions(dma=self.dma, seed=self.seed, sanitize=not self.no_sanitize)
        machine = Simulator(program, options=options)
        checker = None
        if self.check is not None:
            reference = load_tensors(self.check)
            checker = Checker(program, machine.chip, reference, collect=self.collect, float_ulps=self.ulps)
        elif self.collect:
            raise ConfigError("--collect: --check REF.npz is required, it says what to compare with")
        result, known = machine.run(load_tensors(self.input), after=checker and checker.after), machine.chip.calibration
        path = _beside(self.program, "local_outputs.npz", self.out)
        save_tensors(path, result.tensors)
        content = json.dumps(trace(program, result.timeline)).encode()
        write_atomically(_beside(self.program, "trace.json", self.trace), lambda file: file.write(content))
        console.print(
            f"wrote {path}: {len(result.tensors)} tensors; {result.timeline.cycles:,} cycles = "
            f"{estimate(result.timeline.milliseconds, known.factor, known.residual)}",
            highlight=False,
        )
        engines = machine.summary.to_json()
        console.print(ops_table(engines))
        console.print(engines_line(engines), highlight=False)
        return checker is None or show_check(console, checker)


@dataclass
class Compare:
    """Compare two npz files tensor by tensor with upstream's verdicts."""

    target: Annotated[In, tyro.conf.arg(metavar="TARGET.npz")]
    reference: Annotated[In, tyro.conf.arg(metavar="REFERENCE.npz")]
    tolerance: str = "0.99,0.99"
    """Minimum cosine and euclidean similarity."""
    excepts: str = ""
    """Tensors not to compare, separated by commas."""
    verbose: Annotated[tyro.conf.UseCounterAction[int], tyro.conf.arg(aliases=["-v"])] = 0
    """More lines per tensor; repeat for still more."""
    save: OptionalPath = None
    """Also write the results as CSV."""
    upstream_sampling: bool = False
    """Compare only a sample of more than 400 tensors, as upstream does."""

    def execute(self, console: Console) -> bool:
        """Compare and print; True if everything passed."""
        from tpusim.verify.compare import Tolerance, compare
        from tpusim.verify.npz import write_atomically
        from tpusim.verify.render import print_comparison

        targets, references = load_tensors(self.target), load_tensors(self.reference)
        excepts = tuple(n for n in self.excepts.split(",") if n)
        tolerance = Tolerance.parse(self.tolerance)
        found = compare(targets, references, tolerance, excepts=excepts, upstream_sampling=self.upstream_sampling)
        names = {"target_name": str(self.target), "reference_name": str(self.reference)}
        print_comparison(console, found, verbose=self.verbose, targets=targets, references=references, **names)
        if self.save is not None:
            text = found.to_csv().encode()
            write_atomically(self.save, lambda file: file.write(text))
        return found.passed


@dataclass
class Zoo:
    """Write one of the nine classic networks with seeded weights as ONNX."""

    name: tyro.conf.Positional[str]
    out: Annotated[In, tyro.conf.arg(metavar="OUT.onnx")]
    seed: int = 0
    """Seed of the weights."""

    def execute(self, console: Console) -> bool:
        """Write the network."""
        from tpusim.frontend import zoo

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


def _load(path: Path) -> "Model":
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    return load_model(path, context())


def _save(console: Console, model: "Model", path: Path) -> bool:
    from tpusim.ir.module import save_model

    save_model(model, path, weight_file=f"{path.stem}_weights.npz")
    console.print(f"wrote {path}", highlight=False)
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
    "zoo": Zoo,
    "chips": Chips,
    "support": Support,
}
"""Subcommand -> its class. `opt` is xDSL's own driver and handled in `main`."""


def stderr_console() -> Console:
    """Where errors go."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)
