"""Camera frames as inputs: their layout in memory, and the ops that turn them into the network's image.

With `--fuse-preprocess` the network takes bytes, and the module preprocesses images instead of the host. Sources are
TPU-MLIR's fuse-preprocess and its lowering of Preprocess (U-72, tests/test_frames.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from tpusim_kernels.activation import channel_lut
from tpusim_kernels.color import yuv_to_bgr
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.errors import ConfigError
from tpusim.ir.attrs import (
    flag,
    float_attr,
    floats_attr,
    int_attr,
    ints,
    ints_attr,
    op_name,
    text,
)
from tpusim.ir.module import Model
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.types import UniformType, element_of, set_type, shape_of, tensor
from tpusim.ir.upstream import OWN
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import align
from tpusim.isa.yuv import YuvFormat, YuvPlanes
from tpusim.ops.activation.tpu import ENTRIES, TABLE_SHAPE, TpuLut
from tpusim.ops.cast import TpuCast
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.framework.base import Array, EmitContext, LoweringContext, Shape, TpuOp
from tpusim.ops.framework.families import part_of, shorter_axes
from tpusim.ops.permute import TpuPermute
from tpusim.ops.slice import TpuSlice
from tpusim.ops.structure import TopInput, TopWeight, make_weight
from tpusim.ops.view import TpuReshape

Bytes = NDArray[np.uint8]

FORMATS: dict[str, tuple[str, bool]] = {
    "RGB_PLANAR": ("rgb", False),
    "RGB_PACKED": ("rgb", True),
    "BGR_PLANAR": ("bgr", False),
    "BGR_PACKED": ("bgr", True),
    "GRAYSCALE": ("gray", False),
    "YUV420_PLANAR": ("bgr", False),
    "YUV_NV12": ("bgr", False),
    "YUV_NV21": ("bgr", False),
}
"""TPU-MLIR's names of frame formats -> (order of channels, whether the channels of a pixel are adjacent)."""
YUV: dict[str, YuvFormat] = {"YUV420_PLANAR": "planar", "YUV_NV12": "nv12", "YUV_NV21": "nv21"}
"""Formats with brightness per pixel and colours per four pixels; their rows and planes are always aligned."""
BYTE = UniformType.of_params(QuantParams.of(1.0, signed=False))
STRIDES = OWN + "frame_strides"
FUSED = (OWN + "fused", "customization_format", "aligned", STRIDES)
"""Attributes that `Frame.fuse_into` adds to an input of a top module."""


