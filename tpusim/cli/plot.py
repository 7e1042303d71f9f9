"""`tpusim group --plot DIR`: local memory over the rows of a group, and its pipeline, as pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tpusim.cli.grouping import cut
from tpusim.errors import ConfigError
from tpusim.layer_group.files import Area, GlobalView, GroupView, Item
from tpusim.verify.npz import write_atomically

TRACKS = ("TIU", "load", "store")
STAGE_COLOURS = ("#8ecae6", "#ffd166", "#f4978e")
"""Stage 0, 1, 2: the newest slice, the one before, the oldest."""
VISITOR, VISITOR_COLOUR = -1, "white"
"""Stands for the stage of a transfer that a neighbouring group has here."""
LEGEND_MOST = 40
"""Tensors named beside the map; more do not fit a page."""
HATCH = {"weight": "///", "work": "..."}


def plot(views: Sequence[GroupView | GlobalView], folder: Path, only: int | None = None) -> Iterator[Path]:
    """Write `group_NNN_lmem.png` and `group_NNN_pipeline.png` of every group, or of group `only`; yields the paths."""
    groups = [v for v in views if isinstance(v, GroupView)]
    if only is not None and not 0 <= only < len(groups):
        raise ConfigError(f"--group {only}: the module has {len(groups)} groups; give 0 to {len(groups) - 1}")
    figure_class, patches = library()
    for view in groups if only is None else [groups[only]]:
        for name, draw in (("lmem", draw_memory), ("pipeline", draw_pipeline)):
            figure = figure_class(layout="constrained", dpi=110)
            draw(figure, patches, view)
            path = folder / f"group_{view.index:03}_{name}.png"
            write_atomically(path, lambda file, figure=figure: figure.savefig(file, format="png"))
            yield path


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


def draw_memory(figure: Any, patches: Any, view: GroupView) -> None:
    """Address over rows, one colour per tensor, constants and work areas hatched, banks as lines."""
    count = len(view.rows)
    figure.set_size_inches(min(max(7.0, 3.5 + 0.45 * count), 22.0), 6.5)
    axes = figure.subplots()
    top = max(view.peak, 1) * 1.05
    for index, area in enumerate(view.areas):
        _draw_area(axes, patches, area, _colour(index))
        if area.size > top / 40:
            first, length = max(spans(area.rows), key=lambda span: span[1])
            upright = len(area.name) > 7 * length and area.size > top / 8
            text = cut(area.name, 24 if upright else 7 * length)
            _write(axes, text, first + (length - 1) / 2, area.address + area.size / 2, upright=upright)
    bank = view.chip.lmem_bank_bytes
    for line in range(bank, int(top) + 1, bank):
        axes.axhline(line, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlim=(-0.5, count - 0.5), ylim=(0, top), xlabel="row of the loop", ylabel="bytes per lane")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    share = view.peak / view.chip.lmem_bytes
    title = f"{_title(view)}: peak {view.peak:,} of {view.chip.lmem_bytes:,} bytes per lane ({share:.0%})"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    named = sorted(range(len(view.areas)), key=lambda i: -view.areas[i].size)[:LEGEND_MOST]
    handles = [
        patches.Patch(
            facecolor=_colour(i), hatch=HATCH.get(view.areas[i].kind), edgecolor="black", linewidth=0.4,
            label=_plain(cut(view.areas[i].name, 32) + (" (held)" if view.areas[i].held else "")),
        )
        for i in sorted(named)
    ]  # fmt: skip
    if handles:
        figure.legend(
            handles=handles, loc="outside right center", fontsize=6, frameon=False, ncols=1 + (len(handles) > 24)
        )


def _write(axes: Any, text: str, x: float, y: float, *, upright: bool = False) -> None:
    """A name in a box, readable on every colour and hatch."""
    back = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
    angle = 90 if upright else 0
    axes.text(x, y, _plain(text), ha="center", va="center", fontsize=5, bbox=back, clip_on=True, rotation=angle)


def _draw_area(axes: Any, patches: Any, area: Area, colour: Any) -> None:
    for first, length in spans(area.rows):
        box = patches.Rectangle(
            (first - 0.5, area.address), length, area.size, facecolor=colour, hatch=HATCH.get(area.kind),
            edgecolor="black", linewidth=0.4,
        )  # fmt: skip
        axes.add_patch(box)


def draw_pipeline(figure: Any, patches: Any, view: GroupView) -> None:
    """Engines as tracks, rows as columns, one box per op or transfer, coloured by stage."""
    count = len(view.rows)
    cells = {(t, r): [i for i in row if i.engine == t] for r, row in enumerate(view.rows) for t in TRACKS}
    for visit in view.visits:
        name = f"{visit.item.tensor} of group {visit.group}"
        cells[visit.item.engine, visit.row].append(replace(visit.item, tensor=name, stage=VISITOR))
    heights = {t: max(1, *(len(cells[t, r]) for r in range(count))) for t in TRACKS}
    figure.set_size_inches(min(max(7.0, 1.6 + 1.05 * count), 40.0), 1.6 + 0.42 * sum(heights.values()))
    axes = figure.subplots()
    top, ticks = 0.0, list[float]()
    for track in TRACKS:
        for row in range(count):
            for i, item in enumerate(cells[track, row]):
                _draw_item(axes, patches, item, row, top + i)
        ticks.append(top + heights[track] / 2)
        top += heights[track]
        axes.axhline(top, color="black", linewidth=0.8)
    for row in range(count + 1):
        axes.axvline(row - 0.5, color="grey", linewidth=0.4, linestyle=":")
    axes.set(xlim=(-0.5, count - 0.5), ylim=(top, 0), xlabel="row of the loop (rows are barriers)")
    axes.set_xticks(range(count))
    axes.set_yticks(ticks, ["TIU", "GDMA load", "GDMA store"])
    figure.suptitle(_title(view), x=0.01, ha="left", fontsize=9)
    names = ("stage 0: newest slice", "stage 1: the one before", "stage 2: oldest slice")
    handles = [
        patches.Patch(facecolor=c, edgecolor="black", label=n) for c, n in zip(STAGE_COLOURS, names, strict=True)
    ]
    held = patches.Patch(facecolor="white", edgecolor="black", hatch="//", label="runs once and stays")
    more = [patches.Patch(facecolor=VISITOR_COLOUR, edgecolor="black", label="for a neighbouring group, once")]
    shown = [*handles, held, *(more if view.visits else [])]
    figure.legend(handles=shown, loc="outside lower center", ncols=5, fontsize=7, frameon=False)


def _draw_item(axes: Any, patches: Any, item: Item, row: int, y: float) -> None:
    colour = STAGE_COLOURS[item.stage] if 0 <= item.stage < len(STAGE_COLOURS) else VISITOR_COLOUR
    box = patches.Rectangle(
        (row - 0.47, y + 0.06), 0.94, 0.88, facecolor=colour, edgecolor="black", linewidth=0.6,
        hatch="//" if item.held else None, alpha=0.9,
    )  # fmt: skip
    axes.add_patch(box)
    _write(axes, cut(item.tensor, 20), row, y + 0.5)


def _colour(index: int) -> Any:
    """Neighbouring tensors differ: steps of the golden ratio around the colour circle."""
    import colorsys

    return colorsys.hsv_to_rgb((index * 0.618034) % 1.0, (0.35, 0.55, 0.75)[index % 3], 0.95)


def _title(view: GroupView) -> str:
    sections = " ".join(f"{axis}={n}" for axis, n in view.sections.items())
    return f"group {view.index}, {view.kind}, {sections}, {len(view.ops)} ops"


def _plain(text: str) -> str:
    """Names are no mathematics: `$` stays a dollar; a leading `_` would hide a legend entry."""
    return text.replace("$", r"\$") if not text.startswith("_") else "\u200a" + text.replace("$", r"\$")
