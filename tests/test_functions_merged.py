"""Modules of several functions: read as one in the order of execution; real final modules computed and simulated."""

import re

import numpy as np
import pytest

from tests.real_folders import CELLS, FOLDERS, TRANSFORM, final
from tpusim import ops
from tpusim.codegen.program import generate
from tpusim.errors import ImportModelError
from tpusim.inference.executor import run
from tpusim.ir import text
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, load_model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.simulator import simulate


def arrays(path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize("cell", CELLS)
def test_final_modules_compute_what_the_interpreter_computes(cell: str):
    """Groups, slices, coefficients and addresses are the real compiler's; integers are equal in flat inference."""
    model = load_model(final(cell), ops.context())
    types = {value_name(v): uniform_of(v) for op in model.module.walk() for v in op.results if is_tensor(v)}
    ours, theirs = run(model, arrays(TRANSFORM / "in.npz")), arrays(FOLDERS / cell / "tensors.npz")
    compared = 0
    for name in theirs.keys() & ours.keys():
        quantised, real = types[name], theirs[name]
        if quantised is None:
            np.testing.assert_allclose(ours[name].astype(np.float32), real, atol=1e-3 * np.abs(real).max())
        else:
            stored = np.rint(real / quantised.scale.data) + quantised.zero_point.value.data
            np.testing.assert_array_equal(ours[name].astype(np.int64), stored.reshape(ours[name].shape))
        compared += 1
    assert compared == len(theirs)


@pytest.mark.parametrize("cell", CELLS)
def test_final_modules_run_on_the_machine(cell: str):
    """Their groups at their addresses; float sums may differ in the last place."""
    model = load_model(final(cell), ops.context())
    sample = arrays(TRANSFORM / "in.npz")
    flat, machine = run(model, sample), simulate(generate(model), sample).tensors
    assert "scores_Gemm_f32" in machine or "scores_Gemm" in machine
    for name in machine.keys() & flat.keys():
        exact = not cell.endswith("F32")
        np.testing.assert_allclose(
            machine[name].astype(np.float32).ravel(), flat[name].astype(np.float32).ravel(), atol=0 if exact else 1e-6
        )


@pytest.mark.parametrize(
    ("cell", "modes"),
    [
        ("cv183x-INT8", {"subfunc_0": "CPU", "subfunc_1": "TPU_STATIC"}),
        ("bm1684-INT8", {"main": ""}),
    ],
)
def test_functions_stay_in_the_module_and_in_its_program(cell: str, modes: dict[str, str]):
    """The only function of the chip says nothing: it is @main, and has no name in the program."""
    model = load_model(final(cell), ops.context())
    assert {function.name: function.run_mode for function in model.functions} == modes
    computed = [op for op in model.ops if op.operands and op.operands[0].owner is not model.body]
    assert [op for function in model.functions for op in function.ops] == computed[:-1]
    program = generate(model)
    assert list(program.functions) == [name if mode else "" for name, mode in modes.items()]
    assert [group for groups in program.functions.values() for group in groups] == [g.id for g in program.groups]
    again = read(text.print_module(model.module))
    assert [(f.name, f.run_mode, len(f.ops)) for f in again.functions] == [
        (f.name, f.run_mode, len(f.ops)) for f in model.functions
    ]


CALLS = """module @m attributes {module.chip = "ALL", module.state = "TOP_F32"} {
  module @m attributes {module.step = 3 : i64} {
    func.func @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = "top.Input"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("x")
      %1 = call @subfunc_0(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %2 = call @subfunc_1(%1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %2 : tensor<2x3xf32>
    }
    func.func @subfunc_1(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {mode = #tpu<run_mode CPU>} {
      %0 = "top.Abs"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("last")
      return %0 : tensor<2x3xf32>
    }
    func.func @subfunc_0(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {mode = #tpu<run_mode TPU_STATIC>} {
      %0 = "top.Exp"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("first")
      return %0 : tensor<2x3xf32>
    }
  }
}
"""


T = "tensor<2x3xf32>"
EXP_OF_OTHER = '"top.Exp"(%arg0) : (tensor<3x2xf32>'


def read(source: str) -> Model:
    return Model(text.parse_module(source, ops.context()), WeightStore())


def test_functions_are_computed_in_the_order_of_execution():
    model = read(CALLS)
    assert [op_name(op) for op in model.ops if op_name(op)] == ["x", "first", "last"]
    assert (model.name, model.number("module.step")) == ("m", 3)
    assert [(f.name, f.run_mode, len(f.ops)) for f in model.functions] == [
        ("subfunc_0", "TPU_STATIC", 1),
        ("subfunc_1", "CPU", 1),
    ]
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(run(model, {"x": x})["last"], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"subfunc_0": (0, 1), "subfunc_1": (1, -1)}, ["subfunc_0", "subfunc_1"]),
        ({"subfunc_0": (1, -1), "subfunc_1": (0, 1)}, ["subfunc_1", "subfunc_0"]),
        ({"subfunc_0": (7, -1), "subfunc_1": (3, 7)}, ["subfunc_1", "subfunc_0"]),
        ({"subfunc_0": (0, 1), "subfunc_1": (1, 0)}, ["subfunc_0", "subfunc_1"]),
        ({"subfunc_1": (0, -1)}, ["subfunc_0", "subfunc_1"]),
    ],
)
def test_functions_run_in_the_order_that_they_state(numbers: dict[str, tuple[int, int]], expected: list[str]):
    """TPU-MLIR prints calls in another order; a circle or a function that states nothing changes nothing."""
    source = CALLS.replace("@subfunc_1(%1)", "@subfunc_1(%0)").replace("return %2", "return %1", 1)
    for name, (number, following) in numbers.items():
        head, tail = source.split(f"func.func @{name}")
        stated = f"attributes {{id = {number} : i64, next_index = array<i32: {following}>, "
        source = f"{head}func.func @{name}{tail.replace('attributes {', stated, 1)}"
    assert [function.name for function in read(source).functions] == expected


