"""Section counts: how often a group may be cut along each axis, and how a number of slices is shared (4, 5, 6)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa.layout import align, ceil_div
from tpusim.layer_group.graph import Subgraph
from tpusim.ops.base import Axis, GroupType, TpuOp, Window
from tpusim.ops.logical import AXES, Extents, logical_axes

MIN_ROW_BYTES = 256
"""A slice of a group output that is cut along w keeps rows of this many bytes while h could take all cuts (5)."""


@dataclass(frozen=True)
class Sections:
    """Section counts of a group."""

    n: int = 1
    c: int = 1
    d: int = 1
    h: int = 1
    w: int = 1

    @property
    def steps(self) -> int:
        """Iterations of the group's loop."""
        return self.n * self.c * self.d * self.h * self.w

    @property
    def image(self) -> int:
        """Slices of one image: the total over d, h and w."""
        return self.d * self.h * self.w

    def count(self, axis: Axis) -> int:
        """Sections along an axis."""
        return getattr(self, axis)

    def within(self, limit: "Sections") -> bool:
        """Whether no count is above the limit's."""
        return all(self.count(axis) <= limit.count(axis) for axis in AXES)

    def __str__(self) -> str:
        shown = ((axis, self.count(axis)) for axis in AXES)
        return ", ".join(f"{axis}secs={count}" for axis, count in shown if axis in "nh" or count > 1)


def extents(value: SSAValue, graph: Subgraph, chip: ChipSpec) -> Extents:
    """(n, c, d, h, w) of a tensor of the group."""
    return graph.memo.get(("extents", value, graph.kind), lambda: logical_axes(shape_of(value), graph.kind, chip))


def element_bytes_of(value: SSAValue) -> int:
    """Bytes of one element."""
    return storage_dtype(element_of(value)).itemsize


def common_batch(graph: Subgraph, chip: ChipSpec) -> int:
    """Batches are cut in multiples of this: one packed tensor holds all others to whole words."""
    if not chip.batch_packing:
        return 1
    return max(chip.batch_factor(element_bytes_of(v)) for v in graph.values)


# ------------------------------------------------------------------------------------------------ 4: the largest counts


def possible_sections(graph: Subgraph, chip: ChipSpec) -> Sections:
    """The largest section counts that give right slices, however slow (layer_group.md 4 without its DMA rule)."""
    batch = common_batch(graph, chip)
    most = [1 << 30] * len(AXES)
    for op in graph.ops:
        found = graph.memo.get(("units", op, graph.kind, batch), lambda op=op: _units_of(op, batch, graph, chip))
        most = [min(pair) for pair in zip(most, found, strict=True)]
    return Sections(*most)


def _units_of(op: TpuOp, batch: int, graph: Subgraph, chip: ChipSpec) -> tuple[int, ...]:
    """Into how many slices each axis of the op's result can be cut."""
    lengths = extents(op.results[0], graph, chip)
    return tuple(
        _units(axis, length, batch, graph, chip) if graph.cuts(op, axis) else 1
        for axis, length in zip(AXES, lengths, strict=True)
    )


def _units(axis: Axis, length: int, batch: int, graph: Subgraph, chip: ChipSpec) -> int:
    """Into how many slices an axis of this length can be cut."""
    if axis == "n":
        return ceil_div(length, batch)
    if axis == "c":  # at whole rows of lanes, so that every slice starts at lane 0
        return ceil_div(length, chip.lanes) if graph.kind in (GroupType.MM, GroupType.SMALL_C) else 1
    if axis == "d":
        return length if graph.kind is GroupType.GROUP_3D and chip.cuts_depth_and_width else 1
    return length if axis == "h" or chip.cuts_depth_and_width else 1


def max_sections(graph: Subgraph, chip: ChipSpec) -> Sections:
    """The largest section counts that the search tries: rows that the DMA moves at once are not cut (section 4)."""
    limit = possible_sections(graph, chip)
    for op in graph.ops:
        result = op.results[0]
        if limit.w > 1 and extents(result, graph, chip)[4] * element_bytes_of(result) <= chip.dma_align_bytes:
            return replace(limit, w=1)
    return limit


# ---------------------------------------------------------------------------------------------------- 6: output slices


