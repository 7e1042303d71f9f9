"""PyTorch modules through the exporter's protocol. torch is not installed here: it is faked."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tpusim
from tpusim.errors import ConfigError, ImportModelError


class Module:
    """What is used of torch.nn.Module."""

    def __init__(self, fails: str = "") -> None:
        self.training, self.fails = True, fails

    def eval(self) -> Module:
        return self.train(False)

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self


class Net(Module):
    pass


def exported(module: Module, arguments: tuple[Any, ...], file: Any = None, *, dynamo: bool) -> Any:
    """torch.onnx.export: with dynamo=True a program that has the model, else the model in a file."""
    assert not module.training and isinstance(arguments, tuple) and dynamo == (file is None)
    if module.fails:
        raise RuntimeError(module.fails)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, list(arguments[0].shape)) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "main_graph", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return SimpleNamespace(model_proto=proto) if dynamo else file.write(proto.SerializeToString())


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torch")
    fake.nn, fake.no_grad = SimpleNamespace(Module=Module), nullcontext  # type: ignore[attr-defined]
    fake.onnx = SimpleNamespace(export=exported)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", fake)


def test_a_module_is_exported_in_evaluation_mode_and_imported(torch: None) -> None:
    x = np.array([[-1, 2]], np.float32)
    for exporter in ("dynamo", "torchscript"):
        module = Net()
        top = tpusim.load(module, x, exporter=exporter)
        assert module.training and top.name == "Net"
        np.testing.assert_array_equal(tpusim.infer(top, {"x": x})["y_Relu"], [[0, 2]])


def test_what_cannot_be_loaded_is_said(torch: None) -> None:
    module = Net("Unsupported: aten::frobnicate")
    with pytest.raises(ImportModelError, match=r"Net: .*aten::frobnicate.*try exporter='torchscript'"):
        tpusim.load(module, np.zeros(2, np.float32))
    assert module.training
    with pytest.raises(ConfigError, match=r"needs an example of its inputs"):
        tpusim.load(Net())
    with pytest.raises(ConfigError, match=r"a torch.nn.Module or a JAX function is required, got int"):
        tpusim.load(7)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"pip install 'tpusim\[torch\]'"):
        tpusim.load(Net(), 1)
