"""Blocks of image networks as exporters write them: convolutions, shuffles, pools, borders, resizes, heads."""

# ruff: noqa: D103

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.conformance.fuzz.idioms.table import (
    CHANNELS,
    DYNAMO,
    KERAS,
    PADDLE,
    SIZE,
    TF2ONNX,
    TORCHSCRIPT,
    Idiom,
    Rows,
)

ROWS = Rows()
row = ROWS.row
LAST = 2**31 - 1


@row(TORCHSCRIPT)
def depthwise_separable(n: Idiom) -> str:
    y = n.op("Relu", n.convolved(n.image(), group=CHANNELS))
    return n.op("Relu", n.convolved(y, cout=12, k=1))


@row(KERAS)
def same_padding(n: Idiom) -> str:
    return n.op("Conv", n.image(3, 13), n.w(CHANNELS, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")


@row(KERAS)
def explicit_padding(n: Idiom) -> str:
    y = n.op("Pad", n.image(3), np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64), mode="constant")
    return n.op("Conv", y, n.w(CHANNELS, 3, 3, 3), n.w(CHANNELS, std=0.2), strides=[2, 2], kernel_shape=[3, 3])


@row(TF2ONNX)
def channels_last_input(n: Idiom) -> str:
    y = n.turn(n.input("x", 1, 10, 10, 3), 0, 3, 1, 2)
    return n.turn(n.op("Relu", n.convolved(y, 3)), 0, 2, 3, 1)


@row(TF2ONNX)
def bias_after_conv(n: Idiom) -> str:
    y = n.convolved(n.image(), bias=False)
    return n.op("Relu", n.add(y, n.constant(n.w(1, CHANNELS, 1, 1, std=0.3))))


@row(TORCHSCRIPT)
def inverted_residual(n: Idiom) -> str:
    x = n.image()
    y = n.clip(n.convolved(x, cout=24, k=1), 0, 6)
    y = n.clip(n.convolved(y, 24, 24, group=24), 0, 6)
    return n.add(x, n.convolved(y, 24, k=1))


@row(TORCHSCRIPT)
def ghost(n: Idiom) -> str:
    y = n.op("Relu", n.convolved(n.image(), k=1))
    return n.joined(y, n.op("Relu", n.convolved(y, group=CHANNELS)), axis=1)


@row(TORCHSCRIPT)
def bottleneck(n: Idiom) -> str:
    x = n.image()
    y = n.op("Relu", n.convolved(n.op("Relu", n.convolved(x, cout=4, k=1)), 4, 4))
    return n.op("Relu", n.add(n.convolved(y, 4, k=1), x))


@row(TORCHSCRIPT)
def convnext_block(n: Idiom) -> str:
    x = n.image()
    y = n.norm(n.turn(n.convolved(x, k=7, group=CHANNELS), 0, 2, 3, 1), CHANNELS)
    y = n.dense(n.gelu(n.dense(y, CHANNELS, 32)), 32, CHANNELS)
    return n.add(x, n.turn(n.mul(y, n.constant(n.w(CHANNELS, std=0.1))), 0, 3, 1, 2))


@row(TORCHSCRIPT)
def squeeze_excite(n: Idiom) -> str:
    x = n.image()
    y = n.op("Relu", n.convolved(n.op("GlobalAveragePool", x), cout=4, k=1))
    return n.mul(x, n.op("Sigmoid", n.convolved(y, 4, k=1)))


@row(TORCHSCRIPT)
def squeeze_excite_mean(n: Idiom) -> str:
    x = n.image()
    y = n.op("Relu", n.convolved(n.reduced("Mean", x, 2, 3), cout=4, k=1))
    return n.mul(n.op("HardSigmoid", n.convolved(y, 4, k=1), alpha=1 / 6, beta=0.5), x)


@row(TORCHSCRIPT)
def squeeze_excite_linear(n: Idiom) -> str:
    x = n.image()
    y = n.view(n.op("GlobalAveragePool", x), 1, CHANNELS)
    y = n.op("Relu", n.op("Gemm", y, n.w(4, CHANNELS), n.w(4, std=0.2), transB=1))
    y = n.op("Sigmoid", n.op("Gemm", y, n.w(CHANNELS, 4), n.w(CHANNELS, std=0.2), transB=1))
    return n.mul(x, n.op("Expand", n.view(y, 1, CHANNELS, 1, 1), np.array([1, CHANNELS, SIZE, SIZE], np.int64)))


@row(PADDLE)
def squeeze_excite_hard(n: Idiom) -> str:
    x = n.image()
    y = n.convolved(n.op("Relu", n.convolved(n.op("GlobalAveragePool", x), cout=4, k=1)), 4, k=1)
    return n.mul(x, n.div(n.clip(n.add(y, n.k(3)), 0, 6), n.k(6)))


@row(TF2ONNX)
def squeeze_excite_swish(n: Idiom) -> str:
    x = n.image()
    y = n.convolved(n.reduced("Mean", x, 2, 3), cout=4, k=1)
    return n.mul(n.op("Sigmoid", n.convolved(n.mul(y, n.op("Sigmoid", y)), 4, k=1)), x)


@row(TORCHSCRIPT)
def efficient_channel_attention(n: Idiom) -> str:
    x = n.image()
    y = n.turn(n.squeezed(n.op("GlobalAveragePool", x), -1), 0, 2, 1)
    y = n.op("Conv", y, n.w(1, 1, 3), pads=[1, 1], kernel_shape=[3])
    return n.mul(x, n.unsqueezed(n.turn(n.op("Sigmoid", y), 0, 2, 1), -1))


@row(TORCHSCRIPT)
def cbam_spatial(n: Idiom) -> str:
    x = n.image()
    y = n.joined(n.reduced("Mean", x, 1), n.reduced("Max", x, 1), axis=1)
    return n.mul(x, n.op("Sigmoid", n.convolved(y, 2, 1, 7)))


@row(TORCHSCRIPT)
def focal_slice(n: Idiom) -> str:
    x = n.image(3)
    parts = [n.cut(n.cut(x, 2, i, LAST, 2), 3, j, LAST, 2) for j in (0, 1) for i in (0, 1)]
    return n.convolved(n.joined(*parts, axis=1), 12)


@row(PADDLE)
def focal_slice_columns_first(n: Idiom) -> str:
    x = n.image(3)
    parts = [n.cut(n.cut(x, 3, j, LAST, 2), 2, i, LAST, 2) for i in (0, 1) for j in (0, 1)]
    return n.convolved(n.joined(*parts, axis=1), 12)


@row(TORCHSCRIPT)
def pixel_shuffle(n: Idiom) -> str:
    return n.op("DepthToSpace", n.convolved(n.image()), blocksize=2, mode="CRD")


@row(TF2ONNX)
def depth_to_space(n: Idiom) -> str:
    return n.op("DepthToSpace", n.image(), blocksize=2, mode="DCR")


@row(TORCHSCRIPT)
def pixel_shuffle_reshaped(n: Idiom) -> str:
    y = n.turn(n.view(n.image(), 1, 2, 2, 2, SIZE, SIZE), 0, 1, 4, 2, 5, 3)
    return n.view(y, 1, 2, 2 * SIZE, 2 * SIZE)


@row(TORCHSCRIPT)
def pixel_unshuffle(n: Idiom) -> str:
    y = n.turn(n.view(n.image(), 1, CHANNELS, 6, 2, 6, 2), 0, 1, 3, 5, 2, 4)
    return n.view(y, 1, 4 * CHANNELS, 6, 6)


@row(TF2ONNX)
def space_to_depth(n: Idiom) -> str:
    return n.op("SpaceToDepth", n.image(), blocksize=2)


@row(TORCHSCRIPT)
def channel_shuffle(n: Idiom) -> str:
    y = n.turn(n.view(n.image(), 1, 2, 4, SIZE, SIZE), 0, 2, 1, 3, 4)
    return n.convolved(n.view(y, 1, CHANNELS, SIZE, SIZE))


@row(TORCHSCRIPT)
def shuffle_block(n: Idiom) -> str:
    left, right = n.parts(n.image(), 1, 4, 4)
    right = n.op("Relu", n.convolved(n.op("Relu", n.convolved(right, 4, 4, 1)), 4, 4, group=4))
    y = n.turn(n.view(n.joined(left, right, axis=1), 1, 2, 4, SIZE, SIZE), 0, 2, 1, 3, 4)
    return n.view(y, 1, CHANNELS, SIZE, SIZE)


@row(TORCHSCRIPT)
def upsample_concat(n: Idiom) -> str:
    x, y = n.image(size=6), n.image(name="y")
    x = n.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")  # fmt: skip
    return n.convolved(n.joined(x, y, axis=1), 2 * CHANNELS, k=1)


@row(TORCHSCRIPT)
def upsample_bilinear(n: Idiom) -> str:
    return n.op("Resize", n.convolved(n.image(size=6)), "", np.array([1, 1, 2, 2], np.float32), mode="linear",
                coordinate_transformation_mode="half_pixel")  # fmt: skip


@row(TORCHSCRIPT)
def upsample_pytorch(n: Idiom) -> str:
    sizes = np.array([1, CHANNELS, 13, 9], np.int64)
    return n.op("Resize", n.image(size=6), "", "", sizes, mode="linear",
                coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip


@row(TORCHSCRIPT)
def upsample_corners(n: Idiom) -> str:
    sizes = np.array([1, CHANNELS, 12, 12], np.int64)
    return n.op("Resize", n.image(size=6), "", "", sizes, mode="linear",
                coordinate_transformation_mode="align_corners")  # fmt: skip


@row(TF2ONNX)
def upsample_nearest_half(n: Idiom) -> str:
    return n.op("Resize", n.image(size=6), "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
                coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")  # fmt: skip


@row(TF2ONNX)
def upsample_tf_asymmetric(n: Idiom) -> str:
    return n.op("Resize", n.image(size=6), "", np.array([1, 1, 2, 2], np.float32), mode="linear",
                coordinate_transformation_mode="asymmetric")  # fmt: skip


@row(TORCHSCRIPT)
def upsample_cubic(n: Idiom) -> str:
    return n.op("Resize", n.image(size=6), "", np.array([1, 1, 2, 2], np.float32), mode="cubic",
                cubic_coeff_a=-0.75, coordinate_transformation_mode="half_pixel")  # fmt: skip


@row(TORCHSCRIPT)
def upsample_transposed(n: Idiom) -> str:
    return n.op("Relu", n.op("ConvTranspose", n.image(size=6), n.w(CHANNELS, 4, 2, 2, std=0.25), n.w(4, std=0.2),
                             kernel_shape=[2, 2], strides=[2, 2]))  # fmt: skip


@row(TORCHSCRIPT)
def upsample_expanded(n: Idiom) -> str:
    y = n.view(n.image(size=6), 1, CHANNELS, 6, 1, 6, 1)
    return n.view(n.op("Expand", y, np.array([1, CHANNELS, 6, 2, 6, 2], np.int64)), 1, CHANNELS, 12, 12)


@row(TORCHSCRIPT)
def downsample_average(n: Idiom) -> str:
    return n.op("AveragePool", n.image(), kernel_shape=[2, 2], strides=[2, 2])


@row(TORCHSCRIPT)
def blur_pool(n: Idiom) -> str:
    y = n.op("Pad", n.image(), np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="reflect")
    kernel = np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16
    return n.op("Conv", y, np.tile(kernel, (CHANNELS, 1, 1, 1)), group=CHANNELS, strides=[2, 2], kernel_shape=[3, 3])


@row(TORCHSCRIPT)
def average_excluding(n: Idiom) -> str:
    return n.op("AveragePool", n.image(), kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=0)


@row(TORCHSCRIPT)
def average_including(n: Idiom) -> str:
    return n.op("AveragePool", n.image(), kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)


@row(DYNAMO)
def global_mean_dynamo(n: Idiom) -> str:
    return n.dense(n.view(n.reduced("Mean", n.image(), -1, -2), 1, CHANNELS), CHANNELS, 10)


@row(TORCHSCRIPT)
def global_mean_flatten(n: Idiom) -> str:
    y = n.op("Flatten", n.op("GlobalAveragePool", n.op("Relu", n.convolved(n.image()))), axis=1)
    return n.op("Gemm", y, n.w(10, CHANNELS), n.w(10, std=0.2), transB=1)


@row(KERAS)
def global_mean_squeeze(n: Idiom) -> str:
    y = n.squeezed(n.op("GlobalAveragePool", n.image()), 2, 3)
    return n.op("Softmax", n.dense(y, CHANNELS, 10), axis=-1)


@row(TORCHSCRIPT)
def global_max(n: Idiom) -> str:
    return n.reduced("Max", n.image(), 2, 3, keep=0)


@row(TORCHSCRIPT)
def flatten_by_shape(n: Idiom) -> str:
    x = n.image(4, 4)
    batch = n.op("Gather", n.op("Shape", x), np.array(0, np.int64), axis=0)
    shape = n.joined(n.unsqueezed(batch, 0), n.constant(np.array([-1], np.int64)), axis=0)
    return n.dense(n.op("Reshape", n.op("Relu", x), shape), 64, 10)


@row(TORCHSCRIPT)
def spp(n: Idiom) -> str:
    x = n.image()
    pools = [n.op("MaxPool", x, kernel_shape=[k, k], strides=[1, 1], pads=[k // 2] * 4) for k in (3, 5)]
    return n.convolved(n.joined(x, *pools, axis=1), 3 * CHANNELS, k=1)


@row(TORCHSCRIPT)
def sppf(n: Idiom) -> str:
    parts = [n.convolved(n.image(), k=1)]
    for _ in range(2):
        parts.append(n.op("MaxPool", parts[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    return n.convolved(n.joined(*parts, axis=1), 3 * CHANNELS, k=1)


@row(TORCHSCRIPT)
def aspp(n: Idiom) -> str:
    x = n.image()
    parts = [
        n.op("Conv", x, n.w(4, CHANNELS, 3, 3), dilations=[d, d], pads=[d] * 4, kernel_shape=[3, 3]) for d in (1, 2, 4)
    ]
    pooled = n.convolved(n.op("GlobalAveragePool", x), cout=4, k=1)
    parts.append(n.op("Resize", pooled, "", "", np.array([1, 4, SIZE, SIZE], np.int64), mode="linear",
                      coordinate_transformation_mode="half_pixel"))  # fmt: skip
    return n.op("Relu", n.joined(*parts, axis=1))


@row(TORCHSCRIPT)
def c2f(n: Idiom) -> str:
    left, right = n.parts(n.convolved(n.image(), k=1), 1, 4, 4)
    y = n.add(right, n.convolved(right, 4, 4))
    return n.convolved(n.joined(left, right, y, axis=1), 12, k=1)


@row(TORCHSCRIPT)
def csp(n: Idiom) -> str:
    x = n.image()
    a = n.convolved(x, cout=4, k=1)
    a = n.mul(a, n.op("Sigmoid", a))
    b = n.convolved(x, cout=4, k=1)
    return n.convolved(n.joined(n.convolved(a, 4, 4), n.mul(b, n.op("Sigmoid", b)), axis=1), k=1)


@row(TORCHSCRIPT)
def rep_vgg_branches(n: Idiom) -> str:
    x = n.image()
    return n.op("Relu", n.add(n.add(n.convolved(x), n.convolved(x, k=1)), n.batch_norm(x, CHANNELS)))


@row(TORCHSCRIPT)
def dense_block(n: Idiom) -> str:
    x = n.image()
    y = n.joined(x, n.convolved(n.op("Relu", n.batch_norm(x, CHANNELS)), cout=4), axis=1)
    return n.joined(y, n.convolved(n.op("Relu", n.batch_norm(y, 12)), 12, 4), axis=1)


@row(TORCHSCRIPT)
def conv_row(n: Idiom) -> str:
    y = n.op("Conv", n.input("x", 1, 8, 40), n.w(16, 8, 3), n.w(16, std=0.2), pads=[1, 1], kernel_shape=[3])
    return n.op("MaxPool", n.op("Relu", y), kernel_shape=[2], strides=[2])


@row(TORCHSCRIPT)
def conv_row_dilated(n: Idiom) -> str:
    y = n.op("Pad", n.input("x", 1, 8, 40), np.array([0, 0, 4, 0, 0, 0], np.int64), mode="constant")
    return n.op("Relu", n.op("Conv", y, n.w(8, 8, 3), n.w(8, std=0.2), dilations=[2], kernel_shape=[3]))


@row(TORCHSCRIPT)
def conv_volume(n: Idiom) -> str:
    y = n.op(
        "Conv", n.input("x", 1, 4, 4, 6, 6), n.w(8, 4, 3, 3, 3), n.w(8, std=0.2), pads=[1] * 6, kernel_shape=[3] * 3
    )
    return n.op("Relu", y)


@row(TORCHSCRIPT)
def pad_reflect(n: Idiom) -> str:
    return n.convolved(
        n.op("Pad", n.image(), np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="reflect"), pads=[0] * 4
    )


@row(TORCHSCRIPT)
def pad_replicate(n: Idiom) -> str:
    return n.convolved(n.op("Pad", n.image(), np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="edge"), pads=[0] * 4)


@row(TORCHSCRIPT)
def pad_circular(n: Idiom) -> str:
    x = n.image()
    x = n.joined(n.cut(x, 2, -1, LAST), x, n.cut(x, 2, 0, 1), axis=2)
    return n.joined(n.cut(x, 3, -1, LAST), x, n.cut(x, 3, 0, 1), axis=3)


@row(TORCHSCRIPT)
def pad_value(n: Idiom) -> str:
    return n.op("Pad", n.image(), np.array([0, 0, 2, 1, 0, 0, 0, 3], np.int64), np.float32(-1.0), mode="constant")


@row(PADDLE)
def pad_channels(n: Idiom) -> str:
    return n.op("Pad", n.image(), np.array([0, 2, 0, 0, 0, 2, 0, 0], np.int64), mode="constant")


@row(TORCHSCRIPT)
def coordinate_channels(n: Idiom) -> str:
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE)))[None].astype(np.float32)
    return n.convolved(n.joined(n.image(), n.constant(grid), axis=1), CHANNELS + 2)


@row(TORCHSCRIPT)
def distribution_focal_head(n: Idiom) -> str:
    y = n.turn(n.view(n.input("x", 1, 32, 20), 1, 4, 8, 20), 0, 2, 1, 3)
    y = n.op(
        "Conv", n.op("Softmax", y, axis=1), np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1), kernel_shape=[1, 1]
    )
    return n.view(y, 1, 4, 20)


@row(TORCHSCRIPT)
def anchor_decode(n: Idiom) -> str:
    y = n.op("Sigmoid", n.turn(n.view(n.convolved(n.image(size=6), cout=14, k=1), 1, 2, 7, 6, 6), 0, 1, 3, 4, 2))
    centre, extent, rest = n.parts(y, 4, 2, 2, 3)
    grid, anchors = n.constant(n.w(1, 2, 6, 6, 2, std=3)), n.positive(1, 2, 6, 6, 2, low=2, high=9)
    centre = n.mul(n.add(n.mul(centre, n.k(2)), grid), n.k(8))
    extent = n.mul(n.op("Pow", n.mul(extent, n.k(2)), n.k(2)), anchors)
    return n.view(n.joined(centre, extent, rest, axis=4), 1, 72, 7)


@row(TORCHSCRIPT)
def boxes_from_distances(n: Idiom) -> str:
    low, high = n.parts(n.op("Relu", n.input("x", 1, 4, 20)), 1, 2, 2)
    anchors = n.constant(n.rng.uniform(0, 10, (1, 2, 20)))
    begin, end = n.sub(anchors, low), n.add(anchors, high)
    return n.joined(n.div(n.add(begin, end), n.k(2)), n.sub(end, begin), axis=1)


@row(TORCHSCRIPT)
def three_scales(n: Idiom) -> str:
    parts = [n.view(n.convolved(n.image(size=s, name=f"x{s}"), cout=6, k=1), 1, 6, s * s) for s in (8, 4, 2)]
    return n.op("Sigmoid", n.joined(*parts, axis=2))


@row(PADDLE)
def three_scales_turned(n: Idiom) -> str:
    parts = [
        n.view(n.turn(n.convolved(n.image(size=s, name=f"x{s}"), cout=6, k=1), 0, 2, 3, 1), 1, -1, 6) for s in (4, 2)
    ]
    return n.op("Softmax", n.joined(*parts, axis=1), axis=-1)


@row(TORCHSCRIPT)
def segmentation_classes(n: Idiom) -> str:
    return n.op("Cast", n.op("ArgMax", n.convolved(n.image(), cout=5, k=1), axis=1, keepdims=0), to=TensorProto.FLOAT)


@row(TORCHSCRIPT)
def heatmap_peaks(n: Idiom) -> str:
    x = n.op("Sigmoid", n.convolved(n.image(), cout=3, k=1))
    top = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    return n.mul(x, n.op("Cast", n.op("Equal", top, x), to=TensorProto.FLOAT))


@row(TORCHSCRIPT)
def grid_sample(n: Idiom) -> str:
    grid = n.op("Tanh", n.input("grid", 1, 5, 7, 2))
    return n.op("GridSample", n.image(), grid, mode="bilinear", padding_mode="zeros", align_corners=0)


@row(TORCHSCRIPT)
def unet_step(n: Idiom) -> str:
    x = n.op("Relu", n.convolved(n.image()))
    y = n.op("Relu", n.convolved(n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), cout=16))
    y = n.op(
        "ConvTranspose",
        y,
        n.w(16, CHANNELS, 2, 2, std=0.25),
        n.w(CHANNELS, std=0.2),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    return n.convolved(n.joined(x, y, axis=1), 2 * CHANNELS)


@row(TORCHSCRIPT)
def unfold_patches(n: Idiom) -> str:
    y = n.turn(n.view(n.image(4, 8), 1, 4, 2, 4, 2, 4), 0, 2, 4, 1, 3, 5)
    return n.dense(n.view(y, 1, 4, 64), 64, 16)


@row(TORCHSCRIPT)
def mixer(n: Idiom) -> str:
    x = n.input("x", 1, 16, 32)
    y = n.turn(n.dense(n.gelu(n.dense(n.turn(n.norm(x, 32), 0, 2, 1), 16, 24)), 24, 16), 0, 2, 1)
    return n.add(x, y)


@row(TORCHSCRIPT)
def roll(n: Idiom) -> str:
    x = n.image()
    return n.joined(n.cut(x, 3, -3, LAST), n.cut(x, 3, 0, -3), axis=3)


@row(TORCHSCRIPT)
def flip(n: Idiom) -> str:
    return n.op("Slice", n.image(), *(np.array([v], np.int64) for v in (-1, -LAST, 3, -1)))


@row(TORCHSCRIPT)
def stack(n: Idiom) -> str:
    x = n.image(4)
    parts = [n.unsqueezed(t, 1) for t in (x, n.op("Relu", x), n.op("Neg", x))]
    return n.joined(*parts, axis=1)


@row(TORCHSCRIPT)
def unbind(n: Idiom) -> list[str]:
    return [
        n.op("Gather", n.input("x", 1, 3, 6, 8) if i == 0 else "x", np.array(i, np.int64), axis=1) for i in range(3)
    ]


@row(TORCHSCRIPT)
def repeat_interleave(n: Idiom) -> str:
    y = n.op("Tile", n.unsqueezed(n.image(4), 2), np.array([1, 1, 2, 1, 1], np.int64))
    return n.view(y, 1, CHANNELS, SIZE, SIZE)


@row(TORCHSCRIPT)
def shared_head(n: Idiom) -> list[str]:
    weights, bias = n.constant(n.w(4, CHANNELS, 3, 3)), n.constant(n.w(4, std=0.2))
    return [n.op("Conv", n.op("Relu", n.image(size=s, name=f"x{s}")), weights, bias, pads=[1] * 4, kernel_shape=[3, 3])
            for s in (8, 4)]  # fmt: skip


@row(TORCHSCRIPT)
def batch_of_two(n: Idiom) -> str:
    return n.op("Relu", n.convolved(n.input("x", 2, CHANNELS, SIZE, SIZE)))


@row(TORCHSCRIPT)
def maxout(n: Idiom) -> str:
    low, high = n.parts(n.convolved(n.image()), 1, 4, 4)
    return n.op("Max", low, high)


@row(TORCHSCRIPT)
def softmax_weighted_sum(n: Idiom) -> str:
    x = n.image()
    weights = n.op("Softmax", n.view(n.convolved(x, cout=1, k=1), 1, 1, SIZE * SIZE), axis=-1)
    return n.op("MatMul", n.view(x, 1, CHANNELS, SIZE * SIZE), n.turn(weights, 0, 2, 1))
