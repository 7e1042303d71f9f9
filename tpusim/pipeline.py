"""The pipeline: STAGES is the table of contents, `run` takes a model from the first stage to the last wanted one.

Every stage is a function from the artefacts so far to the next, written to the output folder as soon as it exists, so
that a person can stop, look, edit and go on. Nothing reaches back. Modules are verified between stages.
"""

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tpusim.agreement import compare_local
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate, save_table
from tpusim.calibration.table import CalibrationTable, read_table
from tpusim.canonicalize import canonicalize
from tpusim.chips import load as load_chip
from tpusim.chips import require_cores
from tpusim.codegen import generate
from tpusim.errors import CalibrationError, ConfigError
from tpusim.fidelity import card_of
from tpusim.frontend import OnnxReference, as_called, import_onnx
from tpusim.inference import Graph, dequantised, float_upstream, input_specs, quantisation
from tpusim.inference import run as run_flat
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import shape_of
from tpusim.isa.cycles import traffic
from tpusim.isa.stream import Program, save
from tpusim.layer_group import LayerGroupConfig, group_layers, lower_bounds
from tpusim.lowering import LoweringConfig, config_for_chip, lower, reorder_weights
from tpusim.lowering.lower import Fallback
from tpusim.memory import assign_addresses
from tpusim.simulator import Simulator, SimulatorOptions, Timeline, trace
from tpusim.verify.about import About
from tpusim.verify.compare import Comparison, compare
from tpusim.verify.npz import load_tensors, save_tensors, write_atomically
from tpusim.verify.report import Report, build_report, write_report
from tpusim.verify.tolerances import TOP_VS_ONNX, tpu_vs_top
from tpusim.version import __version__

Tensors = dict[str, np.ndarray]
T = TypeVar("T")


class Observer(Protocol):
    """Who watches a run: progress for people, silence for scripts."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A stage begins; it ends when the context does."""
        ...

    def progress(self, done: int, total: int | None = None) -> None:
        """The current stage has done that many of its items."""
        ...


