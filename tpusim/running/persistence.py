"""The files of each stage of a run: how they are written and read back, and what they depend on.

A stage's key is a hash of everything that determines its results: the key of the stage before, its part of the
configuration, the content of the files it reads, and the version. Stages with equal keys need not run again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tpusim.calibration.smooth import measured_rewrites
from tpusim.calibration.stage import save_table
from tpusim.calibration.table import read_table
from tpusim.canonicalize import QUIRKS
from tpusim.errors import ConfigError, TpusimError, option
from tpusim.host.documents import read_json
from tpusim.host.files import files_in, real
from tpusim.inference import quantisation
from tpusim.inference import run as run_flat
from tpusim.ir.attrs import value_name
from tpusim.ir.content import is_module
from tpusim.ir.module import Model, load_model, name_weights, save_model
from tpusim.ir.one_file import digest_of
from tpusim.ir.types import calibrated_range, is_tensor
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import load, save
from tpusim.layer_group.files import views
from tpusim.ops import context
from tpusim.page import Diagnosis, Evidence, histograms, report_page, works, write_page
from tpusim.running.artefacts import Artefacts, RunConfig, Tensors, need
from tpusim.running.store import Manifest, digest
from tpusim.simulator import Simulator, trace
from tpusim.studies.export import MEASURES, graph, node_data
from tpusim.verify.about import About, read_about
from tpusim.verify.kept import Keep
from tpusim.verify.npz import load_tensors, save_tensors, write_atomically
from tpusim.verify.report import Report, write_report
from tpusim.verify.schema import read_report
from tpusim.version import __version__

LEVELS = ("onnx", "top", "tpu")
TENSOR_FILES = tuple(f"{level}_outputs.npz" for level in (*LEVELS, "local"))
"""What `--keep` chooses the tensors of."""
GRAPH = "graph.json"
"""The network for Model Explorer; `graph_MEASURE.json` are values at its nodes."""
PROGRAM = "7_model.tpusim"
PAGE_FILES = ("5_grouped.mlir", PROGRAM)
"""Groups and commands, which the page shows."""


@dataclass(frozen=True)
class Files:
    """The files of one stage.

    write: runs in a thread while the next stage computes, so it changes no artefact; prepare: runs before that.
    depends: what of the configuration decides the files, as something JSON can hold.
    """

    names: tuple[str, ...]
    write: Callable[[Artefacts, Path], None]
    read: Callable[[Artefacts, Path], None]
    depends: Callable[[RunConfig], Any] = lambda config: None
    prepare: Callable[[Artefacts], None] = lambda a: None


def module_files(
    name: str, weights: str, field: str, depends: Callable[[RunConfig], Any] = lambda config: None
) -> Files:
    """A stage that makes one module."""

    def prepare(a: Artefacts) -> None:
        name_weights(need(getattr(a, field), name), weights, a.config.form)

    def write(a: Artefacts, folder: Path) -> None:
        save_model(need(getattr(a, field), name), folder / name, weight_file=weights, form=a.config.form)

    def read(a: Artefacts, folder: Path) -> None:
        setattr(a, field, load_module(folder / name))

    return Files((name, weights), write, read, depends, prepare)


def load_module(path: Path) -> Model:
    """A module of any state with its weights; see `load_model`."""
    return load_model(path, context())


def is_calibrated(config: RunConfig) -> bool:
    """Whether thresholds are needed: in a float mode only for the integers of a quantisation table."""
    return config.lowering.calibrated


def kept_key(config: RunConfig) -> list[str] | None:
    """Which tensors were written; None where all were."""
    return None if config.keep.everything else list(config.keep.asked)


def prepare_calibration(a: Artefacts) -> None:
    """Name the weights of the calibrated module: those of the canonical one."""
    if a.table is not None:
        name_weights(need(a.calibrated, "the calibrated module"), "canonical_weights.npz", a.config.form)


def write_calibration(a: Artefacts, folder: Path) -> None:
    """The first sample, the calibrated module, and the table: as measured, or a copy of the given table."""
    save_tensors(folder / "inputs.npz", a.sample)
    if a.table is None:
        return
    if a.config.table is not None:
        shutil.copyfile(a.config.table, folder / "cali_table")
    else:
        save_table(folder / "cali_table", a.table, a.config.calibration, a.measured, module="2_canonical.mlir")
    model = need(a.calibrated, "the calibrated module")
    save_model(model, folder / "3_calibrated.mlir", weight_file="canonical_weights.npz", form=a.config.form)


def read_calibration(a: Artefacts, folder: Path) -> None:
    """As it was written; in a float mode the calibrated module is the canonical one."""
    a.sample = load_tensors(folder / "inputs.npz")
    if not is_calibrated(a.config):
        a.calibrated = a.canonical
        return
    table = folder / "cali_table"
    a.table = read_table(table if table.is_file() else need(a.config.table, "the calibration table"))
    a.calibrated = load_module(folder / "3_calibrated.mlir")


def write_program(a: Artefacts, folder: Path) -> None:
    """Write the commands to a program file."""
    save(need(a.program, "the program"), folder / PROGRAM)


def read_program(a: Artefacts, folder: Path) -> None:
    """Read the commands of a program file."""
    a.program = load(folder / PROGRAM)


def write_tensors(a: Artefacts, folder: Path) -> None:
    """Tensors of the three flat levels."""
    for level in LEVELS:
        if level in a.tensors:
            write_level(a, folder, level)


def write_level(a: Artefacts, folder: Path, level: str) -> None:
    """Write the tensors of a level that `--keep` selects; no file without any."""
    keep = a.config.keep
    found = keep.of(a.tensors[level], output_names(a)) if not keep.everything else a.tensors[level]
    if found or keep.everything:
        save_tensors(folder / f"{level}_outputs.npz", found, about(a, level))


def output_names(a: Artefacts) -> list[str]:
    """The network's results, as the canonical and as the lowered module call them."""
    modules = need(a.canonical, "the canonical module"), need(a.tpu, "the tpu module")
    return [value_name(value) for module in modules for value in module.results]


