"""Upstream's canonicalisation patterns, by its names: each fires, keeps the values, and does not change adjacent ops.

One row is a small network in which the pattern must fire, what it becomes, and a network that differs in one respect,
in which it must not. Values are those of ONNX Runtime. `docs/spec/interface.md` 7.3 has the list of the names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from plain_names import import_onnx
from xdsl.dialects.func import ReturnOp

from tpusim.canonicalize import canonicalize
from tpusim.frontend import OnnxReference
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops import Top
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight

SPEC = Path(__file__).parents[1] / "docs" / "spec" / "interface.md"
RNG = np.random.default_rng(7)
Nodes = list[onnx.NodeProto]
IMAGE, ROWS = (1, 4, 6, 6), (2, 4, 6)


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 1.0, shape).astype(np.float32)


CONSTANTS: dict[str, np.ndarray] = {
    "w": floats(8, 4, 3, 3), "w1": floats(4, 4, 1, 1), "b": floats(8), "g": floats(4), "c": floats(4, 1, 1),
    "six": floats(6), "four": floats(4, 1), "m": floats(6, 5), "five": floats(5), "qkv": floats(6, 36),
    "big": floats(16, 6),
    "full": np.full((2, 4, 6), 2, np.float32), "half": np.array(0.5, np.float32), "three": np.array(3, np.float32),
    "one": np.array(1, np.float32), "zero": np.array(0, np.float32), "two": np.array(2, np.float32),
    "slope1": np.array([0.3], np.float32), "slope4": floats(4, 1),
    "g2": floats(2), "b2": floats(2), "lowest": np.array(-3.4e38, np.float32), "huge": np.array(1e12, np.float32),
    "mask": np.array([True, False, True, False, True, False]), "root": np.array(np.sqrt(2), np.float32),
    "inverse_root": np.array(np.sqrt(0.5), np.float32), "cubes": np.array(0.044715, np.float32),
    "slope": np.array(np.sqrt(2 / np.pi), np.float32),
    "w3d": floats(8, 4, 2, 3, 3), "w1d": floats(8, 4, 3), "w1t": floats(4, 8, 3), "w4": floats(4, 8, 3, 3),
    "bigger": floats(3, 1, 6),
    "eps": np.array(1e-6, np.float32),
    "scalar": np.array([], np.int64), "scales1": np.ones(4, np.float32), "scales2": np.array([1, 1, 2, 2], np.float32),
}  # fmt: skip


def numbers(text: str) -> np.ndarray | None:
    """A constant of integers, written like `1,-2`."""
    return np.array([int(n) for n in text.split(",")], np.int64) if re.fullmatch(r"-?\d+(,-?\d+)*", text) else None


def n(op: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node; inputs are tensors, names of CONSTANTS, integers, or "-" for none."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, output.split(), name=output, **attributes)


def model(nodes: Nodes, shape: tuple[int, ...]) -> onnx.ModelProto:
    """From x to y."""
    read = dict.fromkeys(name for node in nodes for name in node.input)
    found = {name: CONSTANTS.get(name, numbers(name)) for name in read}
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=o) for node in nodes for o in node.output if o[0] == "y"],
        [numpy_helper.from_array(array, name) for name, array in found.items() if array is not None],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def kinds(top: Model) -> str:
    """The ops, in order."""
    hidden = TopWeight | TopNone | TopInput | ReturnOp
    return " ".join(op.name.removeprefix("top.") for op in top.ops if not isinstance(op, hidden))


@dataclass(frozen=True)
class Row:
    """upstream: its names, with spaces. ours: the class that fires, "" at import. also: patterns asked for."""

    upstream: str
    ours: str
    fires: Nodes
    becomes: str
    beside: Nodes
    stays: str
    shape: tuple[int, ...] = ROWS
    also: tuple[str, ...] = ()
    other: tuple[int, ...] | None = None
    """Shape of the adjacent op's operand, if it differs."""
    named: str = ""
    """The name of the result, if it is not that of the original graph."""
    near: float = 2e-5
    """How far the values may be from those of ONNX Runtime, relative and absolute."""

    @property
    def id(self) -> str:
        return self.upstream.split()[0]


