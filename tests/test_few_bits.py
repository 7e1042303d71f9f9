"""Modes of weights of 4 and 8 bits in groups: what becomes quantised, what the machine computes, how long it takes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders.timings import in_every_order
from llm_numbers import a16_weights, names, record
from op_row import network, node

import tpusim
from tpusim import chips
from tpusim.cli import main
from tpusim.compiled import Compiled
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.formats import W4BF16, number_format
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa.commands import Fn
from tpusim.isa.functions import A16MatMul
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.matmul import TpuA16MatMul
from tpusim.simulator import timeline


def product(rows: int, inner: int, columns: int, *, bias: bool = True, relu: bool = False) -> onnx.ModelProto:
    """A product with a constant matrix of uneven groups."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((inner, columns)).astype(np.float32)
    matrix *= np.geomspace(0.1, 3, inner, dtype=np.float32)[:, None]
    constants = {"w": matrix, **({"b": rng.standard_normal(columns).astype(np.float32)} if bias else {})}
    last = "r" if relu else "y"
    nodes = [node("MatMul", "x w", "m" if bias else last)]
    nodes += [node("Add", "m b", last)] * bias + [node("Relu", "r", "y")] * relu
    return network(nodes, constants)({"x": (1, rows, inner)})


def feeds(rows: int, inner: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(2).standard_normal((1, rows, inner)).astype(np.float32)}


@cache
def compiled(
    chip: str, mode: str, rows: int, inner: int, columns: int, relu: bool = False, group: int = 32
) -> Compiled:
    proto = product(rows, inner, columns, relu=relu)
    return tpusim.compile(proto, [feeds(rows, inner)], chip=chip, mode=mode, q_group_size=group)


def kinds(found: Compiled) -> list[str]:
    return [op.name for op in found.tpu.ops if isinstance(op, TpuOp) and op.name != "tpu.Cast"]


def products(found: Compiled) -> list[TpuA16MatMul]:
    return [op for op in found.tpu.ops if isinstance(op, TpuA16MatMul)]


@pytest.mark.parametrize("name", names("a16"))
def test_results_of_the_chip(name: str) -> None:
    """Equal to the closed simulator in every number; the columns after the last whole pass over the lanes too."""
    found, (matrix, bias) = record(name), a16_weights(name)
    if name == "a16_07_bm1684x":
        return  # signed bytes that the chip reads as unsigned; refused
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")] if bias is not None else [node("MatMul", "x w", "y")]
    constants = {"w": matrix, **({} if bias is None else {"b": bias})}
    x, chip = found["x"][None], name.rpartition("_")[2]
    model = tpusim.compile(
        network(nodes, constants)({"x": x.shape}), [{"x": x}], chip=chip, mode=str(found["mode"]).lower(),
        q_group_size=int(found["group"]), q_symmetric=bool(found["symmetric"]),
    )  # fmt: skip
    flat = run(model.tpu, {"x": x})
    assert np.array_equal(np.asarray(flat[list(flat)[-1]]).reshape(-1), found["simulator"].reshape(-1))


def test_what_becomes_quantised() -> None:
    """All columns of fewer than the lanes, or whole passes over them; a relu stands alone."""
    assert kinds(compiled("bm1684x", "w4f16", 4, 64, 40)) == ["tpu.A16MatMul"]
    assert kinds(compiled("bm1684x", "w4f16", 4, 64, 128, True)) == ["tpu.A16MatMul", "tpu.Relu"]
    found = compiled("bm1684x", "w4bf16", 4, 64, 100)
    assert kinds(found) == ["tpu.A16MatMul", "tpu.MatMul", "tpu.Concat"]
    assert [shape_of(op.output) for op in products(found)] == [(1, 4, 64)]
    assert kinds(compiled("bm1684x", "w4f16", 4, 72, 64)) == ["tpu.MatMul"]  # 72 is no multiple of 32
    reasons = [op.reason for op in compiled("bm1684x", "w4f16", 4, 72, 64).fidelity.ops]
    assert reasons == ["rows of 72 weights are no multiple of the group of 32"]


@pytest.mark.parametrize(
    ("chip", "mode", "rows", "inner", "columns"),
    [("bm1688", "w8bf16", 33, 64, 40), ("bm1684x", "w4bf16", 4, 64, 100)],
)
def test_the_bias_of_the_other_columns(chip: str, mode: str, rows: int, inner: int, columns: int) -> None:
    """In f32 where a product does not round it (numerics.md 9.2), added before the one rounding; else in 16 bits.

    The remaining columns are those of plain NumPy, and differ from them if the bias is rounded first.
    """
    found, x = compiled(chip, mode, rows, inner, columns), feeds(rows, inner)["x"]
    (rest,) = [op for op in found.tpu.ops if op.name == "tpu.MatMul"]
    narrow = storage_dtype(element_of(rest.results[0]))
    assert storage_dtype(element_of(rest.operands[2])) == (np.float32 if chip == "bm1688" else narrow)
    if chip != "bm1688":
        return
    model, first = product(rows, inner, columns), columns - shape_of(rest.output)[-1]
    w, b = (onnx.numpy_helper.to_array(i).astype(np.float64) for i in model.graph.initializer)
    exact = x[0].astype(narrow).astype(np.float64) @ w[:, first:].astype(narrow).astype(np.float64)
    got = np.asarray(run(found.tpu, {"x": x})[op_name(rest)], np.float64)[0]
    once, twice = (exact + b[first:]).astype(narrow), exact + b[first:].astype(narrow).astype(np.float64)
    assert (got == once.astype(np.float64)).all() and (once != twice.astype(narrow)).any()


