"""What a person sees while stages run and when they are done."""

import shlex
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from tpusim.fidelity import DECISIONS, Card, card_of
from tpusim.layer_group import LowerBounds
from tpusim.ops.logical import AXES
from tpusim.pipeline import STAGES, Artefacts
from tpusim.verify.compare import Comparison
from tpusim.verify.dead_layers import dead_layers
from tpusim.verify.render import summary_table
from tpusim.verify.report import Group, Report

MAX_OPS_SHOWN = 4
"""Op names shown per group before they are abbreviated."""


class RateColumn(ProgressColumn):
    """Items per second of the last while."""

    def render(self, task: Task) -> Text:
        """Nothing until two are done."""
        return Text(f"{task.speed:,.1f} images/s" if task.speed and not task.finished else "")


class LiveProgress:
    """An observer that draws one line per stage with time and, where known, items done."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            RateColumn(),
            console=console,
            transient=False,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "LiveProgress":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """One line for the stage."""
        number = list(STAGES).index(name) + 1 if name in STAGES else 0
        self._task = self._progress.add_task(f"{number:>2} {name}", total=None)
        yield
        total = self._progress.tasks[self._task].completed or 1
        self._progress.update(self._task, total=total, completed=total)

    def progress(self, done: int, total: int | None = None) -> None:
        """Items of the current stage."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


