"""The types of a module's inputs: floats, frames of a camera (--fuse-preprocess), stored integers."""

from dataclasses import dataclass
from warnings import warn

from tpusim.chips import ChipSpec, available, load
from tpusim.errors import ConfigError, ModeWarning, UnsupportedError, option
from tpusim.images import Preprocess
from tpusim.images.frames import always_aligned, frame_for, require_format
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name, text
from tpusim.ir.module import Model
from tpusim.ir.types import set_type, shape_of, storage_dtype, uniform_of
from tpusim.ops.cast import TpuCast
from tpusim.ops.interfaces import FusedFrames
from tpusim.ops.structure import TopInput


@dataclass(frozen=True)
class FrameOptions:
    """What frames the inputs take.

    customization_format: the layout of the bytes, of `tpusim.images.FORMATS`; "": as the preprocessing reads images.
    aligned_input: rows and planes begin at the chip's multiples.
    """

    customization_format: str = ""
    aligned_input: bool = False


def require_frames(config: FrameOptions, chip: ChipSpec) -> None:
    """Check the options of frames before there is a module.

    Raises UnsupportedError for a chip that cannot, ConfigError for an unknown format.
    """
    if (why := rules(chip, FusedFrames).why_not()) is not None:
        raise UnsupportedError(f"{option('fuse_preprocess', True)} on {chip.name}: {why}")
    if always_aligned(config.customization_format) and chip.frame_alignment is None:
        able = ", ".join(name for name in available() if load(name).frame_alignment is not None)
        raise UnsupportedError(
            f"{option('customization_format', config.customization_format)} on {chip.name}: frames in YUV "
            f"require aligned frames, which {able} have; the real compiler has another op here "
            "(tpu.Yuv2rgbFormula), which tpusim has not; give "
            f"{option('customization_format', 'BGR_PLANAR')}, or leave {option('fuse_preprocess', True)} out"
        )
    require_format(config.customization_format)


def fuse_preprocess(model: Model, config: FrameOptions, chip: ChipSpec) -> None:
    """Let the inputs of a top module that are images take frames; the lowering does their preprocessing.

    Raises ConfigError for a network without images, UnsupportedError for a chip that cannot.
    """
    require_frames(config, chip)
    if config.aligned_input and chip.frame_alignment is None:
        warn(
            ModeWarning(f"{option('aligned_input', True)} on {chip.name}: its frames are not aligned; nothing changes"),
            stacklevel=4,
        )
    yuv = always_aligned(config.customization_format)
    alignment = chip.frame_alignment if config.aligned_input or yuv else None
    inputs = [op for op in model.ops if isinstance(op, TopInput) and not op.takes_frames]
    images = [(op, preprocess) for op in inputs if (preprocess := Preprocess.of(op)) is not None]
    for op, preprocess in images:
        frame_for(op_name(op), shape_of(op.output), preprocess, config.customization_format, alignment).fuse_into(op)
    model.function.update_function_type()
    if not images:
        raise ConfigError(
            f"{option('fuse_preprocess', True)}: an input that is an image is required, and no input of "
            "the module is one; give "
            f"{option('mean')}, {option('scale')}, {option('pixel_format')} ... where the model is imported"
        )


def strip_input_casts(model: Model) -> None:
    """Give inputs the integer type of the cast that alone reads them, and remove the cast.

    Raises ConfigError if there is no such input, and none that takes integers already.
    """
    for op in [op for op in model.ops if isinstance(op, TopInput)]:
        casts = [use.operation for use in op.output.uses]
        cast = casts[0] if len(casts) == 1 else None
        uniform = uniform_of(cast.output) if isinstance(cast, TpuCast) else None
        if not isinstance(cast, TpuCast) or uniform is None or uniform_of(op.output) is not None:
            continue
        op.dtype = text(storage_dtype(uniform).name)
        kind = cast.output.type
        cast.output.replace_all_uses_with(op.output)
        cast.detach()
        cast.erase()
        for value in (op.input, op.output):
            set_type(value, kind)
    if not any(uniform_of(op.output) is not None for op in model.ops if isinstance(op, TopInput)):
        raise ConfigError(
            f"{option('quant_input', True)}: an input with a cast to integers as its only reader is required, got none"
        )
    model.function.update_function_type()
