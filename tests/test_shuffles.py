"""Channel shuffles of whole graphs are done by the constants in front of them, with the same bits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_tpu
from onnx import TensorProto, helper, numpy_helper

from tpusim.frontend import import_onnx
from tpusim.inference import Graph, run
from tpusim.inference.shuffles import shuffles
from tpusim.ir.module import Model

RNG = np.random.default_rng(4)
SAMPLE = {"x": RNG.standard_normal((1, 8, 6, 6)).astype(np.float32)}


def network(kernel: int = 1, group: int = 2, split: tuple[int, ...] = (1, 2, 6, 6, 6)) -> onnx.ModelProto:
    """A convolution of twelve channels, the shuffle of shufflenet, a convolution of one filter per channel."""
    arrays = {
        "w": RNG.standard_normal((12, 8 // group, kernel, kernel)), "b": RNG.standard_normal(12),
        "d": RNG.standard_normal((12, 1, 3, 3)),
    }  # fmt: skip
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    weights += [numpy_helper.from_array(np.array(shape), n) for n, shape in (("s", split), ("t", (1, 12, 6, 6)))]
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["a"], kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=group
        ),
        helper.make_node("Reshape", ["a", "s"], ["r"]),
        helper.make_node("Transpose", ["r"], ["p"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["p", "t"], ["q"]),
        helper.make_node("Conv", ["q", "d"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, group=12),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 8, 6, 6)), ("y", (1, 12, 6, 6)))
    ]
    graph = helper.make_graph(nodes, "shuffled", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def lowered(proto: onnx.ModelProto, chip: str = "bm1684x") -> Model:
    top = to_canonical(import_onnx(proto, name="shuffled"))
    return to_tpu(top, chip, "int8", ranges=[SAMPLE])


@pytest.mark.parametrize(("kernel", "group", "chip", "taken"), [
    (1, 2, "bm1684x", True), (3, 1, "bm1684x", True), (3, 2, "bm1684x", False), (1, 2, "cv183x", False),
])  # fmt: skip
def test_a_graph_gives_what_its_ops_give(kernel: int, group: int, chip: str, taken: bool) -> None:
    """A filter of several groups has separate inputs for each channel; CV18xx rounds twice, which int32 cannot."""
    model = lowered(network(kernel, group), chip)
    graph, alone = Graph(model), run(model, SAMPLE)
    assert [bool(forms) for forms in [graph.shuffled]] == [taken]
    for name, found in graph(SAMPLE).items():
        np.testing.assert_array_equal(found, alone[name])


def test_the_order_is_that_of_the_moves() -> None:
    model = lowered(network())
    (found,) = shuffles(model.ops, set(model.results))
    np.testing.assert_array_equal(found.order, np.arange(12).reshape(2, 6).T.reshape(-1))


def test_who_asks_for_a_tensor_in_between_gets_it_as_it_is() -> None:
    model = lowered(network())
    alone = run(model, SAMPLE)
    names = [name for name in alone if name.startswith(("a", "p"))]
    assert len(names) == 2
    for keep in (names, "all"):
        graph = Graph(model, keep)
        assert not graph.shuffled
        for name, found in graph(SAMPLE).items():
            np.testing.assert_array_equal(found, alone[name])


def test_what_mixes_channels_with_rows_is_no_shuffle() -> None:
    assert not list(shuffles(lowered(network(split=(1, 24, 3, 6, 1))).ops, set()))
