"""The rules of layer groups on CV18xx."""

from tpusim.ops.interfaces import GroupRules
from tpusim.targets.cv18xx.target import TARGET


@TARGET.provide(GroupRules)
class Cv18xxGroups(GroupRules):
    """NORMAL groups alone, cut along n and h, costed by stages (layer_group.md 3, 4, 7.3, 11)."""

    SHARED_WINDOWS = False
    CUTS_DEPTH_AND_WIDTH = False
    GROUP_TYPES = False
    RESULTS_IN_PLACE = False
    COST = "stages"
    SEARCH = "1"
    REPEATS_WINDOWS = False
    WHOLE_UPSAMPLE = True
