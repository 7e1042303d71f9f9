"""Candidates: which runs of ops may become groups, and of which types (layer_group.md 2, 3)."""

from tpusim.layer_group.candidates.runs import base_groups
from tpusim.layer_group.candidates.types import group_types, takes

__all__ = ["base_groups", "group_types", "takes"]
