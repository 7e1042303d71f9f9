"""Reading and writing groups: in the module, as text for people, and in the file of pinned groups."""

from tpusim.layer_group.files.dissolve import dissolved
from tpusim.layer_group.files.group_view import (
    Area,
    EntryView,
    GlobalView,
    GroupView,
    group_number,
    view_number,
    views,
)
from tpusim.layer_group.files.groups import Counts, Forced, ForcedGroup, TypeName, groups_text, read_forced, read_groups
from tpusim.layer_group.files.moved import merge_moves
from tpusim.layer_group.files.packing import Packing, least_bytes, packed
from tpusim.layer_group.files.write import write_group

__all__ = [
    "Area", "Counts", "Forced", "ForcedGroup", "GlobalView", "GroupView", "EntryView", "Packing", "TypeName",
    "dissolved", "group_number", "groups_text", "least_bytes", "merge_moves", "packed", "read_forced", "read_groups",
    "view_number", "views", "write_group",
]  # fmt: skip
