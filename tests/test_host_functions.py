"""Host functions: ops of the host as StableHLO in the program, which the machine runs without knowing an op."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from builders.host_code import FEEDS, SHAPE, code_of
from compiling import to_canonical, to_program, to_tpu
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper
from streams import neuron

from tpusim import chips
from tpusim.chips.files import changed
from tpusim.errors import SimulationError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.inference.executor import results_of
from tpusim.ir.dialects import context
from tpusim.ir.functions import is_host_function
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.isa import functions as fn
from tpusim.isa.commands import HostCall
from tpusim.isa.stream import Program, load, save
from tpusim.ops.cumulate import TpuCumSum
from tpusim.ops.framework.base import TpuOp
from tpusim.passes import PassManager, pipelines
from tpusim.proof import prove
from tpusim.simulator import Simulator
from tpusim.simulator.host_function import host_function

HOST = changed(chips.load("bm1684x"), "mine", {"forms": {"on_host": ["top.Softmax", "top.LRN", "top.Reduce"]}})
"""A chip whose file leaves ops to the host that others of its family compute."""


def network(*nodes: tuple[str, str, str, dict[str, Any]], outputs: str) -> Model:
    """A canonical module. A node: op type, operands and results as words, attributes; capitals: constants."""
    constants = {
        "ROWS": np.array(2), "COLUMNS": np.array(3), "FLAT": np.array((1, 12, 5)), "ONE": np.array(1),
        "GAIN": np.array((0.5, 2, 1), np.float32), "SHIFT": np.array((0.1, -0.3, 0), np.float32),
        "SIZES": np.array((1, 3, 7, 8)), "FIRST": np.array([3]),
    }  # fmt: skip
    made = [helper.make_node(kind, read.split(), out.split(), **more) for kind, read, out, more in nodes]
    for node in made:
        if node.op_type == "Resize":
            del node.input[1:]
            node.input.extend(["", "", "SIZES"])
    used = {name for node in made for name in node.input}
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs.split()],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return to_canonical(import_onnx(onnx.load_from_string(model.SerializeToString())))


NETWORKS: dict[str, Callable[[], Model]] = {
    "one": lambda: network(("CumSum", "x ROWS", "y", {}), outputs="y"),
    "chain": lambda: network(
        ("CumSum", "x ROWS", "a", {}), ("Reshape", "a FLAT", "b", {}), ("CumSum", "b ONE", "y", {}), outputs="y"
    ),
    "two-results": lambda: network(
        ("CumSum", "x ROWS", "y", {}), ("CumSum", "y COLUMNS", "z", {"reverse": 1}), outputs="y z"
    ),
    "between": lambda: network(
        ("Relu", "x", "a", {}),
        ("InstanceNormalization", "a GAIN SHIFT", "b", {}),
        ("Resize", "b", "c", {"mode": "linear"}),
        ("Sigmoid", "c", "d", {}),
        ("TopK", "d FIRST", "y i", {"axis": 3}),
        ("Tanh", "y", "z", {}),
        outputs="z d",
    ),
    "softmax": lambda: network(
        ("Relu", "x", "a", {}), ("Softmax", "a", "b", {"axis": 1}), ("ReduceMean", "b", "c", {"axes": [2]}),
        ("Sigmoid", "c", "y", {}), outputs="y",
    ),
}  # fmt: skip


@cache
def lowered(name: str, chip: str, mode: str) -> Model:
    return to_tpu(NETWORKS[name](), HOST if chip == "mine" else chip, mode, [FEEDS])


@cache
def compiled(name: str, chip: str, mode: str) -> tuple[Model, Program]:
    """The addressed module with host functions, and its program."""
    assign, codegen = pipelines.commands()
    final = PassManager((*pipelines.grouped(), assign)).run(lowered(name, chip, mode))
    return final, PassManager(codegen).program(final)


def calls(program: Program) -> list[HostCall]:
    return [c for c in program.commands if isinstance(c, HostCall)]


def codes(program: Program) -> list[str]:
    return [entry.name for entry in program.constants if is_host_function(entry.name, "CPU")]


ROWS = [
    ("one", "cv183x", "bf16", 1), ("chain", "cv183x", "bf16", 1), ("two-results", "cv183x", "bf16", 2),
    ("between", "cv183x", "int8", 2), ("between", "cv181x", "bf16", 2), ("softmax", "mine", "f32", 1),
    ("softmax", "mine", "int8", 2),
]  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore::tpusim.errors.TpusimWarning")
@pytest.mark.parametrize(("name", "chip", "mode", "functions"), ROWS)
def test_the_file_alone_gives_the_bits_of_flat_inference(
    name: str, chip: str, mode: str, functions: int, tmp_path: Path
) -> None:
    """And a proof judges it."""
    final, program = compiled(name, chip, mode)
    assert len(codes(program)) == functions
    path = tmp_path / "p.tpusim"
    save(program, path)
    machine = Simulator(load(path))
    found = machine.run(FEEDS).tensors
    wanted = results_of(final, FEEDS)
    for entry, array in zip(program.outputs, wanted, strict=True):
        np.testing.assert_array_equal(found[entry.name], array)
    judged = prove(final, machine)
    assert judged.passed and not judged.unjudged and not judged.unseen


def test_the_text_has_private_functions_and_reads_back() -> None:
    """Of a module in groups and of a final one; both give the same program."""
    grouped = PassManager(pipelines.grouped()).run(lowered("between", "cv183x", "int8"))
    text = print_module(grouped.module)
    assert "func.func private @host_0" in text and "func.call @host_1" in text
    assert "tpusim.function" not in text
    again = Model(parse_module(text, context()), grouped.weights)
    assert print_module(again.module) == text
    final, program = compiled("between", "cv183x", "int8")
    assert _equal(again, program)
    text = print_module(final.module)
    assert "func.func private @host_1" in text and "mode = #tpu<run_mode CPU>" in text
    assert _equal(Model(parse_module(text, context()), final.weights), program)


def _equal(model: Model, program: Program) -> bool:
    steps = pipelines.commands()[1:] if model.state == "TPU_ADDRESSED" else pipelines.commands()
    other = PassManager(steps).program(model)
    return other.commands == program.commands and np.array_equal(other.coefficients, program.coefficients)


def test_a_module_without_work_for_the_host_stays() -> None:
    """Also casts of a network's inputs, which the host does where it computes nothing else."""
    relu = network(("Relu", "x", "y", {}), outputs="y")
    for chip in ("bm1684x", "cv183x"):
        grouped = PassManager(pipelines.grouped()[:-1]).run(to_tpu(relu, chip, "int8", [FEEDS]))
        after = PassManager("outline-host-functions").run(grouped)
        assert print_module(after.module) == print_module(grouped.module)
        assert set(after.weights) == set(grouped.weights)


