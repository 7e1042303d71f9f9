"""`tpusim explore --plot FILE`: the points of a space as a picture, one measure over another or over a figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError, extra_required
from tpusim.studies.explore import DEFAULT_FRONT, MEASURES, Row, comparable
from tpusim.studies.explore.front import MORE_IS_BETTER, cost, undominated
from tpusim.verify.npz import write_atomically

KINDS = (".png", ".svg")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f")
"""One per chip, told apart by colour-blind readers too; more are taken from around the colour circle."""
MARKS = "osD^vP*X"
"""One per mode."""
SMALLEST, LARGER = 4.0, 3.4
"""The size in points of the first strategy's mark, which is filled, and the growth per further strategy, drawn as a
ring: strategies with equal results are concentric.
"""
WIDE = 4
"""A chip's figure has a logarithmic axis if its largest value is so many times the least."""
DECADE = 10
"""A measure has a logarithmic axis if its largest value is so many times the least."""
FRONT = "#666666"
AXES = {
    "ms": ("milliseconds (estimate)", 1.0),
    "cycles": ("cycles", 1.0),
    "bytes": ("MiB moved", 2.0**20),
    "lmem": ("KiB of local memory per lane (peak)", 2.0**10),
    "weights": ("MiB of weights", 2.0**20),
    "neurons": ("MiB of activations", 2.0**20),
    "groups": ("layer groups", 1.0),
    "energy": ("µJ", 1.0),
    "cos": ("cosine of the results", 1.0),
    "euc": ("euclidean similarity of the results", 1.0),
    "real": ("cycles of TPU-MLIR's profile", 1.0),
}
"""Measure -> the label of its axis, and its unit in units of a row."""


def draw(rows: Sequence[Row], path: Path, measures: Sequence[str] = DEFAULT_FRONT, over: str = "") -> None:
    """Write `figure_of` the rows as a picture of the kind that the path ends in."""
    figure = figure_of(rows, measures, over)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))


def figure_of(rows: Sequence[Row], measures: Sequence[str] = DEFAULT_FRONT, over: str = "") -> Any:
    """A panel for every model and batch: the first measure over the second, and the front of exactly these two.

    Colours are chips, marks are modes, rings are strategies. The front is a staircase; points beyond it are dominated
    by a point at one of its corners. One measure alone is drawn over bytes, bytes over milliseconds.

    over: a field that `--set` varies: milliseconds over it, the least of all strategies and cores; a line for each
    combination of the rest. Raises ConfigError if matplotlib is not installed, or no point has figures.
    """
    up, across = shown = pair(measures)
    good = [row for row in rows if not row.error and (over or all(cost(row, name) < inf for name in shown))]
    panels = list(comparable(good, range(len(good))))
    if not panels:
        wanted = "" if over else f" with {' and '.join(shown)}"
        raise ConfigError(
            f"--plot: a point{wanted} is required, but none could be compiled; see the errors of the table"
        )
    figure = figure_class()(layout="constrained", dpi=110, figsize=(7.0 if over else 8.5, 4.2 * len(panels)))
    key = Key.of(good)
    for axes, ((model, batch), numbers) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        some = [good[i] for i in numbers]
        if over:
            _draw_over(axes, some, over)
        else:
            _draw_points(axes, some, shown, key)
            axes.set(xlabel=AXES[across][0], ylabel=AXES[up][0])
        axes.grid(visible=True, which="both" if axes.get_xscale() == "log" else "major", linewidth=0.4, alpha=0.4)
        axes.set_title(_plain(f"{Path(model).name}{f', batch {batch}' if batch else ''}"), fontsize=10)
    if not over:
        figure.legend(
            handles=list(_legend(key)), loc="outside right upper", fontsize=8, frameon=False, handlelength=1.6
        )
    return figure


def figure_class() -> Any:
    """Figure of matplotlib, which needs no display. Raises ConfigError if it is not installed."""
    try:
        return import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise extra_required("--plot", "matplotlib", "plot", error) from error


def pair(measures: Sequence[str]) -> tuple[str, str]:
    """The measures of both axes: (up, across)."""
    first = measures[0]
    return first, next((name for name in measures if name != first), "ms" if first == "bytes" else "bytes")


def staircase(rows: Sequence[Row], shown: tuple[str, str]) -> list[tuple[float, float]]:
    """(across, up) of the front of two measures and of the corners between its points, the best across first.

    Each place is beaten by none of the rows, or lies on the edge of what is beaten.
    """
    up, across = shown
    costs = [(cost(row, across), cost(row, up)) for row in rows]
    kept = zip(costs, rows, undominated(costs), strict=True)
    best = sorted({one: row for one, row in [(c, r) for c, r, keep in kept if keep]}.items(), key=lambda item: item[0])
    found: list[tuple[float, float]] = []
    for place in (_place(row, shown) for _, row in best):
        if found:
            found.append((place[0], found[-1][1]))
        found.append(place)
    return found


def _place(row: Row, shown: tuple[str, str]) -> tuple[float, float]:
    up, across = (getattr(row, MEASURES[name]) / AXES[name][1] for name in shown)
    return across, up


