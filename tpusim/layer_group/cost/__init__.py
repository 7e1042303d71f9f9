"""Cost: the time of a group on the chip's clock (layer_group.md 11), and lower bounds of every grouping."""

from tpusim.layer_group.cost.bounds import LowerBounds, lower_bounds, products
from tpusim.layer_group.cost.model import GAIN_NS, CostModel

__all__ = ["GAIN_NS", "CostModel", "LowerBounds", "lower_bounds", "products"]