def read_tensors(a: Artefacts, folder: Path) -> None:
    """Tensors of the three flat levels."""
    for level in LEVELS:
        if (folder / f"{level}_outputs.npz").is_file():
            a.tensors[level] = load_level(folder, level)


def load_level(folder: Path, level: str) -> Tensors:
    """Tensors by name; uint16 in a file is the pattern of a bf16."""
    stored = load_tensors(folder / f"{level}_outputs.npz")
    return {n: v.view(numpy_dtype("bf16")) if v.dtype == np.uint16 else v for n, v in stored.items()}


def about(a: Artefacts, level: str) -> About:
    """What the file of a level's tensors says of itself."""
    quantised = quantisation(need(a.tpu, "the tpu module")) if level in ("tpu", "local") else {}
    kept = "" if a.config.keep.everything else str(a.config.keep)
    return About(level, a.config.lowering.format.name, a.config.lowering.qtable is not None, quantised, kept)


def write_simulation(a: Artefacts, folder: Path) -> None:
    """Tensors and timeline of the machine, and the accuracy if there were labels."""
    write_level(a, folder, "local")
    write_json(folder / "trace.json", trace(need(a.program, "the program"), need(a.machine, "the machine").timeline))
    if a.accuracy is not None:
        write_json(folder / "accuracy.json", a.accuracy)


