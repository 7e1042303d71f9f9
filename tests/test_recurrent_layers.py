"""LSTM and GRU as one op: which nodes become one, what it reads, and how long it takes (numerics.md 11.7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_program, to_reordered, to_tpu
from onnx import TensorProto, helper, numpy_helper

from tpusim import chips, simulate
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.isa.commands import Fn, GlobalKernel
from tpusim.isa.functions.recurrent_time import Extents, Layer, layer_cycles, layer_traffic
from tpusim.ops.recurrent import Recurrent
from tpusim.simulator import Simulator

STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 6, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ["Y", "Y_h", "Y_c"], "GRU": ["Y", "Y_h"], "RNN": ["Y", "Y_h"]}


def network(
    kind: str, read: list[str], *, ways: int = 1, inputs: tuple[str, ...] = (), computed: bool = False, **more: Any
) -> Model:
    """A node of which some outputs are read. inputs: further inputs by name; computed: the weights are an input."""
    rng, rows = np.random.default_rng(2), GATES[kind] * HIDDEN
    shapes = {
        "W": (ways, rows, WIDTH), "R": (ways, rows, HIDDEN), "B": (ways, 2 * rows), "P": (ways, 3 * HIDDEN),
        "n": (BATCH,), "h": (ways, BATCH, HIDDEN), "c": (ways, BATCH, HIDDEN),
    }  # fmt: skip
    if more.get("layout"):
        shapes |= {"x": (BATCH, STEPS, WIDTH)}
    given = [name if name in ("W", "R", "B", *inputs) else "" for name in ("W", "R", "B", "n", "h", "c", "P")]
    while not given[-1]:
        given.pop()
    fed = ["n"] * ("n" in inputs) + ["W"] * computed
    constants = [
        numpy_helper.from_array(rng.normal(0, 0.4, shapes[name]).astype(np.float32), name)
        for name in given if name and name not in fed
    ]  # fmt: skip
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes.get("x", (STEPS, BATCH, WIDTH)))]
    types = {"n": TensorProto.INT32}
    values += [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), shapes[n]) for n in fed]
    names = [name if name in read else "" for name in OUTPUTS[kind]]
    if more.get("direction") == "bidirectional":
        assert ways == 2
    node = helper.make_node(kind, ["x", *given], names, hidden_size=HIDDEN, **more)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read]
    graph = helper.make_graph([node], "g", values, results, constants)
    return import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]), name=kind)


def layers(model: Model) -> list[Recurrent]:
    return [op for op in model.ops if isinstance(op, Recurrent)]


BOTH: dict[str, Any] = {"ways": 2, "direction": "bidirectional"}
PLAIN_GRU: dict[str, Any] = {"linear_before_reset": 1}


@pytest.mark.parametrize(
    ("kind", "read", "more"),
    [
        ("LSTM", ["Y", "Y_h", "Y_c"], {}), ("LSTM", ["Y_c"], {}), ("LSTM", ["Y_h", "Y_c"], BOTH),
        ("LSTM", ["Y"], {"activations": ["sigmoid", "Tanh", "Tanh"]}), ("LSTM", ["Y"], {"clip": 0.0, "layout": 0}),
        ("LSTM", ["Y"], {"inputs": ("h",)}), ("LSTM", ["Y"], {"inputs": ("h", "c")}),
        ("GRU", ["Y", "Y_h"], PLAIN_GRU), ("GRU", ["Y_h"], PLAIN_GRU | BOTH | {"inputs": ("h",)}),
    ],
)  # fmt: skip
def test_a_node_is_an_op_for_each_output_that_is_read(kind: str, read: list[str], more: dict[str, Any]) -> None:
    found = layers(network(kind, read, **more))
    assert [op.name for op in found] == [f"top.{kind}"] * len(read)
    assert [(op.result.data, op_name(op)) for op in found] == [(name, f"{name}_{kind}") for name in read]
    assert len({tuple(op.operands) for op in found}) == 1
    first = "Y" if "Y" in read else ""
    assert {op.whole.data for op in found} == {f"{first}_{kind}"}
    assert [op.is_first for op in found] == [True] + [False] * (len(read) - 1)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("LSTM", {"direction": "reverse"}), ("LSTM", {"layout": 1}), ("LSTM", {"clip": 0.5}),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]}), ("LSTM", {"inputs": ("P",)}),
        ("LSTM", {"inputs": ("n",)}), ("LSTM", {"computed": True}), ("GRU", {}), ("GRU", {"linear_before_reset": 0}),
        ("GRU", PLAIN_GRU | {"direction": "reverse"}), ("GRU", PLAIN_GRU | {"inputs": ("n",)}), ("RNN", {}),
    ],
)  # fmt: skip
def test_other_nodes_are_unrolled(kind: str, more: dict[str, Any]) -> None:
    """For these the real importer refuses the node, or its check finds another function (U-106)."""
    model = network(kind, ["Y"], **more)
    assert not layers(model) and sum(op.name.startswith("top.") for op in model.ops) > 5 * STEPS


def sample(seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(STEPS, BATCH, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("chip", ["bm1684x", "cv183x"])
@pytest.mark.parametrize(("kind", "more"), [("LSTM", {}), ("LSTM", BOTH), ("GRU", PLAIN_GRU | BOTH)])
def test_the_machine_has_the_bits_of_flat_inference(chip: str, kind: str, more: dict[str, Any]) -> None:
    top = to_calibrated(to_canonical(network(kind, OUTPUTS[kind], **more)), [sample(), sample(1)])
    tpu = to_tpu(top, chip, "int8")
    flat, machine = run(tpu, sample(2)), simulate(to_program(tpu), sample(2)).tensors
    for name in machine:
        assert np.array_equal(np.asarray(flat[name]), machine[name]), name


@pytest.mark.parametrize(("kind", "more"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1})])
@pytest.mark.parametrize("twice", ["no Y", "another state", "other weights"])
def test_layers_of_the_same_rows(kind: str, more: dict[str, Any], twice: str) -> None:
    """On CV18xx each multiplies the rows first; TPU-MLIR's names of these products depend on the rows or on Y."""
    names, rng = ("W", "R", "B"), np.random.default_rng(5)
    shapes = ((1, GATES[kind] * HIDDEN, WIDTH), (1, GATES[kind] * HIDDEN, HIDDEN), (1, 2 * GATES[kind] * HIDDEN))
    constants = [
        numpy_helper.from_array(rng.normal(0, 0.4, shape).astype(np.float32), f"{name}{i}")
        for i in range(2) for name, shape in zip(names, shapes, strict=True)
    ]  # fmt: skip
    which = 0 if twice == "another state" else 1
    second = ["x", *(f"{name}{which}" for name in names), *["", "h"] * (1 - which)]
    shown = ("", "") if twice == "no Y" else ("Y", "Z")
    nodes = [
        helper.make_node(kind, ["x", "W0", "R0", "B0"], [shown[0], "h"], hidden_size=HIDDEN, **more),
        helper.make_node(kind, second, [shown[1], "i"], hidden_size=HIDDEN, **more),
    ]
    read = [name for name in (*shown, "h", "i") if name]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read]
    rows = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (STEPS, BATCH, WIDTH))]
    graph = helper.make_graph(nodes, "g", rows, results, constants)
    top = to_canonical(import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]), name=kind))
    for chip in ("cv183x", "bm1684x"):
        tpu = to_tpu(top, chip, "bf16")
        exact, found = run(top, sample(2)), simulate(to_program(tpu), sample(2)).tensors
        for name in (op_name(op) for op in layers(top)):
            np.testing.assert_allclose(found[name], exact[name], atol=0.03, err_msg=f"{chip} {name}")