@pytest.mark.parametrize(
    ("chip", "mode", "rows", "inner", "columns"),
    [
        ("bm1684x", "w4bf16", 4, 64, 100), ("bm1684x", "w8f16", 70, 64, 128), ("bm1688", "w4f16", 1, 96, 70),
        ("bm1688", "w8bf16", 33, 64, 40), ("cv186x", "w4bf16", 3, 64, 32), ("bm1690", "w8f16", 5, 64, 64),
    ],
)  # fmt: skip
def test_machine_and_flat_inference_agree_in_every_bit(
    chip: str, mode: str, rows: int, inner: int, columns: int
) -> None:
    """In every order of DMA; and the program provably computes its module."""
    found, x = compiled(chip, mode, rows, inner, columns), feeds(rows, inner)
    flat, machine = run(found.tpu, x), in_every_order(found.program, x)
    shared = [name for name in machine if name in flat]
    assert shared
    assert all(np.array_equal(np.asarray(machine[n], np.float32), np.asarray(flat[n], np.float32)) for n in shared)
    assert found.verify(x).passed and found.prove().passed


@pytest.mark.parametrize(("mode", "step"), [("w4bf16", 2.0**-7), ("w4f16", 2.0**-10)])
def test_casts_round_ties_away_from_zero(mode: str, step: float) -> None:
    """On the chip, in both executors; to even in the interpreter's arithmetic and in modes of 16 bits."""
    x = np.zeros((1, 4, 64), np.float32)
    x[0, :, 0] = [1 + step / 2, -1 - step / 2, 1 + step * 1.5, 1 + step * 0.49]
    away, even = [1 + step, -1 - step, 1 + 2 * step, 1], [1, -1, 1 + 2 * step, 1]
    cases: list[tuple[dict[str, Any], list[float]]] = [
        ({"mode": mode}, away), ({"mode": mode, "arithmetic": "interpreter"}, even), ({"mode": mode[2:]}, even)
    ]  # fmt: skip
    for options, wanted in cases:
        model = tpusim.compile(product(4, 64, 64), [{"x": x}], **options)
        name = next(op_name(op) for op in model.tpu.ops if op.name == "tpu.Cast")
        flat, machine = run(model.tpu, {"x": x}), in_every_order(model.program, {"x": x})
        assert np.asarray(flat[name], np.float32)[0, :, 0].tolist() == wanted
        shown = [tensor for key, tensor in machine.items() if key.startswith(name)]
        assert shown
        for tensor in shown:
            assert np.asarray(tensor, np.float32).reshape(4, 64)[:, 0].tolist() == wanted
        assert model.prove().passed


def test_tiles_of_several_passes() -> None:
    """More columns than a tile holds, on two cores too."""
    x = feeds(1, 1024)
    for cores in (1, 2):
        found = tpusim.compile(product(1, 1024, 1024), [x], chip="bm1688", mode="w4bf16", cores=cores)
        functions = [c for c in found.program.commands if isinstance(c, Fn) and isinstance(c.function, A16MatMul)]
        assert len(functions) > 1
        assert found.verify(x).bit_exact


PROFILE = [
    ("bm1684x", "w4bf16", 32, (1, 576, 1536, False), 11925, 526464, 3072),
    ("bm1684x", "w4bf16", 128, (1, 1536, 576, False), 11447, 466176, 1152),
    ("bm1684x", "w8bf16", 64, (1, 2048, 2048, False), 84430, 4395008, 4096),
    ("bm1684x", "w4bf16", 64, (128, 576, 192, False), 9276, 207936, 49152),
    pytest.param("bm1684x", "w4bf16", 64, (512, 2048, 2048, False), 338788, 4390912, 2097152, marks=pytest.mark.slow),
    ("bm1688", "w4bf16", 64, (1, 2048, 2048, False), 100910, 2297856, 4096),
    ("bm1688", "w8f16", 64, (16, 512, 512, True), 20536, 291840, 16384),
    ("bm1684x", "w4f16", 64, (1, 896, 4864, True), 47793, 2394880, 9728),
    ("bm1684x", "w4f16", 64, (1, 4864, 896, False), 47215, 2393088, 1792),
    ("bm1690", "w4bf16", 64, (1, 2048, 2048, False), 37196, 2297856, 4096),
    ("bm1684x", "w4f16", 64, (300, 256, 512, True), 20408, 226304, 307200),
    ("bm1688", "w4bf16", 32, (128, 576, 1536, False), 143503, 672768, 393216),
    pytest.param("bm1684x", "w4f16", 64, (64, 1536, 8960, False), 185708, 7723008, 1146880, marks=pytest.mark.slow),
]
"""Chip, mode, group, (rows, K, N, bias): cycles from the first command of the op in the profile of TPU-MLIR 1.30.2 to
its last, bytes loaded and stored."""


