"""Refinement: what makes chosen groups quicker, kept as far as a replay of their loops finds nothing wrong."""

from tpusim.layer_group.refinement.balance import arranged
from tpusim.layer_group.refinement.refiner import Refinements, Refiner
from tpusim.layer_group.refinement.validity import problem

__all__ = ["Refinements", "Refiner", "arranged", "problem"]
