"""CV18xx: chip data, ranges, modes, derived constants, layouts, casts, propagation and the clock, by hand."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from builders.calibrated import WINDOW, Row, module, x
from compiling import to_addressed, to_groups, to_program, to_reordered, to_tpu, to_tpu_with_fallbacks
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from op_cases import BY_ID
from op_oracles_cv18xx import bf16_bits
from rows import calibrated, canonical, lowered
from streams import Builder, gmem, lmem
from tpusim_kernels import arith_shift
from tpusim_kernels.prim import requant
from tpusim_kernels.prim.multiplier import qdm_fit
from tpusim_kernels.prim.smallfloat import narrowed as flat_narrowed

from tpusim import chips
from tpusim.cli import main
from tpusim.errors import CommandError, ImportModelError, ModeWarning, SimulationError, UnsupportedError
from tpusim.inference import run
from tpusim.interfaces import ask
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import address_of, calibrated_range, element_of, is_tensor, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa import cycles
from tpusim.isa.check import check
from tpusim.layer_group.planning import plan
from tpusim.lowering import LoweringConfig, config_for_chip
from tpusim.lowering.propagate import keep_ranges, propagate
from tpusim.ops import context
from tpusim.ops.conv.coeff import bias_from_planes, bias_planes, pack_channels, pack_filter, unpack_channels
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import Alignment
from tpusim.schedule import GroupSchedule, Sections
from tpusim.simulator import Simulator
from tpusim.simulator.integer import doubling_multiply, float_multiply, narrowed
from tpusim.simulator.timing import timeline

NAMES = ("cv183x", "cv182x", "cv181x", "cv180x")
CV = chips.load("cv183x")
Array = np.ndarray


def ops_of(model: Model, name: str) -> list[TpuOp]:
    return [op for op in model.body.walk() if isinstance(op, TpuOp) and op.name == name]


# --------------------------------------------------------------------------------------------------- chips and modes


def test_chip_table() -> None:
    """Hardware.md 1.1, 1.2, 3.1."""
    rows = {name: (c.lanes, c.tiu_mhz) for name in NAMES for c in [chips.load(name)]}
    assert rows == {"cv183x": (32, 650.0), "cv182x": (8, 750.0), "cv181x": (8, 500.0), "cv180x": (2, 500.0)}
    for name in NAMES:
        chip = chips.load(name)
        assert (chip.eu_bytes, chip.lmem_bytes, chip.lmem_bank_bytes) == (16, 32768, 4096)
        assert (chip.coeff_start, chip.neuron_start) == (1 << 40, 2 << 40)
        assert chip.modes == ("bf16", "int8")
        assert chip.max_axis == chip.max_conv_channels == 4095 - 32


@pytest.mark.parametrize("mode", ["f16", "f32"])
def test_another_float_mode_becomes_bf16_with_a_warning(mode: str) -> None:
    config = LoweringConfig("cv182x", mode)  # type: ignore[arg-type]
    with pytest.warns(ModeWarning, match=f"mode {mode} on cv182x"):
        assert config_for_chip(config) == LoweringConfig("cv182x", "bf16")
    with pytest.warns(ModeWarning):
        tpu = to_tpu(canonical("conv-3x3"), config)
    assert tpu.mode == "bf16"
    assert storage_dtype(element_of(ops_of(tpu, "tpu.Conv2D")[0].results[0])) == ml_dtypes.bfloat16


@pytest.mark.parametrize("mode", ["F16", "F32"])
def test_a_table_line_with_another_float_becomes_bf16_with_a_warning(mode: str) -> None:
    with pytest.warns(ModeWarning, match="y: cv183x"):
        tpu = to_tpu(calibrated("conv-3x3"), "cv183x", "int8", qtable=f"y:{mode}")
    assert storage_dtype(element_of(ops_of(tpu, "tpu.Conv2D")[0].results[0])) == ml_dtypes.bfloat16


def test_nothing_is_warned_about_where_the_mode_exists() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("bf16", "int8"):
            to_tpu(calibrated("conv-3x3"), "cv183x", mode, qtable="y:BF16")


def test_bm1684_still_refuses_what_it_does_not_have() -> None:
    with pytest.raises(UnsupportedError, match="mode bf16 on bm1684"):
        config_for_chip(LoweringConfig("bm1684", "bf16"))


def test_the_command_line_prints_the_warning(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN001
    from tpusim.ir.module import save_model

    save_model(canonical("relu"), tmp_path / "2_canonical.mlir", weight_file="w.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status = main(["lower", str(tmp_path / "2_canonical.mlir"), "--chip", "cv183x", "--mode", "f16"])
    assert status == 0
    assert "tpusim: warning: mode f16 on cv183x" in capsys.readouterr().err


def test_zero_points_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="asymmetric quantisation on cv181x"):
        to_tpu(calibrated("conv-3x3"), "cv181x", "int8", asymmetric=True)


# ------------------------------------------------------------------------------------------------ ranges, propagation


def test_ranges_are_symmetric_so_activations_are_int8() -> None:
    """2.2, 3.1: min = -max, s = th/127 although the values are never negative."""
    model = module(x("a", (1, 5, 4, 4), 0.0, 6.0), Row("y", "Relu", "a", (1, 5, 4, 4), (0.0, 6.0)))
    tpu = to_tpu(model, "cv183x")
    for op in tpu.ops:
        if isinstance(op, TpuOp) and (uniform := uniform_of(op.results[0])):
            assert (uniform.signed, uniform.scale.data) == (True, 6.0 / 127)
    assert uniform_of(ops_of(tpu, "tpu.Relu")[0].results[0])


def ranges(model: Model, chip: str) -> dict[str, tuple[float, float] | None]:
    work = model.clone()
    keep_ranges(work, chips.load(chip))
    propagate(work, chips.load(chip))
    values = {op_name(op): op.results[0] for op in work.ops if op_name(op)}
    return {name: calibrated_range(v) for name, v in values.items() if is_tensor(v)}


def sloped(kind: str, attributes: str = "", operand: str = "a") -> Model:
    weights = {"s": np.full(5, 0.25, np.float32)} if kind == "PRelu" else {}
    return module(
        x("z", (1, 5, 4, 4), -9.0, 9.0),
        Row("a", "Abs", "z", (1, 5, 4, 4), (-5.0, 5.0)),
        Row("y", kind, operand, (1, 5, 4, 4), (-1.0, 4.0), attributes),
        weights=weights,
    )


def test_leaky_relu_hands_both_ends_back() -> None:
    """3.3 step 5: CV18xx both ends, other chips the maximum only."""
    model = sloped("LeakyRelu", "alpha = 0.1 : f64")
    assert ranges(model, "cv183x")["a"] == (-4.0, 4.0)
    assert ranges(model, "bm1684x")["a"] == (-5.0, 4.0)


def test_prelu_keeps_its_own_range() -> None:
    """3.3 steps 5 and 9: not on CV18xx."""
    model = sloped("PRelu", operand="a s")
    found = ranges(model, "cv183x")
    assert (found["a"], found["y"]) == ((-5.0, 5.0), (-4.0, 4.0))
    other = ranges(model, "bm1684x")
    assert other["a"] == other["y"]


@pytest.mark.parametrize(("mode", "kept"), [("ReduceMax", (-5.0, 5.0)), ("ReduceMean", (-4.0, 4.0))])
def test_only_the_largest_and_smallest_keep_the_range(mode: str, kept: tuple[float, float]) -> None:
    """3.3 step 9: CV18xx forwards through ReduceMax and ReduceMin."""
    attributes = f'axes = [3 : i64], keepdims = true, mode = "{mode}"'
    model = module(x("a", (1, 5, 4, 4), -5.0, 5.0), Row("y", "Reduce", "a", (1, 5, 4, 1), (-1.0, 4.0), attributes))
    assert ranges(model, "cv183x")["y"] == kept
    assert ranges(model, "bm1684x")["y"] == (-1.0, 4.0)


# --------------------------------------------------------------------------------------------------- derived numbers


def test_add_has_one_shift() -> None:
    """5.3: q = 1 and 0.25; the shift of the larger, (64, 6); 0.25*2^6 = 16."""
    model = module(
        x("a", (1, 5, 4, 4), -4.0, 4.0),
        x("b", (1, 5, 4, 4), -1.0, 1.0),
        Row("y", "Add", "a b", (1, 5, 4, 4), (-4.0, 4.0)),
    )
    tpu, fallbacks = to_tpu_with_fallbacks(model, "cv183x")
    (add,) = ops_of(tpu, "tpu.Add")
    assert (ints(add.attributes["multipliers"]), ints(add.attributes["rshifts"])) == ((64, 16), (6,))
    assert fallbacks == []


@pytest.mark.parametrize("kind", ["Add", "Max", "Min"])
def test_a_multiplier_above_127_wraps(kind: str) -> None:
    """D26: the real compiler gives [-56, 100] and shift 0 for ratios of 200 and 100 on cv183x."""
    ranges = [x(name, (1, 5, 4, 4), -limit, limit) for name, limit in (("a", 200.0), ("b", 100.0))]
    y = Row("y", kind, "a b", (1, 5, 4, 4), (-1.0, 1.0))
    # The inputs are returned too, so Max and Min do not give them their range (numerics.md 3.3).
    tpu, fallbacks = to_tpu_with_fallbacks(module(*ranges, y, results="y a b"), "cv183x")
    (op,) = ops_of(tpu, f"tpu.{kind}")
    assert (ints(op.attributes["multipliers"]), ints(op.attributes["rshifts"])) == ((-56, 100), (0,))
    assert fallbacks == []


def test_mul_is_qdm() -> None:
    """S = 2/127*3/127/(6/127) = 1/127: 2^31/127*2^6 rounded, shift 6."""
    model = module(
        x("a", (1, 5, 4, 4), -2.0, 2.0),
        x("b", (1, 5, 4, 4), -3.0, 3.0),
        Row("y", "Mul", "a b", (1, 5, 4, 4), (-6.0, 6.0)),
    )
    tpu = to_tpu(model, "cv183x")
    (mul,) = ops_of(tpu, "tpu.Mul")
    m, r = mul.attributes["multiplier"].value.data, mul.attributes["rshift"].value.data  # type: ignore[attr-defined]
    assert (m, r) == (round(2**37 / 127), 6)
    assert mul.attributes["quant_mode"].data == "QDM"  # type: ignore[attr-defined]


def test_conv_coefficients_by_hand() -> None:
    """5.5 with th_x = 4, th_y = 8: q = max|W|*4/(127*8); W8 = RNE(W*f32(0.5*2^(31+r)/m)), the largest is 127."""
    w = np.zeros((2, 1, 1, 1), np.float32)
    w[:, 0, 0, 0] = (0.5, -0.25)
    geometry = WINDOW.format(k=1, s=1, p=0)
    model = module(
        x("a", (1, 1, 4, 4), -4.0, 4.0),
        Row("y", "Conv", "a w b", (1, 2, 4, 4), (-8.0, 8.0), geometry),
        weights={"w": w, "b": np.array([1.0, -2.0], np.float32)},
    )
    tpu = to_tpu(model, "cv183x")
    (conv,) = ops_of(tpu, "tpu.Conv2D")
    m, r = (ints(conv.attributes[k]) for k in ("multiplier", "rshift"))
    assert tpu.weights["w_int8"].reshape(-1).tolist() == [127, -127]
    for c, (largest, bias) in enumerate(((0.5, 1.0), (0.25, -2.0))):
        q = m[c] / 2.0 ** (31 + r[c])
        assert q == pytest.approx(largest * 4 / (127 * 8), rel=1e-7)
        assert 2**30 <= m[c] < 2**31
        assert abs(int(tpu.weights["w_bias_int32"][c]) - bias * 127 / 8 / q) <= 0.51


def test_a_scale_of_one_or_more_is_capped() -> None:
    m, r = qdm_fit(1000.0, 4.0, 2.0)
    assert (m / 2.0**31, r) == (pytest.approx(0.999999, rel=1e-7), 0)


def test_every_right_matrix_has_its_own_multiplier() -> None:
    tpu, _ = lowered("matmul-batched-weight", "cv183x", "int8")
    (op,) = ops_of(tpu, "tpu.MatMul")
    weight = tpu.weights["w_int8"]
    assert len(ints(op.attributes["multipliers"])) == len(weight) == 3
    assert len(set(ints(op.attributes["multipliers"]))) == 3
    assert [int(np.abs(w).max()) for w in weight] == [127, 127, 127]


HEADS = "order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]"


def heads(right: tuple[int, ...] = (2, 3, 6, 7), last: tuple[int, ...] = (2, 5, 3, 7), results: str = "y") -> Model:
    """A product of matrices between Permutes of (b, rows, heads, columns)."""
    return module(
        x("a", (2, 5, 3, 6), -1.0, 1.0), x("b", right, -1.0, 1.0),
        Row("left", "Permute", "a", (2, 3, 5, 6), (-1.0, 1.0), HEADS),
        Row("product", "MatMul", "left b none", (2, 3, 5, 7), (-4.0, 4.0)),
        Row("y", "Permute", "product", last, (-3.0, 3.0), HEADS),
        results=results,
    )  # fmt: skip


def test_permutes_between_heads_and_rows_are_part_of_the_product() -> None:
    """Its result is that of the following Permute, with its name and range; tensors that others read stay."""
    tpu = to_tpu(heads(), "cv183x")
    (op,) = ops_of(tpu, "tpu.MatMul")
    assert op_name(op) == "y"
    assert not ops_of(tpu, "tpu.Permute")
    told = [str(op.attributes[f"{side}_transpose"]) for side in ("left", "right", "output")]
    assert (told, str(op.attributes["hdim_is_batch"])) == (["true", "false", "true"], "true")
    values = {n: np.random.default_rng(i).normal(size=s) for i, (n, s) in
              enumerate({"a": (2, 5, 3, 6), "b": (2, 3, 6, 7)}.items())}  # fmt: skip
    feeds = {name: value.astype(ml_dtypes.bfloat16).astype(np.float32) for name, value in values.items()}
    wanted = np.einsum("bmhk,bhkn->bmhn", feeds["a"], feeds["b"])
    program = to_program(tpu)
    for found in (run(tpu, feeds), Simulator(program).run(feeds, watch=True).tensors):
        np.testing.assert_allclose(found["y_f32"], wanted, rtol=2**-8, atol=2**-8)
    shared = to_tpu(heads(results="y product left"), "cv183x")
    assert [op_name(op) for op in ops_of(shared, "tpu.Permute")] == ["left", "y"]
    other = to_tpu(heads(), "bm1684x")
    assert len(ops_of(other, "tpu.Permute")) == 2


def test_a_kernel_that_exchanges_axes_says_so_by_strides() -> None:
    """Without them its result is not the tensor's."""
    tpu = to_tpu(heads(), "cv183x")
    program = to_program(tpu)
    (at,) = (i for i, c in enumerate(program.commands) if isinstance(c, isa.GlobalKernel) and c.tensor == "y")
    kernel = program.commands[at]
    assert isinstance(kernel, isa.GlobalKernel)
    (made,) = kernel.writes()
    assert (made.shape, made.strides) == ((2, 3, 5, 7), (105, 7, 21, 1))
    body = replace(kernel.body, output=replace(made, layout="dense", strides=None))  # type: ignore[call-arg]
    commands = (*program.commands[:at], replace(kernel, body=body), *program.commands[at + 1 :])
    with pytest.raises(SimulationError, match=r"'y'.*\(2, 3, 5, 7\).* is required, got bf16 \(2, 5, 3, 7\)"):
        Simulator(replace(program, commands=commands))


