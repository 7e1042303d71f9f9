"""`tpusim group --plot DIR`: local memory over the rows of a group, and its pipeline, as pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.layer_group.files import Area, EntryView, GlobalView, GroupView, group_number
from tpusim.page.labels import cut, distinct
from tpusim.verify.npz import write_atomically

TRACKS = ("TIU", "load", "store")
STAGE_COLOURS = ("#8ecae6", "#ffd166", "#f4978e")
"""Stage 0, 1, 2: the newest slice, the one before, the oldest."""
VISITOR, VISITOR_COLOUR = -1, "white"
"""Stands for the stage of a transfer that a neighbouring group has here."""
MEMORY_ROWS, PIPELINE_ROWS = 32, 16
"""Rows of the loop on one page; a group with more has several."""
MEMORY_ROW, PIPELINE_ROW = 0.5, 1.25
"""Height of one row of the picture, in inches."""
ENTRY, COLUMN = 0.135, 2.6
"""Inches of a line of the legend beside the map, and of one of its columns."""
LABEL = 34
"""Letters of a name in the legend."""
IN_BOX = 20
"""Letters of a name in a box of the pipeline."""
HATCH = {"weight": "///", "work": "..."}


def plot(
    views: Sequence[GroupView | GlobalView], folder: Path, only: int | None = None, kind: str = "png"
) -> Iterator[Path]:
    """Write `group_NNN_lmem.png` and `group_NNN_pipeline.png` of every group, or of group `only`; yields the paths.

    kind: png or svg. A group with many rows has several pages of each, `group_NNN_lmem_1.png` and so on.
    """
    groups = [v for v in views if isinstance(v, GroupView)] if only is None else [group_number(views, only)]
    figure_class, patches = library()
    for view in groups:
        for name, draw, most in (("lmem", draw_memory, MEMORY_ROWS), ("pipeline", draw_pipeline, PIPELINE_ROWS)):
            found = pages(len(view.rows), most)
            for number, rows in enumerate(found, 1):
                figure = figure_class(layout="constrained", dpi=110)
                draw(figure, patches, view, rows)
                page = f"_{number}" if len(found) > 1 else ""
                path = folder / f"group_{view.index:03}_{name}{page}.{kind}"
                write_atomically(path, lambda file, figure=figure: figure.savefig(file, format=kind))
                yield path


def pages(count: int, most: int) -> list[range]:
    """`count` rows on as few pages as hold them, about as many on each."""
    number = max(1, ceil(count / most))
    edges = [count * i // number for i in range(number + 1)]
    return [range(first, last) for first, last in pairwise(edges)]


def library() -> tuple[Any, Any]:
    """The classes of matplotlib: Figure (no display needed) and patches. Raises ConfigError if it is not installed."""
    try:
        figure, patches = import_module("matplotlib.figure"), import_module("matplotlib.patches")
    except ImportError as error:
        raise ConfigError(f"--plot needs matplotlib, extra 'plot': pip install 'tpusim[plot]' ({error})") from error
    return figure.Figure, patches


def spans(rows: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Rows as (first, count) of consecutive ones; a lifetime that wraps around the loop has two."""
    ordered = sorted(rows)
    begin = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            yield ordered[begin], i - begin
            begin = i


def draw_memory(figure: Any, patches: Any, view: GroupView, rows: range | None = None) -> None:
    """Address over rows, one colour per tensor, constants and work areas hatched, banks as lines.

    The legend names every tensor that is alive in the rows of the page; the picture grows with it.
    """
    rows = range(len(view.rows)) if rows is None else rows
    shown = [i for i, area in enumerate(view.areas) if not area.rows.isdisjoint(rows)]
    labels = distinct((view.areas[i].name for i in shown), LABEL)
    height = min(max(6.5, ENTRY * len(shown) / 2), 14.0)
    columns = max(1, ceil(ENTRY * len(shown) / (height - 1.0)))
    figure.set_size_inches(1.2 + max(4.0, MEMORY_ROW * len(rows)) + COLUMN * columns, height)
    axes = figure.subplots()
    top = max(view.peak, 1) * 1.05
    for i in shown:
        _draw_area(axes, patches, view.areas[i], _colour(i))
        _name_area(axes, view.areas[i], rows, top)
    _draw_banks(axes, view, top)
    axes.set(xlim=(rows.start - 0.5, rows.stop - 0.5), ylim=(0, top), xlabel="row of the loop", ylabel="bytes per lane")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    share = view.peak / view.chip.lmem_bytes
    title = f"{_title(view, rows)}\npeak {view.peak:,} of {view.chip.lmem_bytes:,} bytes per lane ({share:.0%})"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    handles = [_entry(patches, view.areas[i], labels[view.areas[i].name], _colour(i)) for i in reversed(shown)]
    if handles:
        figure.legend(handles=handles, loc="outside right upper", fontsize=6.5, frameon=False, ncols=columns)


def _draw_banks(axes: Any, view: GroupView, top: float) -> None:
    bank = view.chip.lmem_bank_bytes
    for line in range(bank, int(top) + 1, bank):
        axes.axhline(line, color="black", linewidth=0.6, linestyle=":")


def _entry(patches: Any, area: Area, label: str, colour: Any) -> Any:
    """A line of the legend."""
    text = _plain(label + (" (held)" if area.held else ""))
    return patches.Patch(facecolor=colour, hatch=HATCH.get(area.kind), edgecolor="black", linewidth=0.4, label=text)


