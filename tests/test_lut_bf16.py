"""BF16 tables of CV18xx from the op to the machine: every step is a defined rounding, so floats agree bit for bit too.

The arithmetic itself is compared with Python floats in tests/kernels/test_float_tables.py.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bench import Bench
from builders.timings import in_every_order
from compiling import to_canonical, to_groups, to_program, to_reordered, to_tpu, to_tpu_with_fallbacks
from op_cases import BY_ID, CASES
from op_row import network, node, values
from plain_names import import_onnx
from rotation import one_in
from rows import canonical, top_for
from slicings import Forced, cuts, every_sections
from tpusim_kernels.lut_bf16 import lut_mantissa, lut_slope
from tpusim_kernels.prim.floattable import TablePair, activation_table, log_table, power_table
from xdsl.dialects.builtin import bf16, f32
from xdsl.utils.exceptions import VerifyException

from tpusim import chips
from tpusim.errors import CommandError
from tpusim.inference import Graph, dequantised, run
from tpusim.ir.attrs import float_attr, int_attr, op_name, text
from tpusim.ir.modes import lut_mode
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import element_of, is_tensor, shape_of, tensor
from tpusim.isa import commands as isa
from tpusim.isa.check import check
from tpusim.isa.cycles import tiu_cycles
from tpusim.isa.region import View
from tpusim.lowering import LoweringConfig
from tpusim.ops import context
from tpusim.ops.activation import TpuLutBF16
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.softmax import TpuSoftmax
from tpusim.ops.structure import TopInput
from tpusim.registry import STRATEGIES
from tpusim.verify.compare import compare
from tpusim.verify.tolerances import tpu_vs_top

CHIP = "cv183x"
BF16 = np.dtype(ml_dtypes.bfloat16)

SLOPE_ROWS = [
    "sigmoid", "sigmoid-wide", "sigmoid-2d", "sigmoid-3d", "sigmoid-6d", "tanh", "exp", "elu", "elu-alpha", "mish",
    "softplus", "softsign", "silu", "gelu", "gelu-tanh", "gelu-parts",
]  # fmt: skip
MANTISSA_ROWS, LOG_ROWS = ["sqrt", "reciprocal"], ["log"]
SOFTMAX_ROWS = [case.id for case in CASES if case.result == "tpu.Softmax"]
NORM_ROWS = ["layernorm", "layernorm-no-bias", "lrn"]
ROWS = [*SLOPE_ROWS, *MANTISSA_ROWS, *LOG_ROWS, *SOFTMAX_ROWS, *NORM_ROWS]
FLOAT_ROWS = ["erf", "sin", "cos", "sign", "floor", "ceil", "round"]
"""Functions without a table rule: computed in float, rounded once."""


@cache
def lowered(case_id: str, mode: str, chip: str = CHIP) -> tuple[Model, tuple[str, ...]]:
    config = LoweringConfig(chip, mode)  # type: ignore[arg-type]
    tpu, fallbacks = to_tpu_with_fallbacks(top_for(case_id, config), config)
    return tpu, tuple(f.why for f in fallbacks)


def the(model: Model, name: str = "") -> TpuOp:
    """The one op called `name`, or the one op that is no cast and no view."""
    plain = ("tpu.Cast", "tpu.Reshape")
    found = [op for op in model.body.walk() if isinstance(op, TpuOp) and (op.name == name or not name)]
    (op,) = [op for op in found if name or op.name not in plain]
    return op


def assert_machine_is_flat(model: Model, grouped: Model, feeds: dict[str, np.ndarray]) -> None:
    """Every tensor the machine stores, under both DMA timings, bit for bit: floats too."""
    flat, program = run(model, feeds), to_program(grouped)
    machine = in_every_order(program, feeds)
    shared = machine.keys() & flat.keys()
    assert {op_name(op) for op in model.ops if isinstance(op, TpuOp) and not is_in_place(op)} <= shared
    for name in shared:
        assert machine[name].dtype == flat[name].dtype
        np.testing.assert_array_equal(machine[name].view(np.uint8), flat[name].view(np.uint8), err_msg=name)


# ------------------------------------------------------------------------------------------------------------ lowering


@pytest.mark.parametrize(
    ("case_id", "chip", "mode", "parts"),
    [
        ("hardsigmoid", "cv183x", "bf16", ["Conv2D", "Clip"]),
        ("hardswish", "cv183x", "bf16", ["Conv2D", "Clip", "Mul"]),
        ("hardsigmoid", "bm1684", "f32", ["MulConst", "AddConst", "MaxConst", "MinConst"]),
        ("hardswish", "bm1684", "f32", ["AddConst", "MaxConst", "MinConst", "MulConst", "Mul"]),
        ("hardswish", "bm1684x", "f32", ["Active"]),
    ],
)
def test_piecewise_linear_functions_have_the_forms_of_their_chip(
    case_id: str, chip: str, mode: str, parts: list[str]
) -> None:
    """As TPU-MLIR lowers them; the recorded network `squeeze` checks the values."""
    ops = [op.name for op in lowered(case_id, mode, chip)[0].ops if isinstance(op, TpuOp)]
    assert [name for name in ops if name not in ("tpu.Cast", "tpu.Reshape")] == [f"tpu.{part}" for part in parts]


@pytest.mark.parametrize("case_id", [*SLOPE_ROWS, *MANTISSA_ROWS, *LOG_ROWS])
def test_functions_become_tables(case_id: str) -> None:
    op = the(lowered(case_id, "bf16")[0], "tpu.LutBF16")
    assert isinstance(op, TpuLutBF16)
    mode = "Slope" if case_id in SLOPE_ROWS else "Log" if case_id in LOG_ROWS else "Mantissa"
    assert op.lut_mode.data == mode
    assert [shape_of(v) for v in (op.table, op.mantissa)] == [(1, 1, 32, 8)] * 2
    assert {element_of(v) for v in (*op.operands, op.output)} == {bf16}


RANGES = {"sigmoid": 12, "tanh": 15, "exp": 15, "elu": 15, "mish": 8, "softplus": 8, "silu": 12, "gelu": 8}


@pytest.mark.parametrize("case_id", RANGES)
def test_ranges(case_id: str) -> None:
    op = the(lowered(case_id, "bf16")[0], "tpu.LutBF16")
    assert isinstance(op, TpuLutBF16)
    assert (op.min_range.value.data, op.max_range.value.data) == (-RANGES[case_id], RANGES[case_id])


@pytest.mark.parametrize(
    ("case_id", "pair"),
    [("tanh", activation_table("TANH")), ("elu-alpha", activation_table("ELU", (float(np.float32(0.3)),))),
     ("sqrt", power_table(0.5)), ("reciprocal", power_table(-1.0)), ("log", log_table())],
    ids=["tanh", "elu", "sqrt", "reciprocal", "log"],
)  # fmt: skip
def test_weights_are_the_tables(case_id: str, pair: TablePair) -> None:
    model, _ = lowered(case_id, "bf16")
    op = the(model, "tpu.LutBF16")
    for value, entries in zip(op.operands[1:], pair, strict=True):
        stored = model.weights[op_name(value.owner)]  # type: ignore[arg-type]
        assert stored.dtype == BF16
        np.testing.assert_array_equal(stored.ravel(), entries)


@pytest.mark.parametrize("case_id", FLOAT_ROWS)
def test_functions_without_a_table_are_rounded_once(case_id: str) -> None:
    op = the(lowered(case_id, "bf16")[0], "tpu.Active")
    assert element_of(op.results[0]) == bf16


@pytest.mark.parametrize("case_id", [*SLOPE_ROWS, *LOG_ROWS, "reciprocal", "hardsigmoid", "hardswish", "floor", "sqrt"])
def test_integers_use_the_byte_table(case_id: str) -> None:
    model, why = lowered(case_id, "int8")
    assert the(model).name == "tpu.Lut"
    assert why == ()


@pytest.mark.parametrize("case_id", ["erf", "sin", "cos", "sign", "ceil", "round"])
def test_functions_without_a_byte_table_run_in_bf16(case_id: str) -> None:
    model, why = lowered(case_id, "int8")
    op = the(model, "tpu.Active")
    assert element_of(op.results[0]) == bf16
    assert "DN-13" in str(op.attributes["tpusim.decisions"])
    assert why == ("this chip has no table of this function (numerics.md 10, 16)",)


@pytest.mark.parametrize("case_id", [*SOFTMAX_ROWS, *NORM_ROWS])
@pytest.mark.parametrize("mode", ["bf16", "int8"])
def test_softmax_and_norms_are_bf16_by_tables(case_id: str, mode: str) -> None:
    model, why = lowered(case_id, mode)
    op = the(model)
    assert op.name in ("tpu.Softmax", "tpu.LayerNorm", "tpu.LRN")
    assert element_of(op.results[0]) == bf16
    tables = [v for v in op.operands if is_tensor(v) and shape_of(v) == (1, 1, 32, 8)]
    assert len(tables) == (4 if op.name == "tpu.Softmax" else 2)
    assert bool(why) == (mode == "int8")
    assert op.why_global(chips.load(CHIP)) is not None


def test_an_even_window_is_computed_in_float() -> None:
    top = to_canonical(import_onnx(network([node("LRN", "x", size=4)])({"x": (3, 12, 6, 5)}), name="even"))
    tpu = to_tpu(top, CHIP, "bf16")
    assert len(the(tpu, "tpu.LRN").operands) == 1


def test_a_marked_op_of_an_integer_network_uses_tables() -> None:
    """BF16 among integers: casts on both sides, tables between, integers and floats exact."""
    config = LoweringConfig(CHIP, "int8", qtable="y:BF16")
    case = BY_ID["sigmoid"]
    tpu = to_tpu(top_for(case.id, config), config)
    assert the(tpu, "tpu.LutBF16")
    assert_machine_is_flat(tpu, to_groups(tpu), case.feeds())


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1684"])
def test_chips_without_tables_do_not_use_them(chip: str) -> None:
    mode = "f32" if chip == "bm1684" else "bf16"
    for case_id in ("sigmoid", "layernorm", "softmax-last"):
        model, _ = lowered(case_id, mode, chip)
        assert all(shape_of(v) != (1, 1, 32, 8) for op in model.ops for v in op.results if is_tensor(v))


# ------------------------------------------------------------------------------------------------------- op to machine


@pytest.mark.parametrize(("case_id", "mode"), one_in(6, product(ROWS, ("bf16", "int8"))))
def test_machine_is_flat_bit_for_bit(case_id: str, mode: str) -> None:
    model, _ = lowered(case_id, mode)
    reordered = to_reordered(model)
    assert_machine_is_flat(model, to_groups(reordered), BY_ID[case_id].feeds())


@pytest.mark.slow  # kernels of a whole network
def test_tables_between_integer_convolutions() -> None:
    """Conv, Exp in BF16 by the qtable, Conv, Softmax and LogSoftmax, Add: groups, global layers, casts, all exact."""
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", "x w", "a", **same), node("Tanh", "a", "b"), node("Conv", "b v", "c", **same),
        node("Softmax", "c", "d", axis=1), node("LogSoftmax", "c", "e", axis=3), node("Add", "d e"),
    ]  # fmt: skip
    weights = {"w": values((12, 5, 3, 3)), "v": values((12, 12, 3, 3), 2)}
    top = to_canonical(import_onnx(network(nodes, weights)({"x": (3, 5, 6, 5)}), name="mixed"))
    feeds = [{"x": values((3, 5, 6, 5), seed)} for seed in (3, 4)]
    tpu, fallbacks = to_tpu_with_fallbacks(top, CHIP, "int8", qtable="b:BF16", ranges=feeds)
    names = [op.name for op in tpu.ops if isinstance(op, TpuOp)]
    assert names.count("tpu.LutBF16") == 1
    assert names.count("tpu.Softmax") == 2
    assert names.count("tpu.Conv2D") == 2
    assert {f.op for f in fallbacks} >= {"d", "e"}
    assert_machine_is_flat(tpu, to_groups(tpu), feeds[0])


@pytest.mark.parametrize("case_id", ["sigmoid", "softmax-last", "layernorm", "log"])
def test_other_chips_of_the_family(case_id: str) -> None:
    """Two lanes and eight."""
    for chip in ("cv180x", "cv182x", "cv181x"):
        model, _ = lowered(case_id, "bf16", chip)
        assert_machine_is_flat(model, to_groups(model), BY_ID[case_id].feeds())


@pytest.mark.parametrize("case_id", ["sigmoid-wide", "sigmoid-2d", "log", "sqrt"])
def test_stitched_slices_are_the_whole(case_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is loaded once and serves every slice; 70 channels are three rows of 32 lanes."""
    model, _ = lowered(case_id, "bf16")
    reordered = to_reordered(model)
    axes, limit, kind = cuts(the(reordered, "tpu.LutBF16"), chips.load(CHIP))
    assert axes == "".join(a for a in BY_ID[case_id].axes if a in "nh")  # CV18xx cuts no others (layer_group.md 4)
    for sections in every_sections(limit):
        monkeypatch.setitem(STRATEGIES.entries, "forced", Forced(sections, kind))
        grouped = to_groups(reordered, "forced")
        assert "tpu.Group" in {op.name for op in grouped.ops}
        assert_machine_is_flat(model, grouped, BY_ID[case_id].feeds())