def test_permutes_stay_where_matrices_are_broadcast() -> None:
    tpu = to_tpu(heads(right=(1, 3, 6, 7)), "cv183x")
    assert len(ops_of(tpu, "tpu.Permute")) == 2


def test_a_table_that_names_a_merged_op_is_told_so() -> None:
    with pytest.warns(ModeWarning, match="on this chip product is part of the op after it"):
        to_tpu(heads(), "cv183x", qtable="product:BF16")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hdim_is_batch = true", "hdim_is_batch = false", "output_transpose requires hdim_is_batch"),
        ("2x3x6x7x", "1x3x6x7x", r"equal batches and heads of both operands, got \(2, 3\) and \(1, 3\)"),
    ],
)
def test_a_product_of_heads_that_cannot_be_is_refused(old: str, new: str, why: str) -> None:
    tpu = to_tpu(heads(), "cv183x")
    with pytest.raises(ImportModelError, match=why):
        parse_module(print_module(tpu.module).replace(old, new), context())


def test_leaky_relu_has_a_multiplier_for_each_side() -> None:
    """9.7: the thresholds agree, so (1, 0); trunc(0.1*2^10) = 102 for the others."""
    tpu = to_tpu(sloped("LeakyRelu", "alpha = 0.1 : f64"), "cv183x")
    (op,) = ops_of(tpu, "tpu.LeakyRelu")
    found = {k: op.attributes[k].value.data for k in ("multiplier", "rshift", "multiplier_neg", "rshift_neg")}  # type: ignore[attr-defined]
    assert found == {"multiplier": 1, "rshift": 0, "multiplier_neg": 102, "rshift_neg": 10}


