"""`tpusim group --show`: a grouped module as text, in lines of any width."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import ceil
from typing import Any

from tpusim.host.labels import cut
from tpusim.layer_group.files import Area, EntryView, GlobalView, GroupView, packed, view_number

WIDTH = 120
"""The width in columns, unless the terminal has another."""
ABREAST = 100
"""From this width on, computing, loads and stores of a row are printed next to each other."""
SMALL = 16
"""Groups of at most this many rows are always shown in full."""
PER_BLOCK = 24
"""So many rows are next to each other in one block of the map."""
NAME = 28
"""The least width of a tensor's name in a wide terminal."""
SHORT = 16
"""The least width of a tensor's name in a narrow terminal."""
STAGE = ("load", "compute", "store")


def as_json(view: GroupView | GlobalView) -> dict[str, Any]:
    """A group or global layer for scripts."""
    if isinstance(view, GlobalView):
        return asdict(view)
    return {
        "index": view.index, "ops": [name for name, _ in view.ops], "type": view.kind, "sections": dict(view.sections),
        "rows": len(view.rows), "lmem_peak_bytes": view.peak, "lmem_bytes": view.chip.lmem_bytes,
    }  # fmt: skip


def wrapped(first: str, parts: Sequence[str], indent: int, width: int = WIDTH) -> Iterator[str]:
    """`first` followed by the parts, separated by commas, over as many lines as they need."""
    line = first
    for i, part in enumerate(parts):
        piece = cut(part, width - indent - 1) + ("," if i < len(parts) - 1 else "")
        if len(line) + 1 + len(piece) > width:
            yield line.rstrip()
            line = " " * indent + piece
        else:
            line = f"{line} {piece}" if line.strip() else " " * indent + piece
    yield line.rstrip()


def packing_lines(views: Sequence[GroupView | GlobalView], only: int | None = None) -> Iterator[str]:
    """The least local memory of each group, or of group `only`. Raises ConfigError without OR-Tools."""
    yield "Packing of local memory (bytes per lane; CP-SAT, banks left out):"
    for view in views if only is None else [view_number(views, only)]:
        if isinstance(view, GlobalView):
            continue
        if view.overlaps:
            yield f"  group {view.index}: areas share bytes that must not (OVERLAP above)"
            continue
        found = packed(view)
        enough = f"{found.found:,} are enough and needed" if found.exact else f"{found.found:,} are enough"
        bound = "" if found.exact else f", {found.least:,} are needed at least (not settled in time)"
        more = found.peak / found.found - 1
        yield f"  group {view.index}: {found.peak:,} taken, {enough}{bound}" + (f": {more:.1%} more" if more else "")


def show(views: Sequence[GroupView | GlobalView], only: int | None = None, width: int = WIDTH) -> Iterator[str]:
    """Lines for all groups and global layers, large groups shortened; or for number `only` alone, in full.

    Raises ConfigError if the module has no such number.
    """
    count = sum(view.index is not None for view in views)
    for view in views if only is None else [view_number(views, only)]:
        if isinstance(view, GlobalView):
            yield from _global_lines(view, count, width)
        else:
            yield from group_lines(view, count, whole=only is not None or len(view.rows) <= SMALL, width=width)
        if only is None:
            yield ""


def _global_lines(view: GlobalView, count: int, width: int) -> Iterator[str]:
    head = f"View {view.name}" if view.index is None else f"Global layer {view.index} of {count}: {view.name}"
    reasons = (view.reason or "no reason given").split(", ")
    yield from wrapped(cut(f"{head} ({view.op}):", width), reasons, 2, width)


def group_lines(view: GroupView, count: int, *, whole: bool, width: int = WIDTH) -> Iterator[str]:
    """Head, rows and map of one group; only the head if not `whole`."""
    chip = view.chip
    sections = " ".join(f"{axis}={n}" for axis, n in view.sections.items())
    steps = f"{view.steps} step{'s' if view.steps > 1 else ''}"
    if view.cores > 1:
        share = ceil(view.steps / view.cores)
        steps += f", {share} on each of {ceil(view.steps / share)} cores" if view.steps > 1 else " on core 0"
    about = [f"sections {sections} ({steps})", f"{len(view.ops)} ops", f"{len(view.rows)} rows"]
    yield from wrapped(f"Group {view.index} of {count}: type {view.kind},", about, 2, width)
    share = view.peak / chip.lmem_bytes
    yield f"  local memory: peak {view.peak:,} of {chip.lmem_bytes:,} bytes per lane ({share:.0%})"
    for one, other in view.overlaps[:4]:
        yield f"  OVERLAP: {cut(one.name, NAME)} and {cut(other.name, NAME)} are alive in one row and share bytes"
    taken = [f"{cut(a.name, NAME)} takes the bytes of {cut(a.in_place_of, NAME)}" for a in view.areas if a.in_place_of]
    if taken:
        yield from wrapped("  in place:", taken, 12, width)
    yield from wrapped("  ops:", [f"{name} ({op})" for name, op in view.ops], 7, width)
    if not whole:
        yield f"  {len(view.rows)} rows, {len(view.areas)} areas: --group {view.index} shows them"
        return
    yield from _row_lines(view, width) if width >= ABREAST else _entry_lines(view, width)
    yield from _overlap_lines(view, width)
    yield from _map_lines(view, width)


