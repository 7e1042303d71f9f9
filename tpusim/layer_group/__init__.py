"""Layer groups: a tpu module -> the same module with runs of ops inside `tpu.Group` (docs/spec/layer_group.md).

Input: state TPU_REORDERED. Output: state TPU_DIVIDED; every group carries its sections, schedule (`flow`) and, per op,
`#tpu.lg` with local-memory addresses and slices; an op that stays outside carries `tpusim.global_reason`.

The folders in the order in which they use each other, each through its `__init__`: `candidates` (runs of ops that
may be groups, and of which types), `slicing` (how often a group may be cut, and what its cut outputs need),
`local_memory` (areas and their addresses), `planning` (the `tpusim.schedule.GroupSchedule` of one group, or why it has
none), `cost` (how long a group takes), `refinement` (steps that make chosen groups quicker, and the replay that proves
them right), `files` (groups in the module, as text, and as a file that pins them), `search` (which runs become groups).

Invariants: ops state what they need; the stage names no op. A group is only written if its slices
propagate, its buffers fit, and coefficients stay resident while slices stream. The stage emits no command and knows
no global-memory address.
"""

from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel, LowerBounds, lower_bounds, products
from tpusim.layer_group.files import (
    Counts,
    ForcedGroup,
    GlobalView,
    GroupView,
    TypeName,
    group_number,
    groups_text,
    merge_moves,
    read_forced,
    read_groups,
    view_number,
    views,
)
from tpusim.layer_group.planning import Decided, plan
from tpusim.layer_group.refinement import Refinements
from tpusim.layer_group.search import (
    ON_THE_CLOCK,
    LayerGroupConfig,
    SearchOptions,
    Strategy,
    alone,
    choose_cores,
    combine_timesteps,
    group_layers,
    orders,
    overlap_groups,
    require_named,
    require_strategy,
    search_groups,
    searched,
)
from tpusim.schedule import Costs

__all__ = [
    "ON_THE_CLOCK", "CostModel", "Costs", "Counts", "Decided", "ForcedGroup", "GlobalView", "GroupView",
    "LayerGroupConfig", "LowerBounds", "Refinements", "SearchOptions", "Strategy", "TypeName", "alone", "base_groups",
    "choose_cores", "combine_timesteps", "group_layers", "group_number", "groups_text", "lower_bounds", "merge_moves",
    "orders", "overlap_groups", "plan", "products", "read_forced", "read_groups", "require_named", "require_strategy",
    "search_groups", "searched", "view_number", "views",
]  # fmt: skip