def test_prelu_scales_both_sides() -> None:
    """9.7: th_x/th_y = 5/4: (80, 6); slopes floor(0.25*1.25*2^8 + .5) = 80 with shift 8."""
    tpu = to_tpu(sloped("PRelu", operand="a s"), "cv183x")
    (op,) = ops_of(tpu, "tpu.PReluOp")
    found = {k: op.attributes[k].value.data for k in ("multiplier_pos", "rshift_pos", "rshift")}  # type: ignore[attr-defined]
    assert found == {"multiplier_pos": 80, "rshift_pos": 6, "rshift": 8}
    assert set(tpu.weights["y_slope"].reshape(-1).tolist()) == {80}


def test_a_constant_operand_of_max_is_a_tensor() -> None:
    """9.3: the constant tensor to_int8(c/s)."""
    tpu, _ = lowered("maxconst", "cv183x", "int8")
    (op,) = ops_of(tpu, "tpu.Max")
    uniform = uniform_of(op.results[0])
    assert uniform is not None
    stored = tpu.weights[f"{op_name(op)}_const"]
    assert stored.shape == BY_ID["maxconst"].inputs["x"]
    assert set(stored.reshape(-1).tolist()) == {round(-0.2 / uniform.scale.data)}
    assert "multipliers" not in op.attributes


