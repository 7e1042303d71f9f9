"""Camera frames for modules that contain the preprocessing (`--fuse-preprocess`): options and bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim import chips
from tpusim.errors import CalibrationError, ConfigError, option
from tpusim.images.preprocess import Preprocess
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.cast import quantised_by_host
from tpusim.ops.frames import FORMATS, YUV, Frame, Fused, raw_name
from tpusim.ops.structure import TopInput

Tensors = Mapping[str, NDArray[Any]]

NEAR = 0.01
"""The largest distance from a whole number of a byte that is computed back from f32 by mean and scale."""


def frame_for(
    name: str, shape: Sequence[int], preprocess: Preprocess, format: str, alignment: tuple[int, int] | None
) -> Frame:
    """The frames of an input of this shape. Raises ConfigError if the format contradicts its preprocessing."""
    format = format or {"rgb": "RGB_PLANAR", "bgr": "BGR_PLANAR", "gray": "GRAYSCALE"}.get(preprocess.pixel_format, "")
    if format not in FORMATS:
        asked = option("customization_format", format) if format else f"frames in {preprocess.pixel_format}"
        raise ConfigError(
            f"input '{name}': {asked} cannot be fused; {', '.join(FORMATS)} can, others stay with the host"
        )
    order = FORMATS[format][0]
    if preprocess.channel_format != "nchw":
        raise ConfigError(
            f"input '{name}': {option('fuse_preprocess', True)} requires {option('channel_format', 'nchw')}, got nhwc"
        )
    if (order == "gray") != (preprocess.channels == 1) or preprocess.channels == 4:
        raise ConfigError(
            f"input '{name}': {option('customization_format', format)} does not fit images in "
            f"{preprocess.pixel_format}; "
            f"leave it out, or give the model's {option('pixel_format')}"
        )
    height, width = preprocess.resize_dims or preprocess.image_dims(shape)
    if format in YUV and shape[0] != 1:
        raise ConfigError(
            f"input '{name}': {option('customization_format', format)} requires a batch of 1, got {shape[0]}"
        )
    if format in YUV and (height % 2 or width % 2):
        raise ConfigError(
            f"input '{name}': {option('customization_format', format)} requires frames of even height and width, got "
            f"{height}x{width}; give other {option('resize_dims')}"
        )
    return Frame.of(format, preprocess.channels, (height, width), alignment)


def fused_of(op: TopInput) -> Fused:
    """What a lowering makes of the frames that an input of a top module takes (`Frame.fuse_into`).

    Raises ConfigError for an input whose attributes state no frames.
    """
    frame, preprocess = Frame.read(op), Preprocess.of(op)
    if frame is None or preprocess is None:
        raise ConfigError(
            f"input '{op_name(op)}': customization_format and pixel_format are required of an input that is fused"
        )
    shape, wanted = shape_of(op.input), frame.shape(shape_of(op.output)[0])
    if shape != wanted:
        raise ConfigError(f"input '{op_name(op)}': frames of shape {wanted} are required for {frame}, got {shape}")
    order = FORMATS[frame.format][0]
    swap = order != "gray" and order != _order(preprocess)
    return Fused(frame, preprocess.mean, preprocess.scale, swap)


def require_format(format: str) -> None:
    """Raise ConfigError for a layout of bytes that no frame has; "" stands for that of the preprocessing."""
    if format and format not in FORMATS:
        raise ConfigError(
            f"{option('customization_format', format)} cannot be fused; {', '.join(FORMATS)} can, others stay with the "
            "host"
        )


def always_aligned(format: str) -> bool:
    """Whether frames of a format always have aligned rows and planes, as YUV frames do."""
    return format in YUV


def _order(preprocess: Preprocess) -> str:
    """The order "rgb" or "bgr": with the raw formats of cameras, files are read as bgr."""
    return "rgb" if preprocess.pixel_format == "rgb" else "bgr"


def inputs_of(
    tpu: Model, sample: Tensors, images: Mapping[str, Preprocess], *, nearest: bool = False
) -> dict[str, Any]:
    """The inputs of a lowered module for a sample of floats: frames and stored integers where the module has them.

    images: the preprocessing of the inputs before it was fused. nearest: use the nearest frame for samples that are no
    image (random ones). Raises CalibrationError for such samples otherwise.
    """
    found: dict[str, Any] = {}
    for op in tpu.ops:
        if not isinstance(op, TopInput):
            continue
        name, frame, uniform = op_name(op), Frame.read(op), uniform_of(op.output)
        own = name.removesuffix(raw_name(""))
        if frame is not None and name not in sample and own in images:
            found[name] = frame_of(sample[own], images[own], frame, own, nearest=nearest)
        elif frame is None and uniform is not None and sample[name].dtype.kind == "f":
            found[name] = quantised_by_host(sample[name], uniform, chips.of(tpu))
        else:
            found[name] = sample[name]
    return found


def frame_of(
    floats: NDArray[Any], preprocess: Preprocess, frame: Frame, name: str, *, nearest: bool
) -> NDArray[np.uint8]:
    """The frame whose preprocessing gives these floats; cropped pixels are zero.

    A YUV frame is that of the same image, with the colours of every fourth pixel only.
    """
    count = preprocess.channels
    mean, scale = (np.asarray(v[:count], np.float32)[:, None, None] for v in (preprocess.mean, preprocess.scale))
    values = floats.astype(np.float64) / scale + mean
    whole = np.clip(np.rint(values), 0, 255)
    far = float(np.abs(values - whole).max())
    if far > NEAR and not nearest:
        raise CalibrationError(
            f"samples: input '{name}' takes frames of a camera: (x - mean) * scale of whole numbers from 0 to 255 is "
            f"required, got a value that is {far:g} away from one; give image files"
        )
    if FORMATS[frame.format][0] not in ("gray", _order(preprocess)):
        whole = whole[:, ::-1]
    height, width = whole.shape[2:]
    images = np.zeros((len(whole), count, frame.height, frame.width), np.uint8)
    top, left = frame.height // 2 - height // 2, frame.width // 2 - width // 2
    images[:, :, top : top + height, left : left + width] = whole
    return frame.laid_out(images)