def focus(places: str) -> Nodes:
    """Every other pixel from places on, joined along the channels."""
    made: Nodes = []
    for place in places.split():
        made.append(n("Slice", f"x {place} 9,9 2,3 2,2", f"a{place}"))
    return [*made, n("Concat", " ".join(node.output[0] for node in made), axis=1)]


def gelu_by_half(half: str) -> Nodes:
    """By the error function and products, x times a number before the last."""
    return [
        n("Mul", "x inverse_root", "a"), n("Erf", "a", "b0"), n("Add", "b0 one", "d"), n("Mul", f"x {half}", "e"),
        n("Mul", "d e")
    ]  # fmt: skip


def gelu_tanh(x: str, y: str) -> Nodes:
    """By the hyperbolic tangent."""
    return [
        n("Pow", f"{x} three", "a"), n("Mul", "a cubes", "b0"), n("Add", f"{x} b0", "c0"), n("Mul", "c0 slope", "d"),
        n("Tanh", "d", "e"), n("Add", "e one", "f"), n("Mul", f"{x} half", "h"), n("Mul", "h f", y),
    ]  # fmt: skip


def rms(axis: str) -> Nodes:
    """By the root of the mean of squares along an axis, as exporters write it."""
    return [
        n("Pow", "x two", "a"), n("ReduceMean", "a", "b0", axes=[int(axis)]), n("Add", "b0 eps", "d"),
        n("Sqrt", "d", "e"), n("Div", "one e", "f"), n("Mul", "x f", "h"), n("Mul", "six h"),
    ]  # fmt: skip


def heads(order: list[int]) -> Nodes:
    """Queries, keys and values of two heads."""
    parts = [n("Gather", f"c0 i{k}", f"y{k}", axis=0) for k in range(3)]
    return [
        n("MatMul", "x qkv", "a"),
        n("Reshape", "a 1,5,3,2,6", "b0"),
        n("Transpose", "b0", "c0", perm=order),
        *parts,
    ]


CONSTANTS |= {"at": np.array(2, np.int64), **{f"i{k}": np.array(k, np.int64) for k in range(3)}}

