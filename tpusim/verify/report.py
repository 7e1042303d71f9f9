"""The report of a run: `report.json` for scripts, `report.html` for people.

The JSON follows architecture.md section 8: keys may be added, never renamed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpusim.verify.compare import Comparison
from tpusim.verify.npz import write_atomically
from tpusim.verify.page import report_page


@dataclass(frozen=True)
class StageTime:
    """How long one stage took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Group:
    """One layer group: its ops, its slicing and what executing it moved and took."""

    id: int
    ops: Sequence[str]
    secs: Mapping[str, int]
    lmem_peak_bytes: int = 0
    lmem_bytes: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    cycles: int = 0
    reason: str = ""
    """For a layer that runs from global memory: why it is not in local memory."""


@dataclass(frozen=True)
class Memory:
    """Global memory the compiled model needs."""

    coeff_bytes: int = 0
    neuron_bytes: int = 0


@dataclass(frozen=True)
class Totals:
    """Sums over the whole model."""

    commands: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    cycles: int = 0
    milliseconds: float = 0.0
    macs: int = 0


@dataclass(frozen=True)
class Accuracy:
    """Top-1 accuracy (0 to 1) on labelled data: float model, flat quantised model, local-memory machine.

    local_bit_exact_samples counts the samples for which every tensor the machine stored equals the flat one.
    """

    samples: int
    float_top1: float
    int8_top1: float
    local_top1: float = 0.0
    local_samples: int = 0
    local_bit_exact_samples: int = 0


@dataclass(frozen=True)
class Report:
    """Everything `tpusim run` found."""

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

    @property
    def passed(self) -> bool:
        """Whether there are comparisons, each of at least one tensor, and all passed."""
        return bool(self.compare) and all(c.passed and not c.empty for c in self.compare.values())

    def to_json(self) -> dict[str, Any]:
        """The content of `report.json`."""
        content: dict[str, Any] = {
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
        }
        if self.accuracy is not None:
            content["accuracy"] = asdict(self.accuracy)
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
) -> Report:
    """A report from plain values; keys as in `report.json`, and a key that is not one of those is a `TypeError`."""
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
    )


def write_report(folder: str | Path, report: Report) -> tuple[Path, Path]:
    """Write `report.json` and `report.html` into a folder; each appears whole or not at all."""
    folder = Path(folder)
    json_path, html_path = folder / "report.json", folder / "report.html"
    content = report.to_json()
    _write_text(json_path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    _write_text(html_path, report_page(content))
    return json_path, html_path


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
