"""Simplify a top module: op patterns and cross-op fusions to a fix point.

Input and output: a top module in state TOP_F32 and its weights; the input is not changed. The patterns are the ops' own
(`TopOp.canonicalization_patterns`); here are only the driver, which counts how often each fired, and behind it the
merging of ops that compute the same and the removal of what nothing uses any more. Results keep their names: a fused op
is called like the last tensor of the fusion, so the output can be compared with the original network tensor by tensor.
Values change only by float rounding (constants are folded in f64 and narrowed once). Nothing here knows a chip or op.
"""

from tpusim.canonicalize.canonicalize import canonicalize

__all__ = ["canonicalize"]
