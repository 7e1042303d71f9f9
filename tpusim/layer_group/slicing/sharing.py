"""How a number of slices is shared over the axes of an image (layer_group.md 5, assign_dhwsecs)."""

from dataclasses import dataclass, replace

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.slicing.sections import element_bytes_of, extents
from tpusim.ops.framework.base import GroupType
from tpusim.schedule import Sections, Subgraph

MIN_ROW_BYTES = 256
"""A slice cut along w keeps rows of at least this many bytes if h alone could take all cuts (5)."""


@dataclass(frozen=True)
class Geometry:
    """The figures by which slices are divided over d, h and w: sums over the results with users."""

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
    """`sections` with at least `total` slices over d, h and w (assign_dhwsecs); None if so many are impossible."""
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