@pytest.mark.parametrize(("case_id", "mode"), one_in(6, product(ROWS, ("bf16", "int8"))))
def test_lowered_network_is_similar(case_id: str, mode: str) -> None:
    model, _ = lowered(case_id, mode)
    feeds = BY_ID[case_id].feeds()
    found = compare(dequantised(model, run(model, feeds)), run(canonical(case_id), feeds), tpu_vs_top(mode))  # type: ignore[arg-type]
    assert found.passed, [(t.name, t.cosine, t.euclidean) for t in found.failures]
    assert found.compared


@pytest.mark.parametrize("case_id", ["silu", "sqrt", "log", "softmax-channels", "log-softmax", "layernorm"])
def test_whole_graph_equals_op_by_op(case_id: str) -> None:
    model, _ = lowered(case_id, "bf16")
    together, apart = Graph(model, "all")(BY_ID[case_id].feeds()), run(model, BY_ID[case_id].feeds())
    for name, expected in apart.items():
        np.testing.assert_array_equal(together[name].view(np.uint8), expected.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("case_id", ["tanh", "log", "softmax-last", "layernorm"])
def test_text_round_trip(case_id: str) -> None:
    model, _ = lowered(case_id, "bf16")
    for stage in (model, to_groups(model)):
        once = print_module(stage.module)
        assert print_module(parse_module(once, context())) == once


# ---------------------------------------------------------------------------------------------------------- the command

PATTERNS = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
MODES: dict[str, tuple[str, TablePair, float]] = {
    "exp": ("slope", activation_table("EXP"), 15.0),
    "mish": ("slope", activation_table("MISH"), 8.0),
    "rsqrt": ("mantissa", power_table(-0.5), 0.0),
    "reciprocal": ("mantissa", power_table(-1.0), 0.0),
    "log": ("log", log_table(), 0.0),
}


def stored(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(BF16)


@pytest.mark.parametrize("name", MODES)
def test_command_is_the_kernel_at_every_bit_pattern(name: str) -> None:
    """Two implementations, all 65536 inputs, infinities and NaN among them."""
    mode, pair, limit = MODES[name]
    bench = Bench(CHIP)
    rows = stored(PATTERNS).reshape(4, 128, 4, 32)
    x = bench.put(rows)
    table, mantissa = (bench.put(np.asarray(t).reshape(1, 1, 32, 8), layout="compact") for t in pair)
    got = bench.run(isa.FloatLut, mode=mode, input=x, table=table, mantissa=mantissa, output=x, low=-limit, high=limit)
    wide = [np.asarray(t).astype(np.float32) for t in pair]
    want = (
        lut_slope(PATTERNS, *wide, low=-limit, high=limit)
        if mode == "slope"
        else lut_mantissa(PATTERNS, *wide, log=mode == "log")
    )
    np.testing.assert_array_equal(got.ravel().view(np.uint16), stored(np.asarray(want)).view(np.uint16))


def command(**more: Any) -> isa.FloatLut:
    def view(address: int, shape: tuple[int, ...], dtype: str = "bf16", layout: str = "aligned") -> View:
        return View("lmem", address, shape, dtype, layout)  # type: ignore[arg-type]

    fields: dict[str, Any] = {
        "id": 1, "dep": 0, "op": "op", "mode": "slope", "input": view(0, (1, 40, 3, 5)), "low": -8.0, "high": 8.0,
        "output": view(2048, (1, 40, 3, 5)), "table": view(4096, (1, 1, 32, 8), layout="compact"),
        "mantissa": view(8192, (1, 1, 32, 8), layout="compact"),
    }  # fmt: skip
    return isa.FloatLut(**fields | more)


def test_command_is_legal_where_there_are_tables() -> None:
    check(command(), chips.load(CHIP))
    with pytest.raises(CommandError, match="float_tables requires a chip with BF16 tables, got bm1684x"):
        check(command(), chips.load("bm1684x"))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"input": View("lmem", 0, (1, 40, 3, 5), "f32", "aligned")}, "input bf16, got f32"),
        ({"table": View("lmem", 0, (1, 1, 32, 7), "bf16", "compact")}, "256 entries in table, got 224"),
        ({"mantissa": View("lmem", 0, (1, 1, 32, 8), "i16", "compact")}, "mantissa bf16, got i16"),
        ({"low": 8.0}, "low < high, got 8.0 and 8.0"),
        ({"output": View("lmem", 2048, (1, 40, 3, 4), "bf16", "aligned")}, "elementwise_shapes"),
        ({"output": View("lmem", 2048, (1, 40, 3, 5), "bf16", "aligned", lane=1)}, "shared_lane"),
    ],
)
def test_illegal_commands(more: dict[str, Any], why: str) -> None:
    with pytest.raises(CommandError, match=why):
        check(command(**more), chips.load(CHIP))


