"""`tpusim explore --plot FILE`: the points of a space as a picture, milliseconds over bytes or over a figure."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from tpusim.cli.plot import library
from tpusim.errors import ConfigError
from tpusim.explore import Row, comparable
from tpusim.verify.npz import write_atomically

KINDS = (".png", ".svg")
MARKS = "osD^vP*X"
"""One per mode."""
WIDE = 4
"""From this ratio of the largest value to the least on, an axis is logarithmic."""


def draw(rows: Sequence[Row], path: Path, over: str = "") -> None:
    """A panel for every model and batch: colours are chips, marks are modes, the front is joined by a line.

    over: a field that `--set` varies: milliseconds over it, the least of all strategies and cores; a line for each
    combination of the rest. Raises ConfigError if matplotlib is not installed, or no point has figures.
    """
    figure_class, _ = library()
    good = [row for row in rows if not row.error]
    panels = list(comparable(good, range(len(good))))
    if not panels:
        raise ConfigError(f"--plot {path}: no point could be compiled, there is nothing to draw")
    figure = figure_class(layout="constrained", dpi=110, figsize=(7.0, 4.2 * len(panels)))
    chips, modes = (list(dict.fromkeys(getattr(row, name) for row in good)) for name in ("chip", "mode"))
    for axes, ((model, batch), numbers) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        shown = [good[i] for i in numbers]
        if over:
            _draw_over(axes, shown, over)
        else:
            _draw_points(axes, shown, chips, modes)
            best = sorted((row for row in shown if row.front), key=lambda row: row.moved_bytes or 0)
            axes.plot(*_places(best), color="grey", linewidth=0.8, zorder=1)
        axes.set(xlabel=over or "MiB moved", ylabel="milliseconds on the clock")
        axes.set_title(f"{Path(model).name}{f', batch {batch}' if batch else ''}".replace("$", r"\$"), fontsize=9)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))


def least_over(rows: Sequence[Row], over: str) -> dict[str, list[tuple[float, float]]]:
    """What else differs -> (value of the field, least milliseconds of all strategies and cores), by value."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        settings = dict(one.split("=", 1) for one in row.settings.split(" "))
        value = float(settings.pop(over))
        name = " ".join((row.chip, row.mode, *(f"{field}={text}" for field, text in settings.items())))
        line = found.setdefault(name, {})
        line[value] = min(line.get(value, inf), row.milliseconds or 0.0)
    return {name: sorted(line.items()) for name, line in found.items()}


def _draw_over(axes: Any, rows: Sequence[Row], over: str) -> None:
    """One line for each combination of the rest; powers of two are as far apart as they are."""
    values: set[float] = set()
    for name, line in least_over(rows, over).items():
        axes.plot(*zip(*line, strict=True), marker="o", markersize=4, label=name)
        values.update(value for value, _ in line)
    if min(values) > 0 and max(values) >= WIDE * min(values):
        axes.set_xscale("log", base=2)
    axes.set_xticks(
        sorted(values), [f"{value:,g}" if value % 1024 else f"{value / 1024:,g} Ki" for value in sorted(values)]
    )
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _draw_points(axes: Any, rows: Sequence[Row], chips: Sequence[str], modes: Sequence[str]) -> None:
    """Points of the front are filled."""
    for chip in chips:
        for mode in modes:
            for front in (True, False):
                some = [row for row in rows if (row.chip, row.mode, row.front) == (chip, mode, front)]
                colour = f"C{chips.index(chip) % 10}"
                label = f"{chip} {mode}{', front' if front else ''}"
                if some:
                    axes.scatter(
                        *_places(some), marker=MARKS[modes.index(mode) % len(MARKS)], edgecolors=colour,
                        facecolors=colour if front else "none", label=label, zorder=2,
                    )  # fmt: skip
    axes.legend(fontsize=7)


def _places(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [(row.moved_bytes or 0) / 2**20 for row in rows], [row.milliseconds or 0.0 for row in rows]
