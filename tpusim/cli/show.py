"""The tables and lines that are printed during and after a run."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from tpusim.cli.output import Output
from tpusim.fidelity import DECISIONS, Card, card_of
from tpusim.host.tables import Table
from tpusim.layer_group import LowerBounds
from tpusim.ops.framework.logical import AXES
from tpusim.running.pipeline import Artefacts
from tpusim.verify.compare import Comparison
from tpusim.verify.dead_layers import dead_layers
from tpusim.verify.render import summary_table
from tpusim.verify.report import Group, Report

MAX_OPS_SHOWN = 4
"""Op names shown per group before they are abbreviated."""


def stage_table(stages: Iterable[tuple[str, float]]) -> Table:
    """The table of seconds that each stage took."""
    table = Table("Stages").words("stage").numbers("seconds")
    for name, seconds in stages:
        table.row(name, f"{seconds:.2f}")
    return table


def _ops_text(ops: Iterable[str]) -> str:
    names = list(ops)
    if len(names) <= MAX_OPS_SHOWN:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} ops)"


def _kib(count: int) -> str:
    return f"{count / 1024:,.1f}"


def group_table(groups: Iterable[Group]) -> Table:
    """Ops, sections, local-memory peak, traffic and cycles per group; global layers with their reason."""
    table = Table("Layer groups (n×c×d×h×w: sections; KiB)").numbers("#").names("ops").numbers("count")
    table.words("n×c×d×h×w").numbers("LMEM peak / lane", "load", "store", "cycles").words("bound by").prose(
        "why global"
    )
    for group in groups:
        peak = "-"
        if group.reason or not group.lmem_peak_bytes:
            sections = "global"
        else:
            sections = "×".join(str(group.secs[axis]) for axis in AXES)
            share = group.lmem_peak_bytes / group.lmem_bytes
            peak = f"{_kib(group.lmem_peak_bytes)} of {group.lmem_bytes // 1024} ({share:.0%})"
        names = list(dict.fromkeys((group.ops[0], group.ops[-1])))
        table.row(
            str(group.id), " to ".join(names), str(len(group.ops)), sections, peak, _kib(group.load_bytes),
            _kib(group.store_bytes), f"{group.cycles:,}", group.bound, group.reason,
        )  # fmt: skip
    return table


def engines_line(engines: Mapping[str, Any]) -> str:
    """Busy shares, overlap and bound in one line; `engines` as in `report.json`."""
    return (
        f"TIU busy {engines['tiu_busy']:.0%}, GDMA {engines['gdma_busy']:.0%}, both at once "
        f"{engines['both_busy']:.0%}; parallelism {engines['parallelism']:.2f}; bound by {engines['bound']}"
    )


def ops_table(engines: Mapping[str, Any], count: int = 8) -> Table:
    """A table of the ops that take longest."""
    table = Table("Ops that take longest (cycles)").names("op")
    table.numbers("group", "TIU", "GDMA", "dependency", "sync").words("bound by")
    ops = sorted(engines["ops"], key=lambda op: -max(op["tiu_cycles"], op["gdma_cycles"]))
    for op in ops[:count]:
        cells = (op[f"{name}_cycles"] for name in ("tiu", "gdma", "dependency", "sync"))
        table.row(op["op"], str(op["group"]), *(f"{cell:,}" for cell in cells), op["bound"])
    return table


def fidelity_table(card: Card) -> Table:
    """The number of ops of each class, and why the others are not exact to the specification."""
    table = Table(f"Fidelity ({len(card.ops)} ops, {card.casts} casts)").words("class").numbers("ops").prose("which")
    table.row("exact to spec", str(card.count("exact")), "")
    for decision, names in sorted(card.by_decision().items()):
        says = DECISIONS.get(decision, "see the specification")
        table.row(decision, str(len(names)), f"{says}: {_ops_text(names)}")
    for (number, reason), names in card.by_reason().items():
        table.row(f"float: {number}", str(len(names)), f"{reason}: {_ops_text(names)}")
    for arithmetic, names in card.by_arithmetic().items():
        table.row(f"arithmetic: {arithmetic}", str(len(names)), f"where it differs in 16 bits: {_ops_text(names)}")
    return table


def show_run(console: Output, a: Artefacts) -> None:
    """Everything at the end of `tpusim run`."""
    console.result(out=a.config.out, to=a.config.to, seconds=dict(a.stages))
    console.detail(stage_table(a.stages))
    if a.tpu is not None:
        console.detail(fidelity_table(card_of(a.tpu)))
    if a.report is None:
        console.tell(f"Stopped after '{a.config.to}'; artefacts are in {a.config.out}")
        return
    console.result(report=a.report.to_json())
    console.detail(group_table(a.report.groups))
    console.detail(summary_table(a.report.compare.values()))
    _show_failures(console, a.report)
    _show_totals(console, a.report)
    _show_cores(console, a.report)
    _show_accuracy(console, a.report)
    for line in (line for comparison in a.report.compare.values() for line in dead_layers(comparison)):
        console.tell(f"WARNING: {line}", "yellow")
    for line in _next_step(a):
        console.tell(line, "red")
    verdict = Text("PASSED", "bold green") if a.report.passed else Text("FAILED", "bold red")
    about = f"  {a.report.model} on {a.report.chip} in {a.report.mode}; artefacts in {a.config.out}"
    console.print(Text.assemble(verdict, about), soft_wrap=True)


def _next_step(a: Artefacts) -> Iterator[str]:
    """The lost parts of results, and the command that explains why integers are not accurate enough."""
    yield from (line for comparison in a.comparisons.values() if comparison.decides for line in comparison.lost)
    levels = a.comparisons.get("tpu_vs_top")
    far = levels is not None and levels.decides and not levels.passed
    wrong = a.report is not None and a.report.accuracy is not None and not a.report.accuracy.passed
    if (far or wrong) and a.table is not None:
        yield f"`tpusim why {shlex.quote(str(a.config.out))}` says where integers lose, and what helps"


def _on_samples(comparison: Comparison) -> Iterator[str]:
    """Results that fail on samples: the first of these samples, and the number of others."""
    for found in comparison.over_samples:
        wrong = [i for i in found.failed if i in found.judged]
        if wrong and not found.passed:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield (
                f"{comparison.label}: result {found.name} fails on sample {wrong[0]}{more} of {comparison.samples}, "
                f"cosine {found.cosines[wrong[0]]:.6f}, euclidean {found.euclideans[wrong[0]]:.6f}"
            )


def _show_failures(console: Output, report: Report) -> None:
    for comparison in (comparison for comparison in report.compare.values() if comparison.decides):
        for line in _on_samples(comparison):
            console.tell(line, "red")
        warning = comparison.warning()
        if warning:
            console.tell(f"{comparison.label}: {warning}", "yellow")
        where = " on sample 0" if comparison.samples > 1 else ""
        for tensor in comparison.failures[:8]:
            note = f"; {tensor.note}" if tensor.note else ""
            console.tell(
                f"{comparison.label}: {tensor.name} {tensor.verdict}{where}, cosine {tensor.cosine:.6f}, "
                f"euclidean {tensor.euclidean:.6f}{note}",
                "red",
            )


def _show_totals(console: Output, report: Report) -> None:
    t = report.totals
    time = estimate(t.clock_milliseconds, t.time_factor, t.time_residual)
    console.note(
        f"{t.commands:,} commands, {t.load_bytes / 2**20:.2f} MiB loaded, {t.store_bytes / 2**20:.2f} MiB stored, "
        f"{t.macs / 1e6:,.1f} M MAC, {t.cycles:,} cycles = {time}; "
        f"weights {report.memory.coeff_bytes / 2**20:.2f} MiB, neurons {report.memory.neuron_bytes / 2**20:.2f} MiB",
    )
    console.note(
        bounds_line(t.load_bytes + t.store_bytes, t.cycles, LowerBounds(t.compulsory_bytes, t.mac_cycles)),
    )
    if report.engines is not None:
        console.note(engines_line(report.engines))


def estimate(clock_milliseconds: float, factor: float, residual: float) -> str:
    """The time of a program on the clock, and the estimate according to measured times of the chip."""
    if factor == 1:
        return f"{clock_milliseconds:.3f} ms (estimate)"
    return (
        f"{clock_milliseconds:.3f} ms on the clock, {clock_milliseconds * factor:.3f} ms estimated (x {factor:.2f}, "
        f"fitted to measured times within {residual:.0%})"
    )


def _show_cores(console: Output, report: Report) -> None:
    for core in report.cores if len(report.cores) > 1 else ():
        console.note(
            f"core {core.core}: {core.commands:,} commands, {core.load_bytes / 2**20:.2f} MiB loaded, "
            f"{core.store_bytes / 2**20:.2f} MiB stored; TIU busy {core.tiu_busy:.0%}, GDMA {core.gdma_busy:.0%}",
        )


def bounds_line(moved_bytes: int, cycles: int, bounds: LowerBounds) -> str:
    """The ratios of a program to its lower bounds."""
    moved = f"{moved_bytes / 2**20:.2f} MiB moved = {bounds.traffic_ratio(moved_bytes):.2f} x what must move once"
    if not bounds.mac_cycles:
        return moved
    line = f"{moved}, {cycles:,} cycles = {bounds.cycle_ratio(cycles):.2f} x the MAC-bound {bounds.mac_cycles:,}"
    if bounds.cycles <= bounds.mac_cycles:
        return line
    return f"{line}, {cycles / bounds.cycles:.2f} x that of the engines {bounds.cycles:,}"


def _show_accuracy(console: Output, report: Report) -> None:
    if report.accuracy is None:
        return
    found = report.accuracy
    mode = report.mode.upper()
    table = Table("Top-1").words("level").numbers("samples", "top-1")
    table.row("float (TOP)", str(found.samples), f"{found.float_top1:.2%}")
    table.row(f"{mode} (flat)", str(found.samples), f"{found.int8_top1:.2%}")
    table.row(f"{mode} (local-memory machine)", str(found.local_samples), f"{found.local_top1:.2%}")
    table.row("lost, gained by the quantised", str(found.samples), f"{found.lost}, {found.gained}")
    console.print(table)
    if not found.passed:
        console.tell(
            f"top-1 drops by {found.drop:.2f} points (95 %: {found.drop_margin:.2f} to either side), at most "
            f"{found.max_drop:.2f} are allowed (--max-drop); check the calibration data first",
            "red",
        )
    if found.local_exact_tensors:
        console.note(
            f"local machine bit-exact with flat inference on every stored tensor that no float op precedes "
            f"({found.local_exact_tensors}): {found.local_bit_exact_samples} of {found.local_samples} samples"
        )