def stage_table(stages: Iterable[tuple[str, float]]) -> Table:
    """The table of seconds that each stage took."""
    table = Table(title="Stages", title_justify="left")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    for name, seconds in stages:
        table.add_row(name, f"{seconds:.2f}")
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
    table = Table(title="Layer groups (n×c×d×h×w: sections; KiB)", title_justify="left")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("ops", overflow="fold")
    table.add_column("n×c×d×h×w", justify="right", no_wrap=True)
    table.add_column("LMEM peak / lane", justify="right")
    for name in ("load", "store", "cycles"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for group in groups:
        if group.reason or not group.lmem_peak_bytes:
            sections, peak = "global", group.reason or "-"
        else:
            sections = "×".join(str(group.secs[axis]) for axis in AXES)
            share = group.lmem_peak_bytes / group.lmem_bytes
            peak = f"{_kib(group.lmem_peak_bytes)} of {group.lmem_bytes // 1024} ({share:.0%})"
        table.add_row(
            str(group.id), _ops_text(group.ops), sections, peak, _kib(group.load_bytes), _kib(group.store_bytes),
            f"{group.cycles:,}", group.bound,
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
    table = Table(title="Ops that take longest (cycles)", title_justify="left")
    table.add_column("op", overflow="fold")
    for name in ("group", "TIU", "GDMA", "dependency", "sync"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    ops = sorted(engines["ops"], key=lambda op: -max(op["tiu_cycles"], op["gdma_cycles"]))
    for op in ops[:count]:
        cells = (op[f"{name}_cycles"] for name in ("tiu", "gdma", "dependency", "sync"))
        table.add_row(escape(op["op"]), str(op["group"]), *(f"{cell:,}" for cell in cells), op["bound"])
    return table


def fidelity_table(card: Card) -> Table:
    """How many ops of each class, and why the others are not exact to the specification."""
    table = Table(title=f"Fidelity ({len(card.ops)} ops, {card.casts} casts)", title_justify="left")
    table.add_column("class", no_wrap=True)
    table.add_column("ops", justify="right", no_wrap=True)
    table.add_column("which", overflow="fold")
    table.add_row("exact to spec", str(card.count("exact")), "")
    for decision, names in sorted(card.by_decision().items()):
        says = DECISIONS.get(decision, "see the specification")
        table.add_row(escape(decision), str(len(names)), escape(f"{says}: {_ops_text(names)}"))
    for (number, reason), names in card.by_reason().items():
        table.add_row(f"float: {number}", str(len(names)), escape(f"{reason}: {_ops_text(names)}"))
    return table


def show_run(console: Console, a: Artefacts) -> None:
    """Everything at the end of `tpusim run`."""
    console.print(stage_table(a.stages))
    if a.tpu is not None:
        console.print(fidelity_table(card_of(a.tpu)))
    if a.report is None:
        console.print(f"Stopped after '{a.config.to}'; artefacts are in {a.config.out}")
        return
    console.print(group_table(a.report.groups))
    console.print(summary_table(a.report.compare.values()))
    _show_failures(console, a.report)
    _show_totals(console, a.report)
    _show_cores(console, a.report)
    _show_accuracy(console, a.report)
    for line in (line for comparison in a.report.compare.values() for line in dead_layers(comparison)):
        console.print(f"[yellow]WARNING: {escape(line)}", highlight=False, soft_wrap=True)
    for line in _lost_lines(a):
        console.print(f"[red]{escape(line)}", highlight=False, soft_wrap=True)
    verdict = "[bold green]PASSED[/]" if a.report.passed else "[bold red]FAILED[/]"
    console.print(f"{verdict}  {a.report.model} on {a.report.chip} in {a.report.mode}; artefacts in {a.config.out}")


def _lost_lines(a: Artefacts) -> Iterator[str]:
    """What results lost altogether, and the command that says why."""
    lost = [line for comparison in a.comparisons.values() if comparison.decides for line in comparison.lost]
    yield from lost
    module = a.config.out / "3_calibrated.mlir"
    if lost and a.table is not None and a.report is not None:
        lowering = a.config.lowering
        options = f"--chip {a.report.chip} --mode {a.report.mode}{' --asymmetric' * lowering.asymmetric}"
        qtable = f" --qtable {lowering.qtable}" if lowering.qtable is not None else ""
        yield f"`tpusim why {shlex.quote(str(module))} {options}{qtable}` says why"


def _on_samples(comparison: Comparison) -> Iterator[str]:
    """Results that fail on samples: the first of the samples and how many more."""
    for found in comparison.over_samples:
        wrong = [i for i in found.failed if i in found.judged]
        if wrong and not found.passed:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield (
                f"{comparison.label}: result {found.name} fails on sample {wrong[0]}{more} of {comparison.samples}, "
                f"cosine {found.cosines[wrong[0]]:.6f}, euclidean {found.euclideans[wrong[0]]:.6f}"
            )


def _show_failures(console: Console, report: Report) -> None:
    for comparison in (comparison for comparison in report.compare.values() if comparison.decides):
        for line in _on_samples(comparison):
            console.print(f"[red]{escape(line)}", highlight=False, soft_wrap=True)
        warning = comparison.warning()
        if warning:
            console.print(f"[yellow]{comparison.label}: {warning}")
        for tensor in comparison.failures[:8]:
            note = f"; {tensor.note}" if tensor.note else ""
            console.print(
                f"[red]{comparison.label}: {tensor.name} {tensor.verdict}, cosine {tensor.cosine:.6f}, "
                f"euclidean {tensor.euclidean:.6f}{note}",
                highlight=False,
            )


def _show_totals(console: Console, report: Report) -> None:
    t = report.totals
    time = estimate(t.clock_milliseconds, t.time_factor, t.time_residual)
    console.print(
        f"{t.commands:,} commands, {t.load_bytes / 2**20:.2f} MiB loaded, {t.store_bytes / 2**20:.2f} MiB stored, "
        f"{t.macs / 1e6:,.1f} M MAC, {t.cycles:,} cycles = {time}; "
        f"weights {report.memory.coeff_bytes / 2**20:.2f} MiB, neurons {report.memory.neuron_bytes / 2**20:.2f} MiB",
        highlight=False,
    )
    console.print(
        bounds_line(t.load_bytes + t.store_bytes, t.cycles, LowerBounds(t.compulsory_bytes, t.mac_cycles)),
        highlight=False,
    )
    if report.engines is not None:
        console.print(engines_line(report.engines), highlight=False)


def estimate(clock_milliseconds: float, factor: float, residual: float) -> str:
    """What the clock says of a program's time, and what measured times of the chip make of it."""
    if factor == 1:
        return f"{clock_milliseconds:.3f} ms (estimate)"
    return (
        f"{clock_milliseconds:.3f} ms on the clock, {clock_milliseconds * factor:.3f} ms estimated (x {factor:.2f}, "
        f"fitted to measured times within {residual:.0%})"
    )


def _show_cores(console: Console, report: Report) -> None:
    for core in report.cores if len(report.cores) > 1 else ():
        console.print(
            f"core {core.core}: {core.commands:,} commands, {core.load_bytes / 2**20:.2f} MiB loaded, "
            f"{core.store_bytes / 2**20:.2f} MiB stored; TIU busy {core.tiu_busy:.0%}, GDMA {core.gdma_busy:.0%}",
            highlight=False,
        )


def bounds_line(moved_bytes: int, cycles: int, bounds: LowerBounds) -> str:
    """How far a program is above its lower bounds."""
    moved = f"{moved_bytes / 2**20:.2f} MiB moved = {bounds.traffic_ratio(moved_bytes):.2f} x what must move once"
    if not bounds.mac_cycles:
        return moved
    line = f"{moved}, {cycles:,} cycles = {bounds.cycle_ratio(cycles):.2f} x the MAC-bound {bounds.mac_cycles:,}"
    if bounds.cycles <= bounds.mac_cycles:
        return line
    return f"{line}, {cycles / bounds.cycles:.2f} x that of the engines {bounds.cycles:,}"


def _show_accuracy(console: Console, report: Report) -> None:
    if report.accuracy is None:
        return
    found = report.accuracy
    mode = report.mode.upper()
    table = Table(title="Top-1", title_justify="left")
    for name in ("level", "samples", "top-1"):
        table.add_column(name, justify="left" if name == "level" else "right")
    table.add_row("float (TOP)", str(found.samples), f"{found.float_top1:.2%}")
    table.add_row(f"{mode} (flat)", str(found.samples), f"{found.int8_top1:.2%}")
    table.add_row(f"{mode} (local-memory machine)", str(found.local_samples), f"{found.local_top1:.2%}")
    table.add_row("lost, gained by the quantised", str(found.samples), f"{found.lost}, {found.gained}")
    console.print(table)
    if not found.passed:
        console.print(
            f"[red]top-1 drops by {found.drop:.2f} points (95 %: {found.drop_margin:.2f} to either side), at most "
            f"{found.max_drop:.2f} are allowed (--max-drop); check the calibration data, then see tpusim why",
            highlight=False,
        )
    if found.local_exact_tensors:
        console.print(
            f"local machine bit-exact with flat inference on every stored tensor that no float op precedes "
            f"({found.local_exact_tensors}): {found.local_bit_exact_samples} of {found.local_samples} samples"
        )
