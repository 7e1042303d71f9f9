"""Modules as TOSA 1.0, computed in NumPy after the specification: the integers of flat inference, and floats to 1e-4.

MLIR's JIT, IREE and Arm's reference model are asked where they are installed; their figures are in docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import to_canonical, to_tpu
from op_cases import BY_ID, CASES
from op_row import OpCase, network, node
from rotation import marks, turn
from rows import SECONDARY, canonical, lowered, top_for
from tosa_reference import computed, run
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Block

from tpusim.cli import main
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.inference.executor import check_inputs, input_specs, results_of
from tpusim.ir.dialects import context
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module
from tpusim.ir.types import uniform_of
from tpusim.registry import ENGINES, TOSA_FORMS
from tpusim.studies.export.tosa import Tensor, Writer, to_tosa
from tpusim.studies.export.tosa.dialect import TOSA
from tpusim.studies.export.tosa.jit import require_bytes
from tpusim.studies.export.tosa.products import rounded_quotient
from tpusim.studies.export.tosa.walk import normalised

CELLS = "bm1684x-int8", "bm1684x-asym", "bm1684-int8", "cv183x-int8"
NO_FORM = {
    "LSTM", "GRU", "GatherElements", "ScatterElements", "TopK", "GridSampler", "Nms", "CumSum", "Arccos", "Arcsin",
    "Arctan",
}  # fmt: skip
"""Ops of both dialects that TOSA has no ops for."""
IN_ANOTHER_ORDER = {
    "LRN", "RMSNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "Reduce", "Div", "Interp", "Softmax", "Conv2D",
    "Conv3D", "Deconv", "Deconv3D", "MatMul", "Pool2D", "Pool3D", "Scale",
}  # fmt: skip
"""Ops that round several times in floats: last bits differ from those of a lowered module."""
IN_EVERY_RUN = {
    "conv-relu", "conv-depthwise", "matmul-3d", "avgpool-pad-excluded", "softmax-classes", "add", "deconv-4x4-s2",
    "leaky-relu", "sigmoid", "concat-requant", "slice-steps", "resize-nearest",
}  # fmt: skip


def given(model: Model, case: OpCase) -> dict[str, np.ndarray]:
    """The inputs of a row as the module stores them."""
    return dict(zip(input_specs(model), check_inputs(model, case.feeds()), strict=True))


def rows(number: int) -> list[Any]:
    """All rows for a configuration; few of them in every run."""
    usual = [turn(c, number, 60) or (number == 0 and c.id in IN_EVERY_RUN) for c in CASES]
    return [pytest.param(c, id=c.id, marks=marks(u)) for c, u in zip(CASES, usual, strict=True)]


def module(case: OpCase, cell: str) -> Model:
    chip, _, mode = cell.partition("-")
    if mode == "int8":
        return lowered(case.id, chip, mode)[0]
    return to_tpu(top_for(case.id, SECONDARY[cell]), SECONDARY[cell])


@pytest.mark.every
@pytest.mark.parametrize("case", rows(0))
def test_a_float_row_is_the_same_up_to_rounding(case: OpCase) -> None:
    """Within 1e-4 of the largest value: other formulas of transcendental functions, and sums in another order."""
    model = canonical(case.id)
    if {op.name.removeprefix("top.") for op in model.ops} & NO_FORM or case.id.startswith("deconv-computed"):
        with pytest.raises(UnsupportedError, match="cannot be written as TOSA|must be constant"):
            to_tosa(model)
        return
    require_close(computed(to_tosa(model), given(model, case)), results_of(model, case.feeds()), 1e-4)


def require_close(got: Mapping[str, np.ndarray], wanted: list[np.ndarray], tolerance: float) -> None:
    for y, w in zip(got.values(), wanted, strict=True):
        assert (y.dtype, y.shape) == (w.dtype, w.shape)
        largest = np.abs(w[np.isfinite(w.astype(np.float64))].astype(np.float64)).max(initial=1)
        np.testing.assert_allclose(y.astype(np.float64), w, rtol=tolerance, atol=tolerance * largest)


def in_every_cell() -> list[Any]:
    return [
        pytest.param(cell, r.values[0], id=f"{cell}-{r.id}", marks=r.marks)
        for n, cell in enumerate(CELLS)
        for r in rows(n)
    ]


@pytest.mark.every
@pytest.mark.parametrize(("cell", "case"), in_every_cell())
def test_a_lowered_row_has_the_integers_of_flat_inference(cell: str, case: OpCase) -> None:
    """Floats inside are the same, but for ops that round several times (half a place of f16)."""
    model = module(case, cell)
    try:
        tosa = to_tosa(model)
    except UnsupportedError as error:
        assert case.id not in IN_EVERY_RUN and any(text in str(error) for text in ("no counterpart", *REASONS))
        return
    wanted = results_of(model, case.feeds())
    if any(
        op.name.removeprefix("tpu.") in IN_ANOTHER_ORDER and uniform_of(v) is None
        for op in model.ops
        for v in op.results
    ):
        require_close(computed(tosa, given(model, case)), wanted, 2e-3)
        return
    for y, w in zip(computed(tosa, given(model, case)).values(), wanted, strict=True):
        assert y.dtype == w.dtype
        np.testing.assert_array_equal(y, w)


REASONS = (
    "cannot be written as TOSA", "must be constant", "in f64", "in bf16", "in f32 on this chip", "the host",
    "32 bits",
)  # fmt: skip
"""What TOSA cannot say; docs/engines.md lists it."""


def test_a_quotient_is_rounded_as_f32_rounds_it() -> None:
    """At quotients near halves, where an estimate by RECIPROCAL is one off."""
    rng, count = np.random.default_rng(0), 20000
    d = rng.uniform(0.003, 4, count).astype(np.float32)
    t = (d.astype(np.float64) * (rng.integers(1, 256, count) - 0.5)).astype(np.float32)
    t = np.choose(rng.integers(0, 3, count), [t, np.nextafter(t, np.float32(9e9)), np.nextafter(t, np.float32(0))])
    block = Block(arg_types=[TensorType(f32, (count,))] * 2)
    g = Writer(block)
    y = rounded_quotient(g, *(Tensor(a) for a in block.args))
    g.finish([y.value])
    (got,) = run(block, [t.astype(np.float32), d], [y.value])
    np.testing.assert_array_equal(got, np.floor((t / d).astype(np.float32).astype(np.float64) + 0.5))


@pytest.mark.parametrize(("m", "r"), [(1, 0), (3, 2), (126, 9), (1, 30), (13421773, 27), ((1 << 31) - 1, 31), (5, -2)])
def test_multipliers_fill_31_bits_and_keep_their_quotient(m: int, r: int) -> None:
    """So that the largest sums are legal operands of RESCALE."""
    (multiplier,), (shift,) = normalised(np.array([m]), np.array([r]))
    assert multiplier * 2.0 ** -int(shift) == m * 2.0**-r
    assert 1 << 30 <= multiplier < 1 << 31 and 2 <= shift <= 62


def test_transposes_that_meet_cancel() -> None:
    """Two convolutions with a relu, an add and tables between them: one transpose on each side."""
    kinds = to_tosa(lowered("conv-relu", "bm1684x", "int8")[0]).kinds
    assert kinds["transpose"] == 2 and kinds["conv2d"] == 1


def test_text_and_bytecode_are_read_again() -> None:
    tosa = to_tosa(lowered("conv-relu", "bm1684x", "int8")[0])
    ctx = context()
    ctx.load_dialect(TOSA)
    again = parse_module(tosa.text, ctx)
    assert [op.name for op in again.walk()] == [op.name for op in tosa.module.walk()]
    assert 'loc("y")' in tosa.text and "#tosa.rounding_mode<SINGLE_ROUND>" in tosa.text
    assert tosa.bytecode.startswith(b"ML\xefR")


def test_all_ops_that_tosa_cannot_say_are_named() -> None:
    """Each of them, and no op that depends on them."""
    nodes = [node("CumSum", "x a", "sum"), node("Relu", "sum", "r"), node("Atan", "x", "arc"), node("Add", "r arc")]
    model = to_canonical(import_onnx(network(nodes, {"a": np.array(1)})({"x": (2, 4)})))
    with pytest.raises(UnsupportedError) as refused:
        to_tosa(model)
    assert str(refused.value) == "; ".join(
        f"export: top.{kind} '{name}' cannot be written as TOSA"
        for kind, name in (("CumSum", "sum_CumSum"), ("Arctan", "arc_Atan"))
    )


def test_the_jit_refuses_a_buffer_of_bits() -> None:
    """In text as MLIR 22 prints it; a comparison whose bits are not stored is no reason."""
    text = """
    %alloc = memref.alloc() {{alignment = 64 : i64}} : memref<1x3x8x{kind}>
    linalg.generic ins(%arg0 : memref<1x3x8xf32>) outs(%alloc : memref<1x3x8x{kind}>) {{
    ^bb0(%in: f32, %out: {kind}):
      %0 = arith.cmpf ogt, %in, %cst : f32
      %1 = arith.select %0, %c1, %c0 : {kind}
      linalg.yield %1 : {kind}
    }}
    """
    for kind in ("i8", "i32", "f32"):
        require_bytes(text.format(kind=kind))
    with pytest.raises(UnsupportedError, match="engine='mlir': MLIR cannot store the bits .* iree-tosa or tosa"):
        require_bytes(text.format(kind="i1"))


def test_a_package_writes_its_op() -> None:
    TOSA_FORMS.add("top.Sigmoid", lambda op, g: g.point("tanh", g.float(op.input)))
    try:
        kinds = to_tosa(canonical("sigmoid")).kinds
    finally:
        TOSA_FORMS.remove("top.Sigmoid")
    assert set(kinds) == {"tanh"}


# -------------------------------------------------------------------------------------------------------- command line


@pytest.fixture(scope="module")
def lowered_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lowered convolution, and its inputs next to it."""
    from tpusim.ir.module import save_model

    folder = tmp_path_factory.mktemp("tosa")
    save_model(lowered("conv-relu", "bm1684x", "int8")[0], folder / "net.mlir")
    np.savez(folder / "in.npz", **BY_ID["conv-relu"].feeds())  # type: ignore[arg-type]
    return folder / "net.mlir"


