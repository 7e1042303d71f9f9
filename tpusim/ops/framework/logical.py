"""Logical axes: how the layer-group compiler sees a tensor as (n, c, d, h, w), by group type (layer_group.md 3)."""

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Literal, TypeAlias

from tpusim.chips import ChipSpec

Shape: TypeAlias = tuple[int, ...]
Window: TypeAlias = tuple[int, int]
"""(index of the first element, number of elements) along one axis."""
Axis: TypeAlias = Literal["n", "c", "d", "h", "w"]
AXES: tuple[Axis, ...] = ("n", "c", "d", "h", "w")
PIPELINE_STAGES = 3
"""Load, compute, store: in iteration k of a group's loop, stage s works on step k - s (layer_group.md 8)."""
Windows: TypeAlias = tuple[Window, ...]
"""The window of each section along one axis."""
WHOLE: Window = (0, 1 << 30)
"""A whole axis; the caller clips it to the tensor."""
Extents: TypeAlias = tuple[int, int, int, int, int]
"""Extents of a tensor as (n, c, d, h, w)."""


class GroupType(IntEnum):
    """How the ops of a group see their tensors; the numbers are those of the IR."""

    NORMAL = 0
    """Axes from the left: n, c, h; w is all further axes."""
    GROUP_3D = 1
    """Five axes n, c, d, h, w; in a lane d is outside n (hardware.md 2.1)."""
    SMALL_C = 2
    """Leading axes are joined to fill the lanes; the last axis is h."""
    MM = 4
    """The layout of NORMAL, but the channels may be cut."""

    def __str__(self) -> str:
        return {0: "NORMAL", 1: "3D", 2: "SMALL_C", 4: "MM"}[self.value]


IMAGES = (GroupType.NORMAL, GroupType.GROUP_3D)
"""Types that may contain every op with a local form."""
WITH_SMALL_C, WITH_MM = (*IMAGES, GroupType.SMALL_C), (*IMAGES, GroupType.MM)
EVERY_TYPE = (*WITH_SMALL_C, GroupType.MM)


def logical_shape(shape: Shape) -> tuple[int, int, int, int]:
    """(n, c, h, w) of a tensor of any rank: left aligned, w the product of axes >= 3 (layer_group.md 3, NORMAL)."""
    n, c, h, *rest = (*shape, 1, 1, 1)
    return n, c, h, prod(rest)


def logical_axes(shape: Shape, kind: GroupType, chip: ChipSpec) -> Extents:
    """(n, c, d, h, w) of a tensor in a group of this type (layer_group.md 3)."""
    if kind is GroupType.SMALL_C:
        return _small_c(shape, chip.lanes)
    if kind is GroupType.GROUP_3D and len(shape) == 5:
        n, c, d, h, w = shape
        return n, c, d, h, w
    n, c, h, w = logical_shape(shape)
    return n, c, 1, h, w


def _small_c(shape: Shape, lanes: int) -> Extents:
    """(n, c, h) of the last axis as h: 1-D (1, 1, d0), 2-D (1, d0, d1), 3-D (1, d0*d1, d2).

    Above, c is the lanes if the rows fill them, else the second last axis.
    """
    if len(shape) < 2:
        return 1, 1, 1, prod(shape), 1
    rows, last = prod(shape[:-1]), shape[-1]
    if len(shape) < 4:
        return 1, rows, 1, last, 1
    if rows % lanes == 0:
        return rows // lanes, lanes, 1, last, 1
    return prod(shape[:-2]), shape[-2], 1, last, 1


def fills_lanes(shape: Shape, lanes: int) -> bool:
    """Whether a tensor suits a SMALL_C group (layer_group.md 3): its rows fill the lanes, or its channels are few."""
    if len(shape) == 3 and shape[0] > 4 and shape[1] == 197:
        return True
    if len(shape) in (4, 5) and shape[1] < lanes // 2 and shape[len(shape) - 2] > shape[1]:
        return True
    return len(shape) > 1 and prod(shape[:-1]) % lanes == 0


@dataclass(frozen=True)
class TensorSlice:
    """A window per logical axis of one tensor."""

    n: Window
    c: Window
    h: Window
    w: Window
    d: Window = (0, 1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, c, h, w) of the slice for commands in local memory: n is d*n with d outside (hardware.md 2.1)."""
        return self.d[1] * self.n[1], self.c[1], self.h[1], self.w[1]

    @classmethod
    def whole(cls, shape: Shape) -> "TensorSlice":
        """The whole tensor, by the axes of a NORMAL group."""
        n, c, h, w = logical_shape(shape)
        return cls((0, n), (0, c), (0, h), (0, w))