class Silent:
    """An observer that shows nothing."""

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Nothing."""
        del name
        yield

    def progress(self, done: int, total: int | None = None) -> None:
        """Nothing."""


@dataclass(frozen=True)
class RunConfig:
    """What `tpusim run` is asked for.

    model: ONNX file. data: calibration samples (npz keyed by input name, folder, random:N). labels: npz or npy of
    class indices for the samples of `test_data` (default: `data`). table: use this calibration table, measure nothing.
    out: folder of the artefacts. to: last stage to run. local_samples: how many labelled samples the machine runs,
    0: all.
    """

    model: Path
    lowering: LoweringConfig = LoweringConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    layer_group: LayerGroupConfig = LayerGroupConfig()
    simulator: SimulatorOptions = SimulatorOptions()
    data: str = "random:8"
    test_data: str | None = None
    labels: Path | None = None
    table: Path | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    out: Path = Path("out")
    to: str = "verify"
    local_samples: int = 0


@dataclass
class Artefacts:
    """What the stages have made so far. A stage reads earlier fields and sets its own."""

    config: RunConfig
    observer: Observer
    top: Model | None = None
    canonical: Model | None = None
    patterns: dict[str, int] = field(default_factory=dict[str, int])
    table: CalibrationTable | None = None
    calibrated: Model | None = None
    tpu: Model | None = None
    fallbacks: list[Fallback] = field(default_factory=list[Fallback])
    grouped: Model | None = None
    final: Model | None = None
    program: Program | None = None
    machine: Simulator | None = None
    sample: Tensors = field(default_factory=dict[str, np.ndarray])
    tensors: dict[str, Tensors] = field(default_factory=dict[str, Tensors])
    """By level: onnx, top, tpu, local."""
    accuracy: dict[str, Any] | None = None
    comparisons: dict[str, Comparison] = field(default_factory=dict[str, Comparison])
    stages: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    report: Report | None = None

    def __repr__(self) -> str:
        """The model, the stages that are done, and the report."""
        done = ", ".join(name for name, _ in self.stages) or "no stage"
        return f"<Artefacts of {self.config.model.name} in {self.config.out}: {done}; {self.report or 'no report'}>"


def need(artefact: T | None, name: str) -> T:
    """An artefact an earlier stage must have made."""
    if artefact is None:
        raise ConfigError(f"{name} is required here; run the earlier stages first")
    return artefact


# -------------------------------------------------------------------------------------------------------------- stages


def stage_import(a: Artefacts) -> None:
    """ONNX -> top module."""
    a.top = import_onnx(a.config.model, input_shapes=a.config.input_shapes)
    save_model(a.top, a.config.out / "1_top.mlir", weight_file="weights.npz")


def stage_canonicalize(a: Artefacts) -> None:
    """Top patterns and fusions."""
    a.canonical, a.patterns = canonicalize(need(a.top, "the top module"))
    save_model(a.canonical, a.config.out / "2_canonical.mlir", weight_file="canonical_weights.npz")


def stage_calibrate(a: Artefacts) -> None:
    """Thresholds, and calibrated types on the module; in f32 mode only the sample is read."""
    model = need(a.canonical, "the canonical module")
    samples = load_samples(a.config.data, input_specs(model), a.config.calibration.max_samples)
    if a.config.lowering.mode != "int8" and a.config.lowering.qtable is None:
        a.sample = dict(next(samples))
        a.calibrated = model
        return
    if a.config.table is not None:
        a.table = read_table(a.config.table)
        a.sample = dict(next(samples))
    else:
        a.table, count = calibrate(model, _keeping_first(a, samples), a.config.calibration, a.observer.progress)
        save_table(a.config.out / "cali_table", a.table, a.config.calibration, count, module="2_canonical.mlir")
    a.calibrated = apply_table(model, a.table, asymmetric=a.config.lowering.asymmetric)
    save_model(a.calibrated, a.config.out / "3_calibrated.mlir", weight_file="canonical_weights.npz")


def _keeping_first(a: Artefacts, samples: Iterator[Tensors]) -> Iterator[Tensors]:
    for sample in samples:
        a.sample = a.sample or dict(sample)
        yield sample


def stage_lower(a: Artefacts) -> None:
    """Top -> tpu for a chip and mode."""
    a.tpu, a.fallbacks = lower(need(a.calibrated, "the calibrated module"), a.config.lowering)
    save_model(a.tpu, a.config.out / "4_tpu.mlir", weight_file="tpu_weights.npz")


def stage_group(a: Artefacts) -> None:
    """Weights into chip layout, then layer groups."""
    a.grouped = group_layers(reorder_weights(need(a.tpu, "the tpu module")), a.config.layer_group)
    save_model(a.grouped, a.config.out / "5_grouped.mlir", weight_file="chip_weights.npz")


def stage_assign(a: Artefacts) -> None:
    """Global-memory addresses."""
    a.final = assign_addresses(need(a.grouped, "the grouped module"))
    save_model(a.final, a.config.out / "6_final.mlir", weight_file="chip_weights.npz")


def stage_codegen(a: Artefacts) -> None:
    """Commands."""
    a.program = generate(need(a.final, "the addressed module"))
    save(a.program, a.config.out / "7_model.tpusim")


def about(a: Artefacts, level: str) -> About:
    """What the file of a level's tensors says of itself."""
    quantised = quantisation(need(a.tpu, "the tpu module")) if level in ("tpu", "local") else {}
    return About(level, a.config.lowering.mode, a.config.lowering.qtable is not None, quantised)


def stage_infer(a: Artefacts) -> None:
    """Flat inference: the original model in ONNX Runtime, the top and the tpu module in JAX."""
    save_tensors(a.config.out / "inputs.npz", a.sample)
    reference = OnnxReference(a.config.model, input_shapes=a.config.input_shapes)
    top = need(a.canonical, "the canonical module")
    a.tensors["onnx"] = as_called(top, reference.run(a.sample))
    a.tensors["top"] = run_flat(top, a.sample)
    a.tensors["tpu"] = run_flat(need(a.tpu, "the tpu module"), a.sample)
    for level in ("onnx", "top", "tpu"):
        save_tensors(a.config.out / f"{level}_outputs.npz", a.tensors[level], about(a, level))


def stage_simulate(a: Artefacts) -> None:
    """The local-memory machine; then, with labels, the whole labelled data on every level."""
    program = need(a.program, "the program")
    a.machine = Simulator(program, options=a.config.simulator)
    result = a.machine.run(a.sample, watch=True)
    a.tensors["local"] = result.tensors
    save_tensors(a.config.out / "local_outputs.npz", result.tensors, about(a, "local"))
    _write_json(a.config.out / "trace.json", trace(program, result.timeline))
    if a.config.labels is not None:
        a.accuracy = evaluate(a, a.config.labels)


def stage_verify(a: Artefacts) -> None:
    """Three comparisons, and the report."""
    tpu = need(a.tpu, "the tpu module")
    a.comparisons["top_vs_onnx"] = compare(a.tensors["top"], a.tensors["onnx"], TOP_VS_ONNX, label="top_vs_onnx")
    tolerance = tpu_vs_top(a.config.lowering.mode)
    real = dequantised(tpu, a.tensors["tpu"])
    a.comparisons["tpu_vs_top"] = compare(real, a.tensors["top"], tolerance, label="tpu_vs_top")
    mixed = a.config.lowering.qtable is not None
    a.comparisons["local_vs_tpu"] = compare_local(
        tpu, a.sample, a.tensors["local"], a.tensors["tpu"], with_qtable=mixed
    )


