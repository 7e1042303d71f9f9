"""Training through a chip's arithmetic: the numbers of the chip as a function of float weights, with derivatives.

Input: a calibrated top module, how it is lowered, weights and samples. Output: the network's results as the chip
computes them, with straight-through derivatives (`Differentiable`).
"""

from tpusim.studies.training.straight import Differentiable

__all__ = ["Differentiable"]
