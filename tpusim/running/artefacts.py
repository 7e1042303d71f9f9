"""The options of a run, and the results of its stages so far."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import ConfigError
from tpusim.frontend import WHOLE, Cut, Reference
from tpusim.host.workers import Workers
from tpusim.images import Preprocess
from tpusim.ir.module import Form, Model
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.lowering.lower import Fallback
from tpusim.memory import AddressMode
from tpusim.page import Evidence
from tpusim.passes.instruments import Instrument
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.verify.compare import Comparison
from tpusim.verify.kept import Keep
from tpusim.verify.report import MAX_DROP, Report, RunRecord

COMPARE_SAMPLES: Final = 16
"""Number of samples that a verdict rests on, unless a run says otherwise."""
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
    """An observer that shows nothing, for runs without a terminal."""

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Do nothing; a terminal shows the stage here."""
        del name
        yield

    def progress(self, done: int, total: int | None = None) -> None:
        """Do nothing; a terminal shows a bar here."""


@dataclass(frozen=True)
class RunConfig:
    """The options of `tpusim run`.

    model: ONNX file. data: calibration samples (npz keyed by input name, folder, random:N). labels: npz or npy of
    class indices for the samples of `test_data` (default: `data`). table: use this calibration table, measure nothing.
    out: folder of the artefacts. to: last stage to run. start: first stage to run; the artefacts of earlier stages are
    read from the folder, as they are now; resume: read whatever an earlier run completed with the same configuration.
    preprocess: how the inputs are made of image files, None: as the module says, if it does; preprocess_list: of which
    inputs, by number from 1, (): all.
    addr_mode: io_alone: inputs and results lie apart from each other and from all other tensors.
    cut: between which tensors the network lies, and which inputs are fixed to values. also: patterns that are applied
    on request. local_samples: how many labelled samples the machine runs, 0: all.
    max_drop: points of top-1 that quantisation may cost on labelled data.
    compare_samples: how many of the samples the flat levels are compared on; the machine runs the first of them.
    keep: which tensors of the sample are written; all are computed and compared whatever it says.
    form: how modules are stored. workers: who measures and evaluates samples, None: this process.
    """

    model: Path
    lowering: LoweringConfig = LoweringConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    layer_group: LayerGroupConfig = LayerGroupConfig()
    addr_mode: AddressMode = "basic"
    simulator: SimulatorOptions = SimulatorOptions()
    data: str = "random:8"
    test_data: str | None = None
    labels: Path | None = None
    table: Path | None = None
    preprocess: Preprocess | None = None
    preprocess_list: tuple[int, ...] = ()
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    cut: Cut = WHOLE
    also: tuple[str, ...] = ()
    out: Path = Path("out")
    to: str = "verify"
    start: str | None = None
    resume: bool = False
    local_samples: int = 0
    max_drop: float = MAX_DROP
    compare_samples: int = COMPARE_SAMPLES
    keep: Keep = Keep()
    form: Form = "text"
    workers: Workers | None = None


@dataclass
class Artefacts:
    """What the stages have made so far. A stage reads the fields of earlier stages and sets others."""

    config: RunConfig
    observer: Observer
    instruments: tuple[Instrument, ...] = ()
    """Who watches the passes."""
    from_file: bool = True
    """Whether `config.model` is a file of a framework, not the name of a module."""
    reference: Reference | None = None
    top: Model | None = None
    canonical: Model | None = None
    patterns: dict[str, int] = field(default_factory=dict[str, int])
    table: CalibrationTable | None = None
    measured: int = 0
    """How many samples the table was measured with; 0: it was given."""
    calibrated: Model | None = None
    tpu: Model | None = None
    fallbacks: list[Fallback] = field(default_factory=list[Fallback])
    grouped: Model | None = None
    final: Model | None = None
    program: Program | None = None
    machine: Simulator | None = None
    given: Iterable[Tensors] | None = None
    """The calibration samples of a compilation in memory; None: those of `config.data`."""
    others: Sequence[Mapping[str, np.ndarray]] | None = None
    """The samples to compare after the first; None: those of `config.data`."""
    sample: Tensors = field(default_factory=dict[str, np.ndarray])
    tensors: dict[str, Tensors] = field(default_factory=dict[str, Tensors])
    """By level: the reference's (onnx), top, tpu, local."""
    background: dict[str, Future[dict[str, Tensors]]] = field(default_factory=dict[str, "Future[dict[str, Tensors]]"])
    """Flat inference in a background thread, by the stage with which it began."""
    compared: Future[dict[str, Comparison]] | None = None
    """The comparisons of the flat levels, made in the background; None: the last stage makes them."""
    shown: Future[Evidence] | None = None
    """The page's parts about values and groups, made in the background; None: they are made with the page."""
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """By stage: a hash of everything that decides what it makes."""
    record: RunRecord | None = None
    """What the report is of; None for a compilation in memory."""
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
