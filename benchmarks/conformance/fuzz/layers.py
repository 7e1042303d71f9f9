"""Layers with weights, pools and norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.conformance.fuzz.net import Net
from benchmarks.conformance.fuzz.production import Family

FAMILY = Family()
IMAGES = (3, 4, 5)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 33)


def divisors(n: int) -> list[int]:
    """The divisors of a number."""
    return [d for d in range(1, n + 1) if n % d == 0]


def window(net: Net, sizes: Sequence[int], *, dilated: bool = True) -> dict[str, Any]:
    """Kernel, strides, dilations and pads of a window that fits every spatial size."""
    kernel = [net.between(1, min(5, s)) for s in sizes]
    if net.chance(0.5):
        kernel = [min(net.pick(1, 3), s) for s in sizes]
    strides = [net.pick(1, 1, 2, 3) for _ in sizes] if net.chance(0.4) else [1] * len(sizes)
    dilations = [net.pick(1, 2) if 2 * (k - 1) < s else 1 for k, s in zip(kernel, sizes, strict=True)]
    dilations = dilations if dilated and net.chance(0.2) else [1] * len(sizes)
    pads = [k // 2 for k in kernel] * 2 if net.chance(0.6) else [net.between(0, k - 1) for k in kernel * 2]
    found = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    return found | ({"dilations": dilations} if dilated else {})


@FAMILY.add("Conv", IMAGES, 3)
def conv(net: Net, x: str) -> str:
    """Plain, grouped and depthwise convolutions."""
    n, c, *sizes = net.shape(x)
    group = net.pick(1, 1, c, net.pick(*divisors(c)))
    out = group * net.between(1, 3) if group > 1 else net.pick(*CHANNELS)
    more = window(net, sizes)
    if net.chance(0.1):
        more = {k: v for k, v in more.items() if k != "pads"} | {"auto_pad": net.pick("SAME_UPPER", "VALID")}
        more |= {"dilations": [1] * len(sizes)}
    bias = [net.drawn(out, std=0.3)] if net.chance(0.7) else []
    return net.op("Conv", x, net.drawn(out, c // group, *more["kernel_shape"]), *bias, group=group, **more)


@FAMILY.add("ConvTranspose", (4,))
def deconv(net: Net, x: str) -> str:
    """Transposed convolutions."""
    _, c, *sizes = net.shape(x)
    group = net.pick(1, 1, c)
    out = 1 if group > 1 else net.pick(*CHANNELS)
    k, s = net.between(1, 4), net.between(1, 3)
    extra = [net.between(0, s - 1) for _ in sizes] if net.chance(0.3) else [0] * len(sizes)
    pads = [net.between(0, min(1, k - 1))] * (2 * len(sizes))
    bias = [net.drawn(out * group, std=0.3)] if net.chance(0.7) else []
    return net.op("ConvTranspose", x, net.drawn(c, out, *[k] * len(sizes), std=0.3), *bias, kernel_shape=[k] * 2,
                  strides=[s] * 2, pads=pads, group=group, output_padding=extra)  # fmt: skip


@FAMILY.add("Linear", (2, 3, 4), 2)
def linear(net: Net, x: str) -> str:
    """A product with a constant on the right, with or without a bias."""
    inner, out = net.shape(x)[-1], net.pick(*CHANNELS)
    y = net.op("MatMul", x, net.drawn(inner, out, std=inner**-0.5))
    bias = net.pick("none", "after", "before")
    if bias == "none":
        return y
    b = net.drawn(out, std=0.2)
    return net.op("Add", y, b) if bias == "after" else net.op("Add", b, y)


@FAMILY.add("MatMulLeft", (2, 3, 4))
def from_left(net: Net, x: str) -> str:
    """A product with a constant on the left."""
    inner, out = net.shape(x)[-2], net.pick(*CHANNELS)
    return net.op("MatMul", net.drawn(out, inner, std=inner**-0.5), x)


@FAMILY.add("Gemm", (2,), 2)
def gemm(net: Net, x: str) -> str:
    """Gemm with its attributes."""
    inner, out, turned = net.shape(x)[1], net.pick(*CHANNELS), net.pick(0, 1)
    weights = net.drawn(*((out, inner) if turned else (inner, out)), std=inner**-0.5)
    bias = [net.drawn(*net.pick((out,), (1, out), (1,)), std=0.3)] if net.chance(0.8) else []
    more = {"alpha": net.uniform(0.3, 2), "beta": net.uniform(0.3, 2)} if net.chance(0.15) else {}
    return net.op("Gemm", x, weights, *bias, transB=turned, **more)


@FAMILY.add("MatMul", (2, 3, 4, 5), 2)
def product(net: Net, x: str) -> str:
    """A product of two values: with its transpose, or with a new input."""
    *batch, rows, inner = net.shape(x)
    perm = [*range(len(batch)), len(batch) + 1, len(batch)]
    if net.chance(0.4):
        turned = net.op("Transpose", x, perm=perm)
        return net.op("MatMul", *net.pick((x, turned), (turned, x)))
    lead = net.pick(batch, [1] * len(batch))
    y = net.input(f"in{net.mark}", *lead, inner, net.pick(*CHANNELS))
    return net.op("MatMul", x, y)


@FAMILY.add("BatchNormalization", (2, 3, 4, 5))
def batch_norm(net: Net, x: str) -> str:
    """In inference form."""
    c = net.shape(x)[1]
    more = [net.positive(c), net.drawn(c, std=0.3), net.drawn(c, std=0.3), net.positive(c)]
    return net.op("BatchNormalization", x, *more, epsilon=net.pick(1e-5, 1e-3))


@FAMILY.add("InstanceNormalization", IMAGES)
def instance_norm(net: Net, x: str) -> str:
    """Over each plane."""
    c = net.shape(x)[1]
    return net.op("InstanceNormalization", x, net.positive(c), net.drawn(c, std=0.3), epsilon=1e-5)


@FAMILY.add("LayerNormalization", (2, 3, 4), 2)
def layer_norm(net: Net, x: str) -> str:
    """The op, over one or more of the last axes."""
    shape, last = net.shape(x), net.pick(1, 1, 1, 2)
    over = shape[-min(last, len(shape) - 1) :]
    scale = net.pick(net.positive(*over), net.drawn(*over, std=1))
    bias = [net.drawn(*over, std=0.3)] if net.chance(0.7) else []
    return net.op("LayerNormalization", x, scale, *bias, axis=-len(over), epsilon=net.pick(1e-5, 1e-6, 1e-12))


@FAMILY.add("LpNormalization", weight=0.1)
def lp_norm(net: Net, x: str) -> str:
    """By the L1 or L2 norm of an axis."""
    return net.op("LpNormalization", x, axis=net.between(0, len(net.shape(x)) - 1), p=net.pick(1, 2))


@FAMILY.add("LRN", (4,), 0.5)
def lrn(net: Net, x: str) -> str:
    """Across channels."""
    return net.op("LRN", x, size=net.pick(3, 5), alpha=1e-3, beta=0.75, bias=1.0)


@FAMILY.add("MaxPool", IMAGES)
def max_pool(net: Net, x: str) -> str:
    """Windows of the largest value."""
    more = window(net, net.shape(x)[2:], dilated=False)
    return net.op("MaxPool", x, ceil_mode=net.pick(0, 0, 0, 1), **more)


@FAMILY.add("AveragePool", IMAGES)
def average_pool(net: Net, x: str) -> str:
    """Windows of the mean."""
    more = window(net, net.shape(x)[2:], dilated=False)
    return net.op("AveragePool", x, ceil_mode=net.pick(0, 0, 0, 1), count_include_pad=net.pick(0, 1), **more)


@FAMILY.add("GlobalPool", IMAGES)
def global_pool(net: Net, x: str) -> str:
    """The mean or largest value of each plane."""
    return net.op(net.pick("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"), x)


@FAMILY.add("PRelu", (2, 3, 4))
def prelu(net: Net, x: str) -> str:
    """A slope for each channel, or one for all."""
    shape = net.shape(x)
    slope = (shape[1],) + (1,) * (len(shape) - 2) if net.chance(0.8) else (1,)
    return net.op("PRelu", x, net.drawn(*slope, std=0.25))


@FAMILY.add("LSTM", (3,), 0.5)
def lstm(net: Net, x: str) -> str:
    """One layer, of one direction or both."""
    return recurrent(net, x, "LSTM", 4)


@FAMILY.add("GRU", (3,), 0.5)
def gru(net: Net, x: str) -> str:
    """One layer, of one direction or both."""
    return recurrent(net, x, "GRU", 3, linear_before_reset=net.pick(0, 1))


def recurrent(net: Net, x: str, op: str, gates: int, **more: Any) -> str:
    """A recurrent layer over axis 0 with its directions joined."""
    steps, batch, inner = net.shape(x)
    both, hidden = net.pick(1, 1, 2), net.pick(3, 4, 8)
    weights = [net.drawn(both, gates * hidden, n, std=hidden**-0.5) for n in (inner, hidden)]
    bias = net.drawn(both, 2 * gates * hidden, std=0.2)
    y = net.several(op, 1, x, *weights, bias, hidden_size=hidden,
                    direction="bidirectional" if both == 2 else "forward", **more)[0]  # fmt: skip
    return net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), [steps, batch, both * hidden])