def test_the_command_writes_text_and_bytecode(lowered_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(lowered_file), "--to", "tosa"]) == 0
    told = capsys.readouterr().out
    assert "1 conv2d" in told and "input 0  x: " in told
    assert "tosa.conv2d" in lowered_file.with_name("net_tosa.mlir").read_text()
    out = lowered_file.with_name("net.mlirbc")
    assert main(["export", str(lowered_file), "--to", "tosa", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"ML\xefR")
    assert main(["export", str(lowered_file), "--to", "tosa", "--out", "net.onnx"]) == 1
    assert "one of .mlir, .mlirbc, .tosa is required" in capsys.readouterr().err


PACKAGES = {"iree": "iree", "iree-tosa": "iree", "mlir": "mlir", "tosa": "tosa_reference_model"}
"""The package of each engine."""


@pytest.mark.parametrize("engine", PACKAGES)
def test_an_engine_computes_the_same_integers_or_says_what_it_needs(engine: str) -> None:
    model, feeds = lowered("conv-relu", "bm1684x", "int8")[0], BY_ID["conv-relu"].feeds()
    if find_spec(PACKAGES[engine]) is None:
        with pytest.raises(ConfigError, match=rf"engine='{engine}'.*needs .*pip install 'tpusim"):
            ENGINES.get(engine)(model)
        return
    (got,), (wanted,) = ENGINES.get(engine)(model)(feeds).values(), results_of(model, feeds)
    np.testing.assert_array_equal(got, wanted)


def test_unknown_engines_and_useless_folders_are_errors(lowered_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["infer", str(lowered_file), "--input", str(lowered_file.with_name("in.npz"))]
    assert main([*words, "--engine", "mlri"]) == 1
    assert "did you mean mlir?" in capsys.readouterr().err
    assert main([*words, "--print-ir-tree-dir", "levels"]) == 1
    assert "needs --engine mlir" in capsys.readouterr().err
