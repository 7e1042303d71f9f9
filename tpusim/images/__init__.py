"""Image files as inputs of a network: the same arrays as TPU-MLIR's preprocessing, to the last bit (U-73).

Input: PNG, JPEG or BMP files, and the network's preprocessing (`Preprocess`). It is stored in the attributes of
`top.Input` under TPU-MLIR's names (interface.md 3.3), so that every command after the import reads the same images.
Output: an array in the input's shape, float32, (x - mean) * scale.

Pillow decodes the files, with the conventions of OpenCV's `imread` (grey levels, orientation, alpha, 16 bits). Sizes
are changed by OpenCV's bilinear interpolation in 11-bit fixed point, written again in this package. This package does
not know calibration.
"""

from tpusim.images.decode import SUFFIXES
from tpusim.images.frames import FORMATS, inputs_of
from tpusim.images.preprocess import Preprocess, images_of, prepare, with_preprocess

__all__ = ["FORMATS", "SUFFIXES", "Preprocess", "images_of", "inputs_of", "prepare", "with_preprocess"]