def test_what_is_inside_a_function_has_no_memory() -> None:
    """Its arguments are alive until its result, which shares no byte with them."""
    final, program = compiled("chain", "cv183x", "bf16")
    assert {entry.name for entry in program.tensors} == {"x", "y_CumSum"}
    (call,) = calls(program)
    read, made = call.reads()[1], call.writes()[0]
    assert read.address + read.nbytes <= made.address or made.address + made.nbytes <= read.address
    assert [entry.ops for entry in program.groups] == [("a_CumSum", "b_Reshape", "y_CumSum")]
    assert list(program.functions) == ["host_0"] and len(final.functions) == 1


def test_without_the_pass_the_machine_computes_in_numpy() -> None:
    """An independent answer: no constant has code, and results agree within the roundings of a sum."""
    plain = to_program(lowered("chain", "cv183x", "bf16"))
    assert not codes(plain) and len(calls(plain)) == 2
    one, other = (Simulator(p).run(FEEDS).tensors["y_CumSum"] for p in (plain, compiled("chain", "cv183x", "bf16")[1]))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_an_op_without_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package's op needs no command if the host computes it."""
    monkeypatch.setattr(TpuCumSum, "emit", TpuOp.emit)
    model = lowered("chain", "cv183x", "bf16")
    final = PassManager((*pipelines.grouped(), *pipelines.commands()[:1])).run(model)
    program = PassManager(pipelines.commands()[1:]).program(final)
    found = Simulator(program).run(FEEDS).tensors
    np.testing.assert_array_equal(found["y_CumSum"], results_of(final, FEEDS)[0])
    with pytest.raises(UnsupportedError, match="'a_CumSum': a host function is required.*run the pass outline-host"):
        to_program(model)


def with_code(program: Program, code: bytes) -> Program:
    """The program with other bytes of its only code, and zeros after them."""
    (entry,) = (e for e in program.constants if e.name == "host_0")
    image, start = program.coefficients.copy(), entry.address - program.header.coeff_address
    image[start : start + entry.size] = np.frombuffer(code.ljust(entry.size, b"\0")[: entry.size], np.uint8)
    return replace(program, coefficients=image)


def test_another_function_is_refuted_by_the_proof() -> None:
    """It runs, and gives other values: what it computes is part of what is proven."""
    final, program = compiled("one", "cv183x", "bf16")
    other = with_code(program, code_of(lambda x: x + 1, SHAPE))
    np.testing.assert_array_equal(Simulator(other).run(FEEDS).tensors["y_CumSum"], FEEDS["x"] + 1)
    judged = prove(final, Simulator(other))
    assert judged.wrong is not None and judged.wrong.tensor == "y_CumSum"


OTHERS: dict[str, Callable[[], bytes]] = {
    "StableHLO as jax.export serialises it is required": lambda: b"not code",
    "operands of types like float32.* is required, got float32.1, 3": lambda: code_of(lambda x, y: x + y, SHAPE, SHAPE),
    r"a result of f32 .* is required, got float32 \(1, 2, 4, 5\)": lambda: code_of(lambda x: x[:, :2], SHAPE),
    "a result of f32 .* is required, got int32": lambda: code_of(lambda x: x.astype(np.int32), SHAPE),
    "a function of one result .* got 2 for cpu": lambda: code_of(lambda x: (x, x), SHAPE),
    "alone is required, got stablehlo.custom_call": lambda: code_of(lambda x: jax.numpy.linalg.qr(x)[0] * 1, SHAPE),
}
"""What is required -> code that is something else."""


@pytest.mark.parametrize("words", OTHERS)
def test_code_that_is_no_such_function(words: str) -> None:
    machine = Simulator(with_code(compiled("one", "cv183x", "bf16")[1], OTHERS[words]()))
    with pytest.raises(SimulationError, match=f"host function 'host_0': .*{words}.*generate the program again"):
        machine.run(FEEDS)


def test_damaged_code_ends_in_an_error() -> None:
    """Bytes that differ in a few places: a sentence, or a function of other values; never another exception."""
    rng, code, view = random.Random(0), code_of(lambda x: x.cumsum(2), SHAPE), neuron(0, SHAPE, "f32")
    refused = 0
    for _ in range(60):
        damaged = bytearray(code)
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            given = np.frombuffer(bytes(damaged), np.uint8), FEEDS["x"]
            host_function(fn.HostFunction("host_0"), given, view)
        except SimulationError as error:
            refused += str(error).startswith("host function 'host_0': ")
    assert refused > 30
