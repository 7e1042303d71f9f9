"""Simplify a top module: op patterns and cross-op fusions to a fix point.

Input and output: a top module in state TOP_F32 and its weights; the input is not changed. The patterns belong to the
ops (`TopOp.canonicalization_patterns`); this room has only the driver, which counts how often each fired, then merges
identical ops and removes unused ones. Results keep their names: a fused op has the name of the fusion's last tensor, so
the output can be compared with the original network tensor by tensor. Values change only by float rounding (constants
are folded in f64 and narrowed once). The room knows no chip and no op.
"""

from tpusim.canonicalize.canonicalize import QUIRKS, canonicalize, require_patterns

__all__ = ["QUIRKS", "canonicalize", "require_patterns"]
