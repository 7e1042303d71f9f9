"""Image files as inputs of a network: what TPU-MLIR's preprocessing makes of the same file (U-73).

Input: PNG, JPEG or BMP files, and how the network wants its images (`Preprocess`), which is kept in the attributes of
`top.Input` under TPU-MLIR's names (interface.md 3.3), so that every command after the import reads the same images.
Output: an array in the input's shape, float32, (x - mean) * scale.

Files are decoded by Pillow as OpenCV's `imread` decodes them (grey levels, orientation, alpha, 16 bits); sizes are
changed by OpenCV's bilinear interpolation in 11-bit fixed point, restated here. Nothing here knows of calibration.
"""

from tpusim.images.decode import SUFFIXES
from tpusim.images.frames import FORMATS, inputs_of
from tpusim.images.preprocess import Preprocess, images_of, prepare, with_preprocess

__all__ = ["FORMATS", "SUFFIXES", "Preprocess", "images_of", "inputs_of", "prepare", "with_preprocess"]
