"""The shapes of a picture with their coordinates in pixels; the template draws them as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite

from tpusim.host.labels import cut, distinct
from tpusim.layer_group.files import Area, EntryView, GroupView
from tpusim.page.evidence import Histogram, Work

LETTER = 6.2
"""Width of a letter in a picture, in units of its SVG."""
ROW, LINE = 92, 18
"""A row of the loop across, and an entry of a track down."""
LEFT, TOP = 64, 8
"""Space for the names of the axes."""
MAP_HEIGHT = 340
NAME, ENTRY = 34, 14
"""Letters of a name in the list of areas, and from one line of it to the next."""
CHART = (900, 200)
CAP = 80.0
"""dB: above it, and where tensors are equal, a point is at the upper edge."""
SPARK = (120, 26)
MOST_WORKS = 1500
"""Boxes on a track of the timeline; more are put together."""
TRACKS = (("TIU", "computes"), ("load", "loads"), ("store", "stores"))
GOLDEN = 137.508
"""Degrees from one hue to the next: neighbours differ."""


@dataclass(frozen=True)
class Box:
    """A rectangle with a text in it; kind: its class in the style sheet; hue: of its colour in degrees, if it has one.

    title: the text shown when the pointer rests on it.
    """

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str
    label: str = ""
    hue: float | None = None


@dataclass(frozen=True)
class Line:
    """A line through points, and its class."""

    points: tuple[tuple[float, float], ...]
    kind: str = "grid"


@dataclass(frozen=True)
class Dot:
    """A point with the text shown when the pointer rests on it."""

    x: float
    y: float
    kind: str
    title: str
    radius: float = 3


@dataclass(frozen=True)
class Text:
    """A text that begins, ends or has its middle at x, as SVG's text-anchor says; upright: it reads upwards."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    upright: bool = False


@dataclass(frozen=True)
class Picture:
    """All shapes, and `says`, the alternative text for readers who do not see them."""

    width: float
    height: float
    says: str
    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()
    dots: tuple[Dot, ...] = ()
    texts: tuple[Text, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict[str, str])
    """Class of an area -> the words of its entry in the legend."""


def short(name: str, width: float) -> str:
    """The name shortened to so many pixels, "" if almost nothing of it fits."""
    letters = int((width - 4) / LETTER)
    return cut(name, letters) if letters >= 3 else ""


# ---------------------------------------------------------------------------------------------------------- similarity


def similarity(series: Mapping[str, Sequence[tuple[str, float]]], titles: Mapping[str, str]) -> Picture:
    """SQNR (dB) along the network, one line for each view. series: view -> (tensor, SQNR; infinite if equal)."""
    names = merged([[name for name, _ in points] for points in series.values()])
    place = {name: LEFT + (CHART[0] - LEFT - 12) * (i + 0.5) / max(len(names), 1) for i, name in enumerate(names)}
    dots = {view: tuple(_dots(f"view{i}", points, place)) for i, (view, points) in enumerate(series.items())}
    ticks = range(0, int(CAP) + 1, 20)
    return Picture(
        CHART[0],
        CHART[1] + 30,
        f"Similarity along the network: signal to noise ratio in dB of {len(names)} tensors",
        lines=(
            *(Line(((LEFT, _level(t)), (CHART[0] - 12, _level(t)))) for t in ticks),
            *(Line(tuple((d.x, d.y) for d in found), f"view{i}") for i, found in enumerate(dots.values()) if found),
        ),
        dots=tuple(d for found in dots.values() for d in found),
        texts=(
            *(Text(LEFT - 6, _level(t) + 4, f"{t} dB" if t < CAP else "equal", "end") for t in ticks),
            *_ends(names, place),
        ),
        legend={f"view{i}": titles.get(view, view) for i, view in enumerate(dots)},
    )


def merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """The union of the lists; each name follows its predecessor in the first list that contains it."""
    found: list[str] = []
    for names in lists:
        at = 0
        for name in names:
            if name not in found:
                found.insert(at, name)
            at = found.index(name) + 1
    return found


def _level(sqnr: float) -> float:
    """The height at which a ratio is drawn; NaN is drawn at the bottom."""
    share = min(max(sqnr, 0.0), CAP) / CAP if sqnr == sqnr else 0.0
    return TOP + (CHART[1] - TOP) * (1 - share)


def _dots(kind: str, points: Sequence[tuple[str, float]], place: Mapping[str, float]) -> Iterator[Dot]:
    for name, sqnr in points:
        says = f"{sqnr:.1f} dB" if isfinite(sqnr) else "equal" if sqnr > 0 else "no similarity"
        yield Dot(place[name], _level(sqnr), kind, f"{name}: {says}")