def test_one_kernel_works_and_the_others_store() -> None:
    tpu = to_tpu(to_canonical(network("LSTM", ["Y", "Y_h", "Y_c"])), "bm1684x", "f32")
    program = to_program(tpu)
    kernels = [command for command in program.commands if isinstance(command, GlobalKernel)]
    assert [isinstance(kernel.body, Fn) and kernel.body.loads for kernel in kernels] == [True, False, False]
    assert [kernel.load_bytes > 0 for kernel in kernels] == [True, False, False]
    spans = Simulator(program).timeline.spans
    assert [span.stop_ns > span.start_ns for span in spans] == [True, False, False]


def test_all_ops_of_a_node_share_reordered_constants() -> None:
    tpu = to_reordered(to_tpu(to_canonical(network("LSTM", ["Y", "Y_h"])), "bm1684x", "f32"))
    first, second = layers(tpu)
    assert tuple(first.operands) == tuple(second.operands)
    packed = tpu.weights[op_name(first.operands[1].owner)]  # type: ignore[arg-type]
    w, r = (tpu_weight(network("LSTM", ["Y", "Y_h"]), number) for number in (1, 2))
    i, o, f, g = (slice(k * HIDDEN, (k + 1) * HIDDEN) for k in range(4))
    for gate, rows in enumerate((i, f, o, g)):
        column = packed.reshape(WIDTH + HIDDEN, 4, HIDDEN)[:, gate]
        assert np.array_equal(column, np.concatenate([w[0, rows], r[0, rows]], axis=1).T)


