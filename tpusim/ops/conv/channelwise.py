"""A factor and a term per channel as a depthwise 1x1 convolution, for chips without tpu.Scale."""

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.ir import Attribute, SSAValue

from tpusim.ir.attrs import int_attr, ints_attr
from tpusim.ir.types import element_of
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.framework.base import LoweringContext, Shape
from tpusim.ops.view import TpuReshape


def build_channelwise(
    ctx: LoweringContext,
    x: SSAValue,
    coefficients: Sequence[SSAValue],
    attributes: Mapping[str, Attribute],
    element: Attribute,
    shape: Shape,
    name: str,
) -> SSAValue:
    """A tpu.Conv2D with the filter (c, 1, 1, 1) and the bias in `coefficients`.

    shape: the shape of x and of the result; unless it has four axes, Reshapes to (n, c, 1, rest) and back are added,
    with names that begin with `name`. attributes: relu and requantisation.
    """
    wide = _with_four_axes(shape)
    geometry = {**channelwise_geometry(wide[1]), **attributes}
    if wide == shape:
        return ctx.build(TpuConv2D, [x, *coefficients], geometry, element, shape, name)
    x = ctx.build(TpuReshape, [x], {"shape": ints_attr(wide)}, element_of(x), wide, name + "_input_4d")
    y = ctx.build(TpuConv2D, [x, *coefficients], geometry, element, wide, name + "_4d")
    return ctx.build(TpuReshape, [y], {"shape": ints_attr(shape)}, element, shape, name)


def _with_four_axes(shape: Shape) -> Shape:
    if len(shape) == 4:
        return shape
    return (1, *shape, 1, 1) if len(shape) == 1 else (*shape[:2], 1, prod(shape[2:]))


def channelwise_geometry(channels: int) -> dict[str, Attribute]:
    """Attributes of a depthwise 1x1 convolution."""
    return {
        "kernel_shape": ints_attr((1, 1)), "strides": ints_attr((1, 1)), "pads": ints_attr((0, 0, 0, 0)),
        "dilations": ints_attr((1, 1)), "group": int_attr(channels),
    }  # fmt: skip
