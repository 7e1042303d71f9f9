"""Slicing: how often a group may be cut, and what each tensor needs for a cut of the outputs (layer_group.md 4-7)."""

from tpusim.layer_group.slicing.propagation import SliceError, slice_group, whole_slice, whole_slices
from tpusim.layer_group.slicing.sections import (
    element_bytes_of,
    extents,
    max_sections,
    possible_sections,
    slice_bytes,
)
from tpusim.layer_group.slicing.sharing import Geometry, shared
from tpusim.layer_group.slicing.windows import even_windows, lane_windows

__all__ = [
    "Geometry", "SliceError", "element_bytes_of", "even_windows", "extents", "lane_windows", "max_sections",
    "possible_sections", "slice_bytes", "shared", "slice_group", "whole_slice", "whole_slices",
]  # fmt: skip
