"""Nodes of normalisations and of Softmax."""

from math import prod

from xdsl.ir import SSAValue

from tpusim.errors import UnsupportedError
from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ir.types import shape_of
from tpusim.ops.add import TopAdd
from tpusim.ops.framework.base import Shape, is_none
from tpusim.ops.groupnorm import TopGroupNorm, TopInstanceNorm
from tpusim.ops.layernorm import TopLayerNorm
from tpusim.ops.mul import TopMul
from tpusim.ops.norm import TopBatchNorm
from tpusim.ops.pixelnorm import TopPixelNorm
from tpusim.ops.rmsnorm import TopRMSNorm
from tpusim.ops.softmax import NormalisedExponential, TopLogSoftmax, TopSoftmax
from tpusim.ops.view import TopReshape


def batch_normalization(node: Node) -> SSAValue:
    """The inference form with constant parameters; momentum has no meaning in it."""
    node.take("momentum")
    if node.take("training_mode", 0):
        raise ValueError("training_mode must be 0; export the model for inference")
    if not node.take("spatial", 1):
        raise ValueError("statistics per channel (spatial = 1) are required")
    if node.opset < 7 and not node.take("is_test", 0):
        raise ValueError("is_test must be 1; export the model for inference")
    for index in (1, 2, 3, 4):
        node.need(index, "scale, bias, mean and variance")
    x, mean, variance, gamma, beta = (node.value(index) for index in (0, 3, 4, 1, 2))
    parameters = {"mean": mean, "variance": variance, "gamma": gamma, "beta": beta}
    return TopBatchNorm.make(node.builder, x, **parameters, **node.options("epsilon"), name=node.output)


def _require_float_statistics(node: Node) -> None:
    if node.take("stash_type", 1) != 1:
        raise UnsupportedError("stash_type 1 (float32 statistics) is required")


def _affine(node: Node) -> tuple[SSAValue, SSAValue]:
    """Scale and bias of a norm; constants without effect, all 1 and all 0, are left out (U-99)."""
    neutral = {1: 1.0, 2: 0.0}
    given = {index: node.constant(index) for index in neutral}
    left_out = {i for i, array in given.items() if array is not None and (array == neutral[i]).all()}
    weight, bias = (node.builder.none() if i in left_out else node.value(i) for i in neutral)
    return weight, bias


def layer_normalization(node: Node) -> SSAValue:
    """LayerNormalization; scale and bias may be absent or computed."""
    _require_float_statistics(node)
    x, (weight, bias) = node.value(0), _affine(node)
    options = node.options("axis", eps="epsilon")
    return TopLayerNorm.make(node.builder, x, weight, bias, **options, name=node.output)


def pixel_normalization(node: Node) -> SSAValue:
    """The node that stands for a LayerNorm over axis 1; scale and bias may be absent (U-97).

    A scale or bias that is not along the channels becomes a separate product or sum; TPU-MLIR stops there.
    """
    x, given = node.value(0), _affine(node)
    shape = shape_of(x)
    per_channel = (1, shape[1], *(1,) * (len(shape) - 2))
    apart = [not is_none(v) and not _is_along(shape_of(v), per_channel) for v in given]
    weight, bias = (node.builder.none() if out else v for v, out in zip(given, (apart[0], any(apart)), strict=True))
    name = f"{node.output}_norm" if any(apart) else node.output
    y = TopPixelNorm.make(node.builder, x, weight, bias, **node.options(eps="epsilon"), name=name)
    if apart[0]:
        y = TopMul.make(node.builder, [y, given[0]], name=node.output if is_none(given[1]) else f"{node.output}_scaled")
    return TopAdd.make(node.builder, [y, given[1]], name=node.output) if any(apart) and not is_none(given[1]) else y


def _is_along(shape: Shape, per_channel: Shape) -> bool:
    """Whether a constant has an element for each channel, and ONNX's rules put them there."""
    return len(shape) <= len(per_channel) and per_channel[-len(shape) :] == shape


def rms_normalization(node: Node) -> SSAValue:
    """RMSNormalization over the last axis; other axes use ONNX's function body."""
    _require_float_statistics(node)
    x, weight = node.value(0), node.optional(1)
    if int(node.take("axis", -1)) % len(shape_of(x)) != len(shape_of(x)) - 1:
        raise ValueError("the last axis is required")
    return TopRMSNorm.make(node.builder, x, weight, **node.options(eps="epsilon"), name=node.output)


def group_normalization(node: Node) -> SSAValue:
    """GroupNormalization of opset 21; before, it is deprecated (one scale per group) and no valid ONNX."""
    _require_float_statistics(node)
    x, (weight, bias) = node.value(0), _affine(node)
    groups = int(node.take("num_groups", 0))
    options = node.options(eps="epsilon")
    return TopGroupNorm.make(node.builder, x, weight, bias, num_groups=groups, **options, name=node.output)


def instance_normalization(node: Node) -> SSAValue:
    """InstanceNormalization: each channel of each batch item is normalised by its mean and variance."""
    x, (weight, bias) = node.value(0), _affine(node)
    return TopInstanceNorm.make(node.builder, x, weight, bias, **node.options(eps="epsilon"), name=node.output)


def _softmax(cls: type[NormalisedExponential]) -> Mapper:
    """Softmax and LogSoftmax. Before opset 13 the axes from `axis` on are flattened into one."""

    def read(node: Node) -> SSAValue:
        if node.opset >= 13:
            return cls.make(node.builder, node.value(0), **node.options("axis"), name=node.output)
        return _coerced(cls, node)

    return read


def _coerced(cls: type[NormalisedExponential], node: Node) -> SSAValue:
    x, name, axis = node.value(0), node.output, int(node.take("axis", 1))
    shape = shape_of(x)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"an axis in [{-len(shape)}, {len(shape)}) is required, got {axis}")
    axis %= len(shape)
    wide = [i for i in range(axis, len(shape)) if shape[i] > 1]
    if len(wide) < 2:
        return cls.make(node.builder, x, axis=wide[0] if wide else axis, name=name)
    flat = (prod(shape[:axis]), prod(shape[axis:]))
    x = TopReshape.make(node.builder, x, shape=flat, name=name + "_flat")
    y = cls.make(node.builder, x, axis=1, name=name + "_2d")
    return TopReshape.make(node.builder, y, shape=shape, name=name)


MAPPERS: dict[str, Mapper] = {
    "BatchNormalization": batch_normalization, "RMSNormalization": rms_normalization,
    "LayerNormalization": layer_normalization, "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization, "Softmax": _softmax(TopSoftmax),
    "LogSoftmax": _softmax(TopLogSoftmax),
}  # fmt: skip
