"""The interfaces of ops, by stage: classes of questions that an op implements, or a target's model in its place.

Put a question by `tpusim.interfaces.ask(op, Interface, chip)`; an op's method is only its answer where no target has
another.
"""

from tpusim.ops.interfaces.arithmetic import Accumulates, ChipInference, Macs, macs_of
from tpusim.ops.interfaces.estimates import Estimate, Estimated, Squares, estimate_of
from tpusim.ops.interfaces.floats import FloatRule, FloatTypes
from tpusim.ops.interfaces.frames import FusedFrames
from tpusim.ops.interfaces.groups import GroupRules
from tpusim.ops.interfaces.hardware import Requants
from tpusim.ops.interfaces.kernels import ChannelOrder, FilledUp, KernelConstants, Rearranges
from tpusim.ops.interfaces.local import (
    HostComputed,
    LaneCopies,
    LibraryKernel,
    LocalGen,
    Overwrites,
    Uncounted,
    WindowRules,
    WorkArea,
    may_overwrite,
    on_host,
    why_rather_global,
)
from tpusim.ops.interfaces.lowering import (
    ChipRewrites,
    FloatLowering,
    FusingRewrites,
    IntegerLowering,
    LoweredRewrites,
    Lowering,
)
from tpusim.ops.interfaces.memory import (
    Alignment,
    GathersRows,
    InPlace,
    Inserted,
    MovedByTransfers,
    PackedWeights,
    Reorder,
    is_in_place,
    moves_of,
    padding_of,
)
from tpusim.ops.interfaces.ranges import Range, RangePropagation, RangeRule, Ranges, RangeStep
from tpusim.ops.interfaces.slicing import (
    ChipSlicing,
    Margins,
    OperandSlices,
    SharedWindows,
    SliceTables,
    Volumes,
    holds_operand,
    needed_window,
    reads_windows,
    shares_windows,
    slice_table_of,
    splits_weight,
)
from tpusim.ops.interfaces.values import Joins, ScalarOperand, Selects, Weighs, number_of

__all__ = [
    "Accumulates",
    "Alignment",
    "ChannelOrder",
    "ChipInference",
    "ChipRewrites",
    "ChipSlicing",
    "Estimate",
    "Estimated",
    "FilledUp",
    "FloatLowering",
    "FloatRule",
    "FloatTypes",
    "FusedFrames",
    "FusingRewrites",
    "GathersRows",
    "GroupRules",
    "HostComputed",
    "InPlace",
    "Inserted",
    "IntegerLowering",
    "Joins",
    "KernelConstants",
    "LaneCopies",
    "LibraryKernel",
    "LocalGen",
    "LoweredRewrites",
    "Lowering",
    "Macs",
    "Margins",
    "MovedByTransfers",
    "OperandSlices",
    "Overwrites",
    "PackedWeights",
    "Range",
    "RangePropagation",
    "RangeRule",
    "RangeStep",
    "Ranges",
    "Rearranges",
    "Reorder",
    "Requants",
    "ScalarOperand",
    "Selects",
    "SharedWindows",
    "SliceTables",
    "Squares",
    "Uncounted",
    "Volumes",
    "Weighs",
    "WindowRules",
    "WorkArea",
    "estimate_of",
    "holds_operand",
    "is_in_place",
    "macs_of",
    "may_overwrite",
    "moves_of",
    "needed_window",
    "padding_of",
    "number_of",
    "on_host",
    "reads_windows",
    "shares_windows",
    "slice_table_of",
    "splits_weight",
    "why_rather_global",
]
