"""Two-dimensional transposed convolution in integers, and the geometry of every one (numerics 9.1).

A transposed convolution is a convolution of stride 1, with the kernel turned by 180 degrees, over the input with
stride - 1 values inserted between its elements. What is inserted and padded is the zero point of the input (0 without
one), because the bias has z_in * sum(w) of the whole kernel taken out. The convolution is the fast one of `conv`.

Places: with K = (k-1)*dilation + 1 the widened input is padded by K - 1 - pad before and K - 1 - pad + output_padding
after, so that out = (in-1)*stride + K - pad_before - pad_after + output_padding. A pad of K or more cuts elements off.
"""

from __future__ import annotations

from tpusim_kernels.base import Array, ArrayLike, kernel
from tpusim_kernels.conv import (
    Pads,
    Pair,
    accumulate_nhwc,
    biased_int32,
    check_operands,
    finished_int,
)
from tpusim_kernels.lazy import jnp, lax

Axes = tuple[int, ...]
GEOMETRY = ("strides", "pads", "output_padding", "dilations", "groups")


def widened(
    x: Array, w: Array, value: Array, strides: Axes, pads: Axes, output_padding: Axes, dilations: Axes
) -> Array:
    """`x` (n, c, axes ...) as (n, axes ..., c) with `value` inserted and padded; as many axes as `w` has.

    pads: all befores, then all afters.
    """
    axes, config = len(strides), [(0, 0, 0)]
    for i in range(axes):
        reach = (w.shape[2 + i] - 1) * dilations[i]
        config.append((reach - pads[i], reach - pads[axes + i] + output_padding[i], strides[i] - 1))
    return lax.pad(jnp.moveaxis(x, 1, -1), value, [*config, (0, 0, 0)])


def turned(w: Array) -> Array:
    """The kernel (oc, ic/groups, axes ...) turned by 180 degrees."""
    return jnp.flip(w, range(2, w.ndim))


def _accumulate(
    x: Array,
    w: Array,
    z_in: ArrayLike,
    strides: Pair,
    pads: Pads,
    output_padding: Pair,
    dilations: Pair,
    groups: int,
) -> Array:
    check_operands(x, w, groups)
    value = lax.convert_element_type(z_in, x.dtype)
    x = widened(x, w, value, strides, pads, output_padding, dilations)
    return accumulate_nhwc(x, turned(w), (1, 1), dilations, groups)


@kernel(static=(*GEOMETRY, "do_relu"))
def deconv2d_accumulate(
    x: Array,
    w: Array,
    b: Array | None,
    z_in: ArrayLike,
    *,
    strides: Pair,
    pads: Pads,
    output_padding: Pair,
    dilations: Pair,
    groups: int,
    do_relu: bool,
) -> Array:
    """Compute acc = relu(sum q_x * q_w + b) of a transposed convolution: int32 (n, oc, oh, ow) (numerics 9.1).

    x int8|uint8 (n, ic, h, w), inserted and padded values z_in; w int8|uint8 (oc, ic/groups, kh, kw); b int32 (oc,) or
    None. Exact while every sum fits int32. RequantIntAxis follows (X and 1690 families).
    """
    acc = _accumulate(x, w, z_in, strides, pads, output_padding, dilations, groups)
    return biased_int32(acc, b, do_relu)


@kernel(static=(*GEOMETRY, "do_relu", "out_dtype", "requant"))
def deconv2d_int(
    x: Array,
    w: Array,
    b: Array | None,
    m: ArrayLike,
    r: ArrayLike,
    z_in: ArrayLike,
    z_out: ArrayLike,
    *,
    strides: Pair,
    pads: Pads,
    output_padding: Pair,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    out_dtype: str,
    requant: str,
) -> Array:
    """Compute y = sat(relu(requant(acc + b, m, r) + z_out)), relu meaning max(v, z_out) (numerics 9.1, DN-12).

    Operands as `deconv2d_accumulate`, m and r integer (oc,) or (1,). requant: "only_shift" (HALF_UP) or "qdm"
    (HALF_AWAY), the requants of chips whose transposed convolution has one.
    """
    acc = _accumulate(x, w, z_in, strides, pads, output_padding, dilations, groups)
    return finished_int(acc, b, m, r, z_out, do_relu, out_dtype, requant)