def test_a_gru_has_a_matrix_for_each_gate() -> None:
    """As TPU-MLIR's weight-reorder stores it: gates r, z, h of the rows, then of the state."""
    model = to_tpu(to_canonical(network("GRU", ["Y"], linear_before_reset=1)), "bm1684x", "f32")
    w, r = (tpu_weight(model, number) for number in (1, 2))
    gates = [part.reshape(3, HIDDEN, -1)[gate].T for part in (w[0], r[0]) for gate in (1, 0, 2)]
    packed = tpu_weight(to_reordered(model), 1)
    assert packed.ravel().tolist() == np.concatenate([gate.ravel() for gate in gates]).tolist()


def tpu_weight(model: Model, number: int) -> np.ndarray:
    return model.weights[op_name(layers(model)[0].operands[number].owner)]  # type: ignore[arg-type]


def test_the_type_in_every_mode() -> None:
    """As the modules of TPU-MLIR 1.30.2 have them."""
    none: dict[str, Any] = {}
    for kind, more, wanted in (
        ("LSTM", none, {("bm1684x", "bf16"): "bf16", ("bm1684x", "f16"): "f32", ("bm1684", "f32"): "f32"}),
        ("GRU", PLAIN_GRU, {("bm1684x", "bf16"): "f32", ("bm1684x", "f16"): "f32", ("cv183x", "bf16"): "bf16"}),
    ):
        top = to_canonical(network(kind, ["Y"], **more))
        for (chip, mode), element in wanted.items():
            (op,) = layers(to_tpu(top, chip, mode))
            assert str(op.output.type).endswith(f"x{element}>"), (kind, chip, mode)


TIMES = [
    (Extents(5, 1, 6, 8, 1), True, 4, "bm1684x", 6494),
    (Extents(5, 1, 6, 8, 2), True, 4, "bm1684x", 12987),
    (Extents(5, 1, 6, 8, 1), False, 4, "bm1684x", 6210),
    (Extents(5, 2, 6, 8, 2), True, 4, "bm1684x", 21491),
    (Extents(8, 1, 64, 128, 1), True, 4, "bm1684x", 95964),
    (Extents(6, 4, 40, 72, 1), True, 4, "bm1684x", 102962),
    (Extents(4, 1, 512, 512, 1), True, 4, "bm1684x", 310816),
    (Extents(10, 16, 32, 32, 2), True, 4, "bm1684x", 914429),
    (Extents(5, 1, 6, 8, 1), True, 4, "bm1688", 12956),
    (Extents(8, 1, 64, 128, 1), True, 4, "bm1688", 41968),
    (Extents(6, 4, 40, 72, 1), True, 4, "bm1688", 46948),
    (Extents(4, 1, 512, 512, 1), True, 4, "bm1688", 6468139),
    (Extents(5, 1, 6, 8, 1), True, 2, "bm1684x", 2737),
    (Extents(8, 1, 64, 128, 1), True, 2, "bm1684x", 28037),
    (Extents(6, 4, 40, 72, 1), True, 2, "bm1684x", 49471),
    (Extents(4, 1, 512, 512, 1), True, 2, "bm1684x", 118759),
    (Extents(10, 16, 32, 32, 2), True, 2, "bm1684x", 241293),
    (Extents(5, 1, 6, 8, 1), True, 2, "bm1688", 17317),
    (Extents(3, 2, 256, 1024, 1), True, 4, "bm1684x", 4400809),
    (Extents(3, 2, 256, 1024, 1), True, 4, "bm1688", 12221688),
    (Extents(4, 80, 20, 24, 1), True, 4, "bm1684x", 691300), (Extents(4, 80, 20, 24, 1), True, 4, "bm1688", 370379),
    (Extents(20, 1, 100, 200, 2), True, 4, "bm1684x", 324675), (Extents(20, 1, 100, 200, 2), True, 4, "bm1688", 233905),
    (Extents(5, 3, 7, 65, 1), True, 4, "bm1684x", 57909), (Extents(5, 3, 7, 65, 1), True, 2, "bm1684x", 29793),
    (Extents(1, 1, 16, 16, 1), True, 4, "bm1684x", 11542), (Extents(20, 1, 100, 200, 2), True, 2, "bm1684x", 266677),
]  # fmt: skip
"""LSTM, whether it has biases, bytes of an element, chip, and the cycles of the layer in TPU-MLIR's profile."""


