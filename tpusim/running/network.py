"""`Network`: a network in any form, and all of its stages on request.

A form is the file of a framework (ONNX, TFLite, StableHLO), an ONNX model in memory, a torch.nn.Module, a JAX function,
a module of any stage (its file, or in memory), or the folder of a run. Levels that a form lacks are made by the
pipeline's stages on request; levels that it has are read. The options of a run's folder are those of the run, unless
others are given: then all stages from the first that they change are made again. A form that lacks a level for good (a
lowered module has no floats) raises an error that names a form with it.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import TypeIs

from tpusim import chips
from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import save_table
from tpusim.calibration.table import CalibrationTable, read_table, rewrite_thresholds
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, option
from tpusim.frontend import FunctionReference
from tpusim.frontend.torch import Exporter, import_torch
from tpusim.images import images_of, with_preprocess
from tpusim.inference import input_specs
from tpusim.ir.content import is_module, is_program
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import Model
from tpusim.isa.nets import load_net
from tpusim.isa.stream import Program
from tpusim.isa.stream import load as load_program
from tpusim.lowering import LoweringConfig, lowered_as
from tpusim.running.artefacts import Artefacts, Observer, RunConfig, Silent, need
from tpusim.running.asked import run_here
from tpusim.running.persistence import data_of, is_calibrated, load_module
from tpusim.running.pipeline import STAGES, check_foreseen, checked
from tpusim.studies.prospect.assumed import assumed_table
from tpusim.studies.prospect.compilation import imported_or_assumed

if TYPE_CHECKING:
    from tpusim.frontend.onnx import ModelProto

LEVELS = {
    "top": ("import", "1_top.mlir"),
    "canonical": ("canonicalize", "2_canonical.mlir"),
    "calibrated": ("calibrate", "3_calibrated.mlir"),
    "tpu": ("lower", "4_tpu.mlir"),
    "grouped": ("group", "5_grouped.mlir"),
    "final": ("assign", "6_final.mlir"),
    "program": ("codegen", "7_model.tpusim"),
}
"""What a network is at each level: the stage that makes it, and its file in the folder of a run."""
ORDER = tuple(LEVELS)
DONE = {
    "top": "is imported", "canonical": "is canonical", "calibrated": "has its thresholds", "tpu": "is lowered",
    "grouped": "is grouped", "final": "has its addresses", "program": "is compiled",
}  # fmt: skip
"""What a network is at each level, for messages."""
STATES = {
    "TOP_F32": "top", "TOP_CALIBRATED": "calibrated", "TPU_LOWERED": "tpu", "TPU_REORDERED": "tpu",
    "TPU_DIVIDED": "grouped", "TPU_ADDRESSED": "final",
}  # fmt: skip
"""State of a module -> its level; a canonical module has the state of an imported one, but another file name."""
DECIDED = {
    "top": ("input_shapes", "cut", "preprocess", "preprocess_list"),
    "canonical": ("also",),
    "calibrated": ("data", "table", "calibration"),
    "tpu": ("lowering",),
    "grouped": ("layer_group",),
    "final": ("addr_mode",),
}
"""The options that decide a level, in addition to those that decide the levels before it."""
Given: TypeAlias = "str | Path | Model | ModelProto"
Configure: TypeAlias = Callable[[RunConfig], RunConfig]
"""Puts the given options into a configuration: the usual one, or that of a run."""


@dataclass
class Network:
    """A network as given. label: how messages call it; framework: the framework's model, if there is one.

    artefacts: the levels in memory; stored: level -> its file on disk, if that is current. folder: of its files, None
    for a network in memory. assume: ranges are assumed where none were measured and no samples were named.
    """

    label: str
    artefacts: Artefacts
    framework: "str | Path | ModelProto | None" = None
    stored: Mapping[str, Path] = field(default_factory=dict[str, Path])
    folder: Path | None = None
    assume: bool = False

    @property
    def config(self) -> RunConfig:
        """What it is compiled for, and how."""
        return self.artefacts.config

    @property
    def lowering(self) -> LoweringConfig:
        """How it is lowered; the chip is a value."""
        return self.config.lowering

    @property
    def chip(self) -> ChipSpec:
        """What it is compiled for."""
        return chips.load(self.lowering.chip)

    @property
    def top(self) -> Model:
        """As it was imported."""
        return self.model("top")

    @property
    def earliest(self) -> Model:
        """As it was imported, or as it was given if that is canonical."""
        return self.top if self.has("top") else self.canonical

    @property
    def canonical(self) -> Model:
        """After op patterns and fusions."""
        return self.model("canonical")

    @property
    def calibrated(self) -> Model:
        """With ranges in its types; in a float mode the canonical module."""
        return self.model("calibrated")

    @property
    def tpu(self) -> Model:
        """Lowered for the chip."""
        return self.model("tpu")

    @property
    def grouped(self) -> Model:
        """The lowered module in layer groups."""
        return self.model("grouped")

    @property
    def final(self) -> Model:
        """The grouped module with global addresses."""
        return self.model("final")

    @property
    def program(self) -> Program:
        """The commands of the network."""
        self._make("program")
        return need(self.artefacts.program, "the program")

    @property
    def table(self) -> CalibrationTable | None:
        """The thresholds in force; None in a float mode, and for a module that was given with them in its types."""
        if self.has("calibrated"):
            self._make("calibrated")
        return self.artefacts.table

    @property
    def model_path(self) -> Path | None:
        """The file of the framework's model, None if there is none."""
        return Path(self.framework) if isinstance(self.framework, str | Path) else None

    @property
    def measures(self) -> bool:
        """Whether it needs ranges and has none yet."""
        return is_calibrated(self.config) and not any(self._there(name) for name in ORDER[2:])

    @property
    def floats(self) -> Model:
        """The network in floats as it is lowered: canonical, or as it was given with ranges in its types."""
        return self.canonical if self.has("canonical") else self.calibrated

    @property
    def latest(self) -> Model:
        """The module of the last available level; as it was imported if there is none yet."""
        return self.model(next((name for name in reversed(ORDER[:-1]) if self._there(name)), "top"))

    @property
    def level(self) -> str:
        """The last available level."""
        return next((name for name in reversed(ORDER) if self._there(name)), "")

    def has(self, level: str) -> bool:
        """Whether a level is available or can be made."""
        return any(self._there(name) for name in ORDER[: ORDER.index(level) + 1]) or self.framework is not None

    def model(self, level: str) -> Model:
        """The module of a level. Raises ConfigError if the given form is of a later level."""
        self._make(level)
        return need(getattr(self.artefacts, level), f"the {level} module")

    @property
    def judged(self) -> Model:
        """The float network that states the inputs, and how they are made of images."""
        has = [name for name in ("calibrated", "canonical", "top") if self._there(name)]
        return self.model(has[0] if has else "canonical")

    def samples(self, data: str | None = None, limit: int = 0) -> Samples:
        """The named samples; else the sample of the network's run; else those of its calibration."""
        model = self.judged
        left = None if self.folder is None else self.folder / "inputs.npz"
        source = data or (str(left) if left is not None and left.is_file() else self.config.data)
        return Samples(source, input_specs(model), limit, images=images_of(model))

    def calibrating(self, limit: int | None = None) -> Samples:
        """The samples to calibrate with, in the order of U-61; limit: instead of the configuration's number, 0: all."""
        model, config = self.floats, self.config
        count = config.calibration.max_samples if limit is None else limit
        return Samples(config.data, input_specs(model), count, shuffled=True, images=images_of(model))

    def calibrated_with(self, limit: int) -> list[dict[str, np.ndarray]]:
        """The first `limit` of the samples that its ranges were measured on; none if they are not available."""
        given = self.artefacts.given
        if isinstance(given, Sized):
            return [dict(one) for one in islice(given, limit)]
        known = data_of(self.folder) if self.folder is not None else None
        return [] if known is None else [dict(one) for one in self.calibrating(min(known[1] or limit, limit))]

    def write_table(self, path: Path, thresholds: Mapping[str, float]) -> None:
        """Write the present table with other thresholds of some tensors; every other line stays as it was read.

        Raises ConfigError if no table is there, CalibrationError if it lacks one of the tensors.
        """
        a, near = self.artefacts, None if self.folder is None else self.folder / "cali_table"
        source = a.config.table or near
        if source is None or not source.is_file():
            if self.table is None:
                raise ConfigError(f"{self.label}: a cali_table in the same folder is required, there is none")
            save_table(path, self.table, a.config.calibration, a.measured, module=self.label)
            source = path
        rewrite_thresholds(source, path, thresholds)

    def _there(self, level: str) -> bool:
        return getattr(self.artefacts, level) is not None or level in self.stored

    def _make(self, level: str) -> None:
        """Bring a level into memory: read what is stored, make the rest."""
        if getattr(self.artefacts, level) is not None:
            return
        if not self.has(level):
            raise self._without(level)
        wanted = ORDER[: ORDER.index(level) + 1]
        first = max((i for i, name in enumerate(wanted) if self._there(name)), default=0)
        for name in wanted[first:]:
            if name in self.stored and getattr(self.artefacts, name) is None:
                self._read(name)
            elif getattr(self.artefacts, name) is None:
                self._stage(name)

    def _read(self, level: str) -> None:
        a, path = self.artefacts, self.stored[level]
        setattr(a, level, load_program(path) if level == "program" else load_module(path))
        table = path.with_name("cali_table")
        if level == "calibrated" and a.table is None and table.is_file():
            a.table = read_table(table)

    def _stage(self, level: str) -> None:
        a = self.artefacts
        if level == "calibrated":
            if not is_calibrated(a.config):
                a.calibrated = a.canonical
                return
            if self.assume and a.config.table is None and a.table is None and a.given is None:
                canonical = need(a.canonical, "the canonical module")
                a.table = imported_or_assumed(canonical) or assumed_table(canonical)
        if level == "calibrated":
            check_foreseen(a)
        if level == "tpu" and self.stored and isinstance(a.config.lowering.mode, NumberFormat):
            raise ConfigError(
                f"{self.label}: the methods of {a.config.lowering.mode} are not in its files; compile it again"
            )
        stage, begin = LEVELS[level][0], time.perf_counter()
        with a.observer.stage(stage):
            STAGES[stage](a)
        a.stages.append((stage, time.perf_counter() - begin))

    def _without(self, level: str) -> ConfigError:
        """The error of a form that begins after a level."""
        begins = next(name for name in ORDER if self._there(name))
        wanted = ORDER.index(level)
        files = f"{LEVELS['top'][1]} to {LEVELS[level][1]}" if wanted else LEVELS["top"][1]
        got = f"{self.label} {DONE[begins]} already, and what was before cannot be had from it"
        return ConfigError(
            f"{got}; give the ONNX or TFLite model, {files}, or the folder of a `tpusim run`, which has all of them"
        )


