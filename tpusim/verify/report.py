"""The report of a run: `report.json` for scripts; `tpusim.page` makes the page for people from it.

Keys of the JSON may be added, never renamed; `schema.py` describes their values.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tpusim.verify.compare import Comparison
from tpusim.verify.npz import write_atomically

SCHEMA_VERSION: Final = 1
"""The version of the form of `report.json` (`report.schema.json`)."""
MAX_DROP: Final = 1.0
"""Points of top-1 that quantisation may cost, unless a run says otherwise."""


@dataclass(frozen=True)
class StageTime:
    """How long one stage took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Group:
    """One layer group: its ops, its slicing, the bytes that it moved and the cycles that it took."""

    id: int
    ops: Sequence[str]
    secs: Mapping[str, int]
    lmem_peak_bytes: int = 0
    lmem_bytes: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    cycles: int = 0
    reason: str = ""
    """The reason why a layer runs from global memory; "" in a group."""
    tiu_cycles: int = 0
    """How long the TIU works for it."""
    gdma_cycles: int = 0
    """How long the DMA works for it."""
    dependency_cycles: int = 0
    """How long the busier engine waits for the other."""
    sync_cycles: int = 0
    """How long it waits for another core, or because both engines are needed at once."""
    bound: str = ""
    """The limiting factor: tiu, gdma, dependency or sync."""


@dataclass(frozen=True)
class Memory:
    """Global memory the compiled model needs."""

    coeff_bytes: int = 0
    neuron_bytes: int = 0


@dataclass(frozen=True)
class Totals:
    """Sums over the whole model.

    compulsory_bytes: constants, network inputs and outputs, each once; mac_cycles: the multiply-accumulates at the peak
    rate of the chip. The ratios say how far above these bounds the program is; 0 where a bound is 0.
    milliseconds: the estimate, clock_milliseconds (the cycles' time) times time_factor. Measured times of the chip lie
    within the share time_residual of such estimates (hardware.md DH-08). Without measurements these are 1 and 0.
    """

    commands: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    cycles: int = 0
    milliseconds: float = 0.0
    macs: int = 0
    compulsory_bytes: int = 0
    mac_cycles: int = 0
    traffic_ratio: float = 0.0
    cycle_ratio: float = 0.0
    clock_milliseconds: float = 0.0
    time_factor: float = 1.0
    time_residual: float = 0.0


@dataclass(frozen=True)
class Core:
    """What one core of several did: commands, bytes moved, and the share of the time each of its engines worked."""

    core: int
    commands: int
    load_bytes: int
    store_bytes: int
    tiu_busy: float
    gdma_busy: float


@dataclass(frozen=True)
class Accuracy:
    """Top-1 accuracy (0 to 1) on labelled data: float model, flat quantised model, local-memory machine.

    local_exact_tensors: the number of stored tensors that do not depend on a float op (none in a float mode);
    local_bit_exact_samples: the samples for which all of these equal the flat ones. lost: samples that are right in
    float only; gained: right after quantisation only. max_drop: points of top-1 (hundredths) that quantisation may
    cost.
    """

    samples: int
    float_top1: float
    int8_top1: float
    local_top1: float = 0.0
    local_samples: int = 0
    local_bit_exact_samples: int = 0
    local_exact_tensors: int = 0
    lost: int = 0
    gained: int = 0
    max_drop: float = MAX_DROP

    @property
    def drop(self) -> float:
        """Points of top-1 that quantisation costs; negative if it gains."""
        return round(100 * (self.float_top1 - self.int8_top1), 9)

    @property
    def drop_margin(self) -> float:
        """Half the 95 % confidence interval of `drop`, in points; paired, because both levels have the same samples.

        Source: normal approximation of the difference of paired proportions (McNemar's counts).
        """
        unlike, difference = self.lost + self.gained, self.lost - self.gained
        return 100 * 1.96 * math.sqrt(max(unlike - difference**2 / self.samples, 0.0)) / self.samples

    @property
    def passed(self) -> bool:
        """Whether top-1 drops by no more than `max_drop`; one sample proves nothing."""
        return self.samples < 2 or self.drop <= self.max_drop


@dataclass(frozen=True)
class FileRead:
    """A file, folder or source of samples that a run read, as it was given, and the SHA-256 of its content.

    The hash of several files covers their names and contents; it is "" for a source that is no file (`random:8`).
    """

    path: str
    sha256: str


@dataclass(frozen=True)
class RunRecord:
    """The run that a report describes. date: ISO 8601 with the zone; command: the command line, "" in Python.

    folder: the working directory; config: all options, as in the manifest; files: the files read, by role (model, data,
    table ...); measured: the number of samples that calibration measured, 0 if a table was given.
    """

    date: str
    command: str
    folder: str
    config: Mapping[str, Any]
    files: Mapping[str, FileRead]
    measured: int = 0
    tpusim: str = ""


