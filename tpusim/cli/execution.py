"""Subcommands that execute a model. Fields are options; `execute` does the work and says whether it succeeded."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from warnings import warn

import tyro

from tpusim.cli.command import Command
from tpusim.cli.inputs import described_by, each_input, read_input
from tpusim.cli.instruments import InstrumentOptions
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    KeepWords,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    Timing,
    WorkerOptions,
    Working,
    compiled_of,
    config_of,
    load,
    lowered_of,
    output_file,
    require_count,
    require_engine,
    require_ulps,
    simulator_options,
)
from tpusim.cli.output import Output
from tpusim.cli.words import refuse
from tpusim.errors import ChangedWarning, ConfigError, UnsupportedError, option
from tpusim.host.files import opened
from tpusim.registry import ENGINES

if TYPE_CHECKING:
    import numpy as np

    from tpusim.ir.module import Model
    from tpusim.isa.stream import Program
    from tpusim.running.artefacts import Artefacts, RunConfig
    from tpusim.verify.about import About
    from tpusim.verify.kept import Keep

    Compute = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass
class Run(Command):
    """Run all stages for a network: import, calibrate, lower, group, generate commands, simulate, verify.

    Takes a model, a module in floats (1_top.mlir, 2_canonical.mlir), or the folder of a run, whose model is then run
    again with the run's options as defaults.
    """

    says = "the folder (`out`), `seconds` by stage, and the `report` as in report.json"

    model: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="NETWORK")] = None
    again: OptionalPath = None
    """Instead of a model: repeat the run of this report.json or folder with its options and files. --out, --resume and
    --jobs may be given; changed files give a warning."""
    lowering: Lowering = LoweringOptions()
    calibration: Calibration = CalibrationOptions()
    labels: OptionalPath = None
    """Class indices (npz or npy) of the test samples; top-1 is reported for every level."""
    test_data: str | None = None
    """Samples of the labels; default: the calibration samples."""
    local_samples: int = 0
    """The local-memory machine runs so many labelled samples; 0: all."""
    max_drop: float = 1.0
    """The run is FAILED if top-1 drops by more than this many points on several labelled samples."""
    compare_samples: int = 16
    """Compare the levels on so many samples of --data. The verdict depends on the results of the worst sample and on
    all tensors of the first, which the local-memory machine runs.
    """
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    also: tuple[str, ...] = ()
    """Optional patterns, which change numbers: gelu_tanh, mul_too_large, weight_equalization, where_too_large; with
    calibration samples: smoothquant, softmax_correction."""
    grouping: Grouping = GroupingOptions()
    dma: Timing = "early"
    """When the simulated DMA delivers; random: any order of the queues that dependencies allow."""
    seed: int = 0
    """With --dma random: which order."""
    working: Working = WorkerOptions()
    keep: KeepWords = ("all",)
    """Tensors of the sample to write: all, none, or any of outputs (the network's results), names of tensors and
    patterns such as 'layer4*'. All are computed and compared in any case.
    """
    bytecode: bool = False
    """Write the modules of all stages as MLIR bytecode, under the same names."""
    one_file: bool = False
    """Write them as bytecode with the weights in each, and no npz of weights."""
    out: OptionalPath = None
    """Folder for the artefacts; default out/MODEL_CHIP_MODE, with _asym and _Ncores if these options are given; for a
    repeated run its folder."""
    to: str = "verify"
    """Last stage to run: import, canonicalize, calibrate, lower, group, assign, codegen, infer, simulate or verify."""
    start: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """First stage to run; the artefacts of earlier stages are read from the folder, edited or not."""
    resume: bool = False
    """Run only stages that an earlier run in the folder did not complete with the same options and inputs."""
    verify_passes: bool = False
    """Run a sample of --data after every pattern and pass of this run, and fail at the first that changes numbers;
    quantisation itself may change them.
    """
    prove: bool = False
    """Prove that the program computes the module it was generated from, for all inputs; as of `tpusim simulate`."""
    instruments: Annotated[InstrumentOptions, tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff] = (
        InstrumentOptions()
    )
    dump_pass_pipeline: bool = False
    """Print the passes of the compilation as text that `tpusim opt MODEL -p TEXT` runs, and do nothing else."""

    def execute(self, console: Output) -> bool:
        """Run all stages; True if every comparison passed, and top-1 if there are labels."""
        from tpusim.cli.instruments import numbers_of
        from tpusim.cli.progress import LiveProgress
        from tpusim.cli.rewriting import show_check
        from tpusim.cli.show import show_run
        from tpusim.running.pipeline import run

        config = self._config() if self.again is None else self._repeated(self.again)
        if self.dump_pass_pipeline:
            return _dump(console, config)
        check = numbers_of(config.data) if self.verify_passes else None
        watching = [*self.instruments.instruments(_to_stderr), *([check] if check is not None else [])]
        if check is not None:
            from tpusim.proof.rewritings import ExpressionsChanged

            watching.append(ExpressionsChanged())
        try:
            with LiveProgress(console) as progress:
                command = shlex.join(["tpusim", *sys.argv[1:]])
                result = run(config, progress, command=command, instruments=watching)
        finally:
            for line in (line for one in watching if one is not check for line in one.report()):
                _to_stderr(line)
        show_run(console, result)
        kept = check is None or show_check(console, check)
        kept = (not self.prove or _proven(console, result)) and kept
        return kept and (result.report is None or result.report.passed)

    def _repeated(self, path: Path) -> "RunConfig":
        """The configuration of a repeated run, with warnings about files that have changed since."""
        from tpusim.running.asked import again

        mine = ("again", "out", "resume", "working", "verify_passes", "prove", "instruments")
        given = [name for name in _given(self) if name not in mine]
        if given:
            names = ", ".join("the model" if name == "model" else f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"--again {path}: the run's model and options are taken; leave out {names}")
        found = again(path)
        for line in found.changed:
            warn(ChangedWarning(line), stacklevel=2)
        out = self.out or found.config.out
        return replace(found.config, out=out, resume=self.resume, workers=self.working.workers())

    def _config(self) -> "RunConfig":
        from tpusim.verify.kept import Keep

        if self.model is None:
            refuse("tpusim run", "NETWORK must be given, or --again with the report.json of a run")
        self._check()
        asked = (self.lowering, self.calibration, self.network, self.preprocessing, self.grouping)
        base = config_of(self.model, asked)
        return replace(
            base,
            simulator=simulator_options(self.dma, self.seed),
            test_data=self.test_data,
            labels=self.labels,
            also=self.also or base.also,
            out=self.out or _usual(self.model, base),
            to=self.to,
            start=self.start,
            resume=self.resume,
            local_samples=self.local_samples,
            max_drop=self.max_drop,
            compare_samples=self.compare_samples,
            keep=Keep(self.keep),
            form="one-file" if self.one_file else "bytecode" if self.bytecode else "text",
            workers=self.working.workers(),
        )

    def _check(self) -> None:
        """Raise ConfigError for an option that is out of range or has no effect."""
        require_count("--local-samples", self.local_samples, "runs all")
        if self.prove and self.to not in ("codegen", "infer", "simulate", "verify"):
            raise ConfigError(f"--prove: the program is required, which --to {self.to} does not make; leave one out")
        if self.compare_samples < 1:
            raise ConfigError(f"--compare-samples {self.compare_samples}: 1 or more is required")
        if self.bytecode and self.one_file:
            raise ConfigError("--one-file: it writes bytecode; leave --bytecode out")
        if self.start is not None and self.resume:
            raise ConfigError(f"--from {self.start}: --resume finds the stage itself; leave one out")
        if self.labels is None and self.test_data is not None:
            raise ConfigError(f"--test-data {self.test_data}: needs --labels, the class indices of these samples")
        if self.labels is None and self.local_samples:
            raise ConfigError(f"--local-samples {self.local_samples}: needs --labels, it counts labelled samples")
        if self.labels is None and self.max_drop != 1.0:
            raise ConfigError(
                f"--max-drop {self.max_drop}: needs --labels, it limits the drop of top-1 on labelled samples"
            )


def _proven(console: Output, result: "Artefacts") -> bool:
    """Prove the program of a run."""
    from tpusim.cli.proof import show_proof
    from tpusim.proof import prove
    from tpusim.running.artefacts import need
    from tpusim.simulator import Simulator

    program = need(result.program, "the program")
    return show_proof(console, prove(need(result.final, "the final module"), result.machine or Simulator(program)))


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _dump(console: Output, config: "RunConfig") -> bool:
    """Print the pipeline of a run; True. Raises a TpusimError for a run that would not begin."""
    from tpusim.frontend import WHOLE
    from tpusim.passes import print_pipeline
    from tpusim.running.pipeline import checked, module_before, whole_pipeline

    checked(config)
    if config.resume:
        raise ConfigError(
            f"{option('resume', True)}: which stages are left depends on the folder; give {option('start')} with the "
            f"first one, or leave it out, to see passes with {option('dump_pass_pipeline', True)}"
        )
    module = module_before(config)
    try:
        opened(module).close()
    except OSError as error:
        raise ConfigError(f"{module}, which the passes begin with, cannot be read: {error.strerror}") from error
    if config.input_shapes or config.cut != WHOLE:
        raise ConfigError(
            f"{option('dump_pass_pipeline', True)}: passes begin with an imported module; shapes, values and cuts are "
            "options of the import; run `tpusim import` with these options, and give the 1_top.mlir that it writes"
        )
    text = print_pipeline(whole_pipeline(config))
    console.result(pipeline=text)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return True


def _usual(model: Path, config: "RunConfig") -> Path:
    """The default folder of a run; for a repeated run that run's folder, unless chip, mode or cores change."""
    from tpusim.running.asked import run_here

    earlier = run_here(model) if model.is_dir() else None
    name = _name(config)
    return model if earlier is not None and _name(earlier) == name else Path("out") / name


def _name(config: "RunConfig") -> str:
    """The name of the default folder, which depends on chip, mode and number of cores, so that these do not collide."""
    from tpusim import chips

    lowering, cores = config.lowering, config.layer_group.cores
    parts = [config.model.stem, chips.load(lowering.chip).name, str(lowering.mode)]
    parts += ["asym"] * lowering.asymmetric + [f"{cores}cores"] * (cores > 1)
    return "_".join(parts)


def _given(options: Any) -> Iterator[str]:
    """Names of the fields that differ from their defaults, including those of option groups."""
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            yield from (
                _given(value) if is_dataclass(value) and field.name not in ("working", "instruments") else (field.name,)
            )


@dataclass
class Infer(Command):
    """Run a network flat: an .onnx in ONNX Runtime (its tensors named as in the module), any .mlir stage in JAX.

    For the folder of a run, 4_tpu.mlir is run: the network as the chip computes it.
    """

    says = "the names and shapes of the `tensors` written, of a folder by file"

    model: NetworkPath
    input: Path
    """Inputs: npz keyed by input name; an image, if the module has preprocessing options; or a folder of these, with a
    separate output for each."""
    out: OptionalPath = None
    """Tensors to write; default MODEL_outputs.npz next to the model. For a folder of inputs: the folder of outputs."""
    all_tensors: bool = False
    """Write every tensor, not only the network's results; the same as --keep all."""
    keep: KeepWords = ("outputs",)
    """Which tensors to write: all, or any of outputs (the network's results), names of tensors and patterns such as
    'layer4*'."""
    fast_f32: bool = False
    """Add the products of a float network in the fastest order, not in TPU-MLIR's: the results differ by rounding."""
    engine: str = "jax"
    """What runs a .mlir: jax, or an independent tool. iree: IREE from StableHLO (extra 'iree'); integers and a lowered
    network's floats are the same bits, a float network is added in any order. From TOSA, with the same integers: mlir,
    MLIR's JIT (extra 'mlir'); iree-tosa; tosa, Arm's reference model (extra 'tosa')."""
    print_ir_tree_dir: OptionalPath = None
    """With --engine mlir: a folder for the module after each pass from TOSA to LLVM that changes it."""
    network: Network = NetworkOptions()

    def execute(self, console: Output) -> bool:
        """Run every sample and save its tensors."""
        from tpusim.frontend import front_end
        from tpusim.ir.content import is_known, is_module, is_program
        from tpusim.verify.npz import save_tensors

        if self.model.is_dir():
            self.model = lowered_of(self.model)
        if is_program(self.model):
            raise ConfigError(f"{self.model} is a program, which `tpusim simulate` runs; give an .onnx or .mlir")
        of_framework = is_known(self.model) and not is_module(self.model)
        if of_framework and not front_end(self.model).through_onnx:
            raise ConfigError(
                f"{self.model}: an .onnx, a .tflite or a .mlir is required; `tpusim import` makes a .mlir of it"
            )
        given = self.network.given()
        if given and not of_framework:
            why = "the inputs of a module have shapes" if given == ["--input-shapes"] else "a module is not cut"
            raise ConfigError(f"{' and '.join(given)}: needs an .onnx, {why}; got {self.model}")
        if self.fast_f32 and not is_module(self.model):
            raise ConfigError(
                f"--fast-f32: needs a .mlir of a float network, got {self.model}, which has no such order"
            )
        require_engine("--engine", self.engine, "jax")
        if self.engine != "jax" and (self.fast_f32 or not is_module(self.model)):
            got = "--fast-f32, which is JAX's" if self.fast_f32 else str(self.model)
            raise ConfigError(f"--engine {self.engine}: needs a .mlir alone, got {got}; leave one out")
        if self.print_ir_tree_dir is not None and self.engine != "mlir":
            raise ConfigError(
                f"--print-ir-tree-dir {self.print_ir_tree_dir}: needs --engine mlir, whose passes write it, got "
                f"--engine {self.engine}; leave one out"
            )
        keep = self._keep()
        prepare = self._onnx if of_framework else self._module
        run, about = prepare(keep)
        about = replace(about, kept="" if keep.everything or keep.asked == ("outputs",) else str(keep))
        usual = self.out or self.model.with_name(f"{self.model.stem}_outputs.npz")
        shapes = dict[str, dict[str, list[int]]]()
        for file, path in each_input(self.input, usual):
            tensors = run(read_input(file, self._described))
            save_tensors(path, tensors, about)
            shapes[path.name] = {name: list(array.shape) for name, array in tensors.items()}
            console.wrote(path, f"{len(tensors)} tensors")
        console.result(tensors=shapes if self.input.is_dir() else dict(*shapes.values()))
        return True

    def _keep(self) -> "Keep":
        """The tensors to write. Raises ConfigError for words that contradict each other or select nothing."""
        from tpusim.verify.kept import Keep

        keep = Keep(self.keep)
        if keep.nothing:
            raise ConfigError(
                "--keep none: all that `tpusim infer` does is to write tensors; name some, or leave --keep out"
            )
        if self.all_tensors and self.keep not in (("outputs",), ("all",)):
            raise ConfigError(f"--all-tensors: is --keep all, got {keep} too; leave one out")
        return Keep() if self.all_tensors else keep

    def _described(self) -> "Model":
        """The module, whose inputs have the preprocessing options."""
        from tpusim.ir.content import is_module

        if not is_module(self.model):
            raise ConfigError(
                f"--input {self.input}: needs a .mlir, which says how images are preprocessed, got {self.model}; "
                "give an .npz instead"
            )
        return load(self.model)

    def _onnx(self, keep: "Keep") -> "tuple[Compute, About]":
        from tpusim.canonicalize import canonicalize
        from tpusim.frontend import OnnxReference, as_called, import_onnx
        from tpusim.frontend.onnx import cut_out, read_onnx
        from tpusim.verify.about import About

        shapes, cut, about = self.network.shapes(), self.network.cut(), About("onnx")
        results = [o.name for o in cut_out(cut, read_onnx(self.model), shapes, str(self.model)).graph.output]
        names = results if keep.asked == ("outputs",) else None
        reference = OnnxReference(self.model, names, input_shapes=shapes, cut=cut)
        try:
            top = canonicalize(import_onnx(self.model, input_shapes=shapes, cut=cut))[0]
        except UnsupportedError:  # without a module, tensors keep their ONNX names
            return lambda inputs: self._kept(reference.run(inputs), results, keep), about
        called = _result_names(top)
        return lambda inputs: self._kept(as_called(top, reference.run(inputs)), called, keep), about

    def _module(self, keep: "Keep") -> "tuple[Compute, About]":
        from tpusim.inference import Gradual, Graph, quantisation, run
        from tpusim.verify.about import About

        model = load(self.model)
        level = "tpu" if model.state.startswith("TPU") else "top"
        about = About(level, model.mode, quantised=quantisation(model))
        if self.fast_f32 and (level == "tpu" or keep.asked != ("outputs",)):
            raise ConfigError(
                "--fast-f32: computes the results of a float network (1_top.mlir to 3_calibrated.mlir) and no other "
                f"tensors, got {self.model} with {keep}; leave it out"
            )
        if self.fast_f32:
            return Graph(model, quick=True), about
        if self.engine != "jax":
            more = {} if self.print_ir_tree_dir is None else {"levels": self.print_ir_tree_dir}
            engine = ENGINES.get(self.engine)(model, None if keep.asked == ("outputs",) else "all", **more)
            return lambda inputs: self._kept(engine(inputs), _result_names(model), keep), about
        if keep.asked == ("outputs",):
            return Gradual(model), about
        return lambda inputs: self._kept(run(model, inputs), _result_names(model), keep), about

    def _kept(
        self, tensors: "Mapping[str, np.ndarray]", results: "Sequence[str]", keep: "Keep"
    ) -> "Mapping[str, np.ndarray]":
        """The tensors to write, selected from all tensors or from the results. Raises ConfigError for a wrong name."""
        keep.require_tensors(tensors)
        return tensors if keep.asked == ("outputs",) else keep.of(tensors, results)


def _result_names(model: "Model") -> list[str]:
    from tpusim.ir.attrs import value_name

    return [value_name(value) for value in model.results]


@dataclass
class Simulate(Command):
    """Run a program on the local-memory machine.

    Takes a program (7_model.tpusim), the folder of a run, or any network, which is compiled first.
    """

    says = "`cycles`, milliseconds, `engines` as in report.json; with --check the `mismatches`"

    program: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PROGRAM|NETWORK")]
    net: str | None = None
    """Of a program of several nets (`tpusim link`): the one to run."""
    input: OptionalPath = None
    """Inputs: npz keyed by input name; an image, if the run's module next to the program has preprocessing options; or
    a folder of these, with a separate output for each. Required but with --prove, which is for all inputs.
    """
    out: OptionalPath = None
    """Tensors to write; default local_outputs.npz next to the program. For a folder: the folder of outputs."""
    keep: KeepWords = ("all",)
    """Stored tensors to write: all, none, or any of outputs (the network's results), names of tensors and patterns such
    as 'layer4*'.
    """
    trace: OptionalPath = None
    """Chrome trace to write; default trace.json next to the program."""
    dma: Timing = "early"
    """When the DMA delivers; random: any order of the queues that dependencies allow."""
    seed: int = 0
    """With --dma random: which order."""
    sanitize: bool = True
    """Do all checks of the machine; without them only bounds are checked."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    check: OptionalPath = None
    """Tensors of flat inference (tpu_outputs.npz): compare every slice and store with them, stop at the first error."""
    prove: bool = False
    """Prove that the program computes its module (6_final.mlir next to it) for all inputs: both are run over a finite
    field, where every input is random, other expressions are other numbers, and moves are moves. The first command that
    computes another expression is named.
    """
    collect: bool = False
    """With --check: continue and list all commands that produced wrong values."""
    ulps: int | None = None
    """With --check: how far floats may differ, in units of the last place of the tensor's largest magnitude; default:
    256 in f32, 4 of the narrowest float where there are 16-bit ones."""

    def execute(self, console: Output) -> bool:
        """Simulate every sample; True if nothing was wrong."""
        from tpusim.cli.proof import module_of, proven
        from tpusim.cli.show import engines_line, estimate, ops_table
        from tpusim.cli.stream import said_alone, show_check
        from tpusim.running.persistence import ARTEFACTS, require_kept
        from tpusim.running.store import note_written
        from tpusim.simulator import Checker, Simulator, trace
        from tpusim.verify.kept import Keep
        from tpusim.verify.npz import load_tensors, write_atomically

        if self.input is None and (self.check is not None or not self.prove):
            raise ConfigError("--input: inputs are required, got none; only --prove alone runs without them")
        if self.check is not None and self.input is not None and self.input.is_dir():
            raise ConfigError(f"--check {self.check}: is one sample's, got the folder {self.input}; give its --input")
        require_ulps(self.ulps, self.check)
        keep = Keep(self.keep)
        options = simulator_options(self.dma, self.seed, sanitize=self.sanitize)
        options_given = (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        given = compiled_of(self.program, options_given, self.net)
        if self.prove and self.net:
            raise ConfigError(
                f"--prove: a program of one network is required, got net '{self.net}' of several, whose "
                "tensors linking has moved; prove its program before `tpusim link`"
            )
        program = given.program
        module = module_of(given, self.program) if self.prove else None
        machine = Simulator(program, options=options)
        keep.require_tensors(entry.name for entry in program.tensors)
        checker = None
        if self.check is not None:
            reference = load_tensors(require_kept(self.check))
            checker = Checker(program, machine.chip, reference, collect=self.collect, float_ulps=self.ulps)
        elif self.collect:
            raise ConfigError("--collect: --check REF.npz is required, it says what to compare with")
        of_program = described_by(self.program, program.header.chip)
        described, known = (lambda: given.tpu) if given.has("tpu") else of_program, machine.chip.calibration
        outputs = output_file(self.program, "local_outputs.npz", self.out)
        for file, path in () if self.input is None else each_input(self.input, outputs):
            result = machine.run(read_input(file, described), after=checker and checker.after)
            self._save(console, program, result.tensors, keep, path)
        content = json.dumps(trace(program, machine.timeline)).encode()
        traced = output_file(self.program, "trace.json", self.trace)
        write_atomically(traced, lambda file: file.write(content))
        simulated = self.input is not None and self.out is None
        for path in (*((outputs,) if simulated else ()), *((traced,) if self.trace is None else ())):
            note_written(path, "simulate", ARTEFACTS)
        cycles, milliseconds = machine.timeline.cycles, machine.timeline.milliseconds
        console.tell(f"{cycles:,} cycles = {estimate(milliseconds, known.factor, known.residual)}")
        engines = machine.summary.to_json()
        console.result(cycles=cycles, milliseconds=milliseconds * known.factor, engines=engines)
        console.detail(ops_table(engines))
        console.note(engines_line(engines))
        if self.sanitize and machine.unconfirmed:
            console.note(said_alone(machine.unconfirmed))
        right = module is None or proven(console, module, machine)
        return (checker is None or show_check(console, checker)) and right

    def _save(
        self, console: Output, program: "Program", tensors: "Mapping[str, np.ndarray]", keep: "Keep", path: Path
    ) -> None:
        """Write the tensors that are to be kept, and say so."""
        from tpusim.verify.about import About
        from tpusim.verify.npz import save_tensors

        if keep.nothing:
            console.note("wrote no tensors (--keep none)")
            return
        found = keep.of(tensors, [entry.name for entry in program.tensors if entry.role == "output"])
        quantised = {t.name: (t.scale, t.zero_point) for t in program.tensors if t.scale}
        kept = "" if keep.everything else str(keep)
        save_tensors(path, found, About("local", program.header.mode, quantised=quantised, kept=kept))
        console.wrote(path, f"{len(found)} tensors")
