"""Layer groups: a tpu module -> the same module with runs of ops inside `tpu.Group` (spec/layer_group.md).

Input: state TPU_REORDERED. Output: state TPU_DIVIDED; every group carries its sections, schedule (`flow`) and, per op,
`#tpu.lg` with local-memory addresses and slices; an op that stays outside carries `global_reason`.

In processing order: `graph` finds candidates, `slicing` cuts outputs and propagates backward, `timestep` builds the
folded three-stage pipeline, `lifetime` sizes and dates the buffers, `lmem` places them (`reuse`: results in place of
operands), `plan` finds the sections of one group (`spread`: such that several cores can share the steps), `cost` says
how long it takes, `search` chooses the groups (`greedy`: opt 1, from the tail; `dynamic`: opt 2, dynamic programming on
the cost; `shapes`: better sections), `refine` makes the chosen ones quicker (`moves` between rows, `combine` of rows,
`overlap` of neighbours) as far as the replay of `validity` allows, `rewrite` writes the result into the module. `force`
takes pinned groups from a file, `capacity` explains what does not fit, `readback` reads a grouped module for people,
`bounds` says what no choice of groups can undercut.

Invariants: what an op needs is asked from the op; the stage names no op. A group is only written when its slices
propagate, its buffers fit, and coefficients stay resident while slices stream. The stage emits no command and knows
no global-memory address.
"""

from tpusim.layer_group.bounds import LowerBounds, lower_bounds
from tpusim.layer_group.force import ForcedGroup, groups_text, read_groups
from tpusim.layer_group.readback import GlobalView, GroupView, views
from tpusim.layer_group.refine import Refinements
from tpusim.layer_group.search import LayerGroupConfig, group_layers

__all__ = [
    "ForcedGroup", "GlobalView", "GroupView", "LayerGroupConfig", "LowerBounds", "Refinements", "group_layers",
    "groups_text", "lower_bounds", "read_groups", "views",
]  # fmt: skip
