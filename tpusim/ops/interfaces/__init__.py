"""The interfaces of ops, by stage: classes of questions that an op implements, or a target's model in its place.

Put a question by `tpusim.interfaces.ask(op, Interface, chip)`; an op's method is only its answer where no target has
another.
"""

from tpusim.ops.interfaces.groups import GroupRules
from tpusim.ops.interfaces.local import LocalGen, WindowRules, WorkArea
from tpusim.ops.interfaces.lowering import (
    ChipRewrites,
    FloatLowering,
    FusingRewrites,
    IntegerLowering,
    LoweredRewrites,
)

__all__ = [
    "ChipRewrites",
    "FloatLowering",
    "FusingRewrites",
    "GroupRules",
    "IntegerLowering",
    "LocalGen",
    "LoweredRewrites",
    "WindowRules",
    "WorkArea",
]
