"""`--matmul_perchannel`: a multiplier per column of a constant matrix, one shift for all (numerics.md 5.1, 7.1)."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from builders.timings import in_every_order
from compiling import to_calibrated, to_canonical, to_program, to_reordered, to_tpu, to_tpu_with_fallbacks
from hypothesis import given
from hypothesis import strategies as st
from networks import randomly_grouped
from op_row import network, node, values
from plain_names import import_onnx
from rows import calibrated, tpu_ops
from streams import lmem
from tpusim_kernels.prim.multiplier import best_fit, common_shift
from xdsl.ir import Operation

from tpusim import chips
from tpusim.cli import main
from tpusim.errors import CommandError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import flag, ints, op_name
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import set_type, shape_of, storage_dtype, tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.check import check
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp

Array = np.ndarray
LEFTS = ((3, 70, 12), (2, 4, 32, 12), (3, 12))
"""Rows of a 3-D product, of one in SMALL_C groups, of a global one."""


@cache
def top(left: tuple[int, ...], *, asymmetric: bool = False) -> Model:
    """X times a matrix whose columns differ in size, plus a row, relu."""
    right = values((1, 12, 20) if len(left) == 3 else (12, 20)) * np.geomspace(0.01, 1, 20, dtype=np.float32)
    nodes = [node("Gemm", "x w b", "p") if len(left) == 2 else node("MatMul", "x w", "p"), node("Relu", "p")]
    model = import_onnx(network(nodes, {"w": right, "b": values((20,), 2, -0.3, 0.3)})({"x": left}), name="columns")
    clean = to_canonical(model)
    return to_calibrated(clean, [feeds(left)], asymmetric=asymmetric)


def feeds(left: tuple[int, ...]) -> dict[str, Array]:
    return {"x": values(left, 3, -1.0, 2.0)}


def lowered(left: tuple[int, ...], chip: str = "bm1684x", *, columns: bool = True, asymmetric: bool = False) -> Model:
    config = LoweringConfig(chip, "int8", asymmetric, matmul_perchannel=columns)
    model, fallbacks = to_tpu_with_fallbacks(top(left, asymmetric=asymmetric), config)
    assert not fallbacks
    return model


def product_of(model: Model) -> TpuOp:
    return next(op for op in tpu_ops(model) if op.name == "tpu.MatMul")


def constants(op: Operation, model: Model) -> tuple[Array, Array]:
    """Matrix and row of a product; a row of zeros where it has none."""
    names = [op_name(v.owner) for v in op.operands[1:3]]  # type: ignore[arg-type]
    return model.weights[names[0]], model.weights[names[1]] if names[1] else np.zeros(20, np.int32)


# ------------------------------------------------------------------------------------------------------------- the fit


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20))
def test_multipliers_share_the_largest_shift(scales: list[float]) -> None:
    """All of 32 bits if they stay in int32, else of 8 bits; every one is its fit to the common shift."""
    fit = common_shift(scales)
    for bits in (32, 8):
        pairs = [best_fit(s, bits) for s in scales]
        shift = max(0, *(r for _, r in pairs))
        wanted = [m * 2 ** (shift - r) for m, r in pairs]
        if max(wanted) <= 2**31:
            break
    else:
        assert fit is None
        return
    assert fit is not None and fit[1] == shift and fit[0].tolist() == [w if w < 2**31 else -(2**31) for w in wanted]
    worst = max(abs(Fraction(m, 2**shift) / Fraction(s) - 1) for m, s in zip(wanted, scales, strict=True))
    assert worst < Fraction(1, 60)  # a multiplier of 8 bits is 64 or more


def test_fits_that_no_shift_holds() -> None:
    assert common_shift([1e-9, 1e5]) is None
    found = common_shift([0.5, 100.0])
    assert found is not None and found[0].max() < 2**31


def test_a_product_of_exactly_two_to_31_is_stored_as_its_negative() -> None:
    """As upstream (D29): 2 with 2^-30 gives 2 * 2^30, which int32 stores as -2^31."""
    found = common_shift([2.0, 2.0**-30])
    assert found is not None and (found[0].tolist(), found[1]) == ([-(2**31), 1], 30)


# ------------------------------------------------------------------------------------------------------------- lowering


@pytest.mark.parametrize("left", LEFTS, ids=str)
@pytest.mark.parametrize("asymmetric", [False, True])
def test_columns_have_scales_of_their_own(left: tuple[int, ...], asymmetric: bool) -> None:
    """Filter, bias and multipliers by the formulas; the stored columns all reach 127."""
    model = lowered(left, asymmetric=asymmetric)
    op, source = product_of(model), top(left, asymmetric=asymmetric)
    original = next(o for o in source.ops if o.name == "top.MatMul")
    w, b = constants(original, source)
    q, row = constants(op, model)
    x, y = uniform_of(op.operands[0]), uniform_of(op.results[0])
    assert x is not None and y is not None
    scales = np.abs(w.reshape(12, 20)).max(axis=0) / 127
    assert np.abs(q.reshape(12, 20)).max(axis=0).tolist() == [127] * 20
    np.testing.assert_allclose(q, w / scales, atol=0.5 + 1e-6)
    offset = x.zero_point.value.data * q.reshape(12, 20).astype(np.int64).sum(axis=0)
    np.testing.assert_allclose(row.reshape(-1), b.reshape(-1) / (scales * x.scale.data) - offset, atol=0.5 + 1e-2)
    (shift,) = ints(op.attributes["rshifts"])
    found = np.array(ints(op.attributes["multipliers"]), np.float64) / 2.0**shift
    np.testing.assert_allclose(found, scales * x.scale.data / y.scale.data, rtol=1 / 100)


def test_a_transposed_matrix_has_the_same_columns() -> None:
    straight, work = product_of(lowered(LEFTS[2])), top(LEFTS[2]).clone()
    op = next(o for o in work.ops if o.name == "top.MatMul")
    name = op_name(op.operands[1].owner)  # type: ignore[arg-type]
    weight = op.operands[1].owner
    set_type(weight.results[0], tensor((20, 12)))  # type: ignore[union-attr]
    weights = {key: array.T.copy() if key == name else array for key, array in work.weights.items()}
    work = Model(work.module, WeightStore(weights))
    op.attributes["right_transpose"] = flag(True)
    turned = product_of(to_tpu(work, "bm1684x", "int8", matmul_perchannel=True))
    assert turned.attributes["multipliers"] == straight.attributes["multipliers"]


def test_small_columns_are_kept() -> None:
    """The point of it: a column of hundredths has as many steps as one of ones."""
    wanted = run(top(LEFTS[2]), feeds(LEFTS[2]))
    name = next(op_name(op) for op in tpu_ops(lowered(LEFTS[2])) if op.name == "tpu.MatMul")
    errors: list[float] = []
    for columns in (True, False):
        model = lowered(LEFTS[2], columns=columns)
        uniform = uniform_of(product_of(model).results[0])
        assert uniform is not None
        real = run(model, feeds(LEFTS[2]))[name] * uniform.scale.data
        errors.append(float(np.abs(real - wanted[name]).mean()))
    assert errors[0] < errors[1]


@pytest.mark.parametrize("chip", ["bm1690", "bm1684", "cv183x"])
def test_other_chips_refuse_it(chip: str) -> None:
    with pytest.raises(UnsupportedError, match=f"matmul_perchannel on {chip}.*bm1684x, bm1688, cv186x have it"):
        lowered(LEFTS[2], chip)


def test_several_matrices_keep_one_scale() -> None:
    model = to_tpu(calibrated("matmul-batch-of-weights"), matmul_perchannel=True)
    assert "fuse_rq" not in product_of(model).attributes


# ----------------------------------------------------------------------------------------------------- bits and machine


def oracle(op: TpuOp, x: Array, w: Array, b: Array, m: Array) -> Array:
    """Python integers: RSR(relu(acc + bias) * m[n], r, half up) + z, saturated."""
    (shift,), uniform = ints(op.attributes["rshifts"]), uniform_of(op.results[0])
    assert uniform is not None
    acc = x.astype(object) @ w.astype(object) + b.reshape(-1).astype(object)
    acc = np.where(acc < 0, 0, acc) if op.attributes["do_relu"].value.data else acc  # type: ignore[attr-defined]
    half = 1 << (shift - 1) if shift else 0
    scaled = (acc * m.reshape(-1).astype(object) + half) // 2**shift + uniform.zero_point.value.data
    info = np.iinfo(storage_dtype(uniform))
    return np.clip(scaled.astype(np.int64), info.min, info.max)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_integers_are_the_oracle(asymmetric: bool) -> None:
    """From the attributes, and from the packed operand; over the whole range of bytes."""
    model = lowered(LEFTS[0], asymmetric=asymmetric)
    op, ready = product_of(model), product_of(to_reordered(model))
    w, b = constants(op, model)
    m = np.array(ints(op.attributes["multipliers"]), np.int64)
    x = np.random.default_rng(1).integers(-128, 128, shape_of(op.operands[0])).astype(np.int8)
    expected = oracle(op, x, w, b, m)
    for found in (op.inference([x, w, b])[0], ready.inference([x, w, b, m.astype(np.int32)])[0]):
        np.testing.assert_array_equal(np.asarray(found), expected)
    assert "multipliers" not in ready.attributes and shape_of(ready.operands[3]) == (1, 1, 20)


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
@pytest.mark.parametrize("left", LEFTS, ids=str)
def test_machine_equals_flat_in_any_group(left: tuple[int, ...], chip: str) -> None:
    model = to_reordered(lowered(left, chip, asymmetric=chip == "bm1688"))
    flat = run(model, feeds(left))
    name = op_name(product_of(model))
    local = 0
    for trial in range(4):
        divided, plans = randomly_grouped(model, np.random.default_rng(trial))
        local += any(op.name == "tpu.MatMul" for p in plans for op in p.graph.ops)
        machine = in_every_order(to_program(divided), feeds(left))
        np.testing.assert_array_equal(machine[name], flat[name])
    assert bool(local) == (len(left) > 2)


def test_multipliers_of_a_command_are_one_per_column() -> None:
    fields = {"id": 1, "dep": 0, "op": "m", "left": lmem(0, (1, 4, 12, 1)), "right": lmem(512, (1, 12, 20, 1)),
              "output": lmem(4096, (1, 4, 20, 1))}  # fmt: skip
    chip = chips.load("bm1684x")
    check(isa.MatMul(**fields, multipliers=lmem(8192, (1, 1, 20, 1), "i32")), chip)
    for view in (lmem(8192, (1, 1, 19, 1), "i32"), lmem(8192, (1, 1, 20, 1), "i16")):
        with pytest.raises(CommandError, match="20 i32 multipliers"):
            check(isa.MatMul(**fields, multipliers=view), chip)


def test_the_command_line_has_it(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    save_model(top(LEFTS[2]), folder / "3_calibrated.mlir")
    words = ["lower", str(folder / "3_calibrated.mlir"), "--matmul-perchannel"]
    assert main(words) == 0 and "fuse_rq = true" in (folder / "4_tpu.mlir").read_text()
    assert main([*words, "--chip", "bm1690"]) == 1
    assert "matmul_perchannel on bm1690" in capsys.readouterr().err
