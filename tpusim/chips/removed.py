"""Fields that chips' files once had: they named a family's behaviour, which is that family's target now.

Each with the question that decides it, as "interface of op"; a target answers it (`tpusim.targets`).
"""

from collections.abc import Mapping
from typing import Any, cast

REMOVED: dict[str, str] = {
    "integers.volumes": "IntegerLowering of top.Conv, top.Deconv and top.AvgPool",
    "integers.products": "IntegerLowering of top.MatMul",
    "integers.constant_factors": "IntegerLowering of top.Mul",
    "integers.reductions": "IntegerLowering and Ranges of top.Reduce",
    "integers.limited_relu": "IntegerLowering of top.Relu",
    "integers.most_pooled": "IntegerLowering of top.AvgPool, Lowering of top.MaxPool",
    "integers.average_table": "IntegerLowering and Ranges of top.AvgPool",
    "integers.scale_as": "ChipRewrites, FloatLowering and IntegerLowering of top.Scale",
    "integers.constants_as_tables": "IntegerLowering of top.MulConst and its relatives",
    "integers.abs_table": "Lowering of top.Abs",
    "integers.gelu_table": "ByteTable of top.GELU",
    "integers.bounded_reciprocal": "ByteTable of top.Reciprocal",
    "integers.pads_half_up": "Lowering of top.Pad",
    "integers.sums_set_ranges": "RangePropagation",
    "forms.add_const": "ChipRewrites of top.AddConst",
    "forms.div": "ChipRewrites of top.Div",
    "forms.clip": "ChipRewrites of top.MaxConst",
    "forms.limited_relu": "FloatLowering of top.Relu",
    "forms.layer_norm": "FloatLowering of top.LayerNorm",
    "forms.rms_norm": "ChipRewrites of top.RMSNorm",
    "forms.instance_norm": "FloatLowering of top.InstanceNorm",
    "forms.hard_activations": "FloatLowering of top.HardSigmoid and top.HardSwish",
    "forms.reduce_l2": "FloatLowering of top.Reduce",
    "forms.resize": "ChipRewrites of top.Upsample and top.Interp",
    "forms.nms": "FloatLowering of top.Nms",
    "forms.without_relu": "ChipRewrites of top.MulConst, top.AvgPool and top.MaxPool",
    "symmetric_ranges": "RangePropagation",
    "fused_frames": "FusedFrames",
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
    for name, question in REMOVED.items():
        table, _, key = name.rpartition(".")
        within = fields.get(table, {}) if table else fields
        if isinstance(within, dict) and key in cast("dict[str, Any]", within):
            return (
                f"{name}: chips have no such field any more, their family's target decides it ({question}); "
                "delete the line, and for another behaviour set family to that of a chip with it, or to your target's"
            )
    return None
