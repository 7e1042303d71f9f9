"""Sections: how many, the output slices they mean, and the input windows those need (layer_group.md 4 to 7)."""

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa.layout import align, ceil_div
from tpusim.layer_group.graph import Subgraph, users_inside
from tpusim.ops.base import Axis, TpuOp, Window, logical_shape

AXES: tuple[Axis, ...] = ("n", "h")
"""Axes that are cut in this version; c, d and w are whole."""


@dataclass(frozen=True)
class Sections:
    """Section counts of a group."""

    n: int = 1
    h: int = 1

    @property
    def steps(self) -> int:
        """Iterations of the group's loop."""
        return self.n * self.h

    def count(self, axis: Axis) -> int:
        """Sections along an axis."""
        return {"n": self.n, "h": self.h}.get(axis, 1)


@dataclass(frozen=True)
class ValueSlices:
    """Windows of one tensor, one list per axis; the slices are their Cartesian product."""

    n: tuple[Window, ...]
    c: tuple[Window, ...]
    h: tuple[Window, ...]
    w: tuple[Window, ...]

    @property
    def largest(self) -> tuple[int, int, int, int]:
        """(n, c, h, w) of the largest slice."""
        return tuple(max(size for _, size in axis) for axis in (self.n, self.c, self.h, self.w))  # type: ignore[return-value]

    @classmethod
    def whole(cls, value: SSAValue) -> "ValueSlices":
        """One slice: the whole tensor."""
        n, c, h, w = logical_shape(shape_of(value))
        return cls(((0, n),), ((0, c),), ((0, h),), ((0, w),))


class SliceError(Exception):
    """A cut that cannot be made; the text says where and why."""


def max_sections(graph: Subgraph, chip: ChipSpec) -> Sections:
    """The largest section counts every op allows (layer_group.md 4)."""
    n, h = 1 << 30, 1 << 30
    batch = _common_batch(graph, chip)
    for op in graph.ops:
        shape = logical_shape(shape_of(op.results[0]))
        n = min(n, ceil_div(shape[0], batch) if op.can_slice("n") else 1)
        h = min(h, shape[2] if op.can_slice("h") else 1)
    return Sections(n, h)


def _batch_align(value: SSAValue, chip: ChipSpec) -> int:
    return chip.batch_factor(storage_dtype(element_of(value)).itemsize)


def _common_batch(graph: Subgraph, chip: ChipSpec) -> int:
    """Batches are cut in multiples of this: one packed tensor holds all others to whole words."""
    return max(_batch_align(v, chip) for v in graph.values)


def even_windows(length: int, sections: int, step: int = 1) -> tuple[Window, ...]:
    """Near-even cuts, the first (length mod sections) one longer; with a step, sizes are multiples of it."""
    if step > 1:
        size = align(ceil_div(length, sections), step)
        return tuple((i, min(size, length - i)) for i in range(0, length, size))
    base, longer = divmod(length, sections)
    sizes = [base + (i < longer) for i in range(sections)]
    return tuple((sum(sizes[:i]), s) for i, s in enumerate(sizes) if s)


def slice_group(graph: Subgraph, sections: Sections, chip: ChipSpec) -> dict[SSAValue, ValueSlices]:
    """Windows of every tensor of the group for these sections. Raises SliceError if they cannot be made."""
    slices: dict[SSAValue, ValueSlices] = {w: ValueSlices.whole(w) for w in graph.weights}
    batch = _common_batch(graph, chip)
    for value in reversed((*graph.inputs, *(op.results[0] for op in graph.ops))):
        windows: dict[Axis, tuple[Window, ...]] = {}
        for axis in AXES:
            windows[axis] = _needed(value, axis, graph, sections, slices, batch, chip)
        _, c, _, w = logical_shape(shape_of(value))
        slices[value] = ValueSlices(windows["n"], ((0, c),), windows["h"], ((0, w),))
    if any(len(s.n) not in (1, sections.n) or len(s.h) not in (1, sections.h) for s in slices.values()):
        raise SliceError(f"fewer slices than the {sections.n}x{sections.h} sections asked for")
    return slices


def _length(value: SSAValue, axis: Axis) -> int:
    return logical_shape(shape_of(value))["nchw".index(axis)]


def _needed(
    value: SSAValue,
    axis: Axis,
    graph: Subgraph,
    sections: Sections,
    slices: Mapping[SSAValue, ValueSlices],
    batch: int,
    chip: ChipSpec,
) -> tuple[Window, ...]:
    """The windows all users of `value` need along `axis`; their union where they differ."""
    length, count = _length(value, axis), sections.count(axis)
    if count == 1:
        return ((0, length),)
    requests: list[tuple[Window, ...]] = []
    if value in graph.outputs:
        requests.append(even_windows(length, count, batch if axis == "n" else 1))
    users = users_inside(value, graph.ops)
    for user, index in users:
        requests.append(_backward(user, index, axis, getattr(slices[user.results[0]], axis), length, chip))
    if all(r == requests[0] for r in requests):
        return requests[0]
    return _union(requests, [user for user, _ in users], axis)


def _backward(
    user: TpuOp, index: int, axis: Axis, outputs: tuple[Window, ...], length: int, chip: ChipSpec
) -> tuple[Window, ...]:
    """The operand windows for a user's output windows, clipped to the tensor (layer_group.md 7.2 fixSlice)."""
    found: list[Window] = []
    broadcast = length == 1 and _length(user.results[0], axis) != 1
    for i, window in enumerate(outputs):
        if broadcast:
            found.append((0, 1))
            continue
        need = user.backward_slice(axis, window, index)
        if need is None:
            raise SliceError(f"{user.name} cannot be cut along {axis}")
        start = max(need[0], 0)
        end = length if i == len(outputs) - 1 else min(max(need[0], 0) + need[1] - max(-need[0], 0), length)
        if end <= start:
            raise SliceError(f"{user.name}: an empty window along {axis}")
        if chip.batch_packing and axis == "h" and i and (start == 0 or end == sum(found[-1])):
            raise SliceError(f"{user.name}: a window along {axis} makes no progress")
        found.append((start, end - start))
    return tuple(found)


def _union(requests: list[tuple[Window, ...]], users: list[TpuOp], axis: Axis) -> tuple[Window, ...]:
    """Users that need different windows share the union; each must be able to read a part (layer_group.md 7.3)."""
    reluctant = [u.name for u in users if not u.accepts_margins()]
    if reluctant:
        raise SliceError(f"users need different windows along {axis} and {reluctant[0]} cannot read a part of a slice")
    if axis == "n":
        raise SliceError("users need different batches")
    union: list[Window] = []
    for windows in zip(*requests, strict=True):
        start, end = min(w[0] for w in windows), max(w[0] + w[1] for w in windows)
        if max(w[0] for w in windows) >= min(w[0] + w[1] for w in windows):
            raise SliceError(f"users need disjoint windows along {axis}")
        union.append((start, end - start))
    return tuple(union)
