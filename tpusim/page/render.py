"""The page as text: templates filled with the report and the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpusim.layer_group.files import GroupView
from tpusim.page.evidence import Diagnosis, Evidence, Histogram
from tpusim.page.pictures import Picture, histogram, memory_map, pipeline, similarity, timeline
from tpusim.page.roofs import LIMITS, per_byte, roofs
from tpusim.page.samples import over_samples
from tpusim.verify.npz import write_atomically
from tpusim.verify.report import Report

if TYPE_CHECKING:
    from jinja2 import Environment

Json = dict[str, Any]

TEMPLATES: Final = Path(__file__).with_name("template")
VERDICT_CLASS = {"EQUAL": "good", "CLOSE": "good", "SIMILAR": "fair"}
COMPARISON_TITLES = {
    "top_vs_onnx": "top module against ONNX Runtime",
    "tpu_vs_top": "quantised model against float model",
    "tpu_vs_file": "quantised model against the quantised file's own result",
    "local_vs_tpu": "executed commands against the flat model",
}
ALONE = "every op alone, on ideal operands"
BOUNDS = {
    "tiu": "TIU",
    "gdma": "GDMA",
    "dependency": "waiting for the other engine",
    "sync": "synchronisation",
}
"""The limit of a group or op -> its text on the page."""
STORED = ("top_vs_onnx", "tpu_vs_top", "local_vs_tpu")
"""Comparisons that give the type of a tensor, the last first: it compares stored values, the others real values."""
QUANTISED = ("tpu_vs_top", "top_vs_onnx")
"""The table of tensors and ops lists the tensors of the first of these comparisons that the report has."""
NOTHING_ELSE: Final = Evidence()


@dataclass(frozen=True)
class TensorLine:
    """One tensor and the op that makes it; None: unknown.

    dtype: as the chip stores it. similar: its entry of the comparison. alone: SQNR (dB) on ideal operands.
    recovered: the cosine of the network's results with its best remedy alone. work: of the engines, in cycles.
    """

    name: str
    op: str
    group: str
    dtype: str
    similar: Json | None
    alone: float | None
    recovered: float | None
    histogram: Histogram | None
    picture: Picture | None
    work: Json | None


def report_page(report: Json, evidence: Evidence = NOTHING_ELSE) -> str:
    """The page of one report, given as the object of `report.json`."""
    return environment().get_template("report.html").render(
        report=report,
        evidence=evidence,
        cards=list(_cards(report)),
        rows=rows(report, evidence),
        similarity=_similarity(report["compare"], evidence.diagnosis),
        over_samples=list(over_samples(report["compare"], COMPARISON_TITLES)),
        by_sample={name: _by_sample(c) for name, c in report["compare"].items()},
        worst={name: _worst(_by_sample(c).values()) for name, c in report["compare"].items()},
        groups=[(v, memory_map(v), pipeline(v)) for v in evidence.groups if isinstance(v, GroupView)],
        timeline=timeline(evidence.works) if evidence.works else None,
        titles=COMPARISON_TITLES,
        bounds=BOUNDS,
        limits=LIMITS,
        per_byte=per_byte,
        changes=_changes,
        roofs=roofs(report["roofline"]) if "roofline" in report else None,
        verdicts=VERDICT_CLASS,
        inf=float("inf"),
    )  # fmt: skip


def write_page(path: Path, report: Report, evidence: Evidence) -> None:
    """Write the page; it appears whole or not at all."""
    text = report_page(report.to_json(), evidence)
    write_atomically(path, lambda file: file.write(text.encode()))


@cache
def environment() -> "Environment":
    """Templates with the filters of the pages."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    filters: dict[str, object] = vars(found)["filters"]
    filters.update(size=size, measure=measure, pixels=pixels, worst_first=worst_first)
    return found


# ------------------------------------------------------------------------------------------------------------- content


def rows(report: Json, evidence: Evidence) -> list[TensorLine]:
    """Tensors and ops in the order of the network: compared tensors first, then ops without a compared tensor."""
    compared: Json = next((report["compare"][c] for c in QUANTISED if c in report["compare"]), Json())
    engines: Json = report.get("engines") or {}
    similar: dict[str, Json] = {tensor["name"]: tensor for tensor in compared.get("tensors", ())}
    stored: list[Json] = [report["compare"][c] for c in STORED if c in report["compare"]]
    types = {str(tensor["name"]): str(tensor["dtype"]) for one in stored for tensor in one["tensors"]}
    work: dict[str, Json] = {op["op"]: op for op in engines.get("ops", ())}
    made = dict(_made(evidence))
    diagnosis = evidence.diagnosis
    tried = [cause for cause in diagnosis.causes if not cause.kind] if diagnosis else []
    recovered = {cause.tensor: cause.cosine for cause in reversed(tried)}
    return [
        TensorLine(
            name, *made.get(name, ("", "")), types.get(name, ""), similar.get(name),
            diagnosis.alone.get(name) if diagnosis else None, recovered.get(name), found,
            None if found is None else histogram(found), work.get(name),
        )
        for name in dict.fromkeys((*similar, *work))
        for found in [evidence.histograms.get(name)]
    ]  # fmt: skip