def test_a_sum_too_long_for_f32_runs_in_bf16() -> None:
    """11.3 adds in f32; 2^24/128 bytes are the most that stay exact."""
    attributes = 'axes = [2 : i64, 3 : i64], keepdims = true, mode = "ReduceSum"'
    for width, why in ((512, []), (513, ["ReduceSum"])):
        model = module(
            x("a", (1, 1, 256, width), -1.0, 1.0), Row("y", "Reduce", "a", (1, 1, 1, 1), (-9.0, 9.0), attributes)
        )
        _, fallbacks = to_tpu_with_fallbacks(model, "cv183x")
        assert [("24 bits" in f.why) for f in fallbacks] == [True] * len(why)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("mulconst-relu", lambda v: v * 2.5),  # its relu is a separate op
        ("subconst-reverse", lambda v: 1.0 - v),
        ("subconst-reverse-relu", lambda v: max(0.5 - v, 0.0)),
    ],
)
def test_tables_of_ops_with_a_number(case: str, expected) -> None:  # noqa: ANN001
    """Section 10: entry i = round-half-away(f(i*s_in)/s_out), a negative i at 256 + i."""
    tpu, _ = lowered(case, "cv183x", "int8")
    (op,) = ops_of(tpu, "tpu.Lut")
    source, target = uniform_of(op.operands[0]), uniform_of(op.results[0])
    assert source is not None
    assert target is not None
    table = tpu.weights[op_name(op) + "_table"].reshape(-1)
    for i in (-128, -77, -1, 0, 1, 50, 127):
        real = expected(i * source.scale.data) / target.scale.data
        assert table[i % 256] == int(np.clip(np.sign(real) * np.floor(abs(real) + 0.5), -128, 127))