@dataclass(frozen=True)
class Report:
    """All results of `tpusim run`, as `report.json` has them."""

    version: str
    model: str
    chip: str
    mode: str
    asymmetric: bool
    stages: tuple[StageTime, ...]
    compare: Mapping[str, Comparison]
    groups: tuple[Group, ...] = ()
    memory: Memory = Memory()
    totals: Totals = Totals()
    accuracy: Accuracy | None = None
    fidelity: Mapping[str, Any] | None = None
    """How far to trust the numbers, as `tpusim.fidelity.Card.to_json` gives it."""
    engines: Mapping[str, Any] | None = None
    """How busy the engines are and what they wait for, as the simulator's `Summary.to_json` gives it."""
    cores: tuple[Core, ...] = ()
    """The cores that were used."""
    roofline: Mapping[str, Any] | None = None
    """The bounds of groups and ops, and cycles with changed figures, as the simulator's `Roofline.to_json` gives it."""
    run: RunRecord | None = None
    warnings: tuple[str, ...] = ()
    """Warnings about the calibration table and its samples."""

    def __repr__(self) -> str:
        """What was run, and the verdicts."""
        verdicts = ", ".join(f"{name} {c.verdict}" for name, c in self.compare.items())
        return f"<Report {self.model} on {self.chip} in {self.mode}: {verdicts}; {self.totals.cycles:,} cycles>"

    @property
    def passed(self) -> bool:
        """Whether there are comparisons, each of at least one tensor, all passed, and top-1 did not drop too far."""
        compared = bool(self.compare) and all(c.passed for c in self.compare.values() if c.decides)
        return compared and (self.accuracy is None or self.accuracy.passed)

    def to_json(self) -> dict[str, Any]:
        """The content of `report.json`, as its schema says."""
        content: dict[str, Any] = {
            "schema": SCHEMA_VERSION,
            "tpusim": self.version,
            "model": self.model,
            "chip": self.chip,
            "mode": self.mode,
            "asymmetric": self.asymmetric,
            "passed": self.passed,
            "stages": [asdict(stage) for stage in self.stages],
            "compare": {name: comparison.to_json() for name, comparison in self.compare.items()},
            "groups": [{**vars(group), "ops": list(group.ops), "secs": dict(group.secs)} for group in self.groups],
            "memory": asdict(self.memory),
            "totals": asdict(self.totals),
            "cores": [asdict(core) for core in self.cores],
            "warnings": list(self.warnings),
        }
        if self.accuracy is not None:
            content["accuracy"] = asdict(self.accuracy)
        if self.fidelity is not None:
            content["fidelity"] = dict(self.fidelity)
        if self.engines is not None:
            content["engines"] = dict(self.engines)
        if self.roofline is not None:
            content["roofline"] = dict(self.roofline)
        if self.run is not None:
            content["run"] = asdict(self.run)
        return content


def build_report(
    *,
    version: str,
    model: str,
    chip: str,
    mode: str,
    asymmetric: bool,
    stages: Iterable[tuple[str, float]],
    compare: Mapping[str, Comparison],
    groups: Iterable[Mapping[str, Any]] = (),
    memory: Mapping[str, int] | None = None,
    totals: Mapping[str, Any] | None = None,
    accuracy: Mapping[str, Any] | None = None,
    fidelity: Mapping[str, Any] | None = None,
    engines: Mapping[str, Any] | None = None,
    cores: Iterable[Mapping[str, Any]] = (),
    roofline: Mapping[str, Any] | None = None,
    run: RunRecord | None = None,
    warnings: Iterable[str] = (),
) -> Report:
    """A report from plain values with the keys of `report.json`; an unknown key is a `TypeError`."""
    return Report(
        version=version,
        model=model,
        chip=chip,
        mode=mode,
        asymmetric=asymmetric,
        stages=tuple(StageTime(name, seconds) for name, seconds in stages),
        compare=dict(compare),
        groups=tuple(Group(**group) for group in groups),
        memory=Memory(**(memory or {})),
        totals=Totals(**(totals or {})),
        accuracy=None if accuracy is None else Accuracy(**accuracy),
        fidelity=fidelity,
        engines=engines,
        cores=tuple(Core(**core) for core in cores),
        roofline=roofline,
        run=run,
        warnings=tuple(warnings),
    )


def write_report(folder: str | Path, report: Report) -> Path:
    """Write `report.json` into a folder; it appears whole or not at all."""
    path = Path(folder) / "report.json"
    text = json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path
