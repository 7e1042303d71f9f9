"""What a person sees while stages run and when they are done."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tpusim.lowering.lower import Fallback
from tpusim.pipeline import STAGES, Artefacts
from tpusim.verify.render import summary_table
from tpusim.verify.report import Group, Report

MAX_OPS_SHOWN = 4
"""Op names shown per group before they are abbreviated."""


class LiveProgress:
    """An observer that draws one line per stage with time and, where known, items done."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
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
    """Seconds per stage."""
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
    table = Table(title="Layer groups (n, h: sections; KiB)", title_justify="left")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("ops", overflow="fold")
    table.add_column("n×h", justify="right", no_wrap=True)
    table.add_column("LMEM peak / lane", justify="right")
    for name in ("load", "store", "cycles"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        if group.reason or not group.lmem_peak_bytes:
            sections, peak = "global", group.reason or "-"
        else:
            sections = f"{group.secs['n']}×{group.secs['h']}"
            share = group.lmem_peak_bytes / group.lmem_bytes
            peak = f"{_kib(group.lmem_peak_bytes)} of {group.lmem_bytes // 1024} ({share:.0%})"
        table.add_row(
            str(group.id), _ops_text(group.ops), sections, peak, _kib(group.load_bytes), _kib(group.store_bytes),
            f"{group.cycles:,}",
        )  # fmt: skip
    return table


def fallback_table(fallbacks: Iterable[Fallback]) -> Table:
    """Ops that were asked for integers and run in float."""
    table = Table(title="Float fallbacks", title_justify="left")
    for name in ("op", "kind", "why"):
        table.add_column(name, overflow="fold")
    for item in fallbacks:
        table.add_row(item.op, item.kind, item.why)
    return table


def show_run(console: Console, a: Artefacts) -> None:
    """Everything at the end of `tpusim run`."""
    console.print(stage_table(a.stages))
    if a.fallbacks:
        console.print(fallback_table(a.fallbacks))
    if a.report is None:
        console.print(f"Stopped after '{a.config.to}'; artefacts are in {a.config.out}")
        return
    console.print(group_table(a.report.groups))
    console.print(summary_table(a.report.compare.values()))
    _show_failures(console, a.report)
    _show_totals(console, a.report)
    _show_accuracy(console, a.report)
    verdict = "[bold green]PASSED[/]" if a.report.passed else "[bold red]FAILED[/]"
    console.print(f"{verdict}  {a.report.model} on {a.report.chip} in {a.report.mode}; artefacts in {a.config.out}")


def _show_failures(console: Console, report: Report) -> None:
    for comparison in report.compare.values():
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
    console.print(
        f"{t.commands:,} commands, {t.load_bytes / 2**20:.2f} MiB loaded, {t.store_bytes / 2**20:.2f} MiB stored, "
        f"{t.macs / 1e6:,.1f} M MAC, {t.cycles:,} cycles = {t.milliseconds:.3f} ms (estimate); "
        f"weights {report.memory.coeff_bytes / 2**20:.2f} MiB, neurons {report.memory.neuron_bytes / 2**20:.2f} MiB",
        highlight=False,
    )


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
    console.print(table)
    console.print(
        f"local machine bit-exact with flat on every stored tensor: "
        f"{found.local_bit_exact_samples} of {found.local_samples} samples"
    )