STAGES: dict[str, Callable[[Artefacts], None]] = {
    "import": stage_import,
    "canonicalize": stage_canonicalize,
    "calibrate": stage_calibrate,
    "lower": stage_lower,
    "group": stage_group,
    "assign": stage_assign,
    "codegen": stage_codegen,
    "infer": stage_infer,
    "simulate": stage_simulate,
    "verify": stage_verify,
}
"""The stages in processing order."""

ARTEFACTS = (
    *("1_top.mlir", "weights.npz", "2_canonical.mlir", "canonical_weights.npz", "cali_table", "3_calibrated.mlir"),
    *("4_tpu.mlir", "tpu_weights.npz", "5_grouped.mlir", "chip_weights.npz", "6_final.mlir", "7_model.tpusim"),
    *("inputs.npz", "onnx_outputs.npz", "top_outputs.npz", "tpu_outputs.npz", "local_outputs.npz", "trace.json"),
    *("report.json", "report.html"),
)
"""Every file that the stages write into the folder of a run."""


def run(config: RunConfig, observer: Observer | None = None) -> Artefacts:
    """Run the stages up to `config.to`. Raises TpusimError; artefacts of finished stages stay on disk."""
    if config.to not in STAGES:
        raise ConfigError(f"--to {config.to}: expected one of {', '.join(STAGES)}")
    config = replace(config, lowering=config_for_chip(config.lowering))
    require_cores(load_chip(config.lowering.chip), config.layer_group.cores)
    if config.table is not None:
        read_table(config.table)  # a table that cannot be read is refused in float modes too, and before stages run
    _make_folder(config.out)
    _remove_earlier(config)
    a = Artefacts(config, observer or Silent())
    for name, stage in STAGES.items():
        begin = time.perf_counter()
        with a.observer.stage(name):
            stage(a)
        a.stages.append((name, time.perf_counter() - begin))
        if name == config.to:
            break
    if config.to == "verify":
        a.report = make_report(a)
        write_report(config.out, a.report)
    return a


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: a folder is required, got {error.strerror or error}") from error


def _remove_earlier(config: RunConfig) -> None:
    """Remove an earlier run's artefacts, so that none stands beside those of a run that fails; never what is read.

    Without a model the first stage refuses before it writes anything, and the earlier artefacts stay as they are.
    """
    if not os.path.exists(config.model):
        return
    given = (config.model, config.table, config.labels, config.data, config.test_data, config.lowering.qtable)
    read = {os.path.realpath(path) for path in given if path is not None}
    samples_here = os.path.realpath(config.out) in read
    for path in (config.out / name for name in ARTEFACTS):
        is_sample = samples_here and path.suffix == ".npz"
        if path.is_file() and not is_sample and os.path.realpath(path) not in read:
            try:
                path.unlink()
            except OSError as error:
                why = error.strerror or str(error)
                raise ConfigError(f"--out {config.out}: {path.name} of an earlier run must go, got {why}") from error


def _write_json(path: Path, content: Any) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(content).encode()))


# ----------------------------------------------------------------------------------------------------------- accuracy


def evaluate(a: Artefacts, labels: Path) -> dict[str, Any]:
    """Top-1 of the float module, the flat tpu module and the machine over all labelled samples."""
    top, tpu = need(a.canonical, "the canonical module"), need(a.tpu, "the tpu module")
    program, machine = need(a.program, "the program"), need(a.machine, "the machine")
    wanted = _labels(labels, classes=prod(shape_of(top.results[0])[1:]))
    stored = [t.name for t in program.tensors if t.role != "input" and not t.parts]
    exact = [n for n in stored if n not in float_upstream(tpu)]
    float_graph, flat_graph = Graph(top), Graph(tpu, list(dict.fromkeys([*stored, *_result_names(tpu)])))
    hits = {"float": 0, "int8": 0, "local": 0}
    count = local = identical = 0
    for sample in load_samples(a.config.test_data or a.config.data, input_specs(top)):
        truth = wanted[count : count + _batch(sample)]
        if len(truth) < _batch(sample):
            raise CalibrationError(f"labels '{labels}': one per sample is required, got {len(wanted)} and more samples")
        hits["float"] += _hits(float_graph(sample), _result_names(top), truth)
        flat = flat_graph(sample)
        hits["int8"] += _hits(flat, _result_names(tpu), truth)
        if a.config.local_samples == 0 or local < a.config.local_samples:
            found = machine.run(sample).tensors
            hits["local"] += _hits(found, _result_names(tpu), truth)
            local += _batch(sample)
            identical += _batch(sample) * (bool(exact) and all(np.array_equal(found[n], flat[n]) for n in exact))
        count += _batch(sample)
        a.observer.progress(count, len(wanted))
    if count != len(wanted):
        raise CalibrationError(f"labels '{labels}': {count} are required, one per sample, got {len(wanted)}")
    return {
        "samples": count,
        "float_top1": hits["float"] / count,
        "int8_top1": hits["int8"] / count,
        "local_top1": hits["local"] / local,
        "local_samples": local,
        "local_bit_exact_samples": identical,
        "local_exact_tensors": len(exact),
    }


