"""`tpusim explore --plot FILE`: the points of a space as a picture, milliseconds over bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpusim.cli.plot import library
from tpusim.errors import ConfigError
from tpusim.explore import Row, comparable
from tpusim.verify.npz import write_atomically

KINDS = (".png", ".svg")
MARKS = "osD^vP*X"
"""One per mode."""


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for every model and batch: colours are chips, marks are modes, the front is joined by a line.

    Raises ConfigError if matplotlib is not installed, or no point has figures.
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
        _draw_points(axes, shown, chips, modes)
        best = sorted((row for row in shown if row.front), key=lambda row: row.moved_bytes or 0)
        axes.plot(*_places(best), color="grey", linewidth=0.8, zorder=1)
        axes.set(xlabel="MiB moved", ylabel="milliseconds on the clock")
        axes.set_title(f"{Path(model).name}{f', batch {batch}' if batch else ''}".replace("$", r"\$"), fontsize=9)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))


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
