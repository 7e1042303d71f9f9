"""Sections and slices: the number of cuts along each axis, and the window of a tensor in each step."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from tpusim.ops.framework.base import Axis, TensorSlice, Window
from tpusim.ops.framework.logical import AXES, Extents, Windows

LOOP_ORDER: tuple[Axis, ...] = ("n", "d", "h", "w", "c")
"""The axes of the loop over sections, the slowest first (layer_group.md 15)."""


class Step(NamedTuple):
    """One step of a group's loop: the index of the section along each axis."""

    n: int = 0
    c: int = 0
    d: int = 0
    h: int = 0
    w: int = 0

    def text(self) -> str:
        """Short form for commands and messages: "n0h2"."""
        extra = "".join(f"{a}{i}" for a, i in (("c", self.c), ("d", self.d), ("w", self.w)) if i)
        return f"n{self.n}h{self.h}{extra}"


@dataclass(frozen=True)
class Sections:
    """Into how many sections a group cuts each axis; 1 does not cut."""

    n: int = 1
    c: int = 1
    d: int = 1
    h: int = 1
    w: int = 1

    @property
    def steps(self) -> int:
        """The number of steps of the group's loop: the product of the sections."""
        return self.n * self.c * self.d * self.h * self.w

    @property
    def image(self) -> int:
        """Slices of one image: the total over d, h and w."""
        return self.d * self.h * self.w

    @cached_property
    def loop(self) -> tuple[Step, ...]:
        """All steps in the order of the loop: c fastest, then w, h, d, n."""
        counts = (range(self.count(axis)) for axis in LOOP_ORDER)
        return tuple(Step(**dict(zip(LOOP_ORDER, at, strict=True))) for at in product(*counts))

    def count(self, axis: Axis) -> int:
        """The number of sections along an axis."""
        return getattr(self, axis)

    def within(self, limit: "Sections") -> bool:
        """Whether no count is above the limit's."""
        return all(self.count(axis) <= limit.count(axis) for axis in AXES)

    def __str__(self) -> str:
        shown = ((axis, self.count(axis)) for axis in AXES)
        return ", ".join(f"{axis}secs={count}" for axis, count in shown if axis in "nh" or count > 1)


@dataclass(frozen=True)
class ValueSlices:
    """Windows of one tensor, one list per axis; the slices are their Cartesian product.

    A list has one window per section of its axis. If every list has a single window, the tensor is loaded once and
    stays.
    """

    n: Windows
    c: Windows
    d: Windows
    h: Windows
    w: Windows

    @classmethod
    def of(cls, lengths: Extents) -> "ValueSlices":
        """One slice that is the whole tensor of these extents."""
        return cls(*(((0, length),) for length in lengths))

    @cached_property
    def largest(self) -> tuple[int, int, int, int]:
        """(n, c, h, w) of the largest slice as stored in a lane: n counts d*n."""
        n, c, d, h, w = self.sizes
        return d * n, c, h, w

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The largest size along each axis."""
        return tuple(max(size for _, size in windows) for windows in self.axes)

    @cached_property
    def resident(self) -> bool:
        """Whether the tensor has a single slice."""
        return all(len(windows) == 1 for windows in self.axes)

    @property
    def axes(self) -> tuple[Windows, ...]:
        """The windows along every axis, in the order of AXES."""
        return self.n, self.c, self.d, self.h, self.w

    def along(self, axis: Axis) -> Windows:
        """The (offset, extent) of each slice along an axis."""
        return getattr(self, axis)

    def at(self, step: Step) -> TensorSlice:
        """The slice of a step; a list shorter than the loop repeats."""
        n, c, d, h, w = (windows[i % len(windows)] for windows, i in zip(self.axes, step, strict=True))
        return TensorSlice(n, c, h, w, d)

    def sizes_at(self, step: Step) -> tuple[int, ...]:
        """The size of a step's slice along each axis."""
        if self.resident:
            return self.sizes
        return tuple([windows[i % len(windows)][1] for windows, i in zip(self.axes, step, strict=True)])

    def oversteps(self, step: Step) -> bool:
        """Whether a list has no separate window for the step, so that the tensor stays in place."""
        return any(i >= len(windows) for windows, i in zip(self.axes, step, strict=True))

    @cached_property
    def unshared(self) -> "ValueSlices":
        """The windows without the part that an earlier window along the axis contains.

        A stored tensor with users in its group may have halos. No two steps may store the same element, because steps
        of different cores are not ordered.
        """
        return ValueSlices(*map(_unshared, self.axes))


def _unshared(windows: Windows) -> Windows:
    found: list[Window] = []
    end = 0
    for start, size in windows:
        first = max(start, end)
        found.append((first, max(start + size - first, 0)))
        end = max(end, start + size)
    return tuple(found)
