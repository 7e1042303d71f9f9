"""ONNX's own backend suites through `tpusim.backend`, by ONNX's comparison; onnx_suite.py makes the list of refusals.

A case that is not in the list must pass; a case in the list must be refused for its reason.
"""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_suite import PARTS, SUITES, excluded, outcome, part, suite
from rotation import marks

import tpusim.backend
from tpusim.errors import ConfigError

LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
USUAL = 7
"""The part of the node cases that the default tests have."""


@pytest.mark.parametrize("number", [pytest.param(n, marks=marks(n == USUAL)) for n in range(PARTS)])
def test_node_cases(number: int) -> None:
    require_as_listed(number, "node")


@pytest.mark.parametrize("kind", SUITES[1:-1])
@pytest.mark.parametrize("number", [pytest.param(n, marks=marks(n == USUAL)) for n in range(PARTS)])
def test_other_cases(kind: str, number: int) -> None:
    require_as_listed(number, kind)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(usual=False)) for name in LIGHT])
def test_classic_networks(name: str) -> None:
    """Of the suite `real`, each alone: they take as long as all others together."""
    (case,) = [case for case in suite("real") if case.model_name == name]
    assert outcome(case).status == "passed"


def require_as_listed(number: int, kind: str) -> None:
    listed, unlike = excluded(kind), dict[str, str]()
    for case in part(number, kind):
        found = outcome(case)
        if found.why != listed.get(case.name, "") or (found.status == "refused") != (case.name in listed):
            unlike[case.name] = f"{found.status}: {found.why}"
    assert unlike == {}


def test_list_is_of_this_suite() -> None:
    """Nothing is listed that does not exist, and at least 1,500 of the node cases pass."""
    assert {case.model_name for case in suite("real")} == set(LIGHT)
    for kind in SUITES:
        assert excluded(kind).keys() <= {case.name for case in suite(kind)}
    assert len(suite()) - len(excluded()) >= 1500


def test_backend_is_what_tools_take() -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    (y,) = tpusim.backend.run_node(node, [onnx.numpy_helper.to_array(t) for t in (integers(1), integers(41))])
    assert (y.dtype.name, int(y)) == ("int64", 42)
    assert tpusim.backend.supports_device("CPU") and not tpusim.backend.supports_device("CUDA:1")
    text = helper.make_tensor_value_info("s", TensorProto.STRING, [1])
    taken = helper.make_node("Identity", ["s"], ["t"])
    graph = helper.make_graph([taken], "g", [text], [helper.make_tensor_value_info("t", TensorProto.STRING, [1])])
    assert not tpusim.backend.is_compatible(helper.make_model(graph))
    with pytest.raises(ConfigError, match="input 's': an array of numbers or bools is required, got nothing"):
        tpusim.backend.prepare(helper.make_model(graph)).run([None])


def integers(*values: int) -> TensorProto:
    return helper.make_tensor("t", TensorProto.INT64, [] if len(values) == 1 else [len(values)], values)
