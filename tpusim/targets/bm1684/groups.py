"""The rules of layer groups on BM1684."""

from tpusim.ops.interfaces import GroupRules
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(GroupRules)
class Bm1684Groups(GroupRules):
    """NORMAL groups alone, cut along n and h, costed by stages (layer_group.md 3, 4, 7.3, 11)."""

    ONLY_CONVOLUTIONS_SHARE = True
    CUTS_DEPTH_AND_WIDTH = False
    GROUP_TYPES = False
    COST = "stages"
    REPEATS_WINDOWS = False
    WHOLE_UPSAMPLE = True
