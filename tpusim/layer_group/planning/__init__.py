"""Planning: the schedule of one group, or why it has none (layer_group.md 3, 5, 8, 10.2)."""

from tpusim.layer_group.planning.capacity import explained, shortage
from tpusim.layer_group.planning.group import IMAGE_AXES, MAX_HALO, Decided, only_views, placed, plan, resectioned
from tpusim.layer_group.planning.guess import first_guess
from tpusim.layer_group.planning.residency import Crowded, kept_whole
from tpusim.layer_group.planning.rows import fold, nearest_rows, schedule

__all__ = [
    "IMAGE_AXES", "MAX_HALO", "Crowded", "Decided", "explained", "first_guess", "fold", "kept_whole", "nearest_rows",
    "only_views", "placed", "plan", "resectioned", "schedule", "shortage",
]  # fmt: skip