def test_reciprocal_of_zero_is_the_largest_value() -> None:
    tpu, _ = lowered("reciprocal", "cv183x", "int8")
    (op,) = ops_of(tpu, "tpu.Lut")
    assert tpu.weights[op_name(op) + "_table"].reshape(-1)[0] == 127


@pytest.mark.parametrize(
    ("case", "decision"),
    [("erf", "DN-13"), ("resize-linear", "DN-22")],
)
def test_decisions_are_recorded(case: str, decision: str) -> None:
    tpu, _ = lowered(case, "cv183x", "int8")
    noted = [d.data for op in tpu.ops for d in getattr(op.attributes.get("tpusim.decisions"), "data", ())]
    assert decision in noted


# --------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize(
    ("q", "e", "results"),
    [
        (2061584302, -7, (8, -8, 93, -93)),
        (1073741824, 0, (500, -500, 6173, -6172)),
        (1288490189, -1, (300, -300, 3704, -3704)),
    ],
)
def test_qdm_of_the_specification(q: int, e: int, results: tuple[int, ...]) -> None:
    """5.2 worked examples, in the kernel and on the machine."""
    values = np.array([1000, -1000, 12345, -12345])
    assert tuple(doubling_multiply(values, q, -e)) == results
    assert tuple(np.asarray(requant.quantized_multiplier_apply(values, q, e))) == results


VALUES = st.lists(st.integers(-(2**40), 2**40) | st.integers(-(2**14), 2**14), min_size=4, max_size=4)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.integers(-127, 127), st.integers(0, 40))
def test_f32_requant_beyond_24_bits_is_the_same_on_both_sides(values: list[int], m: int, r: int) -> None:
    """4.4: the product is rounded to f32; floor(v*m/2^r + 1/2) of the rounded product, exactly."""
    v = np.array(values)
    found = float_multiply(v, m, r)
    np.testing.assert_array_equal(found, np.asarray(requant.multiply_shift_f32(v, m, r)))
    product = [int(np.float32(np.float32(x) * np.float32(m))) for x in values]
    assert found.tolist() == [(2 * p + (1 << r)) // (1 << (r + 1)) for p in product]


def test_bf16_is_finite_and_half_to_even() -> None:
    """8.2: 1 + 2^-8 and 1 + 3*2^-8 are ties; infinities of either sign, NaN and overflow give 0x7f7f."""
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, -1.5, 0.0], np.float32)
    expected = [0x3F80, 0x3F82, 0x7F7F, 0x7F7F, 0x7F7F, 0x7F7F, 0x7F7F, 0xBFC0, 0]
    assert bf16_bits(x).tolist() == expected
    assert narrowed(x, "bf16", finite=True).view(np.uint16).tolist() == expected
    flat = np.asarray(flat_narrowed(x, np.dtype(ml_dtypes.bfloat16), finite=True))  # type: ignore[arg-type]
    assert flat.view(np.uint16).tolist() == expected


def test_quantising_bf16_rounds_twice_half_to_even() -> None:
    """8.1: 100.25 and 100.75 are not BF16 numbers (step 0.5), 100.5 is and goes to the even 100."""
    x = np.array([100.25, 100.75, 100.5, 101.5, -2.5, 300.0], np.float32)
    found = np.asarray(arith_shift.quantize_bf16(x, np.float32(1.0), out_dtype="int8"))  # type: ignore[arg-type]
    assert found.tolist() == [100, 101, 100, 102, -2, 127]


