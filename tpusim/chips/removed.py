"""Fields that chips' files once had: they named a family's behaviour, which is that family's target now.

Each with the question that decides it, as "interface of op"; a target answers it (`tpusim.targets`).
"""

from collections.abc import Mapping
from typing import Any, cast

_REMOVED: dict[str, str] = {
    "integers.any_stride": "IntegerLowering of top.Conv",
    "forms.wide_windows": "ChipRewrites of top.Conv, top.Pad and top.MatMul, LoweredRewrites of tpu.Pad",
    "forms.padded_image": "LoweredRewrites of tpu.Pad",
    "forms.heads_in_products": "ChipRewrites of top.MatMul",
    "forms.heads_inside_products": "ChipRewrites of top.MatMul, LoweredRewrites of tpu.MatMul",
    "shared_windows": "GroupRules.SHARED_WINDOWS",
    "conv_margins_only": "GroupRules.ONLY_CONVOLUTIONS_SHARE",
    "cuts_depth_and_width": "GroupRules.CUTS_DEPTH_AND_WIDTH",
    "has_group_types": "GroupRules.GROUP_TYPES",
    "results_in_place": "GroupRules.RESULTS_IN_PLACE",
    "group_cost": "GroupRules.COST",
    "group_search": "GroupRules.SEARCH",
    "local.volumes": "LocalGen of tpu.Conv3D and tpu.Pool3D",
    "local.equal_shapes": "LocalGen of tpu.Add and tpu.Mul",
    "local.views": "LocalGen of tpu.Reshape",
    "local.slices": "LocalGen of tpu.Slice",
    "local.work_areas": "WorkArea of each op",
    "local.casts_of_f32": "LocalGen of tpu.Cast",
    "local.joins_channels_only": "LocalGen of tpu.Concat",
    "local.wide_windows": "WindowRules.GATHERS_WIDE",
    "local.one_row_groups": "LocalGen of tpu.Conv2D and tpu.Deconv",
    "forms.permutes_behind": "LoweredRewrites of tpu.MatMul",
}


def why_removed(fields: Mapping[str, Any]) -> str | None:
    """What replaces the first of the fields that is no longer one; None if all may be fields."""
    for name, question in _REMOVED.items():
        table, _, key = name.rpartition(".")
        within = fields.get(table, {}) if table else fields
        if isinstance(within, dict) and key in cast("dict[str, Any]", within):
            return (
                f"{name}: chips have no such field any more, their family's target decides it ({question}); "
                "delete the line, and for another behaviour set family to that of a chip with it, or to your target's"
            )
    return None
