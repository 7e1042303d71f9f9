"""Fields that chips' files had up to 0.2.0: each named a family's behaviour, which that family's target decides now.

A file that states what its family does is read as before; a file that states something else is refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tpusim.chips.families import BM1684, BM1684X, BM1690, CV18XX


class Removed(NamedTuple):
    """A field: the question that decides it now, as "interface of op", and what it was in each family's files."""

    question: str
    reference: Any
    """On the 1684X family."""
    bm1684: Any
    cv18xx: Any
    bm1690: Any = None
    """None: as on the 1684X family."""

    def of(self, family: str) -> Any:
        """What it was in the files of a family; None of a package's family, which never had the field."""
        bm1690 = self.reference if self.bm1690 is None else self.bm1690
        return {"bm1684x": self.reference, "bm1690": bm1690, "bm1684": self.bm1684, "cv18xx": self.cv18xx}.get(family)


REMOVED: dict[str, Removed] = {
    "integers.volumes": Removed("IntegerLowering of top.Conv, top.Deconv and top.AvgPool", "all", "pools", "max_pools"),
    "integers.products": Removed("IntegerLowering of top.MatMul", "any", "fully_connected", "constant"),
    "integers.constant_factors": Removed("IntegerLowering of top.Mul", True, True, False),
    "integers.reductions": Removed("IntegerLowering and Ranges of top.Reduce", False, False, True),
    "integers.limited_relu": Removed("IntegerLowering of top.Relu", True, True, False),
    "integers.most_pooled": Removed("IntegerLowering of top.AvgPool, Lowering of top.MaxPool", 0, 225, 0),
    "integers.average_table": Removed("IntegerLowering and Ranges of top.AvgPool", False, True, False),
    "integers.scale_as": Removed(
        "ChipRewrites, FloatLowering and IntegerLowering of top.Scale", "conv", "scale", "depthwise"
    ),
    "integers.constants_as_tables": Removed("IntegerLowering of top.MulConst and its relatives", False, False, True),
    "integers.abs_table": Removed("Lowering of top.Abs", False, True, False),
    "integers.gelu_table": Removed("ByteTable of top.GELU", "own", "tanh", "own"),
    "integers.bounded_reciprocal": Removed("ByteTable of top.Reciprocal", False, False, True),
    "integers.pads_half_up": Removed("Lowering of top.Pad", False, False, True),
    "integers.sums_set_ranges": Removed("RangePropagation", True, False, False),
    "forms.add_const": Removed("ChipRewrites of top.AddConst", True, True, False),
    "forms.div": Removed("ChipRewrites of top.Div", True, True, False),
    "forms.clip": Removed("ChipRewrites of top.MaxConst", True, False, True),
    "forms.limited_relu": Removed("FloatLowering of top.Relu", True, True, False),
    "forms.layer_norm": Removed("FloatLowering of top.LayerNorm", True, False, True),
    "forms.rms_norm": Removed("ChipRewrites of top.RMSNorm", True, False, False),
    "forms.instance_norm": Removed("FloatLowering of top.InstanceNorm", True, False, True),
    "forms.hard_activations": Removed(
        "FloatLowering of top.HardSigmoid and top.HardSwish", "op", "constants", "depthwise"
    ),
    "forms.reduce_l2": Removed("FloatLowering of top.Reduce", True, False, True),
    "forms.resize": Removed("ChipRewrites of top.Upsample and top.Interp", True, True, False),
    "forms.nms": Removed("FloatLowering of top.Nms", True, True, False),
    "forms.without_relu": Removed(
        "ChipRewrites of top.MulConst, top.AvgPool and top.MaxPool",
        [],
        [],
        ["top.MulConst", "top.AvgPool", "top.MaxPool"],
    ),
    "symmetric_ranges": Removed("RangePropagation", False, False, True),
    "fused_frames": Removed("FusedFrames", True, False, True),
    "integers.any_stride": Removed("IntegerLowering of top.Conv", True, False, True),
    "forms.wide_windows": Removed(
        "ChipRewrites of top.Conv, top.Pad and top.MatMul, LoweredRewrites of tpu.Pad", "padded", "padded", "rewritten"
    ),
    "forms.padded_image": Removed("LoweredRewrites of tpu.Pad", False, True, False),
    "forms.heads_in_products": Removed("ChipRewrites of top.MatMul", False, False, True),
    "forms.heads_inside_products": Removed(
        "ChipRewrites of top.MatMul, LoweredRewrites of tpu.MatMul", True, False, False
    ),
    "shared_windows": Removed("GroupRules.SHARED_WINDOWS", True, True, False),
    "conv_margins_only": Removed("GroupRules.ONLY_CONVOLUTIONS_SHARE", False, True, False),
    "cuts_depth_and_width": Removed("GroupRules.CUTS_DEPTH_AND_WIDTH", True, False, False),
    "has_group_types": Removed("GroupRules.GROUP_TYPES", True, False, False),
    "results_in_place": Removed("GroupRules.RESULTS_IN_PLACE", True, True, False),
    "group_cost": Removed("GroupRules.COST", "replay", "stages", "stages"),
    "group_search": Removed("GroupRules.SEARCH", "2", "2", "1"),
    "local.volumes": Removed("LocalGen of tpu.Conv3D and tpu.Pool3D", "all", "float", "none"),
    "local.equal_shapes": Removed("LocalGen of tpu.Add and tpu.Mul", False, False, True),
    "local.views": Removed("LocalGen of tpu.Reshape", True, False, False),
    "local.slices": Removed("LocalGen of tpu.Slice", "any", "lane_0", "any"),
    "local.work_areas": Removed("WorkArea of each op", "bytes", "words", "bytes"),
    "local.casts_of_f32": Removed("LocalGen of tpu.Cast", True, True, False),
    "local.joins_channels_only": Removed("LocalGen of tpu.Concat", False, False, True),
    "local.wide_windows": Removed("WindowRules.GATHERS_WIDE", True, False, False),
    "local.one_row_groups": Removed("LocalGen of tpu.Conv2D and tpu.Deconv", False, False, True),
    "forms.permutes_behind": Removed("LoweredRewrites of tpu.MatMul", False, True, False),
    "float_fallback": Removed("FloatRules.FALLBACK", "f16", "f32", "bf16"),
    "int16_outputs": Removed("ProductRules.WIDE_RESULTS", True, False, False, False),
    "column_multipliers": Removed("ProductRules.COLUMN_MULTIPLIERS", True, False, False, False),
    "lone_casts_are_global": Removed("KernelLibrary.LONE_CASTS", True, False, False, False),
    "permutes_by_matrices": Removed("KernelLibrary.PERMUTES_BY_MATRICES", True, False, False, False),
    "forms.upsample": Removed("KernelLibrary.UPSAMPLES_BY_INDICES", "indices", "copies", "copies", "copies"),
    "dma_align_bytes": Removed("GroupRules.UNCUT_ROW_BYTES", 512, 512, 512, 256),
    "grouped_conv_margins": Removed("GroupRules.GROUPED_MARGINS", True, True, True, False),
    "repeats_windows": Removed("GroupRules.REPEATS_WINDOWS", True, False, False, False),
    "dma_pages": Removed("ChipSpec.counts_all_pages", "first", "first", "first"),
    "whole_upsample": Removed("GroupRules.WHOLE_UPSAMPLE", False, True, True, True),
    **{
        field: Removed(
            f"Hardware.{field.rpartition('.')[2]}",
            *(getattr(one, field.rpartition(".")[2]) for one in (BM1684X, BM1684, CV18XX, BM1690)),
        )
        for field in (
            *("requant", "coefficients", "integers.scaling", "integers.scale_bits", "asymmetric"),
            *("batch_packing", "merges_kernels", "bf16_unit", "float_tables", "cycle_model"),
        )
    },
}


def _copied(part: Any) -> Any:
    return dict(cast("dict[str, Any]", part)) if isinstance(part, dict) else part


def without_removed(fields: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """(the fields that are left, why one of the others must go; None if each says what its family does)."""
    left = {key: _copied(part) for key, part in fields.items()}
    family = str(fields.get("family", ""))
    for name, removed in REMOVED.items():
        table, _, key = name.rpartition(".")
        within = left.get(table, {}) if table else left
        if not isinstance(within, dict) or key not in within:
            continue
        said = cast("dict[str, Any]", within).pop(key)
        if said != removed.of(family):
            return left, (
                f"{name}: family '{family}' decides it now ({removed.question}), got {said!r}; delete the line, or set "
                "family to that of a chip that behaves so, or to a family of your package"
            )
    return left, None
