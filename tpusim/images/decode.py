"""Image files to the arrays of OpenCV's `imread`: height x width x channels, uint8."""

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tpusim.errors import CalibrationError

Pixels = NDArray[np.uint8]
Channels = Literal["gray", "color", "rgba"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp")
"""Of the files that are taken for images, in lower case (U-73)."""

PNG_GRAY = (9797, 19234, 3737)
"""Shares of red, green and blue in 1/32768, rounded down: libpng's, for 0.299 and 0.587."""
OPENCV_GRAY = (4899, 9617, 1868)
"""The same in 1/16384, rounded to nearest: OpenCV's, for all other files except JPEG, which has its luma stored."""


def decode(path: Path, channels: Channels) -> Pixels:
    """The pixels of a file: (h, w) gray levels, (h, w, 3) blue, green, red, or (h, w, 4) red, green, blue, alpha.

    Raises CalibrationError for a file that is no image.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return _pixels(image, channels)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).split("\n", 1)[0]
        raise CalibrationError(f"samples: {path} must be a readable image; {reason}") from error


def _pixels(image: Any, channels: Channels) -> Pixels:
    from PIL import ImageOps

    if channels == "gray" and image.format == "JPEG":
        image.draft("L", None)
    if image.mode in ("I", "I;16"):
        image = _of_16_bits(image, channels)
    if channels == "rgba":  # ignores the orientation, as imread with IMREAD_UNCHANGED
        return np.asarray(image.convert("RGBA"))
    image, kind = ImageOps.exif_transpose(image), image.format
    if channels == "color":
        return np.asarray(_without_alpha(image))[..., ::-1]
    if image.mode in ("L", "LA", "1"):
        return np.asarray(image.convert("L") if image.mode == "1" else image.getchannel("L"))
    return _gray(np.asarray(_without_alpha(image)).astype(np.int64), kind)


def _of_16_bits(image: Any, channels: Channels) -> Any:
    """Gray levels of 16 bits in 8: the high byte; for rgba clipped to 255 (U-73)."""
    from PIL import Image

    wide = np.asarray(image).astype(np.int64)
    return Image.fromarray((np.minimum(wide, 255) if channels == "rgba" else wide >> 8).astype(np.uint8))


def _without_alpha(image: Any) -> Any:
    """Red, green and blue of an image; transparent pixels keep their color."""
    return image.convert("RGBA").convert("RGB") if image.mode in ("LA", "PA") else image.convert("RGB")


def _gray(color: NDArray[np.int64], kind: str | None) -> Pixels:
    """Gray levels of red, green and blue, by the arithmetic of the file format's decoder."""
    if kind == "PNG":
        return (color @ np.array(PNG_GRAY) >> 15).astype(np.uint8)
    return (color @ np.array(OPENCV_GRAY) + (1 << 13) >> 14).astype(np.uint8)