def _ends(names: Sequence[str], place: Mapping[str, float]) -> Iterator[Text]:
    """The first and the last tensor."""
    if names:
        yield Text(LEFT, CHART[1] + 22, cut(names[0], 40))
    if len(names) > 1:
        yield Text(place[names[-1]] + 8, CHART[1] + 22, cut(names[-1], 40), "end")


# ---------------------------------------------------------------------------------------------------------- histograms


def histogram(found: Histogram) -> Picture:
    """Bars of the values, and the range of the integers, on an axis that contains both."""
    width, height = SPARK
    low, high = (edge(found.low, found.high, *(found.limits or ())) for edge in (min, max))
    scale, most = width / (high - low or 1.0), max(found.counts)
    step = (found.high - found.low) * scale / len(found.counts) or 1.0
    left = (found.low - low) * scale
    tall = ((i, height * (n / most) ** 0.5) for i, n in enumerate(found.counts) if n)
    return Picture(
        width,
        height,
        f"values from {found.low:.4g} to {found.high:.4g}",
        tuple(Box(left + i * step, height - y, max(step, 0.5), y, "count", "") for i, y in tall),
        tuple(Line((((at - low) * scale, 0), ((at - low) * scale, height)), "limit") for at in found.limits or ()),
    )


# --------------------------------------------------------------------------------------------------------- layer groups


