"""Questions of the search for layer groups about a family of chips, with the answers of the reference family."""

from typing import Literal

from tpusim.interfaces import Rules


class GroupRules(Rules):
    """How layer groups are cut, costed and placed (layer_group.md)."""

    SHARED_WINDOWS = True
    """Users of one tensor may read different rows of a shared slice (7.3)."""
    ONLY_CONVOLUTIONS_SHARE = False
    """Such users must be convolutions, and none of them may be outside the group (7.3)."""
    CUTS_DEPTH_AND_WIDTH = True
    """Tensors are cut along d and w (4)."""
    GROUP_TYPES = True
    """SMALL_C and MM groups exist in addition to NORMAL and 3D ones (3)."""
    RESULTS_IN_PLACE = True
    """A result may take the bytes of an operand in local memory (10.1, rule 6)."""
    COST: Literal["replay", "stages"] = "replay"
    """Cost of a group: its loop replayed, or the sum of filling, kernel and draining (11)."""
    SEARCH: Literal["1", "2"] = "2"
    """The strongest search: "1" greedy, "2" dynamic programming (DL-08)."""
    UNCUT_ROW_BYTES = 512
    """DMA_ALGN_BYTES: a tensor whose rows are no longer than this is not cut along w (4)."""
    REPEATS_WINDOWS = True
    """A window along h or w may start or end at the same place as the previous window (7.1)."""
    GROUPED_MARGINS = True
    """A convolution of several groups may share a slice (7.3)."""
    WHOLE_UPSAMPLE = False
    """Upsample is cut at multiples of its factors only (7.2)."""
