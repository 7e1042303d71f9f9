"""Search: which runs of ops become groups, pinned or searched, and the stage as a whole (layer_group.md 12)."""

from tpusim.layer_group.search.greedy import alone
from tpusim.layer_group.search.pins import require_named
from tpusim.layer_group.search.reordering import orders
from tpusim.layer_group.search.stage import ON_THE_CLOCK, LayerGroupConfig, Strategy, group_layers, searched

__all__ = [
    "ON_THE_CLOCK",
    "LayerGroupConfig",
    "Strategy",
    "alone",
    "group_layers",
    "orders",
    "require_named",
    "searched",
]