def memory_map(view: GroupView) -> Picture:
    """Address (bytes of a lane) down, rows of the loop across, one box for each stretch of rows of an area.

    On the right all areas by name, from the lowest address on.
    """
    top = max(view.peak, 1)
    width, scale = LEFT + ROW * len(view.rows), (MAP_HEIGHT - TOP) / top
    bank = view.chip.lmem_bank_bytes
    edges = range(bank, top, bank)
    names = list(_area_names(view, width + 16))
    return Picture(
        max(width + 8, *(x + NAME * LETTER for _, x, _, _ in names)) if names else width + 8,
        MAP_HEIGHT + 24,
        f"Local memory of group {view.index}: {len(view.areas)} areas over {len(view.rows)} rows",
        (
            *(box for i, area in enumerate(view.areas) for box in _area(area, i, scale)),
            *(Box(x, y - 8, 9, 9, view.areas[i].kind, "", hue=_hue(i)) for i, x, y, _ in names),
        ),
        tuple(Line(((LEFT, TOP + at * scale), (width, TOP + at * scale)), "bank") for at in edges),
        texts=(
            *(Text(LEFT - 6, TOP + 10 + at * scale, f"{at:,}", "end") for at in range(0, top, max(1, top // 5))),
            *_row_numbers(view, MAP_HEIGHT + 16),
            *(Text(x + 14, y, name) for _, x, y, name in names),
        ),
    )


def _area_names(view: GroupView, left: float) -> Iterator[tuple[int, float, float, str]]:
    """(index of the area, x, y, name) of the list, in columns."""
    short = distinct((area.name for area in view.areas), NAME - 7)
    lines = (MAP_HEIGHT - TOP) // ENTRY
    for i, area in enumerate(view.areas):
        column, line = divmod(i, lines)
        yield i, left + column * NAME * LETTER, TOP + 10 + ENTRY * line, short[area.name] + " (held)" * area.held


def _hue(index: int) -> float:
    return (index * GOLDEN) % 360


def _row_numbers(view: GroupView, y: float) -> Iterator[Text]:
    for row in range(len(view.rows)):
        yield Text(LEFT + ROW * (row + 0.5), y, f"row {row}", "middle")


def _area(area: Area, index: int, scale: float) -> Iterator[Box]:
    title = f"{area.name}: {area.kind}{', held' if area.held else ''}, bytes {area.address:,} to {area.end - 1:,}"
    height = max(area.size * scale, 1.5)
    for _, stretch in groupby(enumerate(sorted(area.rows)), lambda pair: pair[1] - pair[0]):
        rows = [row for _, row in stretch]
        width = ROW * len(rows) - 2
        label = short(area.name, width) if height >= 11 else ""
        x = LEFT + ROW * rows[0] + 1
        yield Box(x, TOP + area.address * scale, width, height, area.kind, title, label, _hue(index))


def pipeline(view: GroupView) -> Picture:
    """Engines as tracks, rows of the loop across, one box for each op and transfer, coloured by its stage.

    Transfers that the group does for its neighbours are among them, in their rows.
    """
    cells = {(track, row): [(i, "") for i in items if i.engine == track] for row, items in enumerate(view.rows)
             for track, _ in TRACKS}  # fmt: skip
    for visit in view.visits:
        cells[visit.item.engine, visit.row].append((visit.item, f" for group {visit.group}"))
    boxes, lines, texts, y = list[Box](), list[Line](), list[Text](), float(TOP)
    labels = distinct((item.tensor for items in cells.values() for item, _ in items), int((ROW - 8) / LETTER))
    width = LEFT + ROW * len(view.rows)
    for track, verb in TRACKS:
        texts.append(Text(LEFT - 6, y + LINE - 5, verb, "end"))
        for row in range(len(view.rows)):
            for i, (item, whose) in enumerate(cells[track, row]):
                at = (LEFT + ROW * row + 2, y + LINE * i + 1, ROW - 4, LINE - 2)
                boxes.append(Box(*at, _kind(item, whose), _said(item, verb, whose), labels[item.tensor]))
        y += LINE * max(1, *(len(cells[track, row]) for row in range(len(view.rows))))
        lines.append(Line(((0, y + 2), (width, y + 2))))
        y += 4
    legend = {"stage0": "newest slice", "stage1": "the one before", "stage2": "oldest slice"}
    once = {"once": "runs once and stays"} if any(i.held for row in view.rows for i in row) else {}
    return Picture(
        width + 8, y + 22, f"Pipeline of group {view.index}: {len(view.rows)} rows", tuple(boxes), tuple(lines),
        texts=(*texts, *_row_numbers(view, y + 14)),
        legend={**legend, **once, **({"visitor": "for a neighbouring group, once"} if view.visits else {})},
    )  # fmt: skip


def _kind(item: EntryView, whose: str) -> str:
    if whose:
        return "visitor"
    return f"stage{item.stage if 0 <= item.stage <= 2 else 0}{' once' if item.held else ''}"


def _said(item: EntryView, verb: str, whose: str) -> str:
    stage = "" if whose else f", stage {item.stage}"
    return f"{verb} {item.tensor}{whose}{stage}{', once' if item.held else ''}, {item.bytes:,} bytes"


# ------------------------------------------------------------------------------------------------------------- timeline


def timeline(works: Sequence[Work]) -> Picture:
    """One track for each engine of each core, time across; ops as boxes."""
    end = max((w.stop for w in works), default=1.0) or 1.0
    tracks = {key: list(found) for key, found in groupby(sorted(works, key=_track), key=_track)}
    width, height = 1100.0, LINE + 6
    scale = (width - LEFT - 12) / end
    hues = {op: (i * GOLDEN) % 360 for i, op in enumerate(dict.fromkeys(w.op for w in works))}
    several = len({core for core, _ in tracks}) > 1
    boxes: list[Box] = []
    for i, found in enumerate(tracks.values()):
        for work, count in _put_together(found, end / MOST_WORKS):
            span = max((work.stop - work.start) * scale, 0.4)
            what = f"{work.op}, group {work.group}" if count == 1 else f"{count} ops, the first {work.op}"
            title = f"{what}: {work.start:,.0f} to {work.stop:,.0f} ns"
            at = (LEFT + work.start * scale, TOP + height * i, span, height - 4)
            boxes.append(Box(*at, "work", title, short(work.op, span) if count == 1 else "", hues[work.op]))
    names = [f"{found[0].engine.upper()}{f' {core}' if several else ''}" for (core, _), found in tracks.items()]
    bottom = TOP + height * len(tracks)
    return Picture(
        width, bottom + 20, f"Timeline of {len(works)} stretches of work on {len(tracks)} engines", tuple(boxes),
        texts=(
            *(Text(LEFT - 6, TOP + height * i + 15, name, "end") for i, name in enumerate(names)),
            *(Text(LEFT + end * scale * i / 4, bottom + 14, _time(end * i / 4), "middle") for i in range(4)),
            Text(LEFT + end * scale, bottom + 14, _time(end), "end"),
        ),
    )  # fmt: skip


def _track(work: Work) -> tuple[int, str]:
    return work.core, "" if work.engine == "tiu" else work.engine


def _put_together(found: Sequence[Work], least: float) -> Iterator[tuple[Work, int]]:
    """(work, number of merged works): works shorter than `least` are merged with their neighbours."""
    kept: list[Work] = []
    for work in sorted(found, key=lambda w: w.start):
        if kept and work.stop - kept[0].start > least:
            yield _whole(kept)
            kept = []
        kept.append(work)
    if kept:
        yield _whole(kept)


def _whole(kept: Sequence[Work]) -> tuple[Work, int]:
    first = kept[0]
    return Work(first.op, first.group, first.core, first.engine, first.start, kept[-1].stop), len(kept)


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f} µs" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:,.2f} ms"
