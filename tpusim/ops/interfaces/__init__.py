"""The interfaces of ops, by stage: classes of questions that an op implements, or a target's model in its place.

Put a question by `tpusim.interfaces.ask(op, Interface, chip)`; an op's method is only its answer where no target has
another.
"""

from tpusim.ops.interfaces.estimates import Estimate, Estimated, Squares, estimate_of
from tpusim.ops.interfaces.floats import FloatRule, FloatTypes
from tpusim.ops.interfaces.frames import FusedFrames
from tpusim.ops.interfaces.groups import GroupRules
from tpusim.ops.interfaces.hardware import Requants
from tpusim.ops.interfaces.kernels import ChannelOrder, FilledUp, KernelConstants, Rearranges
from tpusim.ops.interfaces.local import LocalGen, WindowRules, WorkArea
from tpusim.ops.interfaces.lowering import (
    ChipRewrites,
    FloatLowering,
    FusingRewrites,
    IntegerLowering,
    LoweredRewrites,
    Lowering,
)
from tpusim.ops.interfaces.ranges import Range, RangePropagation, RangeRule, Ranges, RangeStep
from tpusim.ops.interfaces.values import Joins, ScalarOperand, Selects, Weighs, number_of

__all__ = [
    "ChannelOrder",
    "ChipRewrites",
    "Estimate",
    "Estimated",
    "FilledUp",
    "FloatLowering",
    "FloatRule",
    "FloatTypes",
    "FusedFrames",
    "FusingRewrites",
    "GroupRules",
    "IntegerLowering",
    "Joins",
    "KernelConstants",
    "LocalGen",
    "LoweredRewrites",
    "Lowering",
    "Range",
    "RangePropagation",
    "RangeRule",
    "RangeStep",
    "Ranges",
    "Rearranges",
    "Requants",
    "ScalarOperand",
    "Selects",
    "Squares",
    "Weighs",
    "WindowRules",
    "WorkArea",
    "estimate_of",
    "number_of",
]
