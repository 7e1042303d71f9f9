"""Cost: what a group takes on the chip's clock (layer_group.md 11), and what no grouping can undercut."""

from tpusim.layer_group.cost.bounds import LowerBounds, lower_bounds, products
from tpusim.layer_group.cost.model import GAIN_NS, CostModel

__all__ = ["GAIN_NS", "CostModel", "LowerBounds", "lower_bounds", "products"]
