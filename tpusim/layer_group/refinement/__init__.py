"""Refinement: steps that make chosen groups quicker; a step is kept if a replay of the group's loop has no error."""

from tpusim.layer_group.refinement.balance import arranged
from tpusim.layer_group.refinement.refiner import Refinements, Refiner
from tpusim.layer_group.refinement.validity import problem

__all__ = ["Refinements", "Refiner", "arranged", "problem"]
