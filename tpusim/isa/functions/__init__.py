"""Macro functions: what an `fn` command may compute, one frozen class each (codegen.md DC-04).

A class has the function's parameters with their types, says which shapes go with each other, and what the function is
made of, for the clock. What it computes is the machine's: `tpusim.simulator.function` registers a meaning per class,
and is an error at import if one has none. In text a function is JSON, `{"name":"softmax","axis":1}`.
"""

from typing import TypeAlias, get_args

from tpusim.isa.functions.attention import Attention, AttentionWeights, FlashAttention, FlashMix, FlashScores
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.floats import (
    ACTIVATIONS,
    Active,
    Cumulate,
    GridSample,
    Interp,
    Power,
    Reduce,
    ReduceMode,
    Remainder,
)
from tpusim.isa.functions.integers import (
    AddInt,
    ConcatShift,
    ConstInt,
    ExtremeShift,
    IntReduceMode,
    MulInt,
    ReduceInt,
    SubInt,
    SumShift,
)
from tpusim.isa.functions.moved import Concat, Pad, PadMode, Reshape, Slice, Tile, Upsample
from tpusim.isa.functions.normalised import (
    GroupNorm,
    LayerNorm,
    Lrn,
    LrnTables,
    RMSNorm,
    Softmax,
    SoftmaxInt,
    SoftmaxTables,
)
from tpusim.isa.functions.picked import (
    Arg,
    ChannelTables,
    Gather,
    GatherElements,
    Nms,
    ScatterElements,
    TopK,
    YuvToBgr,
)

AnyFunction: TypeAlias = (
    Softmax
    | SoftmaxInt
    | AttentionWeights
    | Attention
    | FlashAttention
    | FlashMix
    | FlashScores
    | SoftmaxTables
    | Lrn
    | LrnTables
    | Active
    | LayerNorm
    | RMSNorm
    | GroupNorm
    | Reduce
    | Interp
    | AddInt
    | SubInt
    | MulInt
    | ConstInt
    | SumShift
    | ExtremeShift
    | ReduceInt
    | ConcatShift
    | Concat
    | Reshape
    | Pad
    | Slice
    | Tile
    | Upsample
    | Gather
    | ChannelTables
    | YuvToBgr
    | Arg
    | GatherElements
    | ScatterElements
    | TopK
    | Nms
    | Cumulate
    | Power
    | Remainder
    | GridSample
)

FUNCTIONS: dict[str, type[Function]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyFunction)}
"""Name -> class, as text and programs have it."""

__all__ = [
    "ACTIVATIONS",
    "Active",
    "AddInt",
    "AnyFunction",
    "Arg",
    "Attention",
    "AttentionWeights",
    "ChannelTables",
    "Concat",
    "ConcatShift",
    "ConstInt",
    "Cumulate",
    "ExtremeShift",
    "FUNCTIONS",
    "FlashAttention",
    "FlashMix",
    "FlashScores",
    "Function",
    "Gather",
    "GatherElements",
    "GridSample",
    "GroupNorm",
    "IntReduceMode",
    "Interp",
    "LayerNorm",
    "RMSNorm",
    "Lrn",
    "LrnTables",
    "Misfit",
    "Nms",
    "MulInt",
    "Pad",
    "PadMode",
    "Power",
    "Reduce",
    "ReduceInt",
    "ReduceMode",
    "Remainder",
    "Reshape",
    "ScatterElements",
    "Shape",
    "Slice",
    "Softmax",
    "SoftmaxInt",
    "SoftmaxTables",
    "Steps",
    "SubInt",
    "SumShift",
    "Tile",
    "TopK",
    "Unit",
    "Upsample",
    "YuvToBgr",
]