@pytest.mark.parametrize(("at", "biased", "size", "chip", "cycles"), TIMES)
def test_cycles_are_those_of_the_profile(at: Extents, biased: bool, size: int, chip: str, cycles: int) -> None:
    layer = Layer(at, "LSTM", biased, ("Y", "Y_h", "Y_c"))
    assert layer_cycles(layer, size, chips.load(chip)) == pytest.approx(cycles, rel=0.02)


GRU_TIMES = [
    (Extents(5, 1, 6, 8, 1), "bm1684x", 7212, (1848, 352)), (Extents(5, 1, 6, 8, 2), "bm1684x", 14423, (3696, 704)),
    (Extents(8, 1, 64, 128, 1), "bm1684x", 197313, (304640, 8704)),
    (Extents(6, 4, 40, 72, 1), "bm1684x", 69949, (103488, 8064)),
    (Extents(4, 1, 512, 512, 1), "bm1684x", 929880, (6322176, 18432)),
    (Extents(10, 16, 32, 32, 2), "bm1684x", 599123, (136704, 86016)),
    (Extents(4, 80, 20, 24, 1), "bm1684x", 277707, (77248, 69120)),
    (Extents(5, 3, 7, 65, 1), "bm1684x", 39574, (58920, 4680)),
    (Extents(8, 1, 64, 128, 1), "bm1688", 73748, (304640, 8704)),
    (Extents(6, 4, 40, 72, 1), "bm1688", 42683, (103488, 8064)),
    (Extents(10, 16, 32, 32, 2), "bm1688", 211215, (136704, 86016)),
    (Extents(4, 80, 20, 24, 1), "bm1688", 144510, (77248, 69120)),
    (Extents(5, 3, 7, 65, 1), "bm1688", 25526, (58920, 4680)),
]  # fmt: skip
"""GRU, chip, cycles of the layer in TPU-MLIR's profile, bytes loaded and stored there."""


@pytest.mark.parametrize(("at", "chip", "cycles", "moved"), GRU_TIMES)
def test_gru_takes_the_time_and_bytes_of_the_profile(
    at: Extents, chip: str, cycles: int, moved: tuple[int, int]
) -> None:
    layer = Layer(at, "GRU", True, ("Y", "Y_h"))
    assert layer_cycles(layer, 4, chips.load(chip)) == pytest.approx(cycles, rel=0.005)
    operands = at.ways * (3 * at.hidden * (at.width + at.hidden + 2) + at.batch * at.hidden)
    operands += at.steps * at.batch * at.width
    results = at.ways * at.batch * at.hidden * (at.steps + 1)
    more = layer_traffic(layer, 4, chips.load(chip))
    assert (operands * 4 + more[0], results * 4 + more[1]) == moved


@pytest.mark.parametrize(
    ("at", "size", "loaded", "stored"),
    [
        (Extents(5, 1, 6, 8, 1), 4, 2872, 864), (Extents(5, 1, 6, 8, 2), 4, 5744, 1728),
        (Extents(6, 4, 40, 72, 1), 4, 165120, 36960), (Extents(6, 4, 40, 72, 1), 2, 1558272, 4608),
    ],
)  # fmt: skip
def test_bytes_are_those_of_the_profile(at: Extents, size: int, loaded: int, stored: int) -> None:
    """Of the layer with its operands and results; gates of a lane that two share are stored with their neighbours."""
    operands = at.ways * 4 * at.hidden * (at.width + at.hidden + 2) + 2 * at.ways * at.batch * at.hidden
    operands += at.steps * at.batch * at.width
    results = at.ways * at.batch * at.hidden * (at.steps + 2)
    more, less = layer_traffic(Layer(at, "LSTM", True, ("Y", "Y_h", "Y_c")), size, chips.load("bm1684x"))
    assert operands * size + more == loaded
    assert results * size + less == pytest.approx(stored, rel=0.003)
