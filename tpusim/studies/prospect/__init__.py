"""The compilation of a network for a chip, reported before anything runs: `tpusim check`.

Input: an ONNX model, a chip and a mode. Output: a `Prospect`: how every node is imported, which tpu op computes its
result, in which type, and whether from local memory; for refused nodes the reason, and where the network can be cut.
No sample runs. Without a calibration table ranges are assumed (`assumed`), so decisions that depend on ranges may
differ in a run.
"""

from tpusim.studies.prospect.compilation import LoweredOp, NodeOutcome, Prospect, prospect

__all__ = ["LoweredOp", "NodeOutcome", "Prospect", "prospect"]