TABLE = (
    Row("TopFuseReshape2", "TopFuseReshape2",
        [n("Flatten", "x", "a"), n("Sin", "a")], "Sin",
        [n("Flatten", "x", "a"), n("Sin", "a")], "Reshape Sin", (2, 24), other=ROWS),
    Row("TopReshapeFuse", "TopReshapeFuse",
        [n("Reshape", "x 2,24", "a"), n("Reshape", "a 8,6")], "Reshape",
        [n("Reshape", "x 2,24", "a"), n("Sin", "a", "y1"), n("Reshape", "a 8,6")], "Reshape Sin Reshape", ROWS),
    Row("TopReshapeFuse2", "TopReshapeFuse2",
        [n("Reshape", "x 2,24", "a"), n("Sin", "a", "y1"), n("Reshape", "a 2,4,6", "b0"), n("Add", "b0 x", "y2"),
         n("Exp", "a", "y3")], "Reshape Reshape Sin Add Exp",
        [n("Reshape", "x 2,24", "a"), n("Sin", "a", "y1"), n("Reshape", "a 8,6")], "Reshape Sin Reshape", ROWS),
    Row("TopFuseSqueeze", "TopFuseSqueeze",
        [n("Unsqueeze", "x 2", "a"), n("Squeeze", "a 2", "b0"), n("Sin", "b0")], "Sin",
        [n("Unsqueeze", "x 2", "a"), n("Squeeze", "a 0", "b0"), n("Sin", "b0")], "Unsqueeze Squeeze Sin", (1, 4, 6)),
    Row("TopFuseUnsqueeze", "TopFuseUnsqueeze",
        [n("Squeeze", "x 0", "a"), n("Unsqueeze", "a 0", "b0"), n("Sin", "b0")], "Sin",
        [n("Squeeze", "x 0", "a"), n("Unsqueeze", "a 1", "b0"), n("Sin", "b0")], "Squeeze Unsqueeze Sin", (1, 4, 6)),
    Row("TopRemoveReshapeAndUnsqueezeWhenScalar", "TopRemoveReshapeAndUnsqueezeWhenScalar",
        [n("Reshape", "x 4,6", "a"), n("Unsqueeze", "a 0", "b0"), n("Sin", "b0")], "Sin",
        [n("Reshape", "x 4,6", "a"), n("Unsqueeze", "a 2", "b0"), n("Sin", "b0")], "Reshape Unsqueeze Sin", (1, 4, 6)),
    Row("TopFuseSqueeze TopFuseUnsqueeze TopRemoveReshapeAndUnsqueezeWhenScalar", "TopFuseUnsqueeze",
        [n("Squeeze", "x 0", "a"), n("Unsqueeze", "a 0", "b0"), n("Sin", "b0")], "Sin",
        [n("Unsqueeze", "x 0", "a"), n("Reshape", "a 1,4,6", "b0"), n("Squeeze", "b0 0", "c0"), n("Sin", "c0", "y1"),
         n("Unsqueeze", "c0 0", "d0"), n("Sin", "d0", "y2")],
        "Unsqueeze Reshape Squeeze Sin Unsqueeze Sin", (1, 4, 6)),
    Row("InValidReshapeMergePattern", "InValidReshapeMergePattern",
        [n("Reshape", "x scalar", "a"), n("Unsqueeze", "a 0", "b0"), n("Sin", "b0")], "Sin",
        [n("Unsqueeze", "x 0", "a"), n("Reshape", "a 1", "b0"), n("Sin", "b0")], "Unsqueeze Reshape Sin", (1,)),
    Row("NoUseSlicePattern", "NoUseSlicePattern",
        [n("Slice", "x 0 9 2", "a"), n("Sin", "a")], "Sin",
        [n("Slice", "x 0 5 2", "a"), n("Sin", "a")], "Slice Sin", ROWS),
    Row("MergeSlicePattern SplitSlicePattern StridedSliceMergePattern", "MergeSlicePattern",
        [n("Slice", "x 1 6 2 2", "a"), n("Slice", "a 1 3 2", "y1"), n("Slice", "a 1 4 1", "y2")], "Slice Slice",
        [n("Slice", "x 1 6 2 2", "a"), n("Sin", "a", "y1"), n("Slice", "a 1 3 2", "y2")], "Slice Sin Slice", ROWS),
    Row("MergeSliceConcatPattern", "MergeSliceConcatPattern",
        [n("Slice", "x 1 3 2", "a"), n("Slice", "x 3 6 2", "b0"), n("Concat", "a b0", axis=2)], "Slice",
        [n("Slice", "x 1 3 2", "a"), n("Slice", "x 4 6 2", "b0"),
         n("Concat", "a b0", axis=2)], "Slice Slice Concat", ROWS),
    Row("TopGatherToSlice", "TopGatherToSlice",
        [n("Gather", "x 1,3,5", axis=2)], "Slice",
        [n("Gather", "x 1,3,4", axis=2)], "Gather", ROWS),
    Row("TopGatherToSliceByUnsqueeze", "TopGatherToSliceByUnsqueeze",
        [n("Gather", "x at", "a", axis=1), n("Unsqueeze", "a 1", "y")], "Slice",
        [n("Gather", "x at", "a", axis=1), n("Unsqueeze", "a 0", "y")], "Slice Squeeze Unsqueeze", ROWS),
    Row("TopGatherMulConst", "TopGatherMulConst",
        [n("Cast", "x", "i", to=7), n("Gather", "big i", "a"), n("Mul", "a three")], "Trunc Gather",
        [n("Cast", "x", "i", to=7), n("Gather", "big i", "a"), n("Sin", "a", "y1"),
         n("Mul", "a three")], "Trunc Gather Sin MulConst", ROWS),
    Row("ReduceToReshapePattern", "ReduceToReshapePattern",
        [n("ReduceMax", "x", axes=[0], keepdims=0)], "Reshape",
        [n("ReduceL2", "x", axes=[0], keepdims=0)], "Reduce", (1, 4, 6)),
    Row("ReduceFusePattern", "ReduceFusePattern",
        [n("ReduceSum", "x 2", "a", keepdims=0), n("ReduceSum", "a 1", keepdims=0)], "Reduce",
        [n("ReduceSum", "x 2", "a", keepdims=0), n("ReduceMean", "a", axes=[1], keepdims=0)], "Reduce Reduce", ROWS),
    Row("ReduceDiscontinuousPattern", "ReduceDiscontinuousPattern",
        [n("ReduceSum", "x 1,3")], "Reduce",
        [n("ReduceSum", "x 1,2")], "Reduce", (2, 4, 1, 6)),
    Row("ReduceToRPoolPattern", "ReduceToRPoolPattern",
        [n("ReduceMean", "x", axes=[2, 3])], "AvgPool",
        [n("ReduceMean", "x", axes=[1, 2])], "Reduce", IMAGE),
    Row("TopTransposeArg", "TopTransposeArg",
        [n("Transpose", "x", "a", perm=[0, 2, 1]), n("ArgMax", "a", axis=2, keepdims=0)], "Arg",
        [n("Transpose", "x", "a", perm=[0, 2, 1]), n("ArgMax", "a", axis=2, keepdims=1)], "Permute Arg", ROWS),
    Row("PermuteFuse", "PermuteOfPermute",
        [n("Transpose", "x", "a", perm=[0, 2, 1]), n("Transpose", "a", perm=[2, 0, 1])], "Permute",
        [n("Transpose", "x", "a", perm=[0, 2, 1]), n("Sin", "a", "b0"),
         n("Transpose", "b0", perm=[2, 0, 1])], "Permute Sin Permute", ROWS),
    Row("TopPermuteToPixelShuffle", "TopPermuteToPixelShuffle",
        [n("DepthToSpace", "x", blocksize=2, mode="CRD")], "Depth2Space",
        [n("Reshape", "x 1,1,2,2,6,6", "a"), n("Transpose", "a", "b0", perm=[0, 1, 4, 3, 5, 2]),
         n("Reshape", "b0 1,1,12,12")], "Reshape Permute Reshape", IMAGE),
    Row("TopPermuteToReorg", "TopPermuteToReorg",
        [n("SpaceToDepth", "x", blocksize=3)], "Depth2Space",
        [n("Reshape", "x 1,4,2,3,2,3", "a"), n("Transpose", "a", "b0", perm=[0, 3, 1, 5, 2, 4]),
         n("Reshape", "b0 1,36,2,2")], "Reshape Permute Reshape", IMAGE),
    Row("Reshape4Depth2SpacePattern", "Reshape4Depth2SpacePattern",
        [n("Reshape", "x 1,2,2,3,2,6", "a"), n("Transpose", "a", "b0", perm=[0, 1, 3, 4, 2, 5]),
         n("Reshape", "b0 1,2,3,24")], "Depth2Space",
        [n("Reshape", "x 1,2,2,3,2,6", "a"), n("Transpose", "a", "b0", perm=[0, 1, 3, 2, 4, 5]),
         n("Reshape", "b0 1,2,3,24")], "Reshape Permute Reshape", IMAGE),
    Row("ConcatToDepth2SpacePattern ConcatToDepth2SpacePattern2", "ConcatToDepth2SpacePattern",
        [*focus("0,0 1,0 0,1 1,1")], "Depth2Space",
        [*focus("0,0 1,1 0,1 1,0")], "Slice Slice Slice Slice Concat", IMAGE),
    Row("TopMoveSoftmaxAfterPermute", "TopMoveSoftmaxAfterPermute",
        [n("Transpose", "x", "a", perm=[0, 3, 1, 2]), n("Softmax", "a", "b0", axis=3),
         n("Transpose", "b0", perm=[0, 3, 2, 1])], "Permute Softmax",
        [n("Transpose", "x", "a", perm=[0, 3, 1, 2]), n("Softmax", "a", "b0", axis=2),
         n("Transpose", "b0", perm=[0, 3, 2, 1])], "Permute Softmax Permute", (2, 4, 6, 3)),
    Row("SwapInput AddToScale", "AddToScale",
        [n("Add", "c x")], "Scale",
        [n("Add", "six x")], "Add", IMAGE),
    Row("MulToScale", "MulToScale",
        [n("Mul", "x c")], "Scale",
        [n("Mul", "x six")], "Mul", IMAGE),
    Row("TopBatchNormToScale", "TopBatchNormToScale",
        [n("BatchNormalization", "x g g g g")], "Scale",
        [n("InstanceNormalization", "x g g")], "InstanceNorm", IMAGE),
    Row("TopMultiScaleMergeToOne TopScaleMergeToBatchNorm", "TopMultiScaleMergeToOne",
        [n("BatchNormalization", "x g g g g", "a"), n("Mul", "a c")], "Scale",
        [n("BatchNormalization", "x g g g g", "a"), n("Relu", "a", "b0"), n("Mul", "b0 c")], "Scale Scale", IMAGE),
    Row("ConstbinaryMergeToTopScale", "ConstbinaryMergeToTopScale",
        [n("Add", "x three", "a"), n("Mul", "a c")], "Scale",
        [n("Mul", "x c", "a"), n("Add", "a three")], "Scale AddConst", IMAGE),
    Row("TopScaleMergeToMatMul", "TopScaleMergeToMatMul",
        [n("MatMul", "x m", "a"), n("BatchNormalization", "a five five five five")], "MatMul",
        [n("MatMul", "x m", "a"), n("Sin", "a", "y1"),
         n("BatchNormalization", "a five five five five", "y2")], "MatMul Sin Scale", (4, 6)),
    Row("FuseScaleIntoConv", "FoldBatchNormIntoConv",
        [n("Conv", "x w", "a"), n("BatchNormalization", "a b b b b")], "Conv",
        [n("Conv", "x w", "a"), n("Relu", "a", "b0"), n("BatchNormalization", "b0 b b b b")], "Conv Scale", IMAGE),
    Row("AddToAddConst", "AddToAddConst",
        [n("Add", "x three")], "AddConst",
        [n("Add", "x six")], "Add", ROWS),
    Row("MulToMulConst MulToMulConst2", "MulToMulConst",
        [n("Mul", "three x")], "MulConst",
        [n("Mul", "six x")], "Mul", ROWS),
    Row("WeightToConst", "MulToMulConst",
        [n("Mul", "x full")], "MulConst",
        [n("Mul", "x six")], "Mul", ROWS),
    Row("MaxToMaxConst", "MaxToMaxConst",
        [n("Max", "x half")], "MaxConst",
        [n("Max", "x six")], "Max", ROWS),
    Row("MinToMinConst", "MinToMinConst",
        [n("Min", "half x")], "MinConst",
        [n("Min", "six x")], "Min", ROWS),
    Row("MergeContinuousMulConst", "MergeContinuousMulConst",
        [n("Mul", "x three", "a"), n("Div", "a half")], "MulConst",
        [n("Mul", "x three", "a"), n("Relu", "a", "b0"), n("Mul", "b0 half")], "MulConst MulConst", ROWS),
    Row("RemoveMulConst", "RemoveMulConst",
        [n("Mul", "x one", "a"), n("Sin", "a")], "Sin",
        [n("Mul", "x two", "a"), n("Sin", "a")], "MulConst Sin", ROWS),
    Row("MergeMulConst", "MergeMulConst",
        [n("MatMul", "x m", "a"), n("Reshape", "a 2,20", "b0"), n("Mul", "b0 three")], "MatMul Reshape",
        [n("MatMul", "x m", "a"), n("Sin", "a", "y1"), n("Reshape", "a 2,20", "b0"),
         n("Mul", "b0 three")], "MatMul Sin Reshape MulConst", ROWS),
    Row("MulMerge", "MulMerge",
        [n("Mul", "x six", "a"), n("Mul", "four a")], "Mul",
        [n("Mul", "x six", "a"), n("Sin", "a", "y1"), n("Mul", "four a")], "Mul Sin Mul", ROWS),
    Row("AddMerge", "AddMerge",
        [n("Add", "x six", "a"), n("Add", "a six")], "Add",
        [n("Add", "x six", "a"), n("Relu", "a", "b0"), n("Add", "b0 six")], "Add Add", ROWS),
    Row("DivToMul", "DivToMul",
        [n("Div", "x six")], "Mul",
        [n("Div", "six x")], "Div", ROWS),
    Row("DivToSoftSign", "DivToSoftSign",
        [n("Abs", "x", "a"), n("Add", "a one", "b0"), n("Div", "x b0")], "Softsign",
        [n("Abs", "x", "a"), n("Add", "a two", "b0"), n("Div", "x b0")], "Abs AddConst Div", ROWS),
    Row("PReluToLeakRelu", "PReluToLeakRelu",
        [n("PRelu", "x slope1")], "LeakyRelu",
        [n("PRelu", "x slope4")], "PRelu", ROWS),
    Row("CompareToCompareConst", "CompareToCompareConst",
        [n("Less", "half x", "a"), n("Cast", "a", to=1)], "CompareConst",
        [n("Less", "six x", "a"), n("Cast", "a", to=1)], "Compare", ROWS),
    Row("FuseNotEqualPattern", "FuseNotEqual",
        [n("Equal", "x half", "a"), n("Not", "a", "b0"), n("Cast", "b0", to=1)], "CompareConst",
        [n("Less", "x half", "a"), n("Not", "a", "b0"), n("Cast", "b0", to=1)], "CompareConst CompareConst", ROWS),
    Row("CompareConstWhereToMinConst", "CompareConstWhereToMinConst",
        [n("Less", "x half", "a"), n("Where", "a half x")], "MaxConst",
        [n("Less", "x half", "a"), n("Where", "a three x")], "CompareConst Where", ROWS),
    Row("MergeToRMSNormPattern", "MergeToRMSNormPattern",
        [*rms("-1")], "RMSNorm",
        [*rms("1")], "Mul Reduce AddConst Sqrt Reciprocal Mul Mul", ROWS),
    Row("MulToSiLU", "MulToSiLU",
        [n("Sigmoid", "x", "a"), n("Mul", "a x")], "SiLU",
        [n("Sigmoid", "x", "a"), n("Sin", "x", "b0"), n("Mul", "a b0")], "Sigmoid Sin Mul", ROWS),
    Row("MergeGelu", "MergeGelu",
        [*gelu_by_half("half")], "GELU",
        [*gelu_by_half("three")], "MulConst Erf AddConst MulConst Mul", ROWS),
    Row("MergeGeluPattern", "MergeGeluPattern",
        [n("Reshape", "x 8,6", "v"), *gelu_tanh("v", "p"), n("Reshape", "p 2,4,6")], "GELU",
        [*gelu_tanh("x", "y")], "Pow MulConst Add MulConst Tanh AddConst MulConst Mul", ROWS, near=1e-3),
    Row("FoldMulIntoMatMul", "FoldMulIntoMatMul",
        [n("MatMul", "x m", "a"), n("Add", "five a", "b0"), n("Mul", "b0 five")], "MatMul",
        [n("MatMul", "x m", "a"), n("Mul", "a four")], "MatMul Mul", ROWS),
    Row("MatMulWithBias", "MatMulWithBias",
        [n("MatMul", "x m", "a"), n("Add", "five a")], "MatMul",
        [n("MatMul", "x m", "a"), n("Add", "four a")], "MatMul Scale", ROWS),
    Row("MatmulWithPermuteAndSplit", "MatmulWithPermuteAndSplit",
        [*heads([2, 0, 3, 1, 4])], "MatMul Reshape Slice Squeeze Permute Slice Squeeze Permute Slice Squeeze Permute",
        [*heads([2, 0, 1, 3, 4])], "MatMul Reshape Permute Slice Squeeze Slice Squeeze Slice Squeeze", (1, 5, 6)),
    Row("ConvSlice", "ConvSlice",
        [n("Conv", "x w b", "a", pads=[1, 1, 1, 1]), n("Slice", "a 1,0 6,5 2,3")], "Conv",
        [n("Conv", "x w b", "a", pads=[1, 1, 1, 1]), n("Slice", "a 2 6 2")], "Conv Slice", IMAGE),
    Row("Conv1x1Convkxk2dMerge", "MergePointwiseConv",
        [n("Conv", "x w1", "a"), n("Conv", "a w b")], "Conv",
        [n("Conv", "x w1", "a"), n("Relu", "a", "b0"), n("Conv", "b0 w b")], "Conv Conv", IMAGE),
    Row("Conv3dTo2d", "Conv3dTo2d",
        [n("Conv", "x w3d")], "Reshape Conv Reshape",
        [n("Conv", "x w3d", pads=[1, 0, 0, 0, 0, 0])], "Conv", (1, 4, 2, 6, 6)),
    Row("ReshapeInstanceNormPattern", "ReshapeInstanceNormPattern",
        [n("Reshape", "x 1,2,-1", "a"), n("InstanceNormalization", "a g2 b2", "b0"),
         n("Reshape", "b0 1,4,6,6")], "GroupNorm",
        [n("Reshape", "x 1,2,-1", "a"), n("InstanceNormalization", "a g2 b2", "b0"), n("Sin", "a", "y1"),
         n("Reshape", "b0 1,4,6,6", "y2")], "Reshape InstanceNorm Sin Reshape", IMAGE,
        named="b0_r_GroupNorm"),
    Row("TopFuseTile", "TopFuseTile",
        [n("Slice", "x 0 1 1", "a"), n("Tile", "a 1,4,1", "b0"), n("Add", "b0 x")], "Slice Add",
        [n("Slice", "x 0 2 1", "a"), n("Tile", "a 1,2,1", "b0"), n("Add", "b0 x")], "Slice Tile Add", ROWS),
    Row("TopFusePad", "TopFusePad",
        [n("Pad", "x 0,0,1,1,0,0,1,1", "a"), n("Conv", "a w")], "Conv",
        [n("Pad", "x 0,0,1,1,0,0,1,1 one", "a"), n("Conv", "a w")], "Pad Conv", IMAGE),
    Row("TopFuseRelu", "TopFuseRelu",
        [n("Conv", "x w", "a"), n("Relu", "a")], "Conv",
        [n("Conv", "x w", "a"), n("Sin", "a", "y1"), n("Relu", "a", "y2")], "Conv Sin Relu", IMAGE),
    Row("TopMoveReluAheadConcatPattern", "TopMoveReluAheadConcatPattern",
        [n("Conv", "x w", "a"), n("Conv", "x w b", "b0"), n("Concat", "a b0", "c0", axis=1),
         n("Relu", "c0")], "Conv Conv Concat",
        [n("Conv", "x w", "a"), n("Sin", "a", "b0"), n("Concat", "b0 a", "c0", axis=1),
         n("Relu", "c0")], "Conv Sin Concat Relu", IMAGE),
    Row("Conv1dTo2d", "",
        [n("Conv", "x w1d")], "Reshape Conv Reshape",
        [n("Conv", "x w", pads=[0, 0, 0, 0])], "Conv", (1, 4, 6), other=IMAGE),
    Row("Deconv1dTo2d", "",
        [n("ConvTranspose", "x w1t")], "Reshape Deconv Reshape",
        [n("ConvTranspose", "x w4")], "Deconv", (1, 4, 6), other=IMAGE),
    Row("ConvertEinsum", "",
        [n("Einsum", "x m", equation="abc,cd->abd")], "MatMul",
        [n("Einsum", "x", equation="abc->cab")], "Permute", ROWS),
    Row("ConvertExpand", "",
        [n("Expand", "x 2,2,4,6")], "Reshape Tile",
        [n("Expand", "x 2,4,6", "a"), n("Sin", "a")], "Sin", ROWS),
    Row("RemoveInterp RemoveUpsample", "",
        [n("Resize", "x - scales1", "a"), n("Sin", "a")], "Sin",
        [n("Resize", "x - scales2", "a"), n("Sin", "a")], "Upsample Sin", IMAGE),
    Row("InterpToUpsampleMergePattern", "",
        [n("Resize", "x - scales2", mode="nearest", coordinate_transformation_mode="asymmetric",
         nearest_mode="floor")], "Upsample",
        [n("Resize", "x - scales2", mode="linear")], "Interp", IMAGE),
    Row("NormalizeConvert", "",
        [n("LpNormalization", "x", axis=1)], "Reduce CompareConst Where Div",
        [n("ReduceL2", "x", axes=[1])], "Reduce", ROWS),
    Row("PowToBinary", "",
        [n("Pow", "x two")], "Mul",
        [n("Pow", "x three")], "Pow", ROWS),
    Row("SplitToSlice", "",
        [n("Split", "x 2,4", "y1 y2", axis=2)], "Slice Slice",
        [n("Slice", "x 2 4 2")], "Slice", ROWS),
    Row("RemoveInvaidShapeConcatInput", "",
        [n("Concat", "x", "a", axis=1), n("Sin", "a")], "Sin",
        [n("Concat", "x x", "a", axis=1), n("Sin", "a")], "Concat Sin", ROWS),
    Row("ConvertLoadWeightConcatToLoadWeightPattern", "",
        [n("Concat", "six six", "a", axis=0), n("Reshape", "a 2,1,6", "b0"), n("Add", "x b0")], "Add",
        [n("Concat", "x x", "a", axis=0), n("Reshape", "a 4,4,6", "y")], "Concat", ROWS),
    Row("ReplaceWithWeightInput", "",
        [n("Tile", "six 4", "a"), n("Reshape", "a 4,6", "b0"), n("Add", "x b0")], "Add",
        [n("Tile", "x 1,4,1")], "Tile", ROWS),
    Row("NoKeepDimsAddReshape", "",
        [n("MatMul", "x six")], "MatMul Squeeze",
        [n("MatMul", "x m")], "MatMul", ROWS),
    Row("MulTooLarge", "MulTooLarge",
        [n("Mul", "x huge")], "MulConst",
        [n("Mul", "x three")], "MulConst", ROWS, ("mul_too_large",)),
    Row("WhereBroadcastToTile", "WhereBroadcastToTile",
        [n("Where", "mask x half")], "Where",
        [n("Less", "x half", "a"), n("Where", "a x three")], "CompareConst Where", ROWS),
    Row("WhereTooLarge", "WhereTooLarge",
        [n("Where", "mask x lowest", "a"), n("Softmax", "a")], "Where Softmax",
        [n("Where", "mask x half", "a"), n("Softmax", "a")], "Where Softmax", ROWS, ("where_too_large",)),
)  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_fires_and_keeps_the_values(row: Row) -> None:
    proto = model(row.fires, row.shape)
    before = import_onnx(proto)
    top, fired = canonicalize(before, row.also)
    assert not row.ours or fired.get(row.ours), fired
    assert kinds(top) == row.becomes
    if row.also:
        return  # it changes them
    sample = {"x": np.random.default_rng(1).uniform(-1, 3, row.shape).astype(np.float32)}
    wanted, got = OnnxReference(proto).run(sample), run(top, sample)
    names = [op_name(v.owner) for v in top.results]  # type: ignore[arg-type]
    assert names == ([row.named] if row.named else [op_name(v.owner) for v in before.results])  # type: ignore[arg-type]
    wanted |= {new: wanted[old] for new, old in zip(names, [o.name for o in proto.graph.output], strict=True)}
    for name in got.keys() & wanted.keys():
        y = np.asarray(wanted[name], np.float32)
        np.testing.assert_allclose(got[name].reshape(y.shape), y, rtol=row.near, atol=row.near, err_msg=name)
    assert set(names) <= got.keys() & wanted.keys()