def test_casts_of_the_network() -> None:
    """8.1: f32 -> bf16 truncates; the network's input is cast on the CPU, in f32, its result in bf16."""
    tpu, _ = lowered("relu", "cv183x", "bf16")
    first, last = ops_of(tpu, "tpu.Cast")
    x = np.array([1 + 255 / 256 * 2**-7, -1 - 255 / 256 * 2**-7], np.float32)
    assert np.asarray(first.compute([x], CV)[0]).astype(np.float32).tolist() == [1.0, -1.0]
    assert np.asarray(last.compute([np.array([1.5], ml_dtypes.bfloat16)], CV)[0]).dtype == np.float32
    tpu, _ = lowered("relu", "cv183x", "int8")
    first, last = ops_of(tpu, "tpu.Cast")
    uniform = uniform_of(first.results[0])
    assert uniform is not None
    ties = np.array([2.5, 3.5, -2.5], np.float32) * np.float32(uniform.scale.data)
    expected = np.floor(np.abs(ties * np.float32(1 / uniform.scale.data)) + np.float32(0.5)) * np.sign(ties)
    assert np.asarray(first.compute([ties], CV)[0]).tolist() == expected.tolist()
    q, scale = np.array([-128, 7, 127], np.int8), np.float32(uniform.scale.data).astype(ml_dtypes.bfloat16)
    real = (q.astype(np.float32) * scale.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(last.compute([q], CV)[0]), real.astype(np.float32))


# --------------------------------------------------------------------------------------------------- layouts


def test_every_output_has_a_region_of_its_own() -> None:
    """Hardware.md 3.1: neurons from 2 << 40, outputs at 3 << 40, 4 << 40; in place results share their bytes."""
    model = module(
        x("a", (1, 5, 4, 4), -1.0, 1.0),
        Row("b", "Relu", "a", (1, 5, 4, 4), (0.0, 1.0)),
        Row("c", "Reshape", "b", (1, 80), (0.0, 1.0), "shape = [1 : i64, 80 : i64]"),
        Row("d", "Relu", "b", (1, 5, 4, 4), (0.0, 1.0)),
        results="c d",
    )
    tpu = to_tpu(model, "cv183x")
    final = to_addressed(tpu)
    assert [address_of(v) for v in final.results] == [3 << 40, 4 << 40]
    program = to_program(final)
    assert program.header.io_regions == ((3 << 40, 4096), (4 << 40, 4096))
    assert program.header.neuron_address == 2 << 40
    feeds = {"a": np.linspace(-1, 1, 80, dtype=np.float32).reshape(1, 5, 4, 4)}
    found, flat = Simulator(program).run(feeds).tensors, run(tpu, feeds)
    for value in tpu.results:
        name = value_name(value)
        np.testing.assert_array_equal(found[name], flat[name])


def test_channel_records() -> None:
    """Hardware.md 2.3: little-endian int32 bias, int32 multiplier, int8 shift."""
    m, r = np.array([0x40000001, 0x7FFFFFFF]), np.array([7, 0])
    packed = pack_channels(np.array([-2, 258], np.int32), m, r)
    assert packed.shape == (1, 2, 1, 9)
    assert packed[0, :, 0].tolist() == [[254, 255, 255, 255, 1, 0, 0, 64, 7], [2, 1, 0, 0, 255, 255, 255, 127, 0]]
    bias, *rest = unpack_channels(packed)
    assert bias is not None
    assert [a.tolist() for a in (bias, *rest)] == [[-2, 258], m.tolist(), r.tolist()]
    short = pack_channels(None, m, r)
    assert short[0, :, 0].tolist() == [[1, 0, 0, 64, 7], [255, 255, 255, 127, 0]]
    assert unpack_channels(short)[0] is None


def test_bias_planes() -> None:
    """Upper halves of f32, then lower ones."""
    bias = np.array([1.0, -0.1], np.float32)
    assert bias_planes(bias).reshape(-1).tolist() == [0x3F80, 0xBDCC, 0x0000, 0xCCCD]
    np.testing.assert_array_equal(bias_from_planes(bias_planes(bias)), bias)


def test_filters_have_channels_innermost_and_an_even_number_of_them() -> None:
    """Hardware.md 2.3: (1, oc, kh*kw, ic); INT8, ungrouped, 3 channels: a fourth of zeros."""
    assert [CV.filter_packing(1, 3), CV.filter_packing(1, 4), CV.filter_packing(1, 1)] == [4, 4, 1]
    assert [CV.filter_packing(1, 3, 2), CV.filter_packing(2, 3)] == [3, 3]
    w = np.arange(1, 13, dtype=np.int8).reshape(1, 3, 2, 2)
    assert pack_filter(w, 4).reshape(4, 4).tolist() == [[1, 5, 9, 0], [2, 6, 10, 0], [3, 7, 11, 0], [4, 8, 12, 0]]
    tpu = to_reordered(lowered("conv-3x3", "cv183x", "int8")[0])
    shapes = {name: array.shape for name, array in tpu.weights.items()}
    assert shapes == {"w_int8_packed": (1, 12, 9, 6), "w_int8_channels": (1, 12, 1, 9)}
    tpu = to_reordered(lowered("conv-depthwise", "cv183x", "bf16")[0])
    assert {n: a.shape for n, a in tpu.weights.items()} == {"w_packed": (1, 70, 3, 3), "w_bias_planes": (2, 70, 1, 1)}


