"""The preprocessing of images: options, attributes of `top.Input`, and arrays from files (interface.md 3.3)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from tpusim.errors import CalibrationError, ConfigError, option
from tpusim.images.decode import Channels, Pixels, decode
from tpusim.images.resize import center_crop, letterbox, resize, short_side
from tpusim.ir.attrs import flag, floats, floats_attr, int_attr, ints, ints_attr, op_name, text
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.frames import Frame
from tpusim.ops.structure import TopInput

PixelFormat = Literal["bgr", "rgb", "gray", "rgba", "gbrg", "grbg", "bggr", "rggb"]
ChannelFormat = Literal["nchw", "nhwc"]
Array = NDArray[np.float32] | NDArray[np.uint8]


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing of an image file; defaults, names and order are TPU-MLIR's.

    resize_dims: (height, width) after resizing; if the network's image is smaller, its middle is used; (): the
    network's size. keep_aspect_ratio: by keep_ratio_mode, letterbox (padded with pad_value) or short_side_scale
    (cropped); otherwise the image is stretched. pixel_format: order of channels; gbrg, grbg, bggr and rggb describe a
    camera, and files are read as bgr. mean, scale: (x - mean) * scale by channel, in f32. frame: the layout of input
    bytes of a lowered module (`--fuse-preprocess`), which are not cropped; None: floats.
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    scale: tuple[float, ...] = (1.0, 1.0, 1.0)
    pixel_format: PixelFormat = "bgr"
    channel_format: ChannelFormat = "nchw"
    resize_dims: tuple[int, ...] = ()
    keep_aspect_ratio: bool = False
    keep_ratio_mode: Literal["letterbox", "short_side_scale"] = "letterbox"
    pad_value: int = 0
    pad_type: Literal["center", "normal"] = "center"
    frame: Frame | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for impossible options."""
        for name, values in (("mean", self.mean), ("scale", self.scale)):
            if len(values) < self.channels or not np.isfinite(values).all():
                raise ConfigError(
                    f"{option(name, values, typed=_listed(values))}: {self.channels} finite numbers are "
                    f"required for {self.pixel_format}"
                )
        if self.resize_dims and (len(self.resize_dims) != 2 or min(self.resize_dims) < 1):
            raise ConfigError(
                f"{option('resize_dims', self.resize_dims, typed=_listed(self.resize_dims))}: HEIGHT,WIDTH of "
                "at least 1 is required"
            )
        if not 0 <= self.pad_value <= 255:
            raise ConfigError(f"{option('pad_value', self.pad_value)}: 0 to 255 is required")

    @property
    def channels(self) -> int:
        """Channels of the image that the network reads."""
        return {"gray": 1, "rgba": 4}.get(self.pixel_format, 3)

    def fitted(self, name: str, shape: Sequence[int]) -> "Preprocess":
        """The options with resize_dims for an input of this shape. Raises ConfigError if they do not fit it."""
        dims = "batch, height, width, channels" if self.channel_format == "nhwc" else "batch, channels, height, width"
        has = shape[-1 if self.channel_format == "nhwc" else 1] if len(shape) == 4 else 0
        if has != self.channels:
            raise ConfigError(
                f"input '{name}': images in {self.pixel_format} need a shape of {dims} with {self.channels} channels, "
                f"got {tuple(shape)}; choose another {option('pixel_format')} or {option('channel_format')}, "
                "or the inputs that are images "
                f"with {option('preprocess_list')}"
            )
        image = self.image_dims(shape)
        dims = self.resize_dims or image
        if dims[0] < image[0] or dims[1] < image[1]:
            raise ConfigError(
                f"{option('resize_dims', dims, typed=_listed(dims))}: at least the image of input '{name}', "
                f"{_listed(image)}, is required; "
                "the image is cropped from its middle"
            )
        return replace(self, resize_dims=dims)

    def image_dims(self, shape: Sequence[int]) -> tuple[int, int]:
        """(height, width) of the image in an input's shape."""
        return (shape[1], shape[2]) if self.channel_format == "nhwc" else (shape[2], shape[3])

    def attributes(self) -> dict[str, Attribute]:
        """The attributes of `top.Input` (U-96); numbers are those of f32."""
        return {
            "channel_format": text(self.channel_format),
            "do_preprocess": flag(True),
            "keep_aspect_ratio": flag(self.keep_aspect_ratio),
            "keep_ratio_mode": text(self.keep_ratio_mode),
            "mean": floats_attr(np.asarray(self.mean, np.float32).tolist()),
            "pad_type": text(self.pad_type),
            "pad_value": int_attr(self.pad_value),
            "pixel_format": text(self.pixel_format),
            "resize_dims": ints_attr(self.resize_dims),
            "scale": floats_attr(np.asarray(self.scale, np.float32).tolist()),
            "yuv_type": text(""),
        }

    @classmethod
    def of(cls, op: TopInput) -> "Preprocess | None":
        """The preprocessing in the attributes of an input; None if it is no image.

        Raises ConfigError for an attribute of a wrong type or value.
        """
        found = op.attributes
        if "pixel_format" not in found or found.get("channel_format") == text("none"):
            return None
        if "do_preprocess" in found and not _read(op, "do_preprocess"):
            return None
        if "yuv_type" in found:
            _read(op, "yuv_type")
        known = {f.name: _read(op, f.name) for f in fields(cls) if f.name in found} | {"frame": Frame.read(op)}
        try:
            return cls(**cast("dict[str, Any]", known))
        except ConfigError as error:
            raise ConfigError(f"input '{op_name(op)}': {error}") from error


