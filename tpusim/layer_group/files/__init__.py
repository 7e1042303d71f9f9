"""Reading and writing: groups in the module, for people, and in the file of pinned groups."""

from tpusim.layer_group.files.group_view import Area, EntryView, GlobalView, GroupView, views
from tpusim.layer_group.files.groups import Counts, ForcedGroup, TypeName, groups_text, read_groups
from tpusim.layer_group.files.moved import merge_moves
from tpusim.layer_group.files.packing import Packing, least_bytes, packed
from tpusim.layer_group.files.write import write_group

__all__ = [
    "Area", "Counts", "ForcedGroup", "GlobalView", "GroupView", "EntryView", "Packing", "TypeName", "groups_text",
    "least_bytes", "merge_moves", "packed", "read_groups", "views", "write_group",
]  # fmt: skip