@pytest.mark.every
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_leaves_alone_what_is_beside_it(row: Row) -> None:
    top, fired = canonicalize(import_onnx(model(row.beside, row.other or row.shape)), row.also)
    assert row.ours not in fired and (row.ours or row.becomes != row.stays)
    assert kinds(top) == row.stays


def test_numbers_change_on_request_only() -> None:
    for row in TABLE:
        if row.also:
            assert row.ours not in canonicalize(import_onnx(model(row.fires, row.shape)))[1]


def test_the_list_has_these_names_and_every_pattern_has_a_row() -> None:
    text = SPEC.read_text(encoding="utf-8")
    listed = text.partition("What tpusim has of them")[2].partition("\n#")[0]
    named = {name for row in TABLE for name in row.upstream.split()}
    assert len(named) >= 60
    assert not {name for name in named if name not in listed}
    classes = {
        type(pattern).__name__
        for cls in Top.operations
        if issubclass(cls, TopOp)
        for pattern in cls.canonicalization_patterns(WeightStore())
    }
    assert classes - {row.ours for row in TABLE} == OF_OUR_OWN


OF_OUR_OWN = {
    "ReshapeBeforeChannelOp",
    "FoldAddIntoConv",
    "DivToReciprocal",
    "DivToMulConst",
    "SubToSubConst",
    "RemoveAddConst",
    "FlattenToReshape",
    "PartsToInterp",
    "AffineOfOneElement",
}
"""Patterns that upstream has under no name, or at import; test_canonicalize.py and others have their tests."""