@pytest.mark.parametrize(
    ("case", "mode", "compact"),
    [("conv-3x3", "int8", (1, 2)), ("conv-depthwise", "int8", (2,)), ("conv-grouped", "int8", (1,)),
     ("conv-grouped", "bf16", (1, 2)), ("prelu", "int8", ())],
)  # fmt: skip
def test_compact_operands(case: str, mode: str, compact: tuple[int, ...]) -> None:
    tpu = to_reordered(lowered(case, "cv183x", mode)[0])
    kind = "tpu.PReluOp" if case == "prelu" else "tpu.Conv2D"
    assert [ask(op, Alignment, CV).compact_operands(CV) for op in ops_of(tpu, kind)] == [compact]


# --------------------------------------------------------------------------------------------------- local memory


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("gemm-fc", "matrix product"), ("sub-channels", "subtracts in global memory"),
        ("max", "compares in global memory"), ("add-channels", "two tensors of one shape"),
        ("conv-grouped-wide", "output channels per group"), ("concat-rows", "joins channels only"),
    ],
)  # fmt: skip
def test_what_is_not_local(case: str, reason: str) -> None:
    """Layer_group.md 2."""
    grouped = to_groups(lowered(case, "cv183x", "int8")[0])
    reasons = [
        str(op.attributes["tpusim.global_reason"]) for op in grouped.ops if "tpusim.global_reason" in op.attributes
    ]
    assert any(reason in r for r in reasons)


@pytest.mark.parametrize("chip", ["cv183x", "bm1684x"])
def test_users_that_need_different_rows_cannot_share_them(chip: str) -> None:
    """Layer_group.md 7.3: a 3x3 and a 1x1 convolution of one tensor; other chips load the union of the rows."""
    shape, w = (1, 4, 8, 5), np.ones((4, 4, 3, 3), np.float32)
    model = module(
        x("a", shape, -1.0, 1.0),
        Row("b", "Relu", "a", shape, (0.0, 1.0)),
        Row("c", "Conv", "b w none", shape, (-9.0, 9.0), WINDOW.format(k=3, s=1, p=1)),
        Row("d", "Conv", "b v none", shape, (-9.0, 9.0), WINDOW.format(k=1, s=1, p=0)),
        Row("y", "Add", "c d", shape, (-9.0, 9.0)),
        weights={"w": w, "v": w[:, :, :1, :1].copy()},
    )
    tpu = to_reordered(model, chip)
    ops = [op for op in tpu.ops if isinstance(op, TpuOp) and op.name not in ("tpu.Cast",)]
    found = plan(ops, chips.load(chip), Sections(h=2))
    assert ("cannot share" in found) if isinstance(found, str) else chip == "bm1684x"
    assert isinstance(plan(ops, chips.load(chip), Sections()), GroupSchedule)


def test_a_long_axis_is_not_local() -> None:
    """Hardware.md 1.1: c, h, w up to 4095-32."""
    for width, local in ((4063, True), (4064, False)):
        model = module(x("a", (1, 1, 2, width), -1.0, 1.0), Row("y", "Relu", "a", (1, 1, 2, width), (0.0, 1.0)))
        tpu = to_tpu(model, "cv183x")
        grouped = to_groups(tpu)
        relu = ops_of(grouped, "tpu.Relu")[0]
        assert ("tpusim.global_reason" in relu.attributes) != local
        view = lmem(0, (1, 1, 1, width), "i8")
        command = isa.Arith(id=1, dep=0, op="y", kind="copy", a=view, output=lmem(8192, (1, 1, 1, width), "i8"))
        if local:
            check(command, CV)
        else:
            with pytest.raises(CommandError, match="within 1-4063"):
                check(command, CV)


# --------------------------------------------------------------------------------------------------- clock


def conv_command(**more) -> isa.Conv:  # noqa: ANN003
    fields = {
        "input": lmem(0, (1, 64, 16, 16), "i8"), "filter": lmem(0, (1, 64, 9, 64), "i8", layout="compact"),
        "output": lmem(0, (1, 64, 16, 16), "i8"), "kernel": (3, 3), "pads": (1, 1, 1, 1),
    }  # fmt: skip
    return isa.Conv(id=1, dep=0, op="y", **{**fields, **more})


