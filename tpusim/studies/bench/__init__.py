"""How fast a network runs in tpusim and in ONNX Runtime, side by side in one process.

Input: an ONNX file and what it is compiled for. Output: one `Measurement` per contestant. A figure alone means little
on a machine that others use: all contestants take turns, and what counts is the ratio of medians.
"""

from tpusim.studies.bench.contestants import Contestant, Unavailable, contestants
from tpusim.studies.bench.measure import Measurement, measure

__all__ = ["Contestant", "Measurement", "Unavailable", "contestants", "measure"]