def _listed(values: Iterable[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Reader:
    """A reader of an attribute: its Python value, or None if it is not allowed."""

    allowed: str
    value: Callable[[Attribute], object]


def _text_of(*allowed: str) -> Reader:
    """One of these strings."""

    def value(attribute: Attribute) -> object:
        return attribute.data if isinstance(attribute, StringAttr) and attribute.data in allowed else None

    return Reader(" or ".join(f'"{word}"' for word in allowed), value)


def _integer(attribute: Attribute) -> int | None:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None


def _flag(attribute: Attribute) -> bool | None:
    found = _integer(attribute)
    return bool(found) if found in (0, 1, -1) else None


def _all_of(attribute: Attribute, kind: type[IntegerAttr | FloatAttr]) -> bool:
    return isinstance(attribute, ArrayAttr) and all(
        isinstance(entry, kind) for entry in cast("ArrayAttr[Attribute]", attribute)
    )


_FLAG = Reader("true or false", _flag)
_NUMBERS = Reader("an array of floats", lambda attribute: floats(attribute) if _all_of(attribute, FloatAttr) else None)
READERS: dict[str, Reader] = {
    "mean": _NUMBERS,
    "scale": _NUMBERS,
    "pixel_format": _text_of(*get_args(PixelFormat)),
    "channel_format": _text_of(*get_args(ChannelFormat)),
    "resize_dims": Reader(
        "an array of integers", lambda attribute: ints(attribute) if _all_of(attribute, IntegerAttr) else None
    ),
    "keep_aspect_ratio": _FLAG,
    "keep_ratio_mode": _text_of("letterbox", "short_side_scale"),
    "pad_value": Reader("an integer", _integer),
    "pad_type": _text_of("center", "normal"),
    "do_preprocess": _FLAG,
    "yuv_type": _text_of(""),
}
"""Readers of the attributes of `top.Input`; yuv_type is missing, because YUV files are not supported."""


def _read(op: TopInput, attribute: str) -> object:
    """The value of an attribute of an input. Raises ConfigError if it is not allowed."""
    found, reader = op.attributes[attribute], READERS[attribute]
    value = reader.value(found)
    if value is None:
        raise ConfigError(
            f"input '{op_name(op)}': its attribute {attribute} must be {reader.allowed}, got {found}; change it in the "
            "text of the module, or import the model again"
        )
    return value


def images_of(model: Model) -> dict[str, Preprocess]:
    """The inputs of a module that are images, by name."""
    found = ((op_name(op), Preprocess.of(op)) for op in model.ops if isinstance(op, TopInput))
    return {name: preprocess for name, preprocess in found if preprocess is not None}


def with_preprocess(model: Model, preprocess: Preprocess, which: Sequence[int] = ()) -> Model:
    """Write the options on inputs of the module, and return it. which: numbers of inputs from 1; (): all of them.

    Raises ConfigError for an input that is no image of these options.
    """
    inputs = [op for op in model.ops if isinstance(op, TopInput)]
    for number in which:
        if not 1 <= number <= len(inputs):
            raise ConfigError(
                f"{option('preprocess_list', number)}: the number of an input, 1 to {len(inputs)}, is required"
            )
    for op in [inputs[number - 1] for number in which] or inputs:
        fitted = preprocess.fitted(op_name(op), shape_of(op.output))
        op.attributes.update(fitted.attributes())
    return model


def prepare(files: Sequence[Path], preprocess: Preprocess, shape: Sequence[int]) -> Array:
    """The input made from these files: one per image of the batch, or a single file for all.

    shape: of the input. Raises CalibrationError for a file that is no image, and for another number of files.
    """
    batch = shape[0]
    if len(files) not in (1, batch):
        raise CalibrationError(f"samples: {files[0]} ...: 1 or {batch} images are required, got {len(files)}")
    if preprocess.frame is not None:
        return _frames(files, preprocess, preprocess.frame, batch)
    height, width = preprocess.image_dims(shape)
    images = np.stack([_sized(decode(file, _read_as(preprocess)), preprocess, height, width) for file in files])
    planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    if preprocess.pixel_format == "rgb":
        planes = planes[:, ::-1]
    factors = (preprocess.mean[: preprocess.channels], preprocess.scale[: preprocess.channels])
    mean, scale = (np.asarray(values, np.float32)[:, None, None] for values in factors)
    found = (planes.astype(np.float32) - mean) * scale
    found = found.transpose(0, 2, 3, 1) if preprocess.channel_format == "nhwc" else found
    return np.ascontiguousarray(np.repeat(found, batch // len(files), axis=0))


def _frames(files: Sequence[Path], preprocess: Preprocess, frame: Frame, batch: int) -> NDArray[np.uint8]:
    """The camera frames of files: in the size after resizing and the order of the frame."""
    sized = [_sized(decode(file, _read_as(preprocess)), preprocess, frame.height, frame.width) for file in files]
    images = np.stack(sized)
    planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    if preprocess.pixel_format == "rgb":
        planes = planes[:, ::-1]
    return frame.laid_out(np.repeat(planes, batch // len(files), axis=0))


def _read_as(preprocess: Preprocess) -> Channels:
    return "gray" if preprocess.channels == 1 else "rgba" if preprocess.channels == 4 else "color"


def _sized(image: Pixels, preprocess: Preprocess, height: int, width: int) -> Pixels:
    """An image in the network's size: resized, then cropped to its middle."""
    to = preprocess.resize_dims or (height, width)
    if not preprocess.keep_aspect_ratio:
        found = resize(image, *to)
    elif preprocess.keep_ratio_mode == "letterbox":
        centered = preprocess.pad_type == "center"
        found = letterbox(image, *to, pad_value=preprocess.pad_value, centered=centered)
    else:
        found = short_side(image, *to)
    return center_crop(found, height, width)
