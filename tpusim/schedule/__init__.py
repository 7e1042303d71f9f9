"""The schedule of a layer group: produced by planning, read by everything that writes, costs, shows or runs groups.

A `GroupSchedule` has all decisions about a group (`group`): its ops and tensors (`graph`), sections and slices
(`steps`), rows of ops and transfers (`rows`), areas of local memory, and the transfers that it does for its neighbours.
`turns` (`loop`) is its loop: iteration, row, item and step, in the order of docs/spec/layer_group.md 15; `lifetime`
says in which rows a tensor is alive. `to_attrs` and `from_attrs` (`attrs`) convert to and from its text form, which may
also be written by hand. `numbered` (`numbers`) numbers the groups of a module.

Invariants: a schedule is frozen data. This package decides nothing, emits no command, names no op, and knows neither
addresses in global memory nor cycles.
"""

from tpusim.schedule.attrs import ScheduleAttrs, from_attrs, slice_info, to_attrs
from tpusim.schedule.graph import Arrange, Costs, Memo, Subgraph, subgraph, tensor_name
from tpusim.schedule.group import Allocation, GroupSchedule, Guest, Overlap
from tpusim.schedule.lifetime import Buffer, areas, lifetimes, marks
from tpusim.schedule.loop import Turn, edge_step, turns
from tpusim.schedule.numbers import numbered
from tpusim.schedule.rows import Row, Scheduled, Transferred, stage_of, tensor_of
from tpusim.schedule.steps import Sections, Step, ValueSlices, Windows
from tpusim.schedule.work import largest_slice, work_bytes

__all__ = [
    "Allocation", "Arrange", "Buffer", "Costs", "GroupSchedule", "Guest", "Memo", "Overlap", "Row", "ScheduleAttrs",
    "Scheduled", "Sections", "Step", "Subgraph", "Transferred", "Turn", "ValueSlices", "Windows", "areas", "edge_step",
    "from_attrs", "largest_slice", "lifetimes", "marks", "numbered", "slice_info", "stage_of", "subgraph",
    "tensor_name", "tensor_of", "to_attrs", "turns", "work_bytes",
]  # fmt: skip