def _overlap_lines(view: GroupView, width: int) -> Iterator[str]:
    """The transfers that the group and its neighbours do for each other."""
    for visit in view.visits:
        when, verb = ("last", "loads") if visit.item.engine == "load" else ("first", "stores")
        yield cut(
            f"  for group {visit.group}: row {visit.row} of the {when} computing iteration also {verb} "
            f"{cut(visit.item.tensor, NAME)} {visit.item.bytes:,} (local bytes {visit.address:,} to "
            f"{visit.address + visit.size - 1:,})", width,
        )  # fmt: skip
    for item in view.given:
        other, verb = (view.index - 1, "load") if item.engine == "load" else (view.index + 1, "store")
        step = "first" if item.engine == "load" else "last"
        yield cut(f"  by group {other}: the {verb} of {cut(item.tensor, NAME)} for the {step} step", width)


def _row_lines(view: GroupView, width: int) -> Iterator[str]:
    yield ""
    yield from _legend(width)
    tiu_width, load_width = (width - 7) * 30 // 100, (width - 7) * 39 // 100
    widths = tiu_width - 2, load_width - 2, width - 7 - tiu_width - load_width
    yield f"  {'row':>3}  {'TIU computes':<{tiu_width}}{'GDMA loads (bytes)':<{load_width}}GDMA stores (bytes)"
    for number, row in enumerate(view.rows):
        columns = [_cell(row, name, size) for name, size in zip(("TIU", "load", "store"), widths, strict=True)]
        for i in range(max(1, *(len(c) for c in columns))):
            tiu, load, store = (c[i] if i < len(c) else "" for c in columns)
            head = f"{number:>3}" if i == 0 else "   "
            yield f"  {head}  {tiu:<{tiu_width}}{load:<{load_width}}{store}".rstrip()


def _entry_lines(view: GroupView, width: int) -> Iterator[str]:
    """As `_row_lines` for narrow terminals: a line for each entry of a row."""
    yield ""
    yield from _legend(width)
    for number, row in enumerate(view.rows):
        found = [(name, cell) for name in ("TIU", "load", "store") for cell in _cell(row, name, width - 14)]
        for i, (name, cell) in enumerate(found or [("", "")]):
            yield f"  {number if i == 0 else '':>3}  {name:<5}  {cell}".rstrip()


def _legend(width: int) -> Iterator[str]:
    stages = ("@0 works for the newest slice", "@1 for the one before", "@2 for the oldest")
    yield from wrapped("  rows of the loop, bytes of transfers; @ is the stage:", stages, 4, width)
    yield "  * runs once and stays (held)"


def _cell(row: Sequence[EntryView], engine: str, width: int) -> list[str]:
    """One entry of a row per line."""
    found: list[str] = []
    for item in row:
        if item.engine == engine:
            tail = f" @{item.stage}" + ("*" if item.held else "")
            tail += "" if engine == "TIU" else f" {item.bytes:,}"
            found.append(cut(item.tensor, width - len(tail)) + tail)
    return found


def _map_lines(view: GroupView, width: int) -> Iterator[str]:
    yield ""
    marks = ("L loaded", "W computed", "R read", "S stored", "· alive", "H held")
    yield from wrapped("  local memory by row, bytes per lane;", marks, 4, width)
    room = width - len(_place(0, 0, "")) - 1
    least = min(NAME, max(SHORT, room - 3 * len(view.rows)))
    count = max(1, min(len(view.rows), PER_BLOCK, (room - least) // 3))
    name = max(least, min(room - 3 * count, max((len(a.name) + a.held for a in view.areas), default=NAME)))
    for block in range(ceil(len(view.rows) / count)):
        rows = range(block * count, min((block + 1) * count, len(view.rows)))
        yield f"  {'from':>9} {'to':>9} {'bank':>5}  {'tensor':<{name}} " + "".join(f"{r:>2} " for r in rows).rstrip()
        for area in view.areas:
            if any(r in area.rows for r in rows):
                yield _area_line(view, area, rows, name)


def _place(first: int, last: int, bank: str) -> str:
    return f"  {first:>9,} {last:>9,} {bank:>5}  "


def _area_line(view: GroupView, area: Area, rows: range, width: int) -> str:
    first, last = area.banks(view.chip)
    bank = str(first) if first == last else f"{first}-{last}"
    cells = "".join(f"{_mark(area, r):>2} " for r in rows)
    place = _place(area.address, max(area.end - 1, area.address), bank)
    return f"{place}{_named(area, width):<{width}} {cells}".rstrip()


def _named(area: Area, width: int) -> str:
    """The tensor's name, with a star if it is held."""
    return cut(area.name, width - 1) + "*" if area.held else cut(area.name, width)


def _mark(area: Area, row: int) -> str:
    mark = "".join(dict.fromkeys(area.marks.get(row, "")))
    if mark:
        return mark[-2:]
    return "" if row not in area.rows else "H" if area.held else "·"