def test_tables_of_another_lane_are_legal() -> None:
    """One copy serves every lane."""
    views = {"input": View("lmem", 0, (1, 4, 2, 2), "bf16", "aligned", lane=3)}
    views["output"] = View("lmem", 2048, (1, 4, 2, 2), "bf16", "aligned", lane=3)
    check(command(**views), chips.load(CHIP))


def test_a_mantissa_costs_less_than_a_slope() -> None:
    """40 channels of 15 elements are 2*2 steps of 32 lanes and 8 elements; a lookup of 32 rows takes 35 cycles a step.

    A 16-bit product takes 4.5 cycles and one more (hardware.md 5.3), a sum 7 + 1, a copy 4 + 1; 38 per command.
    """
    chip = chips.load(CHIP)
    lookups, product, addition, copy = 2 * (4 * 35 + 38), 4 * 5.5 + 38, 4 * 8 + 38, 4 * 5 + 38
    assert tiu_cycles(command(), chip) == lookups + 2 * product + 2 * addition + copy
    assert tiu_cycles(command(mode="log"), chip) == lookups + copy + product


# ------------------------------------------------------------------------------------------------------------ the ops


def made(attributes: dict[str, Any], tables: tuple[int, ...] = (1, 1, 32, 8)) -> TpuLutBF16:
    def value(shape: tuple[int, ...]) -> Any:
        return TopInput.create(result_types=[tensor(shape, f32)]).results[0]

    operands = [value((2, 3)), value(tables), value(tables)]
    fields = {"lut_mode": lut_mode("Slope"), "min_range": float_attr(-8.0), "max_range": float_attr(8.0)}
    return TpuLutBF16.create(operands=operands, result_types=[tensor((2, 3), f32)], attributes=fields | attributes)


def test_a_malformed_op_is_refused() -> None:
    made({}).verify()
    for attributes, tables, why in (
        ({"lut_mode": text("Sine")}, (1, 1, 32, 8), "lut_mode"),
        ({}, (1, 1, 1, 256), r"tables of shape \(1, 1, 32, 8\) are required"),
        ({"min_range": float_attr(8.0)}, (1, 1, 32, 8), "min_range < max_range is required"),
    ):
        with pytest.raises(VerifyException, match=why):
            made(attributes, tables).verify()


def test_softmax_takes_no_table_one_or_four() -> None:
    model, _ = lowered("softmax-last", "bf16")
    op = the(model, "tpu.Softmax")
    assert isinstance(op, TpuSoftmax)
    operands = [TopInput.create(result_types=[tensor(shape_of(v), bf16)]).results[0] for v in op.operands[:3]]
    broken = TpuSoftmax.create(
        operands=operands, result_types=[op.output.type], attributes={"axis": int_attr(1)}
    )  # fmt: skip
    with pytest.raises(VerifyException, match="no table, one or four are required, got 2"):
        broken.verify_()