def _labels(path: Path, classes: int) -> np.ndarray:
    arrays = load_tensors(path)
    if len(arrays) != 1:
        raise ConfigError(f"labels '{path}': one array of class indices is required, got {', '.join(arrays) or 'none'}")
    (array,) = arrays.values()
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        got = f"{array.dtype} of shape {array.shape}"
        raise ConfigError(f"labels '{path}': one array of class indices (integers, 1-D) is required, got {got}")
    if array.min() < 0 or array.max() >= classes:
        got = f"{array.min()} to {array.max()}"
        raise ConfigError(f"labels '{path}': class indices from 0 to {classes - 1} are required, got {got}")
    return array


def _batch(sample: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(sample.values())))


def _result_names(model: Model) -> list[str]:
    from tpusim.ir.attrs import value_name

    return [value_name(v) for v in model.results]


def _hits(tensors: Mapping[str, np.ndarray], names: list[str], truth: np.ndarray) -> int:
    scores = tensors[names[0]].reshape(len(truth), -1)
    return int((scores.argmax(axis=1) == truth).sum())


# -------------------------------------------------------------------------------------------------------------- report


def make_report(a: Artefacts) -> Report:
    """The report of a finished run."""
    program, machine = need(a.program, "the program"), need(a.machine, "the machine")
    timeline, calibration = machine.timeline, machine.chip.calibration
    bounds = lower_bounds(need(a.final, "the addressed module"))
    groups: list[dict[str, Any]] = []
    for entry in program.groups:
        cost = timeline.groups[entry.id]
        groups.append(
            {
                "id": entry.id,
                "ops": list(entry.ops),
                "secs": entry.secs,
                "lmem_peak_bytes": entry.lmem_peak_bytes,
                "lmem_bytes": machine.chip.lmem_bytes,
                "load_bytes": cost.load_bytes,
                "store_bytes": cost.store_bytes,
                "cycles": cost.cycles,
                "reason": entry.reason,
                **vars(machine.summary.groups[entry.id]),
            }
        )
    return build_report(
        version=__version__,
        model=program.header.model,
        chip=program.header.chip,
        mode=program.header.mode,
        asymmetric=a.config.lowering.asymmetric,
        stages=a.stages,
        compare=a.comparisons,
        groups=groups,
        memory={"coeff_bytes": program.header.coeff_bytes, "neuron_bytes": program.header.neuron_bytes},
        totals={
            "commands": len(program.commands),
            "load_bytes": timeline.load_bytes,
            "store_bytes": timeline.store_bytes,
            "cycles": timeline.cycles,
            "milliseconds": timeline.milliseconds * calibration.factor,
            "clock_milliseconds": timeline.milliseconds,
            "time_factor": calibration.factor,
            "time_residual": calibration.residual,
            "macs": program.header.macs,
            "compulsory_bytes": bounds.compulsory_bytes,
            "mac_cycles": bounds.mac_cycles,
            "traffic_ratio": bounds.traffic_ratio(timeline.load_bytes + timeline.store_bytes),
            "cycle_ratio": bounds.cycle_ratio(timeline.cycles),
        },
        accuracy=a.accuracy,
        fidelity=card_of(need(a.tpu, "the tpu module")).to_json(),
        engines=machine.summary.to_json(),
        cores=core_figures(program, timeline),
    )


def core_figures(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    """Per core: commands, bytes moved, busy share of each engine."""
    found: list[dict[str, Any]] = []
    for core, busy in timeline.core_busy.items():
        own = [command for command in program.commands if command.core == core]
        moved = [traffic(command) for command in own]
        found.append(
            {
                "core": core,
                "commands": len(own),
                "load_bytes": sum(load for load, _ in moved),
                "store_bytes": sum(store for _, store in moved),
                "tiu_busy": busy["tiu"],
                "gdma_busy": busy["gdma"],
            }
        )
    return found