def open_network(
    given: Given, configure: Configure = lambda config: config, *, observer: Observer | None = None,
    assume: bool = False, judged: bool = False,
) -> Network:  # fmt: skip
    """The network of any form. configure: puts the given options into a configuration.

    assume: see `Network`. judged: samples are named to judge the network by; they calibrate it only where it has no
    ranges yet. Raises ConfigError for a path that is no network, and for options that no longer have an effect.
    """
    if isinstance(given, Model):
        return _of_module(given, given.name, None, configure, observer, assume=assume, judged=judged)
    if _is_proto(given):
        return _of_framework(given, given.graph.name or "the model", configure, observer, assume=assume)
    path = Path(given)
    if path.is_dir():
        return _of_run(path, configure, observer, assume=assume, judged=judged)
    if is_module(path):
        return _of_module(load_module(path), str(path), path, configure, observer, assume=assume, judged=judged)
    if is_program(path):
        return _of_program(path, configure, observer)
    return _of_framework(path, str(path), configure, observer, assume=assume)


NETWORK = "an ONNX, TFLite or StableHLO model, a module (.mlir) or the folder of a `tpusim run`"


def _artefacts(config: RunConfig, observer: Observer | None, *, from_file: bool) -> Artefacts:
    return Artefacts(checked(config), observer or Silent(), from_file=from_file)


