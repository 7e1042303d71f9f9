"""Hand-edited programs and modules that used to end in a traceback: each is refused by a message, or survived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import cached_lowered, cached_network
from streams import Builder, gmem, lmem, neuron

from tpusim.errors import CommandError, ImportModelError, SimulationError
from tpusim.inference import run
from tpusim.ir.attrs import ints_attr
from tpusim.ir.text import parse_module
from tpusim.isa import functions
from tpusim.isa.commands import Arith, Fn, GlobalKernel, MatMul, Move
from tpusim.isa.stream import Program
from tpusim.ops import context
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.debugger import Debugger

SHAPE = (1, 2, 1, 4)
BARE = SimulatorOptions(sanitize=False)


def program(what: type[Any], /, **fields: Any) -> Program:
    """X in global memory, one command, y stored."""
    build = Builder()
    build.tensor("x", neuron(0, SHAPE, "f32"), "input")
    build.tensor("y", neuron(64, SHAPE, "f32"), "output")
    build.add(what, **fields)
    build.add(Move, input=lmem(64, SHAPE, "f32"), output=neuron(64, SHAPE, "f32"), tensor="y")
    return build.program()


X = {"x": np.zeros(SHAPE, np.float32)}
SOFTMAX = {"function": functions.Softmax(9), "inputs": (lmem(0, SHAPE, "f32"),), "output": lmem(64, SHAPE, "f32")}


def test_a_function_with_a_wrong_axis() -> None:
    with pytest.raises(CommandError, match="an axis of 0 to 3, got 9"):
        Simulator(program(Fn, **SOFTMAX))
    with pytest.raises(SimulationError, match=r"Fn 1 .*: cannot be executed \(axis 9 is out of bounds"):
        Simulator(program(Fn, **SOFTMAX), options=BARE).run(X)


def test_local_views_have_four_axes() -> None:
    for options in (None, BARE):
        with pytest.raises(CommandError, match="layouts requires a with layout .* and 4 axes, got aligned with 2 axes"):
            Simulator(
                program(Arith, kind="copy", a=lmem(0, (2, 4), "f32"), output=lmem(64, SHAPE, "f32")), options=options
            )


def test_the_debugger_survives_an_illegal_kernel() -> None:
    body = MatMul(id=0, dep=0, op="m", left=gmem(neuron(0, ()).address, (2, 4), "f32"), right=neuron(0, (3, 4), "f32"),
                  output=neuron(64, SHAPE, "f32"))  # fmt: skip
    debugger = Debugger(program(GlobalKernel, body=body, tensor="y"), X, options=BARE)
    for _ in range(2):
        with pytest.raises(SimulationError, match=r"GlobalKernel 1 .*: cannot be executed"):
            debugger.step()
    assert debugger.position == 0 and debugger.bytes("gmem", neuron(0, ()).address, 4).values.tolist() == [0] * 4


MODULE = """module {
  func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %b = "top.Relu"(%a) {relu_limit = -1.0 : f64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %a = "top.Input"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
    return %b : tensor<1x4xf32>
  }
}"""


def test_values_are_made_before_they_are_used() -> None:
    with pytest.raises(ImportModelError, match=r"top.Relu uses its operand 0 before it is made"):
        parse_module(MODULE, context())


def test_multipliers_that_are_too_few(tmp_path: Path) -> None:
    model = cached_lowered(3, "bm1684x")[0].clone()
    op = next(op for op in model.ops if "multipliers" in op.attributes)
    op.attributes["multipliers"] = ints_attr([1])
    name = op.results[0].name_hint or ""
    with pytest.raises(
        ImportModelError, match=f"{op.name} '.*{name}.*': cannot be computed|does not verify|multipliers"
    ):
        run(model, cached_network(3).feeds())