def even_windows(length: int, sections: int, step: int = 1) -> tuple[Window, ...]:
    """Near-even cuts, the first (length mod sections) one longer; with a step, sizes are multiples of it."""
    if step > 1:
        size = align(ceil_div(length, sections), step)
        return tuple((i, min(size, length - i)) for i in range(0, length, size))
    base, longer = divmod(length, sections)
    return _in_turn(base + (i < longer) for i in range(sections))


def lane_windows(channels: int, sections: int, lanes: int) -> tuple[Window, ...]:
    """Near-even cuts in whole rows of lanes, the last clipped: every slice starts at lane 0 (section 6)."""
    rows = even_windows(ceil_div(channels, lanes), sections)
    return tuple((start * lanes, min(size * lanes, channels - start * lanes)) for start, size in rows)


def _in_turn(sizes: Iterable[int]) -> tuple[Window, ...]:
    found: list[Window] = []
    end = 0
    for size in sizes:
        if size:
            found.append((end, size))
        end += size
    return tuple(found)


# ---------------------------------------------------------------------------------------- 5: sharing a number of slices


@dataclass(frozen=True)
class Geometry:
    """What sharing a number of slices over d, h and w looks at: sums over the results that have users."""

    depth: int
    height: int
    width: int
    rows: tuple[tuple[int, int], ...]
    """(w, bytes per element) of every group output."""

    @classmethod
    def of(cls, graph: Subgraph, chip: ChipSpec) -> "Geometry":
        """The sums of a group."""
        used = [extents(op.results[0], graph, chip) for op in graph.ops if op.results[0].first_use is not None]
        rows = tuple((extents(v, graph, chip)[4], element_bytes_of(v)) for v in graph.outputs)
        depth, height, width = (max(sum(e[i] for e in used), 1) for i in (2, 3, 4))
        return cls(depth, height, width, rows)


def shared(total: int, limit: Sections, sections: Sections, graph: Subgraph, chip: ChipSpec) -> Sections | None:
    """`sections` with at least `total` slices over d, h and w (assign_dhwsecs); None if there are not so many."""
    geometry = Geometry.of(graph, chip)
    if graph.kind is not GroupType.GROUP_3D:
        return _over_h_and_w(total, limit, sections, geometry)
    if chip.balances_depth:
        return _over_d_and_h(total, limit, sections, geometry)
    d = min(total, limit.d)
    return _overflow(sections, d, ceil_div(total, d), limit)


def _over_h_and_w(total: int, limit: Sections, sections: Sections, geometry: Geometry) -> Sections | None:
    """The cheapest by int((h - 1) + (w - 1)*sum of heights/sum of widths); among equals the most along h."""
    best: tuple[int, Sections] | None = None
    for h in range(min(total, limit.h), 0, -1):
        w = ceil_div(total, h)
        if w > limit.w:
            break  # fewer along h need more along w
        if w > 1 and total < limit.h and any(ceil_div(row, w) * size < MIN_ROW_BYTES for row, size in geometry.rows):
            continue
        cost = int((h - 1) + (w - 1) * geometry.height / geometry.width)
        if best is None or cost < best[0]:
            best = cost, replace(sections, h=h, w=w)
    return None if best is None else best[1]


def _over_d_and_h(total: int, limit: Sections, sections: Sections, geometry: Geometry) -> Sections | None:
    """The cheapest by (d - 1) + (h - 1)*sum of depths/sum of heights; what d and h cannot take overflows to w."""
    if total > limit.d * limit.h:
        return _overflow(sections, limit.d, ceil_div(total, limit.d), limit)
    pairs = ((d, ceil_div(total, d)) for d in range(1, min(total, limit.d) + 1))
    able = [(d, h) for d, h in pairs if h <= limit.h]
    d, h = min(able, key=lambda p: int((p[0] - 1) + (p[1] - 1) * geometry.depth / geometry.height))
    return replace(sections, d=d, h=h, w=1)


def _overflow(sections: Sections, d: int, rest: int, limit: Sections) -> Sections | None:
    h = min(rest, limit.h)
    w = ceil_div(rest, h)
    return replace(sections, d=d, h=h, w=w) if w <= limit.w else None
