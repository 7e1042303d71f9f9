"""Forms of products, pools, norms, reductions and recurrent layers."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of
from tpusim.ops.attention.top import TopAttention
from tpusim.ops.conv.top import TopConv
from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import is_set
from tpusim.ops.groupnorm import GroupedTop, TopInstanceNorm
from tpusim.ops.layernorm import TopLayerNorm
from tpusim.ops.lrn import TopLRN
from tpusim.ops.matmul.product import HEADS
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.norm.batchnorm import TopBatchNorm
from tpusim.ops.norm.top import TopScale
from tpusim.ops.pixelnorm import TopPixelNorm
from tpusim.ops.pool.top import PoolTop, TopAvgPool
from tpusim.ops.recurrent import TopGRU, TopRecurrent
from tpusim.ops.reduce import TopReduce
from tpusim.ops.rmsnorm import TopRMSNorm
from tpusim.ops.softmax import NormalisedExponential, TopLogSoftmax, TopSoftmax
from tpusim.studies.export.onnx.elements import fused_relu
from tpusim.studies.export.onnx.forms import writes
from tpusim.studies.export.onnx.graph import Nodes, Tensor


@writes(TopConv)
def conv(op: TopConv, nodes: Nodes) -> Tensor:
    """Conv; zeros between the rows and columns of its input are inserted by Pads (`_dilated`)."""
    x = nodes.tensor(op.input)
    if op.inserts is not None and any(ints(op.inserts)):
        x = _dilated(nodes, x, shape_of(op.input), ints(op.inserts))
    geometry = op.geometry
    y = nodes.add(
        "Conv", [x, nodes.tensor(op.filter), nodes.optional(op.bias)], kernel_shape=list(ints(op.kernel_shape)),
        strides=list(geometry["strides"]), pads=list(geometry["pads"]), dilations=list(geometry["dilations"]),
        group=geometry["groups"],
    )  # fmt: skip
    return fused_relu(op, nodes, y)


def _dilated(nodes: Nodes, x: Tensor, shape: Sequence[int], inserts: Sequence[int]) -> Tensor:
    """Zeros between rows and columns: each axis gets one of extent 1 after it, which is padded, merged and cut."""
    n, c, h, w = shape
    down, across = (count + 1 for count in inserts)
    y = nodes.add("Reshape", [x, nodes.indices((n, c, h, 1, w, 1))])
    y = nodes.add("Pad", [y, nodes.indices((0, 0, 0, 0, 0, 0, 0, 0, 0, down - 1, 0, across - 1)), nodes.number(0.0)])
    y = nodes.add("Reshape", [y, nodes.indices((n, c, h * down, w * across))])
    ends = nodes.indices((h * down - down + 1, w * across - across + 1))
    return nodes.add("Slice", [y, nodes.indices((0, 0)), ends, nodes.indices((2, 3))])


@writes(TopDeconv)
def deconv(op: TopDeconv, nodes: Nodes) -> Tensor:
    """ConvTranspose, whose filter has the input's channels first."""
    geometry = op.geometry
    groups, shape = geometry["groups"], shape_of(op.filter)
    split = (groups, shape[0] // groups, *shape[1:])
    order, joined = (0, 2, 1, *range(3, len(split))), (groups * shape[1], shape[0] // groups, *shape[2:])
    stored = nodes.array(op.filter)
    if stored is None:
        y = nodes.add("Reshape", [nodes.tensor(op.filter), nodes.indices(split)])
        filter = nodes.add("Reshape", [nodes.add("Transpose", [y], perm=list(order)), nodes.indices(joined)])
    else:
        filter = nodes.constant(stored.astype(np.float32).reshape(split).transpose(order).reshape(joined))
    window: dict[str, Any] = {key: list(geometry[key]) for key in ("strides", "pads", "output_padding", "dilations")}
    y = nodes.add(
        "ConvTranspose", [nodes.tensor(op.input), filter, nodes.optional(op.bias)],
        kernel_shape=list(ints(op.kernel_shape)), group=groups,
        **window,
    )  # fmt: skip
    return fused_relu(op, nodes, y)


@writes(TopMatMul)
def matmul(op: TopMatMul, nodes: Nodes) -> Tensor:
    """Gemm for two matrices with a bias or a transpose, else MatMul with Transposes, Add and Relu around it."""
    transposes, exchanged = op.transposes, op.exchanged
    ranks = len(shape_of(op.input)), len(shape_of(op.right))
    if ranks == (2, 2) and (any(transposes) or not is_none(op.bias)):
        bias = None if is_none(op.bias) else _flat(nodes, op.bias)
        left, right = (nodes.tensor(v) for v in (op.input, op.right))
        y = nodes.add("Gemm", [left, right, bias], transA=int(transposes[0]), transB=int(transposes[1]))
        return fused_relu(op, nodes, y)
    sides = zip((op.input, op.right), transposes, (exchanged.left, exchanged.right), strict=True)
    y = nodes.add("MatMul", [_side(nodes, *side) for side in sides])
    y = y if is_none(op.bias) else nodes.add("Add", [y, _flat(nodes, op.bias)])
    y = nodes.add("Transpose", [y], perm=list(HEADS)) if exchanged.output else y
    return fused_relu(op, nodes, y)


def _side(nodes: Nodes, value: SSAValue, transposed: bool, exchanged: bool) -> Tensor:
    """An operand of a product, its last two axes or its heads and rows exchanged."""
    rank = len(shape_of(value))
    order = list(HEADS) if exchanged else [*range(rank - 2), rank - 1, rank - 2]
    if not (transposed or exchanged):
        return nodes.tensor(value)
    stored = nodes.array(value)
    if stored is not None:
        return nodes.constant(stored.astype(np.float32).transpose(order))
    return nodes.add("Transpose", [nodes.tensor(value)], perm=order)


def _flat(nodes: Nodes, value: SSAValue) -> Tensor:
    """A tensor of one axis with the elements of a value."""
    stored, count = nodes.array(value), prod(shape_of(value))
    if stored is not None:
        return nodes.constant(stored.astype(np.float32).reshape(-1))
    x = nodes.tensor(value)
    return x if shape_of(value) == (count,) else nodes.add("Reshape", [x, nodes.indices((count,))])


@writes(TopAttention)
def attention(op: TopAttention, nodes: Nodes) -> Tensor:
    """The products, the softmax and what moves heads, one by one."""
    sources = op.input, op.keys, op.values
    q, k, v = (
        _heads(nodes, _linear(nodes, nodes.tensor(x), w, b), shape_of(x)[:2], op.heads)
        for x, w, b in zip(sources, op.matrices, op.biases, strict=False)
    )
    scores = nodes.add("MatMul", [q, nodes.add("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = nodes.add("Mul", [scores, nodes.number(op.scale.value.data)])
    if not is_none(op.mask):
        shape = (-1, 1, 1, shape_of(op.mask)[-1])
        scores = nodes.add("Add", [scores, nodes.add("Reshape", [nodes.tensor(op.mask), nodes.indices(shape)])])
    mixed = nodes.add("MatMul", [nodes.add("Softmax", [scores], axis=-1), v])
    joined = nodes.add("Transpose", [mixed], perm=list(HEADS))
    whole = (*shape_of(op.input)[:2], shape_of(op.values_weight)[1])
    return _linear(nodes, nodes.add("Reshape", [joined, nodes.indices(whole)]), op.out_weight, op.out_bias)


def _linear(nodes: Nodes, x: Tensor, weight: SSAValue, bias: SSAValue) -> Tensor:
    y = nodes.add("MatMul", [x, nodes.tensor(weight)])
    return y if is_none(bias) else nodes.add("Add", [y, _flat(nodes, bias)])


def _heads(nodes: Nodes, x: Tensor, rows: Sequence[int], heads: int) -> Tensor:
    y = nodes.add("Reshape", [x, nodes.indices((*rows, heads, -1))])
    return nodes.add("Transpose", [y], perm=list(HEADS))


@writes(PoolTop)
def pool(op: PoolTop, nodes: Nodes) -> Tensor:
    """MaxPool or AveragePool; over the whole image the global pools, or a reduction if axes are dropped."""
    x, shape, pads = nodes.tensor(op.input), shape_of(op.input), ints(op.pads)
    average = isinstance(op, TopAvgPool)
    whole = ints(op.kernel_shape) == shape[2:] and not any(pads)
    if len(shape_of(op.output)) < len(shape):
        axes = nodes.indices(range(2, len(shape)))
        y = nodes.add("ReduceMean" if average else "ReduceMax", [x, axes], keepdims=0)
    elif whole:
        y = nodes.add("GlobalAveragePool" if average else "GlobalMaxPool", [x])
    else:
        window: dict[str, Any] = {key: list(ints(op.attributes[key])) for key in ("kernel_shape", "strides", "pads")}
        window |= {"count_include_pad": int(is_set(op.count_include_pad))} if isinstance(op, TopAvgPool) else {}
        y = nodes.add("AveragePool" if average else "MaxPool", [x], **window)
    return fused_relu(op, nodes, y)


@writes(TopReduce)
def reduce(op: TopReduce, nodes: Nodes) -> Tensor:
    """A reduction along axes."""
    keep = int(is_set(op.keepdims))
    return nodes.add(op.mode.data, [nodes.tensor(op.input), nodes.indices(ints(op.axes))], keepdims=keep)


@writes(TopSoftmax, TopLogSoftmax)
def softmax(op: "TopSoftmax | TopLogSoftmax", nodes: Nodes) -> Tensor:
    """Softmax or its logarithm."""
    kind = "LogSoftmax" if isinstance(op, TopLogSoftmax) else "Softmax"
    assert isinstance(op, NormalisedExponential)
    return nodes.add(kind, [nodes.tensor(op.input)], axis=op.axis.value.data)


@writes(TopLRN)
def lrn(op: TopLRN, nodes: Nodes) -> Tensor:
    """One LRN node with the same constants."""
    constants: dict[str, Any] = op.constants
    return nodes.add("LRN", [nodes.tensor(op.input)], **constants)


@writes(TopScale)
def scale(op: TopScale, nodes: Nodes) -> Tensor:
    """BatchNormalization of mean 0 and variance 1; without a bias Mul."""
    x, bias, channels = nodes.tensor(op.input), nodes.array(op.bias), shape_of(op.input)[1]
    if bias is not None and not bias.any():
        y = nodes.add("Mul", [x, _along_channels(nodes, op.scale, len(shape_of(op.input)))])
    else:
        mean, variance = (nodes.constant(np.full(channels, value, np.float32)) for value in (0, 1))
        factors, terms = (_flat(nodes, v) for v in (op.scale, op.bias))
        y = nodes.add("BatchNormalization", [x, factors, terms, mean, variance], epsilon=0.0)
    return fused_relu(op, nodes, y)


def _along_channels(nodes: Nodes, value: SSAValue, rank: int) -> Tensor:
    """A tensor (C,) with the axes that follow axis 1 of a tensor of that rank."""
    shape, stored = (-1, *(1,) * (rank - 2)), nodes.array(value)
    if stored is not None:
        return nodes.constant(stored.astype(np.float32).reshape(shape))
    return nodes.add("Reshape", [nodes.tensor(value), nodes.indices(shape)])


@writes(TopBatchNorm)
def batch_norm(op: TopBatchNorm, nodes: Nodes) -> Tensor:
    """One BatchNormalization node in inference form."""
    inputs = [nodes.tensor(v) for v in (op.input, op.gamma, op.beta, op.mean, op.variance)]
    return nodes.add("BatchNormalization", inputs, epsilon=op.epsilon.value.data)


@writes(TopLayerNorm)
def layer_norm(op: TopLayerNorm, nodes: Nodes) -> Tensor:
    """LayerNormalization over the axes from one on."""
    axis = op.axis.value.data
    inner = shape_of(op.input)[axis:]
    weight, bias = (_shaped(nodes, v, inner, default) for v, default in ((op.weight, 1.0), (op.bias, None)))
    return nodes.add("LayerNormalization", [nodes.tensor(op.input), weight, bias], axis=axis, epsilon=op.eps.value.data)


def _shaped(nodes: Nodes, value: SSAValue, shape: Sequence[int], default: float | None) -> Tensor | None:
    """A parameter in a shape; a missing one is full of a default, or left out."""
    if is_none(value):
        return None if default is None else nodes.constant(np.full(shape, default, np.float32))
    stored = nodes.array(value)
    if stored is not None:
        return nodes.constant(stored.astype(np.float32).reshape(shape))
    x = nodes.tensor(value)
    return x if shape_of(value) == tuple(shape) else nodes.add("Reshape", [x, nodes.indices(shape)])


@writes(TopPixelNorm)
def pixel_norm(op: TopPixelNorm, nodes: Nodes) -> Tensor:
    """The distance from the mean over axis 1, divided by the root of the mean of its squares."""
    _, channels, *image = shape_of(op.input)
    x, axis = nodes.tensor(op.input), nodes.indices([1])
    centred = nodes.add("Sub", [x, nodes.add("ReduceMean", [x, axis], keepdims=1)])
    squares = nodes.add("ReduceMean", [nodes.add("Pow", [centred, nodes.number(2.0)]), axis], keepdims=1)
    root = nodes.add("Sqrt", [nodes.add("Add", [squares, nodes.number(op.eps.value.data)])])
    y = nodes.add("Div", [centred, root])
    return _scaled(nodes, y, op.weight, op.bias, (channels, *(1,) * len(image)))


def _scaled(nodes: Nodes, y: Tensor, weight: SSAValue, bias: SSAValue, shape: Sequence[int]) -> Tensor:
    """A tensor times a parameter and plus another, each in a shape; a missing one changes nothing."""
    for kind, value in (("Mul", weight), ("Add", bias)):
        parameter = _shaped(nodes, value, shape, None)
        y = y if parameter is None else nodes.add(kind, [y, parameter])
    return y


@writes(GroupedTop)
def group_norm(op: GroupedTop, nodes: Nodes) -> Tensor:
    """InstanceNormalization, of groups on a view whose channels are the groups."""
    x, shape = nodes.tensor(op.input), shape_of(op.input)
    batch, channels, *image = shape
    if isinstance(op, TopInstanceNorm) and image:
        parameters = [_shaped(nodes, v, (channels,), d) for v, d in ((op.weight, 1.0), (op.bias, 0.0))]
        return nodes.add("InstanceNormalization", [x, *parameters], epsilon=op.eps.value.data)
    ones, zeros = (nodes.constant(np.full(op.groups, value, np.float32)) for value in (1, 0))
    y = nodes.add("Reshape", [x, nodes.indices((batch, op.groups, -1))])
    y = nodes.add("InstanceNormalization", [y, ones, zeros], epsilon=op.eps.value.data)
    y = nodes.add("Reshape", [y, nodes.indices(shape)])
    return _scaled(nodes, y, op.weight, op.bias, (channels, *(1,) * len(image)))


@writes(TopRMSNorm)
def rms_norm(op: TopRMSNorm, nodes: Nodes) -> Tensor:
    """The quotient by the root of the mean of squares, times gamma."""
    x, axes = nodes.tensor(op.input), range(op.first_axis, len(shape_of(op.input)))
    squares = nodes.add("ReduceMean", [nodes.add("Pow", [x, nodes.number(2.0)]), nodes.indices(axes)], keepdims=1)
    root = nodes.add("Sqrt", [nodes.add("Add", [squares, nodes.number(op.eps.value.data)])])
    y = nodes.add("Div", [x, root])
    return y if is_none(op.gamma) else nodes.add("Mul", [y, nodes.tensor(op.gamma)])


@writes(TopRecurrent)
def recurrent(op: TopRecurrent, nodes: Nodes) -> Tensor:
    """LSTM or GRU; the ops of one node share it."""
    more: dict[str, Any] = {"linear_before_reset": 1} if isinstance(op, TopGRU) else {}
    x, filter, recurrence, bias, *states = (None if is_none(v) else nodes.tensor(v) for v in op.operands[:6])
    results = nodes.of_node(
        "GRU" if more else "LSTM", [x, filter, recurrence, bias, None, *states], len(op.OUTPUTS),
        hidden_size=op.hidden, direction="bidirectional" if op.ways > 1 else "forward", **more,
    )  # fmt: skip
    return Tensor(results[op.OUTPUTS.index(op.result.data)], np.dtype(np.float32))
