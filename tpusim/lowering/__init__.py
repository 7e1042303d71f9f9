"""Lowering: a calibrated top module + chip + mode -> a tpu module (docs/spec/numerics.md 3 to 9).

Input: state TOP_CALIBRATED (int8) or TOP_F32 (f32). Output: state TPU_LOWERED, a new module with new weights; every
value has a storage type, casts are inserted where an op needs another type, network inputs and results stay f32.
Order (numerics.md 3.5): automatic float marks (`marks`), threshold propagation (`propagate`), then each op once in
program order by its `lower`; the passes of `tpusim.passes.lowering` call these steps. Afterwards `chip_optimize`
makes the rewrites of the chip's compiler before layer groups, and `reorder` puts weights into the chip's layout.
The stage names no op: an op's RangeRule says how it changes ranges, its `lower` what it becomes.
"""

from tpusim.lowering.borders import FrameOptions, fuse_preprocess, require_frames
from tpusim.lowering.chip_optimize import optimize_for_chip
from tpusim.lowering.conversion import Conversion, require_lowering
from tpusim.lowering.lower import ConversionConfig, LoweringConfig, config_for_chip, lowered_as
from tpusim.lowering.reorder import reorder_weights

__all__ = [
    "Conversion", "ConversionConfig", "FrameOptions", "LoweringConfig", "config_for_chip", "fuse_preprocess",
    "lowered_as", "optimize_for_chip", "reorder_weights", "require_frames", "require_lowering",
]  # fmt: skip