@dataclass(frozen=True)
class Key:
    """The legend: chips (with their `--set` and `--cores`), modes and strategies."""

    chips: Mapping[str, Any]
    modes: Mapping[str, str]
    strategies: Mapping[str, tuple[str, float]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Key":
        """Of all rows of a picture, in the order of first appearance."""
        chips, modes, strategies = (
            list(dict.fromkeys(texts))
            for texts in (map(_chip, rows), (row.mode for row in rows), (row.strategy for row in rows))
        )
        return cls(
            dict(zip(chips, _colours(len(chips)), strict=True)),
            {mode: MARKS[i % len(MARKS)] for i, mode in enumerate(modes)},
            {name: ("none" if i else "full", SMALLEST + LARGER * i) for i, name in enumerate(strategies)},
        )

    def marker(self, chip: str, mode: str, strategy: str) -> dict[str, Any]:
        """How matplotlib draws a point."""
        colour, (fill, size) = self.chips[chip], self.strategies[strategy]
        return {"marker": self.modes[mode], "fillstyle": fill, "markersize": size, "color": colour,
                "markeredgewidth": 1.2, "linestyle": "none"}  # fmt: skip


def _chip(row: Row) -> str:
    cores = f", {row.cores} cores" if row.cores > 1 else ""
    return f"{row.chip}{f' {row.settings}' if row.settings else ''}{cores}"


def _colours(count: int) -> list[Any]:
    """As many colours that differ."""
    import colorsys

    more = (colorsys.hsv_to_rgb(i / max(count, 1), 0.75, (0.85, 0.6)[i % 2]) for i in range(count))
    return list(COLOURS[:count]) if count <= len(COLOURS) else list(more)


def _draw_points(axes: Any, rows: Sequence[Row], shown: tuple[str, str], key: Key) -> None:
    for row in rows:
        axes.plot(*_place(row, shown), **key.marker(_chip(row), row.mode, row.strategy), zorder=3)
    places = [_place(row, shown) for row in rows]
    for axis, scale, at in ((axes.xaxis, axes.set_xscale, 0), (axes.yaxis, axes.set_yscale, 1)):
        values = [place[at] for place in places]
        if min(values) > 0 and max(values) >= DECADE * min(values):
            scale("log")
            _tick(axis)
        else:
            axis.get_major_locator().set_params(nbins=6)
    _draw_front(axes, rows, shown)


def _draw_front(axes: Any, rows: Sequence[Row], shown: tuple[str, str]) -> None:
    """The staircase, on to the edges of the picture where points are worse."""
    up, across = shown
    limits = axes.get_xlim(), axes.get_ylim()
    worst = [pair[name not in MORE_IS_BETTER] for name, pair in zip((across, up), limits, strict=True)]
    steps = staircase(rows, shown)
    steps = [(steps[0][0], worst[1]), *steps, (worst[0], steps[-1][1])]
    axes.plot(*zip(*steps, strict=True), color=FRONT, linewidth=1.2, zorder=2)
    axes.set(xlim=limits[0], ylim=limits[1])


def _tick(axis: Any) -> None:
    """1, 2 and 5 of each decade, as plain numbers."""
    ticker = import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _legend(key: Key) -> Iterable[Any]:
    """Chips as colours, modes as marks, strategies as fillings, each below its heading; and the line."""
    lines = import_module("matplotlib.lines")
    chip, mode = "#444444", next(iter(key.modes.values()))
    for head, entries in (
        ("chip", [(name, {"linestyle": "-", "linewidth": 5, "color": colour}) for name, colour in key.chips.items()]),
        ("mode", [(name, {"marker": mark, "color": chip}) for name, mark in key.modes.items()]),
        ("strategy", [(name, {"marker": mode, "color": chip, "fillstyle": fill, "markersize": size})
                      for name, (fill, size) in key.strategies.items()]),
    ):  # fmt: skip
        yield lines.Line2D([], [], linestyle="none", label=rf"$\bf{{{head}}}$")
        for name, style in entries:
            yield lines.Line2D([], [], label=_plain(name), **{"linestyle": "none", "markersize": 7.0, **style})
    yield lines.Line2D([], [], linestyle="none", label="")
    yield lines.Line2D([], [], color=FRONT, linewidth=1.2, label="front of these two")


def least_over(rows: Sequence[Row], over: str) -> dict[str, list[tuple[float, float]]]:
    """Combination of the other options -> (value of the field, least milliseconds of all strategies and cores)."""
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
        axes.plot(*zip(*line, strict=True), marker="o", markersize=4, label=_plain(name))
        values.update(value for value, _ in line)
    if min(values) > 0 and max(values) >= WIDE * min(values):
        axes.set_xscale("log", base=2)
    axes.set_xticks(
        sorted(values), [f"{value:,g}" if value % 1024 else f"{value / 1024:,g} Ki" for value in sorted(values)]
    )
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel=over, ylabel=AXES["ms"][0])
    axes.legend(fontsize=7)


def _plain(text: str) -> str:
    """A name escaped for matplotlib: `$` stays a dollar, and a leading `_` does not hide an entry of the legend."""
    return ("\u200a" if text.startswith("_") else "") + text.replace("$", r"\$")
