"""Ops of sliding windows: convolutions, pools, LRN."""

from typing import Any

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ops.conv import TopConv
from tpusim.ops.deconv import TopDeconv
from tpusim.ops.lrn import TopLRN
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
    """AveragePool: the mean of each window."""
    options = POOL | node.options(*WINDOW, "ceil_mode")
    counted = bool(node.take("count_include_pad", 0))
    return TopAvgPool.make(node.builder, node.value(0), count_include_pad=counted, **options, name=node.output)


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
