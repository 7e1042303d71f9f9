"""Macro functions: what an `fn` command may compute, one frozen class each (codegen.md DC-04).

A class has the function's parameters with their types, checks shapes, and says for the clock what the function is
made of. The machine says what it computes: the registry's table `MEANINGS` has a Python function under each name.
In text a function is JSON, `{"name":"softmax","axis":1}`.
"""

from tpusim.isa.functions.a16 import A16MatMul
from tpusim.isa.functions.attention import Attention, AttentionWeights
from tpusim.isa.functions.base import AnyFunction, Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.flash import FlashAttention, FlashBlock, FlashMix, FlashResult, FlashScores
from tpusim.isa.functions.floats import (
    ACTIVATIONS,
    Active,
    Cumulate,
    GridSample,
    Power,
    Remainder,
)
from tpusim.isa.functions.host import HostFunction
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
from tpusim.isa.functions.interp import Interp
from tpusim.isa.functions.moved import Concat, Pad, PadMode, Reshape, Slice, Tile
from tpusim.isa.functions.normalised import (
    GroupNorm,
    LayerNorm,
    Lrn,
    LrnTables,
    PixelNorm,
    RMSNorm,
)
from tpusim.isa.functions.picked import (
    Arg,
    ChannelTables,
    Gather,
    GatherElements,
    Nms,
    Reverse,
    ScatterElements,
    TopK,
    YuvToBgr,
)
from tpusim.isa.functions.recurrent import MATRIX_PER_GATE, Cell, Recurrent
from tpusim.isa.functions.reduce import Reduce, ReduceMode
from tpusim.isa.functions.softmax import Softmax, SoftmaxInt, SoftmaxTables
from tpusim.isa.functions.upsample import Upsample

__all__ = [
    "ACTIVATIONS",
    "A16MatMul",
    "Active",
    "AddInt",
    "AnyFunction",
    "Arg",
    "Attention",
    "AttentionWeights",
    "Cell",
    "ChannelTables",
    "Concat",
    "ConcatShift",
    "ConstInt",
    "Cumulate",
    "ExtremeShift",
    "FlashAttention",
    "FlashBlock",
    "FlashMix",
    "FlashResult",
    "FlashScores",
    "Function",
    "Gather",
    "GatherElements",
    "GridSample",
    "GroupNorm",
    "HostFunction",
    "IntReduceMode",
    "Interp",
    "LayerNorm",
    "RMSNorm",
    "Lrn",
    "LrnTables",
    "MATRIX_PER_GATE",
    "Misfit",
    "Nms",
    "MulInt",
    "Pad",
    "PadMode",
    "PixelNorm",
    "Power",
    "Recurrent",
    "Reduce",
    "ReduceInt",
    "ReduceMode",
    "Remainder",
    "Reshape",
    "Reverse",
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
