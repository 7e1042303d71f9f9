"""`top.Deconv`: shape, float function, and lowering by numerics.md 5.4, 7.1, 7.2 and 9.1."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Unpack

import numpy as np
from tpusim_kernels.deconv3d import deconv3d_float
from tpusim_kernels.deconv_float import deconv2d_float
from tpusim_kernels.prim.multiplier import best_fit_array
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.conv.base import ConvTop
from tpusim.ops.conv.quantize import (
    filter_is_signed,
    filter_scales,
    int32_bias,
    quantised_filter,
)
from tpusim.ops.deconv.geometry import deconv_extents
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.deconv.volume import TpuDeconv3D
from tpusim.ops.framework.base import Array, Builder, LoweringContext, OpT, Shape, is_none
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import relu_of
from tpusim.ops.framework.sliding import DeconvWindow, require_auto_pad
from tpusim.ops.permute import TopPermute
from tpusim.ops.requant_axis import requantised_axis
from tpusim.ops.view import TopReshape


@irdl_op_definition
class TopDeconv(ConvTop):
    """`top.Deconv`: transposed 2-D convolution, input (n, ic, h, w), filter (oc, ic/group, kh, kw), bias (oc,) or none.

    3-D has one more axis: input (n, ic, d, h, w), filter (oc, ic/group, kd, kh, kw). pads: befores, then afters.
    Output extent: (h-1)*stride + (kh-1)*dilation + 1 - pads + output_padding. The first axes of the filter are those of
    a convolution; `make` takes a filter (ic, oc/group, ...).
    """

    name = "top.Deconv"
    SPEC: ClassVar[tuple[str, ...]] = ("9.1", "5.4", "5.5", "5.6", "6", "7.1", "7.2")
    TPU: ClassVar[tuple[OpT, OpT]] = (TpuDeconv, TpuDeconv3D)
    KEPT: ClassVar[tuple[str, ...]] = ("kernel_shape", "strides", "pads", "output_padding")

    output_padding = attr_def(ArrayAttr)
    dilations = attr_def(ArrayAttr)
    group = attr_def(IntegerAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, filter: SSAValue, bias: SSAValue | None = None, *, group: int = 1,
        name: str, **window: Unpack[DeconvWindow],
    ) -> SSAValue:  # fmt: skip
        """X (n, ic, [[d,] h,] w), filter (ic, oc/group, ...) as in PyTorch; 1-D becomes 2-D over (w, 1)."""
        rank = len(shape_of(x))
        if rank not in (3, 4, 5) or len(shape_of(filter)) != rank:
            raise ValueError(f"a 1-D to 3-D transposed convolution is required, got a filter of {shape_of(filter)}")
        bias = builder.none() if bias is None else bias
        attributes = deconv_window(shape_of(x)[2:], shape_of(filter)[2:], **window)
        channels = shape_of(x)[1]
        if channels != shape_of(filter)[0] or channels % group:
            raise ValueError(f"a filter (ic, oc/group, ...) is required for {shape_of(x)}, got {shape_of(filter)}")
        attributes |= {"group": int_attr(group), "do_relu": flag(False), "relu_limit": float_attr(-1.0)}
        filter = _filter_of_a_convolution(builder, filter, group, f"{name}_filter")
        if rank != 3:
            return builder.build(cls, [x, filter, bias], attributes, name)
        x = TopReshape.make(builder, x, shape=(*shape_of(x), 1), name=f"{name}_input")
        y = builder.build(cls, [x, filter, bias], attributes, name + "_2d")
        return TopReshape.make(builder, y, shape=shape_of(y)[:3], name=name)

    @property
    @override
    def geometry(self) -> dict[str, Any]:
        """strides, pads, output_padding, dilations and groups, as the kernels take them."""
        windows = ("strides", "pads", "output_padding", "dilations")
        return {key: ints(self.attributes[key]) for key in windows} | {"groups": self.group.value.data}

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, oh, ow) or (n, oc, od, oh, ow)."""
        x, filter, kernel = shape_of(self.input), shape_of(self.filter), ints(self.kernel_shape)
        groups, axes = self.group.value.data, len(kernel)
        if kernel != filter[2:] or axes not in (2, 3) or len(x) != 2 + axes:
            raise ValueError(
                f"an input of {2 + axes} axes and a filter of kernel_shape {kernel} are required, got {x} and {filter}"
            )
        if x[1] != filter[1] * groups or filter[0] % groups:
            raise ValueError(f"input of {x[1]} channels does not fit filter {filter} in {groups} groups")
        reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, ints(self.dilations), strict=True))
        return ((x[0], filter[0], *deconv_extents(x[2:], reach, self.geometry)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Transposed convolution, bias and relu in f32."""
        x, w, b = operands
        deconvolution = deconv3d_float if self.volume else deconv2d_float
        return (deconvolution(x, w, b, **self.rectified, **self.geometry),)

    @override
    def flops(self) -> int:
        """2 for each input and weight of its channel, one each for bias and relu of an output (numerics.md 16)."""
        out, per = prod(shape_of(self.output)), 2 * prod(shape_of(self.filter)) // shape_of(self.filter)[1]
        products = prod(shape_of(self.input)) * per // self.group.value.data
        return products + out * ((not is_none(self.bias)) + relu_of(self))

    # --------------------------------------------------------------------------------------------------------- lowering

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """A scale per channel of the filter, an int32 bias, an int32 result `<name>_i32`, then a requant; or why not.

        Scales that come with the filter are ignored, as upstream does (U-03).
        """
        why, constants = self.why_not_integer(ctx), self.constants(ctx)
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if why is not None:
            return why
        assert constants is not None and x is not None and y is not None  # required by why_not_integer
        w, bias = constants
        signed = filter_is_signed(w, bias)
        scales = filter_scales(w, signed)
        filter = quantised_filter(w, scales, signed)
        m, r = best_fit_array(scales * x.scale / y.scale)
        int_bias = int32_bias(self, ctx, bias, filter, scales * x.scale, x.zero_point)
        operands = self.integer_operands(ctx, filter, int_bias, "int32")
        accumulators = self.build_tpu(ctx, operands, i32, {}, op_name(self) + "_i32")
        return requantised_axis(ctx, self, accumulators, m, r)


# -------------------------------------------------------------------------------------------------------------- making


def _filter_of_a_convolution(builder: Builder, value: SSAValue, groups: int, name: str) -> SSAValue:
    """The filter (ic, oc/group, ...) as (oc, ic/group, ...): a constant at once, others by Reshapes and a Permute."""
    constant = builder.array(value)
    ic, per_group, *kernel = shape_of(value)
    kernel = [*kernel, 1] if len(kernel) == 1 else kernel
    split = (groups, ic // groups, per_group, *kernel)
    wanted = (groups * per_group, ic // groups, *kernel)
    if constant is not None:
        turned = constant.reshape(split).swapaxes(1, 2).reshape(wanted)
        return builder.weight(name, np.ascontiguousarray(turned))
    value = TopReshape.make(builder, value, shape=split, name=name + "_groups")
    order = (0, 2, 1, *range(3, len(split)))
    value = TopPermute.make(builder, value, order=order, name=name + "_turned")
    return TopReshape.make(builder, value, shape=wanted, name=name)


def deconv_window(
    spatial: Shape, filter: Shape, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), output_padding: Sequence[int] = (),
    output_shape: Sequence[int] | None = None, auto_pad: str = "NOTSET",
) -> dict[str, Attribute]:  # fmt: skip
    """kernel_shape, strides, pads (befores, then afters), output_padding and dilations of a transposed convolution.

    output_shape, or auto_pad SAME (in*stride elements), determines the sum of the pads; an odd element is padded at the
    end with SAME_UPPER, at the start otherwise. An output_shape that exceeds the output without pads increases
    output_padding.
    """
    axes = len(spatial)
    kernel = tuple(kernel_shape) or filter
    strides, dilations = (tuple(v) or (1,) * axes for v in (strides, dilations))
    extra, around = list(output_padding) or [0] * axes, list(pads) or [0] * (2 * axes)
    require_auto_pad(auto_pad)
    if kernel != tuple(filter):
        raise ValueError(f"kernel_shape {list(filter)} is required, got {list(kernel)}")
    wanted = None if output_shape is None else list(output_shape)[-axes:]
    if auto_pad == "VALID" and wanted is None:
        around = [0] * (2 * axes)
    for i in range(axes):
        size = wanted[i] if wanted is not None else spatial[i] * strides[i]
        if wanted is None and not auto_pad.startswith("SAME"):
            continue
        total = (spatial[i] - 1) * strides[i] + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - size
        if wanted is not None and total < 0:
            extra[i] -= total
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        around[i], around[axes + i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    if min(around) < 0 or min(extra) < 0:
        raise ValueError(f"pads and output_padding of 0 and more are required, got {around} and {extra}")
    if axes == 1:
        kernel, strides, dilations, extra = (*kernel, 1), (*strides, 1), (*dilations, 1), [*extra, 0]
        around = [around[0], 0, around[1], 0]
    return {
        "kernel_shape": ints_attr(kernel), "strides": ints_attr(strides), "pads": ints_attr(around),
        "output_padding": ints_attr(extra), "dilations": ints_attr(dilations),
    }  # fmt: skip