def test_conv_cycles_by_hand() -> None:
    """5.3: 41 + ceil(64/32)*ceil(256/16)*(9*64/2 + 1) + 31 per channel; bf16 has 8 pixels and one channel a cycle."""
    table = lmem(0, (1, 64, 1, 9), "u8", layout="compact")
    assert cycles.tiu_cycles(conv_command(requant_table=table), CV) == 41 + 2 * 16 * (288 + 1) + 31
    views = {k: lmem(0, s, "bf16") for k, s in (("input", (1, 64, 16, 16)), ("output", (1, 64, 16, 16)))}
    planes = lmem(0, (2, 64, 1, 1), "u16")
    wide = conv_command(**views, filter=lmem(0, (1, 64, 9, 64), "bf16"), bias=planes)
    assert cycles.tiu_cycles(wide, CV) == 41 + 2 * 32 * (576 + 2 + 2) + 12
    few = conv_command(
        input=lmem(0, (1, 1, 16, 16), "i8"), filter=lmem(0, (1, 64, 9, 1), "i8"), strides=(2, 2),
        output=lmem(0, (1, 64, 8, 8), "i8"), requant_table=table,
    )  # fmt: skip
    # 16 pixels at stride 2 need ceil(31/16) + 1 = 3 fetches, two more than channels: 9*2 bubbles
    assert cycles.tiu_cycles(few, CV) == 41 + 2 * 4 * (9 + 18 + 1) + 31


def test_element_wise_cycles_by_hand() -> None:
    """5.3: add of bytes 5 per step, table 1 + 16 + 2; command 26, post 12."""
    a = lmem(0, (2, 40, 5, 6), "i8")
    steps = 2 * 2 * 2  # n * ceil(40/32) * ceil(30/16)
    add = isa.Arith(id=1, dep=0, op="y", kind="add", a=a, b=a, output=a)
    assert cycles.tiu_cycles(add, CV) == steps * 5 + 38
    lut = isa.Lut(id=1, dep=0, op="y", input=a, table=lmem(0, (1, 1, 1, 256), "i8"), output=a)
    assert cycles.tiu_cycles(lut, CV) == steps * 19 + 38


def test_dma_is_the_slower_of_dram_and_sram() -> None:
    """5.3: 64-byte units at 7.5 GB/s, one more per page crossed; 16 bytes a cycle at 650 MHz are faster."""
    move = isa.Move(id=1, dep=0, op="y", input=gmem(0, (1, 10000), "i8"), output=gmem(20000, (1, 10000), "i8"))
    load = isa.Move(id=1, dep=0, op="y", input=gmem(0, (1, 1, 1, 10000), "i8"), output=lmem(0, (1, 1, 1, 10000), "i8"))
    units = 157 + 2  # ceil(10000/64), pages of 4096
    assert cycles.dma_ns(load, CV) == pytest.approx(150 + units * 64 / 7.5)
    assert cycles.dma_ns(move, CV) == pytest.approx(150 + units * 64 / 3.75)
    slow = chips.load("cv180x")
    assert cycles.dma_ns(load, slow) == pytest.approx(150 + units * 64 / 7.5)


def test_total_is_the_sum_of_both_engines() -> None:
    """5.3: no overlap, not even of commands that do not depend on each other."""
    b = Builder("cv183x")
    source = b.tensor("x", gmem(0x1000, (1, 32, 4, 4), "i8"), "input")
    here, there = lmem(0, (1, 32, 4, 4), "i8"), lmem(4096, (1, 32, 4, 4), "i8")
    b.add(isa.Move, dep=0, input=source, output=here)
    b.add(isa.Arith, dep=1, kind="copy", a=here, output=there)
    b.add(isa.Move, dep=0, input=source, output=lmem(8192, (1, 32, 4, 4), "i8"))
    found = timeline(b.program(), CV)
    spans = sorted(found.spans, key=lambda s: s.start_ns)
    assert all(a.stop_ns == pytest.approx(b.start_ns) for a, b in zip(spans, spans[1:], strict=False))
    assert found.milliseconds * 1e6 == pytest.approx(sum(s.stop_ns - s.start_ns for s in spans))
    assert found.busy["tiu"] + found.busy["gdma"] == pytest.approx(1.0)


def test_float_results_of_the_chip_are_finite() -> None:
    """8.2: what overflows is the largest finite number, in flat inference and in memory."""
    tpu, _ = lowered("mul", "cv183x", "bf16")
    feeds = {k: np.full(s, 3e38 if k == "x" else 2.0, np.float32) for k, s in BY_ID["mul"].inputs.items()}
    assert set(run(tpu, feeds)["y"].astype(np.float32).reshape(-1).tolist()) == {float(np.float32(3.3895314e38))}