@dataclass(frozen=True)
class Frame:
    """The layout of an input's frames in memory.

    format: a key of FORMATS. height, width: of a frame, in pixels. channel_bytes, row_bytes: distances of planes and
    of rows if a video subsystem aligns them, else 0. A packed frame has no planes. In YUV formats row_bytes is that of
    the brightness plane, and planes begin at multiples of channel_bytes.
    """

    format: str
    channels: int
    height: int
    width: int
    channel_bytes: int = 0
    row_bytes: int = 0

    @classmethod
    def of(cls, format: str, channels: int, size: tuple[int, int], alignment: tuple[int, int] | None) -> "Frame":
        """alignment: (bytes of rows, bytes of planes) to which sizes are rounded up; None: no alignment."""
        height, width = size
        if alignment is None:
            return cls(format, channels, height, width)
        if format in YUV:
            row = align(width, alignment[0] * (2 if YUV[format] == "planar" else 1))
            return cls(format, channels, height, width, alignment[1], row)
        row = align(width * channels if FORMATS[format][1] else width, alignment[0])
        return cls(format, channels, height, width, align(row * height, alignment[1]), row)

    @property
    def packed(self) -> bool:
        """Whether the channels of a pixel are adjacent."""
        return FORMATS[self.format][1]

    @property
    def yuv(self) -> YuvPlanes | None:
        """The planes of a frame in a YUV format; None in other formats."""
        if self.format not in YUV:
            return None
        return YuvPlanes(YUV[self.format], self.height, self.width, self.row_bytes, self.channel_bytes)

    def shape(self, batch: int) -> Shape:
        """The shape of the input that a user gives, in bytes."""
        if self.yuv is not None:
            return (batch, 1, 1, self.yuv.total)
        if not self.row_bytes:
            size = (self.height, self.width)
            return (batch, *size, self.channels) if self.packed else (batch, self.channels, *size)
        if self.packed or self.channels == 1:
            return (batch, 1, self.height, self.row_bytes)
        return (batch, self.channels, 1, self.channel_bytes)

    def laid_out(self, images: Bytes) -> Bytes:
        """Frames of images (batch, channels, height, width) with the frame's order of channels; zeros fill gaps."""
        batch = len(images)
        if self.yuv is not None:
            return self.yuv.laid_out(images)[:, None, None]
        if not self.row_bytes:
            return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if self.packed else images
        frames = np.zeros(self.shape(batch), np.uint8)
        if self.packed or self.channels == 1:
            frames[:, 0, :, : self.width * self.channels] = images.transpose(0, 2, 3, 1).reshape(batch, self.height, -1)
            return frames
        rows = frames[..., 0, : self.height * self.row_bytes].reshape(batch, self.channels, self.height, self.row_bytes)
        rows[..., : self.width] = images
        frames[..., 0, : self.height * self.row_bytes] = rows.reshape(batch, self.channels, -1)
        return frames

    def attributes(self, input: TopInput) -> dict[str, Attribute]:
        """The attributes of a lowered input that takes frames (U-72), with the distances of aligned rows and planes."""
        order = FORMATS[self.format][0]
        attributes: dict[str, Attribute] = {
            **{name: value for name, value in input.attributes.items() if name not in FUSED},
            "dtype": text("uint8"),
            "channel_format": text("nhwc" if self.packed else "nchw"),
            "customization_format": text(self.format),
            "mean": floats_attr([0.0] * self.channels),
            "scale": floats_attr([1.0] * self.channels),
            "pixel_format": text(order),
            "resize_dims": ints_attr((self.height, self.width)),
        }
        return attributes | self._aligned()

    def _aligned(self) -> dict[str, Attribute]:
        if not self.row_bytes:
            return {}
        return {"aligned": flag(True), STRIDES: ints_attr((self.channel_bytes, self.row_bytes))}

    def fuse_into(self, op: TopInput) -> None:
        """Let an input of a top module take these frames; its preprocessing stays stated for the lowering."""
        size = ints_attr((self.height, self.width))
        op.fused = flag(True)
        op.attributes |= {"customization_format": text(self.format), "resize_dims": size, **self._aligned()}
        argument, frames = op.input, tensor(self.shape(shape_of(op.output)[0]), BYTE)
        new = set_type(argument, frames)
        if isinstance(argument, BlockArgument) and isinstance(new, BlockArgument):
            new.location = argument.location

    @classmethod
    def read(cls, op: TopInput) -> "Frame | None":
        """The inverse of `attributes`; None if the input takes no frames. Raises ConfigError for an unknown format."""
        stated = op.attributes.get("customization_format")
        if stated is None:
            return None
        format = stated.data if isinstance(stated, StringAttr) else str(stated)
        if format not in FORMATS:
            raise ConfigError(
                f"input '{op_name(op)}': its attribute customization_format must be one of {', '.join(FORMATS)}, "
                f"got {stated}"
            )
        height, width = ints(op.attributes["resize_dims"])
        channel, row = ints(op.attributes[STRIDES]) if STRIDES in op.attributes else (0, 0)
        return cls(format, 1 if FORMATS[format][0] == "gray" else 3, height, width, channel, row)


