"""Reading and writing: groups in the module, for people, and in the file of pinned groups."""

from tpusim.layer_group.files.group_view import Area, EntryView, GlobalView, GroupView, views
from tpusim.layer_group.files.groups import Counts, ForcedGroup, TypeName, groups_text, read_groups
from tpusim.layer_group.files.write import write_group

__all__ = [
    "Area", "Counts", "ForcedGroup", "GlobalView", "GroupView", "EntryView", "TypeName", "groups_text", "read_groups",
    "views", "write_group",
]  # fmt: skip