def read_simulation(a: Artefacts, folder: Path) -> None:
    """Tensors and accuracy; the timeline follows from the program."""
    a.machine = Simulator(need(a.program, "the program"), options=a.config.simulator)
    a.tensors["local"] = load_level(folder, "local")
    if a.config.labels is not None:
        a.accuracy = read_json(folder / "accuracy.json")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file; the name appears only when the content is complete."""
    write_atomically(path, lambda file: file.write(json.dumps(content).encode()))


def write_verdict(a: Artefacts, folder: Path) -> None:
    """The report, as data, as a page and at the nodes of a graph."""
    report = need(a.report, "the report")
    write_report(folder, report)
    write_page(folder / "report.html", report, evidence(a))
    write_graph(a, folder, report)


def write_graph(a: Artefacts, folder: Path, report: Report) -> None:
    """The network as a graph, and the measurements of its ops, for Model Explorer."""
    model = need(a.grouped, "the grouped module")
    write_json(folder / GRAPH, graph(model))
    for measure, data in node_data(model, report.to_json()):
        write_json(folder / f"graph_{measure}.json", data)


def evidence(a: Artefacts) -> Evidence:
    """What the page of a run shows in addition to the report."""
    program, machine = need(a.program, "the program"), need(a.machine, "the machine")
    shown = shown_early(a) if a.shown is None else a.shown.result()
    return replace(shown, works=tuple(works(program, machine.timeline)))


def shown_early(a: Artefacts) -> Evidence:
    """The parts of the page that are known before the machine runs: values of the float network, and groups."""
    return Evidence(
        dict(histograms(a.tensors["top"], ranges(need(a.calibrated, "the calibrated module")))),
        tuple(views(need(a.grouped, "the grouped module"))),
    )


def require_kept(path: Path) -> Path:
    """The path. Raises ConfigError if the run in its folder left the file out for its `--keep`."""
    manifest = Manifest.read(path.parent)
    if path.exists() or path.name not in TENSOR_FILES or manifest is None:
        return path
    asked = _kept(manifest.config.get("keep"))
    stage = "infer" if path.name in FILES["infer"].names else "simulate"
    if asked != str(Keep()) and stage in manifest.stages:
        raise ConfigError(
            f"{path}: the run in this folder wrote no such tensors, for it was asked to {asked}; "
            f"run it again with {option('resume', True)} {option('keep', 'all')}, or with the names of those "
            "that are needed"
        )
    return path


def _kept(stated: Any) -> str:
    """`--keep` of a manifest: an object, or, of older ones, the option as a text."""
    try:
        return stated if isinstance(stated, str) else str(msgspec.convert(stated or {}, Keep))
    except (msgspec.ValidationError, ConfigError):
        return str(Keep())


def top_tensors(folder: Path, calibrated: Model) -> Tensors:
    """The tensors of the float network, computed anew where `--keep` left some out."""
    path = folder / "top_outputs.npz"
    if path.is_file() and not read_about(path).kept:
        return load_level(folder, "top")
    return run_flat(calibrated, load_tensors(folder / "inputs.npz"))


def page_of(folder: Path, calibrated: Model, diagnosis: Diagnosis) -> str:
    """The page of the run in a folder, from its files, with the diagnosis of its calibrated module.

    Raises ConfigError if the folder has no run that went to its end.
    """
    missing = [n for n in ("report.json", "inputs.npz", *PAGE_FILES) if not (folder / n).is_file()]
    if missing:
        raise ConfigError(f"{folder}: its page needs a whole `tpusim run`; missing: {', '.join(missing)}")
    read_report(folder / "report.json")
    grouped, program = PAGE_FILES
    commands = load(folder / program)
    found = Evidence(
        dict(histograms(top_tensors(folder, calibrated), ranges(calibrated))),
        tuple(views(load_module(folder / grouped))),
        tuple(works(commands, Simulator(commands).timeline)),
        diagnosis,
    )
    return report_page(read_json(folder / "report.json"), found)


def model_of(folder: Path) -> Path | None:
    """The model whose run is in a folder; None if there is none, or if its file is gone."""
    manifest = Manifest.read(folder)
    path = Path(str(manifest.config.get("model", ""))) if manifest is not None else None
    return path if path is not None and path.is_file() else None


def data_of(folder: Path) -> tuple[str, int] | None:
    """The calibration samples of the run in a folder, as `--data` takes them, and how many its table used (0: all).

    None without a run, and if its samples are gone: of samples in memory only one is kept.
    """
    manifest = Manifest.read(folder)
    data = str(manifest.config.get("data", "")) if manifest is not None else ""
    if not data or not (data.startswith("random:") or Path(data).exists()):
        return None
    if real(data) == real(folder / "inputs.npz"):
        return None
    table = folder / "cali_table"
    lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    counts = [line.rpartition(":")[2].strip() for line in lines if line.startswith("# sample number:")]
    return data, int(counts[0]) if counts and counts[0].isdigit() else 0


def ranges(calibrated: Model) -> dict[str, tuple[float, float]]:
    """Tensor -> the range that its integers keep, for tensors that have one."""
    values = [value for op in calibrated.ops for value in op.results if is_tensor(value)]
    found = {value_name(value): calibrated_range(value) for value in values}
    return {name: limits for name, limits in found.items() if limits is not None}


def read_nothing(a: Artefacts, folder: Path) -> None:
    """The last stage is never read back."""
    del a, folder


def canonical_key(config: RunConfig) -> list[object]:
    """What canonicalisation depends on: the samples too, if they decide about a rewrite."""
    read = (config.data, config.calibration.max_samples) if measured_rewrites(config.also) else ()
    defaults = [str(quirk) for quirk in config.lowering.quirks_off if quirk in QUIRKS]
    return [*sorted(config.also), *read, *defaults]


FILES: dict[str, Files] = {
    "import": module_files(
        "1_top.mlir",
        "weights.npz",
        "top",
        lambda c: [
            str(c.model.name),
            model_key(c.model),
            sorted(c.input_shapes.items()),
            *([repr(c.cut)] if c.cut else []),
            *([repr(c.preprocess), c.preprocess_list] if c.preprocess else []),
        ],
    ),
    "canonicalize": module_files("2_canonical.mlir", "canonical_weights.npz", "canonical", canonical_key),
    "calibrate": Files(
        ("inputs.npz", "cali_table", "3_calibrated.mlir", "canonical_weights.npz"),
        write_calibration,
        read_calibration,
        lambda c: [
            samples_key(c.data),
            *([repr(c.calibration), file_key(c.table), c.lowering.asymmetric] if is_calibrated(c) else []),
        ],
        prepare_calibration,
    ),
    "lower": module_files(
        "4_tpu.mlir",
        "tpu_weights.npz",
        "tpu",
        lambda c: [
            repr(replace(c.lowering, qtable=None)),
            c.lowering.qtable,
            file_key(c.lowering.qtable),
            *methods_key(c),
        ],  # fmt: skip
    ),
    "group": module_files("5_grouped.mlir", "chip_weights.npz", "grouped", lambda c: repr(c.layer_group)),
    "assign": module_files(
        "6_final.mlir", "chip_weights.npz", "final", lambda c: None if c.addr_mode == "basic" else c.addr_mode
    ),
    "codegen": Files((PROGRAM,), write_program, read_program),
    "infer": Files(TENSOR_FILES[:-1], write_tensors, read_tensors, kept_key),
    "simulate": Files(
        ("local_outputs.npz", "trace.json", "accuracy.json"),
        write_simulation,
        read_simulation,
        lambda c: [
            repr(c.simulator),
            file_key(c.labels),
            samples_key(c.test_data) if c.test_data else [],
            c.local_samples,
        ],
    ),
    "verify": Files(
        ("report.json", "report.html", GRAPH, *(f"graph_{measure}.json" for measure in MEASURES)),
        write_verdict,
        read_nothing,
        lambda c: [c.max_drop, c.compare_samples],
    ),
}
"""Stage -> its files, in processing order."""

ARTEFACTS = tuple(dict.fromkeys(name for files in FILES.values() for name in files.names))
"""Every file that the stages write into the folder of a run."""


def stage_keys(config: RunConfig) -> dict[str, str]:
    """Stage -> key, in processing order."""
    found: dict[str, str] = {}
    key = __version__ if config.form == "text" else f"{__version__} {config.form}"
    for name, files in FILES.items():
        key = hashlib.sha256(json.dumps([key, name, files.depends(config)]).encode()).hexdigest()
        found[name] = key
    return found


def methods_key(config: RunConfig) -> list[str]:
    """The lowering methods of a user's format, as functions of this process; another process may have others."""
    return [f"{name} {method!r}" for name, method in sorted(config.lowering.format.methods.items())]


