"""Attributes of windows that slide over an image or a volume, from the form in which front ends state them."""

from collections.abc import Sequence
from typing import TypedDict

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from tpusim.ir.attrs import ints_attr
from tpusim.ops.framework.logical import Shape

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class ConvWindow(TypedDict, total=False):
    """How the filter of a convolution moves; by default one step, no pads, no dilation.

    kernel_shape: extents of the filter, which the filter states too. strides, dilations: one per axis. pads: before
    each axis, then after each axis. auto_pad: VALID means no pads. SAME_UPPER and SAME_LOWER mean size/stride outputs,
    with an odd pad after or before.
    """

    kernel_shape: Sequence[int]
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    auto_pad: str


class DeconvWindow(ConvWindow, total=False):
    """As a convolution's. output_padding: elements added after each axis. output_shape: extents that fix the pads."""

    output_padding: Sequence[int]
    output_shape: Sequence[int] | None


class PoolWindow(ConvWindow, total=False):
    """As a convolution's. ceil_mode: a last window may reach beyond the pads; pads after the axis are added for it."""

    ceil_mode: bool


def require_auto_pad(auto_pad: str) -> None:
    """Raise ValueError for an unknown rule."""
    if auto_pad not in AUTO_PADS:
        raise ValueError(f"auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER is required, got {auto_pad!r}")


def window_attributes(
    spatial: Shape,
    *,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> dict[str, ArrayAttr[Attribute]]:
    """kernel_shape, strides, pads and dilations of a 2-D or 3-D window over an input of extents `spatial`.

    A 1-D window becomes a column: (k, 1) over (w, 1). Raises ValueError for extents that do not go together.
    """
    kernel = tuple(kernel_shape)
    if len(kernel) not in (1, 2, 3) or len(spatial) != len(kernel):
        raise ValueError(f"a 1-D, 2-D or 3-D kernel_shape is required, got {list(kernel)}")
    strides, dilations = (tuple(v) or (1,) * len(kernel) for v in (strides, dilations))
    pads = list(pads) or [0, 0] * len(kernel)
    if (len(strides), len(dilations), len(pads)) != (len(kernel), len(kernel), 2 * len(kernel)):
        raise ValueError(
            f"{len(kernel)} strides and dilations and {2 * len(kernel)} pads are required, got {list(strides)}, "
            f"{list(dilations)} and {list(pads)}"
        )
    if min(*kernel, *strides, *dilations) < 1:
        raise ValueError(
            f"a kernel_shape, strides and dilations of 1 or more are required, got {list(kernel)}, {list(strides)} and "
            f"{list(dilations)}"
        )
    if len(kernel) == 1:
        spatial, kernel, strides, dilations = (*spatial, 1), (*kernel, 1), (*strides, 1), (*dilations, 1)
        pads = [pads[0], 0, pads[1], 0]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _resolved(pads, auto_pad, spatial, reach, strides)
    if ceil_mode:
        for i in range(len(kernel)):
            pads[i + len(kernel)] += _ceil_extra(spatial[i], reach[i], strides[i], pads[i], pads[i + len(kernel)])
    return {
        "kernel_shape": ints_attr(kernel), "strides": ints_attr(strides), "pads": ints_attr(pads),
        "dilations": ints_attr(dilations),
    }  # fmt: skip


def _resolved(pads: list[int], auto_pad: str, spatial: Shape, reach: list[int], strides: Sequence[int]) -> list[int]:
    """The pads of `auto_pad`, or those that are given if it is NOTSET."""
    require_auto_pad(auto_pad)
    if auto_pad == "NOTSET":
        return pads
    before, after = list[int](), list[int]()
    for size, extent, stride in zip(spatial, reach, strides, strict=True):
        total = 0 if auto_pad == "VALID" else max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto_pad == "SAME_UPPER" else large)
        after.append(large if auto_pad == "SAME_UPPER" else small)
    return [*before, *after]


def _ceil_extra(size: int, reach: int, stride: int, before: int, after: int) -> int:
    """Padding at the end with which the output extent is rounded up (ceil_mode) instead of down."""
    span = size + before + after - reach
    out = -(-span // stride) + 1
    if (out - 1) * stride >= size + before:
        out -= 1  # no window starts in the padding at the end
    return max((out - 1) * stride - span, 0)
