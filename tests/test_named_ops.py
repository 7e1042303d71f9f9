"""The ops and types of inputs that networks of today's exporters need: taken, or refused with what to do about it."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from end_to_end import floats, node, save_network
from onnx import TensorProto, helper
from onnx_suite import excluded, suite

import tpusim.backend
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.ops.structure import TopInput

TAKEN = """
Pow IsNaN IsInf LSTM GRU RNN Gather GatherElements GatherND DepthToSpace SpaceToDepth Einsum TopK GridSample
ScatterElements ScatterND Resize Trilu CumSum OneHot Range Mod ReduceLogSumExp ReduceL1 ReduceL2 ReduceLogSum
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Pad MaxPool AveragePool Clip MatMul Asin
Acos Atan Sinh Cosh Tan Asinh Acosh Atanh Celu Selu Swish Hardmax LpPool LpNormalization CastLike Attention
RMSNormalization RotaryEmbedding LayerNormalization RoiAlign NonMaxSuppression QuantizeLinear DequantizeLinear
QLinearMatMul QLinearConv MatMulInteger ConvInteger If Loop Where Shape Size Sign Softplus Mish Not And Or Xor Equal
Less Greater
""".split()  # noqa: SIM905  a list of 70 names reads better so
"""Of these ONNX's suite has a case that passes through `tpusim.backend` (tests/test_onnx_nodes.py runs the cases)."""
REFUSED = ("NonZero", "Unique")
"""How many results these have depends on the data."""
NEXT_STEP = "end the network before"


@cache
def cases() -> dict[str, list[str]]:
    """Op -> the names of its cases of one node."""
    found = defaultdict[str, list[str]](list)
    for case in suite():
        assert case.model is not None
        if len(case.model.graph.node) == 1:
            found[case.model.graph.node[0].op_type].append(case.name)
    return found


@pytest.mark.parametrize("op", TAKEN)
def test_an_op_of_the_list_is_taken(op: str):
    assert set(cases()[op]) - set(excluded()), f"{op}: {cases()[op]}"


@pytest.mark.parametrize("op", REFUSED)
def test_an_op_whose_results_are_not_counted_says_where_to_cut(op: str, tmp_path: Path):
    with pytest.raises(TpusimError) as refused:
        import_onnx(save_network(tmp_path / "m.onnx", [node(op, "x", "y")], {"x": (2, 3)}, ["y"]))
    said = str(refused.value)
    assert f"{op} 'n_y'" in said and NEXT_STEP in said and "outputs=" in said and "run it afterwards" in said


@pytest.mark.parametrize(
    "kind", ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT64", "INT32", "INT16", "INT8", "UINT8", "BOOL"]
)
def test_an_input_of_any_type_is_taken_and_given_back(kind: str):
    number = getattr(TensorProto, kind)
    made = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("Relu", ["f"], ["r"]),
         helper.make_node("Cast", ["r"], ["y"], to=number)],
        "typed", [helper.make_tensor_value_info("x", number, [2, 3])],
        [helper.make_tensor_value_info("y", number, [2, 3])],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)])
    wanted = helper.tensor_dtype_to_np_dtype(number)
    assert [op.given for op in import_onnx(model).ops if isinstance(op, TopInput)] == [wanted]
    x = np.arange(6).reshape(2, 3).astype(wanted)
    (y,) = tpusim.backend.prepare(model).run([x])
    assert y.dtype == wanted and np.array_equal(y, x)


def test_token_ids_look_rows_up():
    """Computed int64 indices, which exporters of language models write."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [9, 4], floats(9, 4).tobytes(), raw=True)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])], "ids",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 4])], [table],
    )  # fmt: skip
    model = import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert any(op.name == "top.Gather" for op in model.ops)


@pytest.mark.parametrize(
    "name", ["test_det_2d", "test_quantizelinear_int4", "test_bitwise_and_i32_2d", "test_dft_irfft"]
)
def test_any_refusal_says_what_to_do(name: str):
    """The last line of every list of refused nodes, whatever their reasons."""
    case = next(case for case in suite() if case.name == name)
    with pytest.raises(TpusimError) as refused:
        import_onnx(case.model if isinstance(case.model, onnx.ModelProto) else "")
    last = str(refused.value).splitlines()[-1]
    assert "replace these nodes before the export" in last and "outputs=" in last and "inputs=" in last
