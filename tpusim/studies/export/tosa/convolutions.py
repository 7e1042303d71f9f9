"""Convolutions of both dialects: channels last, whole strides, groups, and inserted elements."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import f32, i8, i32
from xdsl.ir import Attribute

from tpusim.ir.attrs import ints
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.conv.top import TopConv
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.conv.volume import TpuConv3D
from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.deconv.volume import TpuDeconv3D
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import relu_of, zero_point
from tpusim.studies.export.tosa.elements import fused_relu
from tpusim.studies.export.tosa.forms import writes
from tpusim.studies.export.tosa.graph import Tensor, longs
from tpusim.studies.export.tosa.walk import Writer, from_last, to_last


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution: pads are all befores, then all afters."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    @classmethod
    def of(cls, geometry: dict[str, Any]) -> "Window":
        """From the op's geometry."""
        return cls(
            tuple(geometry["strides"]), tuple(geometry["pads"]), tuple(geometry["dilations"]), geometry["groups"]
        )

    def sides(self, axis: int) -> tuple[int, int]:
        """Elements before and after an axis."""
        return self.pads[axis], self.pads[len(self.strides) + axis]

    @property
    def padding(self) -> Attribute:
        """The attribute `pad`: elements before and after each axis in turn."""
        return longs([count for axis in range(len(self.strides)) for count in self.sides(axis)])

    def places(self, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """How many windows of a kernel fit along each axis of an input."""
        return [
            (size + sum(self.sides(i)) - (kernel[i] - 1) * self.dilations[i] - 1) // self.strides[i] + 1
            for i, size in enumerate(sizes)
        ]


def convolved(
    g: Writer, x: Tensor, w: np.ndarray | Tensor, bias: np.ndarray | Tensor | None, window: Window, zero: int = 0
) -> Tensor:
    """Sums of products of x (n, axes ..., c) and w (oc, c/groups, axes ...), channels last, in f32 or i32.

    zero: the stored number that stands for 0, which pads have.
    """
    shape = w.shape
    x, window = whole_windows(g, x, shape[2:], window)
    ic, groups = x.shape[-1], window.groups
    if bias is None:
        bias = np.zeros(1, np.float32 if x.is_float else np.int32)
    if isinstance(w, np.ndarray) and groups == ic > 1 and len(shape) == 4:  # noqa: PLR2004
        return _depthwise(g, x, w, bias, window, zero)
    if groups == 1:
        return _dense(g, x, w, bias, window, zero)
    parts: list[Tensor] = []
    many, each = shape[0] // groups, ic // groups
    for group in range(groups):
        part = g.slice(x, [0] * (x.rank - 1) + [group * each], [*x.shape[:-1], each])
        rows = slice(group * many, (group + 1) * many)
        if isinstance(w, np.ndarray):
            filter: np.ndarray | Tensor = w[rows]
        else:
            filter = g.slice(w, [group * many] + [0] * (w.rank - 1), [many, *w.shape[1:]])
        term = bias if isinstance(bias, Tensor) or bias.size == 1 else bias[rows]
        if isinstance(bias, Tensor) and bias.shape[0] > 1:
            term = g.slice(bias, [group * many], [many])
        parts.append(_dense(g, part, filter, term, window, zero))
    return g.concat(parts, x.rank - 1)


def whole_windows(g: Writer, x: Tensor, kernel: Sequence[int], window: Window) -> tuple[Tensor, Window]:
    """The input and pads without what no window reads, since in TOSA strides fit; negative pads cut the input."""
    befores, afters = list[int](), list[int]()
    sizes, starts = list(x.shape), [0] * x.rank
    for axis, extent in enumerate(kernel):
        before, after = window.sides(axis)
        over = x.shape[1 + axis] + before + after - (extent - 1) * window.dilations[axis] - 1
        after -= over % window.strides[axis]
        starts[1 + axis] = max(-before, 0)
        sizes[1 + axis] += min(before, 0) + min(after, 0)
        befores.append(max(before, 0))
        afters.append(max(after, 0))
    found = Window(window.strides, (*befores, *afters), window.dilations, window.groups)
    return g.slice(x, starts, sizes), found


def _added(
    g: Writer,
    name: str,
    x: Tensor,
    w: Tensor,
    bias: np.ndarray | Tensor,
    window: Window,
    zero: int,
    oc: int,
    kernel: Sequence[int],
) -> Tensor:
    shape = (x.shape[0], *window.places(x.shape[1:-1], kernel), oc)
    term = bias if isinstance(bias, Tensor) else g.const(bias.astype(np.float32 if x.is_float else np.int32))
    kind: Attribute = f32 if x.is_float else i32
    zeros = (g.zero(f32), g.zero(f32)) if x.is_float else (g.zero(i8, zero), g.zero(i8, -w.offset))
    return g.add(
        name, [x, w, term, *zeros], shape, kind, pad=window.padding, stride=longs(window.strides),
        dilation=longs(window.dilations), acc_type=kind,
    )  # fmt: skip


def _dense(
    g: Writer, x: Tensor, w: np.ndarray | Tensor, bias: np.ndarray | Tensor, window: Window, zero: int
) -> Tensor:
    rank = x.rank
    filter = g.const(np.moveaxis(w, 1, -1)) if isinstance(w, np.ndarray) else g.transpose(w, to_last(w))
    name = "conv2d" if rank == 4 else "conv3d"  # noqa: PLR2004
    return _added(g, name, x, filter, bias, window, zero, filter.shape[0], filter.shape[1:-1])


def _depthwise(g: Writer, x: Tensor, w: np.ndarray, bias: np.ndarray | Tensor, window: Window, zero: int) -> Tensor:
    channels, many = x.shape[-1], w.shape[0] // x.shape[-1]
    filter = w[:, 0].reshape(channels, many, *w.shape[2:]).transpose(2, 3, 0, 1)
    return _added(g, "depthwise_conv2d", x, g.const(filter), bias, window, zero, w.shape[0], w.shape[2:])


def dilated(g: Writer, x: Tensor, more: Sequence[int], value: float) -> Tensor:
    """Put so many elements between those of each axis of x (n, axes ..., c); value: as stored."""
    for place, count in enumerate(more):
        axis, size = 1 + place, x.shape[1 + place]
        if not count or size == 1:
            continue
        outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        y = g.pad(g.reshape(x, (outer, size, 1, inner)), [(0, 0), (0, 0), (0, count), (0, 0)], value)
        y = g.reshape(y, (*x.shape[:axis], size * (count + 1), *x.shape[axis + 1 :]))
        sizes = list(y.shape)
        sizes[axis] -= count
        x = g.slice(y, [0] * y.rank, sizes)
    return x


def transposed_window(geometry: dict[str, Any], kernel: Sequence[int]) -> tuple[Window, list[int]]:
    """The window of the convolution that computes a transposed one, and how many elements it inserts per axis."""
    axes = len(kernel)
    strides, pads, more, dilations = (geometry[k] for k in ("strides", "pads", "output_padding", "dilations"))
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    befores = [r - p for r, p in zip(reach, pads[:axes], strict=True)]
    afters = [r - p + o for r, p, o in zip(reach, pads[axes:], more, strict=True)]
    return Window((1,) * axes, (*befores, *afters), tuple(dilations), geometry["groups"]), [s - 1 for s in strides]


def turned(w: np.ndarray) -> np.ndarray:
    """A filter turned by 180 degrees."""
    return np.flip(w, tuple(range(2, w.ndim)))


# ---------------------------------------------------------------------------------------------------------------- float


@writes(TopConv)
def conv(op: TopConv, g: Writer) -> Tensor:
    """CONV2D, CONV3D or DEPTHWISE_CONV2D between two transposes."""
    x = g.float(op.input)
    y = g.transpose(x, to_last(x))
    if op.inserts is not None:
        y = dilated(g, y, ints(op.inserts), 0.0)
    constant = g.array(op.filter)
    w = g.float(op.filter) if constant is None else constant.astype(np.float32)
    found = convolved(g, y, w, _bias(g, op), Window.of(op.geometry))
    return fused_relu(op, g, g.transpose(found, from_last(x.rank)))


def _bias(g: Writer, op: "TopConv | TopDeconv") -> np.ndarray | Tensor | None:
    if is_none(op.bias):
        return None
    constant = g.array(op.bias)
    return g.reshape(g.float(op.bias), (-1,)) if constant is None else constant.astype(np.float32).reshape(-1)


@writes(TopDeconv)
def deconv(op: TopDeconv, g: Writer) -> Tensor:
    """A convolution with the turned filter over the input with zeros between its elements."""
    x = g.float(op.input)
    w = g.needed(op.filter, "the filter").astype(np.float32)
    window, more = transposed_window(op.geometry, w.shape[2:])
    y = dilated(g, g.transpose(x, to_last(x)), more, 0.0)
    found = convolved(g, y, turned(w), _bias(g, op), window)
    return fused_relu(op, g, g.transpose(found, from_last(x.rank)))


# ------------------------------------------------------------------------------------------------------------- integers


def _coefficients(op: PackedConvTpu, g: Writer) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """Filter, bias and requant of a tpu op, unpacked."""
    filter = g.needed(op.filter, "the filter")
    bias = None if is_none(op.bias) else g.needed(op.bias, "the bias")
    _, w, b, requant = op.unpacked([np.zeros(0), filter, bias])  # type: ignore[list-item]
    return np.asarray(w), None if b is None else np.asarray(b).reshape(-1), requant


def accumulated(op: PackedConvTpu, g: Writer, w: np.ndarray, b: np.ndarray | None) -> Tensor:
    """Sums and bias in i32, channels last. The zero point of the input is out of the bias, and in the pads."""
    x, zero = g.stored(op.input), zero_point(op.input)
    taken_out = zero * w.astype(np.int64).reshape(len(w), -1).sum(axis=1)
    bias = taken_out if b is None else b.astype(np.int64) + taken_out
    return _packed(op, g, x, w, bias, zero - x.offset)


def _float_conv(op: PackedConvTpu, g: Writer, w: np.ndarray, b: np.ndarray | None) -> Tensor:
    """As the top op, of constants in any float type."""
    bias = None if b is None else b.astype(np.float32)
    sums = _packed(op, g, g.float(op.input), w.astype(np.float32), bias, 0)
    return fused_relu(op, g, g.transpose(sums, from_last(sums.rank)))


def _packed(op: PackedConvTpu, g: Writer, x: Tensor, w: np.ndarray, bias: np.ndarray | None, zero: int) -> Tensor:
    """The convolution, or transposed one, of a tpu op, channels last. zero: as of `convolved`."""
    y, geometry = g.transpose(x, to_last(x)), {**op.geometry}
    if "output_padding" in geometry:
        window, more = transposed_window(geometry, w.shape[2:])
        return convolved(g, dilated(g, y, more, zero), turned(w), bias, window, zero)
    inserts = getattr(op, "inserts", None)
    y = y if inserts is None else dilated(g, y, ints(inserts), zero)
    return convolved(g, y, w, bias, Window.of(geometry), zero)


@writes(TpuConv2D, TpuConv3D, TpuDeconv, TpuDeconv3D)
def conv_stored(op: PackedConvTpu, g: Writer) -> Tensor:
    """Sums in i32, and RESCALE along the channels if the op requantises itself."""
    w, b, requant = _coefficients(op, g)
    if not op.integer:
        return _float_conv(op, g, w, b)
    sums = accumulated(op, g, w, b)
    if requant is None:
        y = g.narrowed(sums, op.output, 0, relu=relu_of(op))
    else:
        m, r = requant
        y = g.by_mode(sums, m, r, op.output, op.quant_mode.data if op.quant_mode else "", relu=relu_of(op))
    return g.transpose(y, from_last(y.rank))
