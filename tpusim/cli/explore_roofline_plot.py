"""`tpusim explore roofline --plot FILE`: ops and layer groups under the roofs of a chip."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpusim.cli.plot import library
from tpusim.explore.roofline import Found
from tpusim.labels import cut
from tpusim.page.roofs import LIMITS
from tpusim.simulator import Place
from tpusim.verify.npz import write_atomically

COLOURS = {limit: f"C{i}" for i, limit in enumerate(LIMITS)}
NAMED = 3
"""How many groups are called by their first op, those that take longest."""
LETTERS = 24
"""Of the name that stands beside a group."""
DOTS = 14, 90
"""Area of the dot of an op and of a group, in square points."""


def draw(found: Found, path: Path) -> None:
    """Multiply-accumulates per cycle over multiply-accumulates per byte, both logarithmic; what has none is not drawn.

    Small dots are ops, large ones groups, colours their limits. Raises ConfigError if matplotlib is not installed.
    """
    figure_class, _ = library()
    figure = figure_class(layout="constrained", dpi=110, figsize=(8.0, 5.0))
    axes, roofs = figure.subplots(), found.roofs
    groups, ops = ([place for place in places if place.macs and place.cycles] for places in (roofs.groups, roofs.ops))
    _draw_roofs(axes, found, [place.intensity for place in (*groups, *ops) if place.intensity])
    _draw_places(axes, ops, large=False)
    _draw_places(axes, groups, large=True)
    for place in sorted(groups, key=lambda place: -place.cycles)[:NAMED]:
        if place.intensity:
            says = f"{cut(place.name, LETTERS)}, {place.ops} op{'s' if place.ops > 1 else ''}"
            at = place.intensity, place.macs / place.cycles
            axes.annotate(says.replace("$", r"\$"), at, (0, 9), textcoords="offset points", fontsize=7, ha="center")
    axes.set(xscale="log", yscale="log", xlabel="multiply-accumulates per byte moved")
    axes.set_ylabel("multiply-accumulates per cycle")
    title = f"{found.model} on {found.chip.name} in {found.mode}: small dots are ops, large ones layer groups"
    axes.set_title(title.replace("$", r"\$"), fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    axes.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))


def _draw_roofs(axes: Any, found: Found, intensities: Sequence[float]) -> None:
    """The roof of the multiplier array, and that of the loads up to where they meet."""
    roofs = found.roofs
    ridge = roofs.peak_macs / roofs.load_rate
    low, high = min([*intensities, ridge]) / 2, max([*intensities, ridge]) * 2
    axes.plot([ridge, high], [roofs.peak_macs] * 2, color="black", linewidth=1)
    axes.plot([low, ridge], [low * roofs.load_rate, roofs.peak_macs], color="black", linewidth=1)
    axes.annotate(
        f"{roofs.peak_macs:,} MAC per cycle", (high, roofs.peak_macs), (-2, 4), textcoords="offset points",
        fontsize=7, ha="right",
    )  # fmt: skip
    axes.annotate(
        f"{roofs.load_rate:.1f} bytes per cycle", (low, low * roofs.load_rate), (4, -2), textcoords="offset points",
        fontsize=7, va="top",
    )  # fmt: skip


def _draw_places(axes: Any, places: Sequence[Place], *, large: bool) -> None:
    """One scatter for each limit. large: they are groups."""
    for limit, says in LIMITS.items():
        some = [place for place in places if place.limit == limit and place.intensity]
        if some:
            axes.scatter(
                [place.intensity for place in some], [place.macs / place.cycles for place in some], s=DOTS[large],
                color=COLOURS[limit], alpha=0.9 if large else 0.6, edgecolors="black" if large else "none",
                linewidths=0.6, label=f"{'group' if large else 'op'}: {says}", zorder=3 if large else 2,
            )  # fmt: skip