def _name_area(axes: Any, area: Area, rows: range, top: float) -> None:
    """The name in the largest part of an area that is on the page, if it is large enough to be read."""
    seen = [(first, n) for first, n in spans(area.rows & frozenset(rows))]
    first, length = max(seen, key=lambda span: span[1])
    if area.size > top / 40:
        upright = len(area.name) > 8 * length and area.size > top / 8
        text = cut(area.name, 24 if upright else 8 * length)
        _write(axes, text, first + (length - 1) / 2, area.address + area.size / 2, upright=upright)


def _write(axes: Any, text: str, x: float, y: float, *, upright: bool = False) -> None:
    """A name in a box, readable on every colour and hatch."""
    back = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
    angle = 90 if upright else 0
    axes.text(x, y, _plain(text), ha="center", va="center", fontsize=6, bbox=back, clip_on=True, rotation=angle)


def _draw_area(axes: Any, patches: Any, area: Area, colour: Any) -> None:
    for first, length in spans(area.rows):
        box = patches.Rectangle(
            (first - 0.5, area.address), length, area.size, facecolor=colour, hatch=HATCH.get(area.kind),
            edgecolor="black", linewidth=0.4,
        )  # fmt: skip
        axes.add_patch(box)


def draw_pipeline(figure: Any, patches: Any, view: GroupView, rows: range | None = None) -> None:
    """Engines as tracks, rows as columns, one box per op or transfer, coloured by stage."""
    rows = range(len(view.rows)) if rows is None else rows
    cells = {(t, r): [i for i in view.rows[r] if i.engine == t] for r in rows for t in TRACKS}
    for visit in view.visits:
        if visit.row in rows:
            name = f"{visit.item.tensor} of group {visit.group}"
            cells[visit.item.engine, visit.row].append(replace(visit.item, tensor=name, stage=VISITOR))
    heights = {t: max(1, *(len(cells[t, r]) for r in rows)) for t in TRACKS}
    labels = distinct((item.tensor for items in cells.values() for item in items), IN_BOX)
    width = max(8.0, 1.6 + PIPELINE_ROW * len(rows))
    figure.set_size_inches(width, 1.8 + 0.42 * sum(heights.values()))
    axes = figure.subplots()
    top, ticks = 0.0, list[float]()
    for track in TRACKS:
        for row in rows:
            for i, item in enumerate(cells[track, row]):
                _draw_item(axes, patches, item, labels[item.tensor], (row, top + i))
        ticks.append(top + heights[track] / 2)
        top += heights[track]
        axes.axhline(top, color="black", linewidth=0.8)
    for row in (*rows, rows.stop):
        axes.axvline(row - 0.5, color="grey", linewidth=0.4, linestyle=":")
    limits = (rows.start - 0.5, rows.stop - 0.5)
    axes.set(xlim=limits, ylim=(top, 0), xlabel="row of the loop (rows are barriers)")
    axes.set_xticks(rows)
    axes.set_yticks(ticks, ["TIU", "GDMA load", "GDMA store"])
    figure.suptitle(_title(view, rows), x=0.01, ha="left", fontsize=9)
    handles = _stages(patches, visits=bool(view.visits))
    figure.legend(handles=handles, loc="outside lower center", ncols=int(width / 2.4), fontsize=7, frameon=False)


def _stages(patches: Any, *, visits: bool) -> list[Any]:
    """The legend of the pipeline."""
    names = ("stage 0: newest slice", "stage 1: the one before", "stage 2: oldest slice")
    found = [patches.Patch(facecolor=c, edgecolor="black", label=n) for c, n in zip(STAGE_COLOURS, names, strict=True)]
    found.append(patches.Patch(facecolor="white", edgecolor="black", hatch="//", label="runs once and stays"))
    neighbour = patches.Patch(facecolor=VISITOR_COLOUR, edgecolor="black", label="for a neighbouring group, once")
    return [*found, *([neighbour] if visits else [])]


def _draw_item(axes: Any, patches: Any, item: EntryView, label: str, at: tuple[int, float]) -> None:
    """A box at (row, place from the top)."""
    colour = STAGE_COLOURS[item.stage] if 0 <= item.stage < len(STAGE_COLOURS) else VISITOR_COLOUR
    row, y = at
    box = patches.Rectangle(
        (row - 0.47, y + 0.06), 0.94, 0.88, facecolor=colour, edgecolor="black", linewidth=0.6,
        hatch="//" if item.held else None, alpha=0.9,
    )  # fmt: skip
    axes.add_patch(box)
    _write(axes, label, row, y + 0.5)


def _colour(index: int) -> Any:
    """Neighbouring tensors differ: steps of the golden ratio around the colour circle."""
    import colorsys

    return colorsys.hsv_to_rgb((index * 0.618034) % 1.0, (0.35, 0.55, 0.75)[index % 3], 0.95)


def _title(view: GroupView, rows: range) -> str:
    sections = " ".join(f"{axis}={n}" for axis, n in view.sections.items())
    part = "" if len(rows) == len(view.rows) else f", rows {rows.start} to {rows.stop - 1} of {len(view.rows)}"
    return f"group {view.index}, {view.kind}, {sections}, {len(view.ops)} ops{part}"


def _plain(text: str) -> str:
    """Names are no mathematics: `$` stays a dollar; a leading `_` would hide a legend entry."""
    return text.replace("$", r"\$") if not text.startswith("_") else "\u200a" + text.replace("$", r"\$")
