"""Ops of sliding windows: convolutions, pools, LRN."""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ir.attrs import ints
from tpusim.ops.conv import TopConv
from tpusim.ops.deconv import TopDeconv
from tpusim.ops.framework.sliding import window_attributes
from tpusim.ops.lrn import TopLRN
from tpusim.ops.pad import TopPad
from tpusim.ops.pool import TopAvgPool, TopMaxPool

POOL: dict[str, Any] = {"kernel_shape": ()}
"""A pool without a kernel_shape is a mistake; it is not the global one."""
WINDOW = ("kernel_shape", "strides", "pads", "dilations", "auto_pad")


def conv(node: Node) -> SSAValue:
    """Conv: a convolution of any rank, with or without a bias."""
    options = node.options(*WINDOW, "group")
    return TopConv.make(node.builder, node.value(0), node.value(1), node.optional(2), **options, name=node.output)


def conv_transpose(node: Node) -> SSAValue:
    """ConvTranspose: the gradient of a convolution, as upsampling uses it."""
    options = node.options(*WINDOW, "group", "output_padding", "output_shape")
    return TopDeconv.make(node.builder, node.value(0), node.value(1), node.optional(2), **options, name=node.output)


def max_pool(node: Node) -> SSAValue:
    """MaxPool; the importer refuses a used second output (Indices)."""
    if node.take("storage_order", 0):
        raise ValueError("storage_order 0 is required")
    options = POOL | node.options(*WINDOW, "ceil_mode")
    return TopMaxPool.make(node.builder, node.value(0), **options, name=node.output)


def average_pool(node: Node) -> SSAValue:
    """AveragePool: the mean of each window.

    With ceil_mode the last window may extend past the pads. Elements past the pads are never counted, even with
    count_include_pad. If both occur, the pads become zeros of a Pad. Windows of one element at steps of 1 change
    nothing: the result is the operand.
    """
    options = POOL | node.options(*WINDOW, "ceil_mode")
    x, counted = node.value(0), bool(node.take("count_include_pad", 0))
    ones = [1] * (len(node.shape(0)) - 2)
    if list(options["kernel_shape"]) == ones == list(options.get("strides", ones)) and not any(options.get("pads", ())):
        return x
    if counted and options.pop("ceil_mode", 0):
        pads, beyond = _pads_and_beyond(node.shape(0)[2:], options)
        options = {key: options[key] for key in options if key not in ("pads", "auto_pad")}
        counted = not any(beyond)
        if any(pads) and any(beyond):
            rank = len(pads) // 2
            around = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
            x = TopPad.make(node.builder, x, paddings=around, name=f"{node.output}_padded")
        options["pads"] = pads if counted else beyond
    return TopAvgPool.make(node.builder, x, count_include_pad=counted, **options, name=node.output)


def _pads_and_beyond(spatial: Sequence[int], options: dict[str, Any]) -> tuple[list[int], list[int]]:
    """(the pads, the additional pads that the last windows read if extents are rounded up)."""
    down, up = (
        ints(window_attributes(tuple(spatial), **options, ceil_mode=rounded_up)["pads"]) for rounded_up in (False, True)
    )
    if len(spatial) == 1:  # is stated as a column
        down, up = down[::2], up[::2]
    return list(down), [high - low for low, high in zip(down, up, strict=True)]


def global_max_pool(node: Node) -> SSAValue:
    """GlobalMaxPool: one window over the whole image."""
    return TopMaxPool.make(node.builder, node.value(0), name=node.output)


def global_average_pool(node: Node) -> SSAValue:
    """GlobalAveragePool: one window over the whole image."""
    return TopAvgPool.make(node.builder, node.value(0), name=node.output)


def lrn(node: Node) -> SSAValue:
    """LRN; the attributes that are absent take the defaults of ONNX."""
    options = node.options("alpha", "beta", "bias")
    return TopLRN.make(node.builder, node.value(0), size=int(node.take("size", 0)), **options, name=node.output)


MAPPERS: dict[str, Mapper] = {
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalMaxPool": global_max_pool, "GlobalAveragePool": global_average_pool, "LRN": lrn,
}  # fmt: skip
