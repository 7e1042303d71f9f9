"""What would become of a network on a chip, before anything runs: `tpusim check`.

Input: an ONNX model, a chip and a mode. Output: a `Prospect`: how every node is imported, which tpu op holds its
result, in which numbers, whether from local memory; for what cannot be taken why, and where the network can be cut.
No sample runs: without a calibration table ranges are assumed (`assumed`), so what depends on them is not foreseen.
"""

from tpusim.prospect.ahead import LoweredOp, NodeAhead, Prospect, prospect

__all__ = ["LoweredOp", "NodeAhead", "Prospect", "prospect"]
