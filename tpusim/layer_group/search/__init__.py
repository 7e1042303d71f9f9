"""Search: which runs of ops become groups, pinned or searched, and the stage as a whole (layer_group.md 12)."""

from tpusim.layer_group.search.greedy import alone
from tpusim.layer_group.search.pins import require_named
from tpusim.layer_group.search.reordering import orders
from tpusim.layer_group.search.stage import (
    ON_THE_CLOCK,
    LayerGroupConfig,
    SearchOptions,
    Strategy,
    choose_cores,
    combine_timesteps,
    group_layers,
    overlap_groups,
    require_strategy,
    search_groups,
    searched,
)

__all__ = [
    "ON_THE_CLOCK",
    "LayerGroupConfig",
    "SearchOptions",
    "Strategy",
    "alone",
    "choose_cores",
    "combine_timesteps",
    "group_layers",
    "orders",
    "overlap_groups",
    "require_named",
    "require_strategy",
    "search_groups",
    "searched",
]