def file_key(path: str | Path | None) -> str:
    """The content of a file; "" without a path, or if it is not a file."""
    return digest(Path(path)) if path is not None and Path(path).is_file() else ""


def model_key(path: Path) -> list[str]:
    """The content of a model, module or folder of a run with all weights; of a module the form does not count."""
    if path.is_dir():
        return [
            *(_module_key(path / name) for name in ("1_top.mlir", "2_canonical.mlir")),
            file_key(path / "cali_table"),
        ]
    if is_module(path):
        return [_module_key(path)]
    from tpusim.frontend.onnx import external_files

    return [file_key(path), *(file_key(file) for file in (external_files(path) if path.is_file() else ()))]


def _module_key(path: Path) -> str:
    """A digest of a module and its weights, whether they are stored as text, as bytecode or in one file."""
    if not path.is_file():
        return ""
    try:
        model = load_module(path)
    except TpusimError:  # whoever reads the module says what is wrong
        return file_key(path)
    return digest_of(model.module, model.weights)


def samples_key(source: str) -> list[Any]:
    """The names, sizes and times of the files, because samples may have many gigabytes."""
    path = Path(source)
    files = files_in(path) if path.is_dir() else [path] * path.is_file()
    stats = [(str(file.relative_to(path)), os.stat(file)) for file in files]
    return [source, [[name, found.st_size, found.st_mtime_ns] for name, found in stats]]