@pytest.mark.parametrize(("chip", "mode", "group", "sizes", "cycles", "loaded", "stored"), PROFILE, ids=str)
def test_tiles_as_in_the_profile(
    chip: str, mode: str, group: int, sizes: tuple[int, ...], cycles: int, loaded: int, stored: int
) -> None:
    """Every byte; cycles within 1 %, on BM1690 within 4 %."""
    rows, inner, columns, bias = sizes
    proto = product(rows, inner, columns, bias=bool(bias))
    found = tpusim.compile(proto, [feeds(rows, inner)], chip=chip, mode=mode, q_group_size=group)
    spec, commands = chips.load(chip), list(enumerate(found.program.commands))
    group = next(c.group for _, c in commands if isinstance(c, Fn) and isinstance(c.function, A16MatMul))
    own = [(i, c) for i, c in commands if c.group == group]
    spans = {span.index: span for span in timeline(found.program, spec).spans}
    taken = max(spans[i].stop_ns for i, _ in own) - min(spans[i].start_ns for i, _ in own)
    assert [sum(c.traffic()[way] for _, c in own) for way in (0, 1)] == [loaded, stored]
    assert abs(taken * spec.tiu_mhz / 1000 / cycles - 1) <= (0.04 if chip == "bm1690" else 0.01)


def test_symmetric_groups_and_whole_rows() -> None:
    x = feeds(4, 128)
    rows = tpusim.compile(product(4, 128, 64), [x], mode="w4bf16", q_group_size=0)
    (op,) = products(rows)
    assert op.q_group_size.value.data == 128
    symmetric = tpusim.compile(product(4, 128, 64), [x], mode="w8f16", q_symmetric=True)
    (op,) = products(symmetric)
    zeros = symmetric.tpu.weights[next(name for name in symmetric.tpu.weights if name.endswith("_zp"))]
    assert (zeros == 128).all() and zeros.shape == (64, 2)


def test_a_table_gives_single_ops_weights_of_few_bits() -> None:
    """With the size of groups after the mode, in a table in f16, and 16 bits in a mode of few bits."""
    x = feeds(4, 64)
    found = tpusim.compile(product(4, 64, 64), [x], mode="f16", qtable="y:W4F16:16")
    assert [op.q_group_size.value.data for op in products(found)] == [16]
    plain = tpusim.compile(product(4, 64, 64), [x], mode="w4f16", qtable="y:F16")
    assert kinds(plain) == ["tpu.MatMul"]


def test_how_tables_spell_groups() -> None:
    assert read_qtable("a b:W4BF16:32,c:d:F16,e:W8F16") == {"a b": "w4bf16 32", "c:d": "f16", "e": "w8f16"}
    assert number_format("w4bf16 32").group_size == 32 and number_format("w4bf16") is W4BF16
    with pytest.raises(ConfigError, match="groups of 32 need a mode of W4F16, W4BF16, W8F16, W8BF16, got F16"):
        read_qtable("a:F16:32")
    with pytest.raises(ConfigError, match="line 1: groups of 24 weights .*multiple of 16"):
        read_qtable("a:W4F16:24")


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "8 bits without groups": (dict(mode="w8f16", q_group_size=0), UnsupportedError, "reads as unsigned"),
    "rows of no multiple": (
        dict(mode="w4f16", q_group_size=0),
        UnsupportedError,
        "'y_Add': without groups .* multiple of 128",
    ),
    "negative": (dict(mode="w4f16", q_group_size=-1), ConfigError, "groups of -1 weights"),
    "odd": (dict(mode="w4f16", q_group_size=33), ConfigError, "groups of 33 weights"),
    "bm1684": (dict(mode="w4f16", chip="bm1684"), UnsupportedError, "mode w4f16 on bm1684: supported are f32, int8"),
    "cv183x": (dict(mode="w4bf16", chip="cv183x"), UnsupportedError, "no product of such weights; .*bm1688"),
    "a table": (dict(mode="f16", qtable="y:W8F16:0"), UnsupportedError, "reads as unsigned"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    options, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        tpusim.compile(product(4, 96, 64), [feeds(4, 96)], **options)


@pytest.mark.filterwarnings("always")
def test_a_warning_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is read by several checks of a run, and each says what the chip lacks."""
    onnx.save(product(2, 64, 5), tmp_path / "m.onnx")
    words = ["--chip", "cv183x", "--qtable", "y_Gemm:W4F16 32", "--data", "random:1", "--to", "lower"]
    main(["run", str(tmp_path / "m.onnx"), *words, "--out", str(tmp_path / "out")])
    shown = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(shown) == len(set(shown)) == 1
    assert "cv183x has bf16 only, which is used" in shown[0]