def _made(evidence: Evidence) -> Iterable[tuple[str, tuple[str, str]]]:
    """(op, (what it is, the number of its group))."""
    for view in evidence.groups:
        if isinstance(view, GroupView):
            yield from ((name, (op.removeprefix("tpu."), str(view.index))) for name, op in view.ops)
        else:
            yield view.name, (view.op.removeprefix("tpu."), "view" if view.index is None else f"{view.index} (global)")


def _similarity(compare: Json, diagnosis: Diagnosis | None) -> Picture | None:
    """The picture of similarity along the network with all available views, including that of `tpusim why`."""
    series = {name: [(t["name"], _ratio(t)) for t in c["tensors"]] for name, c in compare.items() if c["tensors"]}
    if diagnosis is not None and diagnosis.alone:
        series["alone"] = list(diagnosis.alone.items())
    return similarity(series, {**COMPARISON_TITLES, "alone": ALONE}) if series else None


def _by_sample(comparison: Json) -> dict[str, Json]:
    """Tensor -> its similarities over several samples."""
    several: list[Json] = comparison.get("over_samples", []) if comparison.get("samples", 1) > 1 else []
    return {found["name"]: found for found in several}


def _worst(found: Iterable[Json]) -> Json | None:
    """The tensor with the least similar sample; None if all are equal, or with a single sample."""
    least = ("least_cosine", "least_euclidean")
    unlike = (over for over in found if any(over[name] != 1 for name in least))
    return min(unlike, key=lambda over: [-1e9 if over[name] is None else over[name] for name in least], default=None)


def _ratio(tensor: Json) -> float:
    """SQNR in dB; infinite if equal or close, NaN if it cannot be measured."""
    if tensor["sqnr_db"] is None:
        return float("inf" if tensor["passed"] else "nan")
    return float(tensor["sqnr_db"])


def _cards(report: Json) -> Iterable[tuple[str, str]]:
    """The figures at the head of the page: (what, value)."""
    totals, memory = report["totals"], report["memory"]
    yield "estimated time", f"{totals['milliseconds']:,.3f} ms"
    if (factor := totals.get("time_factor", 1)) != 1:
        yield f"on the clock, × {factor:.2f}", f"{totals['clock_milliseconds']:,.3f} ms"
    yield "cycles", f"{totals['cycles']:,}"
    yield "multiply-adds", f"{totals['macs']:,}"
    yield "commands", f"{totals['commands']:,}"
    yield "loaded", size(totals["load_bytes"])
    yield "stored", size(totals["store_bytes"])
    if totals.get("traffic_ratio"):
        yield f"moved, of {size(totals['compulsory_bytes'])} that must", f"{totals['traffic_ratio']:.2f} ×"
    if totals.get("cycle_ratio"):
        yield f"cycles, of {totals['mac_cycles']:,} MAC-bound", f"{totals['cycle_ratio']:.2f} ×"
    yield "weights in memory", size(memory["coeff_bytes"])
    yield "activations in memory", size(memory["neuron_bytes"])
    yield from _accuracy(report.get("accuracy"))


def _changes(roofline: Json) -> list[tuple[str, str]]:
    """(a figure of the chip changed, the cycles of the program with it)."""
    whole = roofline["cycles"] or 1
    return [(name, f"{cycles:,} ({cycles / whole - 1:+.1%})") for name, cycles in roofline["changed"].items()]


def _accuracy(found: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    if found is None:
        return
    yield "samples", f"{found['samples']:,}"
    yield "top-1 in float", f"{found['float_top1']:.2%}"
    yield "top-1 quantised, flat", f"{found['int8_top1']:.2%}"
    yield "lost, gained by the quantised", f"{found['lost']:,}, {found['gained']:,}"
    if found["local_samples"]:
        yield "top-1 local memory", f"{found['local_top1']:.2%}"
        yield "bit-exact samples", f"{found['local_bit_exact_samples']:,} of {found['local_samples']:,}"


# ------------------------------------------------------------------------------------------------------------- filters


def worst_first(tensors: Sequence[Json]) -> list[Json]:
    """Failing tensors first, then by cosine and euclidean similarity; unmeasurable ones before all measured ones."""

    def badness(tensor: Json) -> tuple[bool, float, float]:
        cosine, euclidean = tensor["cosine"], tensor["euclidean"]
        return tensor["passed"], -1e9 if cosine is None else cosine, -1e9 if euclidean is None else euclidean

    return sorted(tensors, key=badness)


def measure(value: float | None) -> str:
    """A similarity as text; None means that it cannot be measured."""
    return "not a number" if value is None else f"{value:.6f}"


def pixels(value: float) -> str:
    """A coordinate, no longer than it must be."""
    return f"{value:.1f}".removesuffix(".0")


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} GiB"