@dataclass(frozen=True)
class Fused:
    """Preprocessing of a frame: crop its middle, compute (byte - mean) * scale by channel, order the channels.

    mean, scale: in the network's order of channels. swap: whether the frame has the channels in reverse order.
    """

    frame: Frame
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    swap: bool

    @property
    def linear(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(factors, summands), one per channel, in the frame's order of channels."""
        step = -1 if self.swap else 1
        scale, mean = (
            np.asarray(values, np.float64)[: self.frame.channels][::step] for values in (self.scale, self.mean)
        )
        return scale, -scale * mean


# ------------------------------------------------------------------------------------------------------------- the ops


@irdl_op_definition
class TpuScaleLut(TpuOp):
    """`tpu.ScaleLut`: output = table[channel][byte of input]. scale, bias: the numbers that made the tables."""

    name = "tpu.ScaleLut"

    input = operand_def(TensorType)
    table = operand_def(TensorType)
    output = result_def(TensorType)
    scale = attr_def(ArrayAttr)
    bias = attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape. Raises ValueError unless each channel has a table."""
        wanted = (1, shape_of(self.input)[1], 16, 16)
        if shape_of(self.table) != wanted:
            raise ValueError(f"tables of shape {wanted} are required, got {shape_of(self.table)}")
        return (shape_of(self.input),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, table = operands
        return (channel_lut(x, table.reshape(-1, ENTRIES)),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local: it runs before every group (U-72)."""
        del chip
        return "tables by channel run in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        ctx.emit(isa.Fn, function=functions.ChannelTables(), inputs=(ctx.input(0), ctx.input(1)), output=ctx.output())


@irdl_op_definition
class TpuSwapChannel(TpuOp):
    """`tpu.SwapChannel`: channel i of the result is channel channel_order[i] of the operand, the same stored type."""

    name = "tpu.SwapChannel"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    channel_order = attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        order, channels = ints(self.channel_order), shape_of(self.input)[1]
        if sorted(order) != list(range(channels)):
            raise ValueError(f"an order of {channels} channels is required, got {list(order)}")
        return (shape_of(self.input),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (operands[0][:, np.asarray(ints(self.channel_order))],)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "channels change their lanes"

    @override
    def emit(self, ctx: EmitContext) -> None:
        source, target = ctx.input(0), ctx.output()
        one = (target.shape[0], 1, *target.shape[2:])
        for channel, other in enumerate(ints(self.channel_order)):
            ctx.move(part_of(source, 1, other, one, ctx.chip), part_of(target, 1, channel, one, ctx.chip))


@irdl_op_definition
class TpuCopy(TpuOp):
    """`tpu.Copy`: `shape` elements of a tensor at distances `input_stride`; output_stride: of the dense result."""

    name = "tpu.Copy"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    shape = attr_def(ArrayAttr)
    input_stride = attr_def(ArrayAttr)
    output_stride = attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """`shape`. Raises ValueError if the elements are not inside the operand, or the result is not dense."""
        shape, strides, count = ints(self.shape), ints(self.input_stride), int(np.prod(shape_of(self.input)))
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if min(shape) < 1 or min(strides) < 0 or last >= count:
            raise ValueError(f"elements inside the {count} of the operand are required, got {shape} at {strides}")
        if ints(self.output_stride) != _dense(shape):
            raise ValueError(f"a dense result is required, got strides {ints(self.output_stride)}")
        return (shape,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        axes = zip(np.ix_(*map(range, ints(self.shape))), ints(self.input_stride), strict=True)
        places: Any = sum(index * stride for index, stride in axes)
        return (operands[0].reshape(-1)[places],)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "a strided copy in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        shape, strides = ints(self.shape), ints(self.input_stride)
        source = msgspec.structs.replace(ctx.input(0), shape=shape, layout="strided", strides=strides)
        ctx.move(*shorter_axes(source, ctx.output()))


def _dense(shape: Shape) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


@irdl_op_definition
class TpuCsc(TpuOp):
    """`tpu.Csc`: planes b, g, r of YUV frames, in bytes. y_align, w_align, channel_align: of rows and planes."""

    name = "tpu.Csc"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    pixel_format = attr_def(StringAttr)
    pixel_type = attr_def(IntegerAttr)
    y_align = attr_def(IntegerAttr)
    w_align = attr_def(IntegerAttr)
    channel_align = attr_def(IntegerAttr)

    @property
    def planes(self) -> YuvPlanes:
        """The planes of a frame. Raises ValueError for a format that is not YUV."""
        format = YUV.get(self.pixel_format.data)
        if format is None:
            raise ValueError(f"pixel_format: one of {', '.join(YUV)} is required, got {self.pixel_format.data}")
        _, _, height, width = shape_of(self.output)
        row = align(width, self.y_align.value.data)
        return YuvPlanes(format, height, width, row, self.channel_align.value.data)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """Three planes of the declared size. Raises ValueError for frames with another number of bytes."""
        batch, _, height, width = shape_of(self.output)
        if shape_of(self.input) != (batch, 1, 1, self.planes.total):
            raise ValueError(f"frames of {self.planes.total} bytes are required, got {shape_of(self.input)}")
        return ((batch, 3, height, width),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute colours from brightness and two colour differences, each step in bf16."""
        y, u, v = self.planes.parts(operands[0][:, 0, 0])
        return (yuv_to_bgr(y, u, v),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "planes of a frame in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        p = self.planes
        function = functions.YuvToBgr(p.format, p.height, p.width, p.row_bytes, p.channel_align)
        ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0),), output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ lowering


def lower_frame(ctx: LoweringContext, op: TopInput, argument: SSAValue, fused: Fused) -> tuple[SSAValue, SSAValue]:
    """(preprocessed image, the same in the network's order of channels) of an input that takes frames.

    In an integer mode tables map bytes to the stored integers; in a float mode a depthwise convolution scales them.
    Channels are swapped last. If only a convolution reads them, its filter is reversed instead (`fold_swaps`).
    """
    name = op_name(op)
    raw = ctx.build(TopInput, [argument], fused.frame.attributes(op), BYTE, shape_of(argument), f"{name}_raw")
    value = _cropped(ctx, _planes(ctx, raw, fused.frame, name), shape_of(op.output), name)
    image = value = _quantised(ctx, op, value, fused) if ctx.format(op).calibrated else _scaled(ctx, op, value, fused)
    if fused.swap:
        order = {"channel_order": ints_attr(range(fused.frame.channels - 1, -1, -1))}
        value = ctx.build(
            TpuSwapChannel, [value], order, element_of(value), shape_of(value), f"{name}_preprocess_swap_channel"
        )
    return image, value


def _planes(ctx: LoweringContext, raw: SSAValue, frame: Frame, name: str) -> SSAValue:
    """The planes (batch, channels, height, width) of frames."""
    batch, value, size = shape_of(raw)[0], raw, (frame.height, frame.width)
    planes, packed = (batch, frame.channels, *size), (batch, *size, frame.channels)
    if frame.format in YUV:
        return ctx.build(TpuCsc, [value], _of_yuv(frame, ctx.chip), BYTE, planes, f"{name}_raw_preprocess_csc")
    if frame.row_bytes and (frame.packed or frame.channels == 1):
        rows = (batch, 1, frame.height, frame.width * frame.channels)
        value = _part(ctx, value, (0, 0, 0, 0), rows, f"{name}_raw_preprocess_csc_slice")
        shape = packed if frame.packed else planes
        value = ctx.build(TpuReshape, [value], {"shape": ints_attr(shape)}, BYTE, shape, f"{name}_raw_preprocess_csc")
    elif frame.row_bytes:
        strides = (frame.channels * frame.channel_bytes, frame.channel_bytes, frame.row_bytes, 1)
        copied = {"input_stride": strides, "output_stride": _dense(planes), "shape": planes}
        attributes = {key: ints_attr(values) for key, values in copied.items()}
        value = ctx.build(TpuCopy, [value], attributes, BYTE, planes, f"{name}_raw_preprocess_csc")
    if frame.packed:
        order = {"order": ints_attr((0, 3, 1, 2))}
        value = ctx.build(TpuPermute, [value], order, BYTE, planes, f"{name}_preprocess_transpose")
    return value


def _of_yuv(frame: Frame, chip: ChipSpec) -> dict[str, Attribute]:
    """The attributes of `tpu.Csc` (U-72)."""
    assert chip.frame_alignment is not None  # other chips take no YUV formats
    row, channel = chip.frame_alignment
    return {
        "aligned": flag(True),
        "pixel_format": text(frame.format),
        "pixel_type": int_attr(1 + list(YUV).index(frame.format)),
        "y_align": int_attr(2 * row if YUV[frame.format] == "planar" else row),
        "w_align": int_attr(row),
        "channel_align": int_attr(channel),
    }


def _cropped(ctx: LoweringContext, value: SSAValue, shape: Shape, name: str) -> SSAValue:
    """The middle of a frame, in the size of the network's image."""
    if shape_of(value) == shape:
        return value
    (_, _, height, width), (_, _, h, w) = shape_of(value), shape
    return _part(ctx, value, (0, 0, height // 2 - h // 2, width // 2 - w // 2), shape, f"{name}_preprocess_slice")


def _part(ctx: LoweringContext, value: SSAValue, offset: tuple[int, ...], shape: Shape, name: str) -> SSAValue:
    ends = [begin + size for begin, size in zip(offset, shape, strict=True)]
    cut = {"offset": ints_attr(offset), "steps": ints_attr([1] * len(shape)), "ends": ints_attr(ends)}
    return ctx.build(TpuSlice, [value], cut, BYTE, shape, name)


def _quantised(ctx: LoweringContext, op: TopInput, value: SSAValue, fused: Fused) -> SSAValue:
    """The stored integers: a ScaleLut with a table per channel, or a Lut for a single channel."""
    element, name = ctx.quantised_type(op.output), f"{op_name(op)}_preprocess"
    quant = ctx.quant(op.output)
    assert quant is not None  # quantised_type requires it
    factor, summand = (part / quant.scale for part in fused.linear)
    values = np.arange(ENTRIES) * factor[:, None] + summand[:, None]
    theirs, ours = (_entries(values + zero, quant) for zero in (0, quant.zero_point))
    tables = ctx.quirked(op, Quirk.FRAMES_WITHOUT_ZERO_POINT, theirs, ours)
    shape = shape_of(op.output)
    if fused.frame.channels == 1:
        table = ctx.weight(f"{name}_lut_{name}_table", tables.reshape(TABLE_SHAPE))
        return ctx.build(TpuLut, [value, table], {}, element, shape, f"{name}_lut")
    table = ctx.weight(f"{name}_scale_lut_{name}_table", tables.reshape(1, -1, 16, 16))
    made_of = {"scale": floats_attr(factor), "bias": floats_attr(summand)}
    return ctx.build(TpuScaleLut, [value, table], made_of, element, shape, f"{name}_scale_lut")


def _entries(values: NDArray[np.float64], quant: QuantParams) -> np.ndarray:
    """Values rounded half away from zero and saturated."""
    low, high = (-128, 127) if quant.signed else (0, 255)
    rounded = np.sign(values) * np.floor(np.abs(values) + 0.5)
    return np.clip(rounded, low, high).astype(np.int8 if quant.signed else np.uint8)


def _scaled(ctx: LoweringContext, op: TopInput, value: SSAValue, fused: Fused) -> SSAValue:
    """(byte - mean) * scale as a depthwise convolution of one pixel, in the float type of the mode."""
    name, element, channels = op_name(op), ctx.float_type(op), fused.frame.channels
    shape = shape_of(value)
    source = f"{name}_raw_preprocess_csc" if fused.frame.format in YUV else f"{name}_raw"
    cast = f"{source}{name}_preprocess_{ctx.float_mode(op)}"
    value = ctx.build(TpuCast, [value], {}, element, shape, cast)
    factor, summand = (part.astype(np.float32) for part in fused.linear)
    filter = ctx.float_weight(op, f"{name}_preprocess_dwconv_weight", factor.reshape(channels, 1, 1, 1))
    bias = ctx.weight(f"{name}_preprocess_dwconv_bias", summand)
    one: dict[str, Attribute] = {k: ints_attr((1, 1)) for k in ("kernel_shape", "strides", "dilations")}
    one |= {"pads": ints_attr((0, 0, 0, 0)), "group": int_attr(channels)}
    one |= {"do_relu": flag(False), "relu_limit": float_attr(-1.0)}
    return ctx.build(TpuConv2D, [value, filter, bias], one, element, shape, f"{name}_preprocess_dwconv")


def fold_swaps(model: Model) -> None:
    """Replace a swap of channels that only one convolution reads by reversing the channels of its filter."""
    for op in [op for op in model.ops if isinstance(op, TpuSwapChannel)]:
        users = [use.operation for use in op.output.uses]
        reader = users[0] if len(users) == 1 else None
        if not isinstance(reader, TpuConv2D) or reader.group is None or reader.group.value.data != 1:
            continue
        weight = reader.filter.owner
        if not isinstance(weight, TopWeight):
            continue
        turned = model.weights[op_name(weight)][:, list(ints(op.channel_order))]
        new = make_weight(model.weights, f"{op_name(weight)}_swap_channel", turned, element_of(weight.output))
        new.attributes |= weight.attributes
        block = reader.parent
        assert block is not None  # the op is in a function
        block.insert_op_before(new, reader)
        reader.operands[1] = new.output
        reader.operands[0] = op.input
        op.detach()
        op.erase()
        if weight.output.first_use is None:
            weight.detach()
            weight.erase()


def raw_name(input: str) -> str:
    """The name of the input that takes the frames of an input."""
    return f"{input}_raw"