def test_an_argument_that_is_returned_and_two_levels_of_calls():
    inner = CALLS.replace('%0 = "top.Exp"(%arg0) :', "%0 = call @subfunc_1(%arg0) :").replace(' loc("first")', "")
    inner = inner.replace("%2 = call @subfunc_1(%1)", "%2 = call @same(%1)").replace(
        "    func.func @subfunc_0",
        "    func.func @same(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {\n      return %a : tensor<2x3xf32>\n    }\n"
        "    func.func @subfunc_0",
    )
    model = read(inner)
    assert [op.name for op in model.ops] == ["top.Input", "top.Abs", "func.return"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"@subfunc_1(%1)": "@subfunc_7(%1)"}, "the call of @subfunc_7 in @main: a function of that name is required"),
        ({'"top.Exp"(%arg0)': "call @subfunc_0(%arg0)"}, "@subfunc_0 calls @subfunc_0"),
        (
            {'"top.Exp"(%arg0)': "call @subfunc_1(%arg0)", '"top.Abs"(%arg0)': "call @subfunc_0(%arg0)"},
            "in @subfunc_1: functions that end are required, but @subfunc_0 calls @subfunc_1 calls @subfunc_0",
        ),
        ({"@subfunc_1(%arg0": "@subfunc_0(%arg0"}, "one function @subfunc_0 is required, got two"),
        ({"%2 = call @subfunc_1(%1)": "%2 = call @main(%1)"}, "@main calls @main"),
        (
            {f"@subfunc_0(%arg0: {T}": "@subfunc_0(%arg0: tensor<3x2xf32>", f'"top.Exp"(%arg0) : ({T}': EXP_OF_OTHER},
            "the call of @subfunc_0 in @main has arguments of tensor<2x3xf32>, @subfunc_0 is of tensor<3x2xf32>",
        ),
        (
            {f"@subfunc_0(%arg0: {T}) -> {T} attributes": f"@subfunc_0(%arg0: {T}) -> ({T}, {T}) attributes"},
            "has results of tensor<2x3xf32>, @subfunc_0 is of tensor<2x3xf32>, tensor<2x3xf32>",
        ),
    ],
)  # fmt: skip
def test_calls_without_sense_name_both_places(change: dict[str, str], words: str):
    source = CALLS
    for old, new in change.items():
        assert old in source
        source = source.replace(old, new, 1)
    with pytest.raises(ImportModelError, match=re.escape(words)):
        read(source)


def test_modules_of_several_devices_are_refused():
    inner = CALLS[CALLS.index("  module @m") : CALLS.rindex("}\n")]
    with pytest.raises(ImportModelError, match="at most one module inside it is read, got 2"):
        read(CALLS.replace(inner, inner + inner.replace("module @m", "module @n")))