def network_from(
    given: object, configure: Configure, *, example: object = None, exporter: Exporter = "dynamo",
    sample: Callable[[], object] = lambda: None,
) -> Network:  # fmt: skip
    """As `open_network`, for every form of a network in Python; a torch.nn.Module or a JAX function needs an example.

    A JAX function is the reference of the network, unless the network is only a part of it. sample: gives a sample in
    place of the example of a function of arrays.

    Raises ConfigError for what is no network.
    """
    if isinstance(given, str | Path):
        return open_network(path_of("model", given), configure)
    if isinstance(given, Model) or _is_proto(given):
        return open_network(given, configure)
    if hasattr(given, "training") and hasattr(given, "eval"):
        return open_network(import_torch(given, example, exporter=exporter), configure)
    if callable(given):
        return _of_function(given, example, sample, configure)
    raise ConfigError(
        f"model: {NETWORK}, an onnx.ModelProto, a tpusim Model, a torch.nn.Module or a JAX function "
        f"is required, got {type(given).__name__}"
    )


def path_of(argument: str, given: object) -> Path:
    """A path that is not empty, which would be the working directory. Raises ConfigError for anything else."""
    if not isinstance(given, str | Path):
        raise ConfigError(f"{argument}: a path is required, got {type(given).__name__}")
    if not str(given):
        raise ConfigError(f"{argument}: a path is required, got an empty text")
    return Path(given)


