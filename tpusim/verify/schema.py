"""The content of `report.json` as types: the shipped JSON schema is generated from them, and `read_report` uses them.

`python -m tpusim.verify.schema` prints the schema, which is stored as `report.schema.json` in this folder. Adding a key
keeps the version; renaming a key or changing its meaning raises `report.SCHEMA_VERSION`.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tpusim.errors import ConfigError
from tpusim.host.documents import read_json
from tpusim.verify.report import SCHEMA_VERSION, Accuracy, Core, Group, Memory, RunRecord, StageTime, Totals

PATH: Final = Path(__file__).with_name("report.schema.json")


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """An object whose keys are all listed."""


class ChannelsFile(_Strict):
    """The channels of an integer tensor: how many, and how many are dead (zero, and not in float)."""

    count: int
    dead: int
    least_cosine: float | None
    worst_channel: int
    saturated: float
    values: int


class TensorFile(_Strict):
    """One compared tensor; a number that is not finite is null. Units: sqnr_db in dB, the similarities at most 1."""

    name: str
    verdict: str
    cosine: float | None
    euclidean: float | None
    sqnr_db: float | None
    bit_exact: bool
    passed: bool
    close_order: int | None
    shape: list[int]
    dtype: str
    note: str
    channels: ChannelsFile | None = None


class OverSamplesFile(_Strict):
    """One tensor over all samples, which are numbered from 0; cosines: of a result, by sample.

    not_judged: samples whose float tensor is too small to tell similarity from rounding; they do not count.
    """

    name: str
    is_result: bool
    passed: bool
    worst_sample: int
    least_cosine: float | None
    median_cosine: float | None
    least_euclidean: float | None
    median_euclidean: float | None
    not_judged: list[int]
    cosines: list[float | None] = []


class ComparisonFile(_Strict):
    """Two sets of tensors: the verdict, the tolerance (cosine, euclidean), and the tensors that were not compared.

    tensors: of the first sample; over_samples: of all samples; lost: parts of results that are lost on all samples.
    decides: whether the run's verdict depends on this comparison.
    """

    passed: bool
    bit_exact: bool
    compared: int
    missing: int
    min_cosine: float | None
    min_euclidean: float | None
    worst: str | None
    tolerance: tuple[float, float]
    only_in_target: list[str]
    only_in_reference: list[str]
    excepted: list[str]
    not_sampled: list[str]
    tensors: list[TensorFile]
    decides: bool = True
    lost: list[str] = []
    samples: int = 1
    over_samples: list[OverSamplesFile] = []


class DecisionFile(_Strict):
    """A decision of the specification, and the ops that follow it."""

    decision: str
    says: str
    ops: list[str]


class FallbackFile(_Strict):
    """An op that fell back to a float type, and why."""

    op: str
    kind: str
    status: str
    number: str
    decisions: list[str]
    reason: str


class FidelityFile(_Strict):
    """How far to trust the numbers: counts of ops by class and by the type they are stored in."""

    ops: int
    exact: int
    decision: int
    casts: int
    numbers: dict[str, int]
    decisions: list[DecisionFile]
    fallbacks: list[FallbackFile]
    in_float: int = msgspec.field(name="float")
    arithmetics: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])


class OpWorkFile(_Strict):
    """Cycles that the engines work and wait for one op of a group."""

    op: str
    group: int
    tiu_cycles: int
    gdma_cycles: int
    dependency_cycles: int
    sync_cycles: int
    bound: str


class EnginesFile(_Strict):
    """Shares of the whole time in which the engines work, and the cycles of each share."""

    tiu_busy: float
    gdma_busy: float
    both_busy: float
    neither_busy: float
    parallelism: float
    tiu_cycles: int
    gdma_cycles: int
    dependency_cycles: int
    sync_cycles: int
    bound: str
    ops: list[OpWorkFile]


class PlaceFile(_Strict):
    """A group (name: its first op) or an op under the roofs of the chip; changed: cycles with a figure changed."""

    name: str
    group: int
    ops: int
    macs: int
    load_bytes: int
    store_bytes: int
    cycles: int
    limit: str
    changed: dict[str, int]


class RooflineFile(_Strict):
    """The roofs (multiply-accumulates and loaded bytes per cycle), cycles with a figure changed, groups and ops."""

    element_bytes: int
    peak_macs: int
    load_rate: float
    cycles: int
    changed: dict[str, int]
    groups: list[PlaceFile]
    ops: list[PlaceFile]


class ReportFile(_Strict, kw_only=True):
    """The report of one run; accuracy, fidelity, engines and roofline only where the run measured them.

    run: the run that the report describes; None for a network that was compiled in memory. warnings: about the
    calibration table and its samples.
    """

    schema: int
    tpusim: str
    model: str
    chip: str
    mode: str
    asymmetric: bool
    passed: bool
    stages: list[StageTime]
    compare: dict[str, ComparisonFile]
    groups: list[Group]
    memory: Memory
    totals: Totals
    cores: list[Core]
    accuracy: Accuracy | None = None
    fidelity: FidelityFile | None = None
    engines: EnginesFile | None = None
    roofline: RooflineFile | None = None
    run: RunRecord | None = None
    warnings: list[str] = []


def read_report(path: str | Path) -> ReportFile:
    """The content of a `report.json`. Raises ConfigError for another version or another form."""
    try:
        content = read_json(Path(path))
        found = cast("dict[str, Any]", content).get("schema") if isinstance(content, dict) else None
        if found != SCHEMA_VERSION:
            raise ConfigError(f"{path}: a report of schema {SCHEMA_VERSION} is required, got {found}; run tpusim again")
        return msgspec.convert(content, ReportFile)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: a report.json is required: {error}") from error


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of `report.json`."""
    (top,), parts = msgspec.json.schema_components([ReportFile], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"report.json of tpusim, schema {SCHEMA_VERSION}",
        **top,
        "$defs": parts,
    }


def text() -> str:
    """The schema as the text of the shipped file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
