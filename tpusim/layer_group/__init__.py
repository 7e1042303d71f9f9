"""Layer groups: a tpu module -> the same module with runs of ops inside `tpu.Group` (spec/layer_group.md).

Input: state TPU_REORDERED. Output: state TPU_DIVIDED; every group carries its sections, schedule (`flow`) and, per op,
`#tpu.lg` with local-memory addresses and slices; an op that stays outside carries `global_reason`.

In processing order: `graph` finds candidates, `slicing` cuts outputs and propagates backward, `timestep` builds the
folded three-stage pipeline, `lifetime` sizes and dates the buffers, `lmem` places them, `plan` finds the sections of
one group, `search` the groups (opt 1: greedy from the tail), `rewrite` writes the result into the module.

Invariants: what an op needs is asked from the op; the stage names no op. A group is only written when its slices
propagate, its buffers fit, and coefficients stay resident while slices stream. The stage emits no command and knows
no global-memory address.
"""

from tpusim.layer_group.search import LayerGroupConfig, group_layers

__all__ = ["LayerGroupConfig", "group_layers"]