def open_run(folder: str | Path) -> Network:
    """The network of a run's folder. Raises ConfigError for a folder of no run."""
    return _of_run(path_of("folder", folder), lambda config: config, None, assume=False, judged=False)


def _of_framework(given: Any, label: str, configure: Configure, observer: Observer | None, *, assume: bool) -> Network:
    usual = RunConfig(Path(label))
    config = configure(usual)
    a = _artefacts(config, observer, from_file=not _is_proto(given))
    if _is_proto(given):
        from tpusim.frontend.onnx import OnnxReference, import_onnx

        a.reference = OnnxReference(given, input_shapes=config.input_shapes, cut=config.cut, pairs=False)
        a.top = import_onnx(given, input_shapes=config.input_shapes, cut=config.cut)
        if config.preprocess is not None:
            with_preprocess(a.top, config.preprocess, config.preprocess_list)
    assume = assume and config.data == usual.data and config.table is None
    folder = None  # files that lie next to a model are not of its run
    return Network(label, a, given, folder=folder, assume=assume)


def _is_proto(given: object) -> "TypeIs[ModelProto]":
    """Whether something is an ONNX model in memory, which nothing is where ONNX is not loaded."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(given, onnx.ModelProto)


def _of_function(
    function: Callable[..., Any], example: object, sample: Callable[[], object], configure: Configure
) -> Network:
    from tpusim.frontend.stablehlo import arguments_of, onnx_of_function  # rarely needed

    if example is None:
        example = arguments_of(function, sample())
    proto, computed = onnx_of_function(function, example)
    network = open_network(proto, configure)
    if not (network.config.cut or network.config.input_shapes):
        network.artefacts.reference = FunctionReference(computed)
    return network


def _of_module(
    model: Model, label: str, path: Path | None, configure: Configure, observer: Observer | None, *, assume: bool,
    judged: bool,
) -> Network:  # fmt: skip
    level = STATES.get(model.state)
    if level is None:
        raise ConfigError(f"{label}: a module in one of the states {', '.join(STATES)} is required, got {model.state}")
    if path is not None and level == "top" and path.name == LEVELS["canonical"][1]:
        level = "canonical"
    usual = RunConfig(path or Path(model.name))
    if level in ("tpu", "grouped", "final"):
        usual = replace(usual, lowering=lowered_as(model))
    config = configure(usual)
    changed = list(_changed(usual, config, judged=judged, lowered=level != "calibrated"))
    if late := [what for at, what in changed if ORDER.index(at) <= ORDER.index(level)]:
        raise ConfigError(
            f"{', '.join(late)}: {label} {DONE[level]} already; leave it out, or give the ONNX or TFLite model or an "
            "earlier module"
        )
    a = _artefacts(config, observer, from_file=False)
    setattr(a, level, model)
    assume = assume and config.data == usual.data and config.table is None
    return Network(label, a, None, folder=None if path is None else path.parent, assume=assume)


def open_net(path: Path, net: str) -> Network:
    """One net of a program of several. Raises ConfigError for an unknown name."""
    return _of_program(path, lambda config: config, None, net)


def _of_program(path: Path, configure: Configure, observer: Observer | None, net: str = "") -> Network:
    program = load_net(path, net) if net else load_program(path)
    usual = RunConfig(path, lowering=LoweringConfig(program.header.chip_spec, program.header.mode))
    if changed := [what for _, what in _changed(usual, configure(usual), judged=False, lowered=True)]:
        raise ConfigError(f"{', '.join(changed)}: {path} {DONE['program']} already; leave it out")
    a = Artefacts(usual, observer or Silent(), from_file=False)
    a.program = program
    return Network(str(path), a, folder=path.parent)


def _of_run(folder: Path, configure: Configure, observer: Observer | None, *, assume: bool, judged: bool) -> Network:
    usual = run_here(folder, reading=True)
    if usual is None:
        raise ConfigError(f"{folder}: {NETWORK} is required; this folder has no manifest.json of a run")
    config = configure(usual)
    changed = list(_changed(usual, config, judged=judged, lowered=True))
    first = min((ORDER.index(level) for level, _ in changed), default=len(ORDER))
    stored = {name: folder / file for name, (_, file) in LEVELS.items() if (folder / file).is_file()}
    current = {name: path for name, path in stored.items() if ORDER.index(name) < first}
    model = usual.model if usual.model.is_file() and not is_module(usual.model) else None
    if not current and model is None:
        what = ", ".join(what for _, what in changed) or str(folder)
        raise ConfigError(f"{what}: needs the model of the run, {usual.model}, which is not there any more")
    table = folder / "cali_table"
    if table.is_file() and not {"data", "table", "calibration"} & _differences(usual, config, judged=judged):
        config = replace(config, table=table)
    a = _artefacts(config, observer, from_file=model is not None)
    return Network(str(folder), a, model, current, folder, assume and not table.is_file())


def _differences(usual: RunConfig, config: RunConfig, *, judged: bool) -> set[str]:
    names = {name for of_level in DECIDED.values() for name in of_level} - ({"data"} if judged else set[str]())
    return {name for name in names if getattr(usual, name) != getattr(config, name)}


def _changed(usual: RunConfig, config: RunConfig, *, judged: bool, lowered: bool) -> Iterator[tuple[str, str]]:
    """(level, option) of everything that is not as usual. lowered: zero points change the calibrated module."""
    differ = _differences(usual, config, judged=judged)
    for level, names in DECIDED.items():
        for name in names:
            if name in differ:
                yield from _spelled(level, name, getattr(usual, name), getattr(config, name), lowered=lowered)


def _spelled(level: str, name: str, usual: Any, value: Any, *, lowered: bool) -> Iterator[tuple[str, str]]:
    if name not in ("lowering", "layer_group", "calibration", "cut"):
        yield level, option(name)
        return
    for one in fields(value):
        if getattr(usual, one.name) != getattr(value, one.name):
            yield "calibrated" if one.name == "asymmetric" and lowered else level, option(one.name)
