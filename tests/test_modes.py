"""Chips, number modes and zero points beyond the two chips and modes of test_ops.py: every op row, end to end.

Integers must agree bit for bit between flat inference and the machine; floats within the stated bounds on the machine's
own inputs (tpusim.running.agreement.compare_local).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from builders.timings import in_every_order
from compiling import to_program, to_tpu
from op_cases import BY_ID, CASES, OpCase
from rotation import marks, turn
from rows import SECONDARY, calibrated, canonical, top_for, top_tensors

from tpusim import chips
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import op_name
from tpusim.ir.formats import number_format
from tpusim.ir.types import element_of, storage_dtype, uniform_of
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.framework.base import TpuOp
from tpusim.running.agreement import compare_local
from tpusim.simulator import Simulator
from tpusim.verify.compare import compare
from tpusim.verify.tolerances import tpu_vs_top

NEAR = "of 300 numbers the two largest may be one F16, BF16 or INT8 number; the first of equals wins"
BYTES = "two bytes may be equal where the numbers are only near each other"
FAR = "with zero points the range is widened to the constant's magnitude, its low end stays: -900 saturates"
LOWEST = "the absolute value of -128 is -128, as in the closed simulator, and few values make it count"
MAGNITUDES = (
    "abs", "abs-wide", "cast-mask", "expand", "expand-rank", "flatten", "reshape", "reshape-batch", "reshape-inside",
    "squeeze", "tile", "tile-batch", "unsqueeze",
)  # fmt: skip
"""Rows with the absolute value of the input in them."""
NORMS = [case.id for case in CASES if "tpu.InstanceNorm" in case.result]
DIVIDES = (
    "CV18xx's host divides the statistics by the first weight (quirk instance_norm_on_host), NaN if it is negative"
)
NOT_SIMILAR: dict[tuple[str, str], str] = {
    **{("equal", f"{chip}-int8"): BYTES for chip in ("bm1688", "cv183x", "cv182x")},
    **{("argmax-moved", label): NEAR for label in ("cv183x-int8", "cv182x-int8", "cv183x-bf16")},
    ("argmax-moved", "bm1684x-f16"): NEAR,
    ("argmax-moved", "bm1688-f16"): NEAR,
    **{("where-far", f"{chip}-asym"): FAR for chip in ("bm1684x", "bm1688", "bm1690")},
    **{(row, label): DIVIDES for row in NORMS for label in ("cv183x-int8", "cv182x-int8", "cv183x-bf16")},
    **{(row, f"{chip}-asym"): LOWEST for row in MAGNITUDES for chip in ("bm1684x", "bm1688", "bm1690")},
}
"""(row, config) -> why the lowered network is not similar to the float one; agreement with the machine still holds."""


SOME = [
    pytest.param(case, label, id=f"{case.id}-{label}", marks=marks(turn(case, number, 16 * len(SECONDARY))))
    for case in CASES
    for number, label in enumerate(SECONDARY)
    if SECONDARY[label].chip not in case.refused_on
]
"""In the default tests every eighth row meets one of the nine."""


@pytest.mark.parametrize(("case", "label"), SOME)
def test_machine_agrees_with_flat(case: OpCase, label: str) -> None:
    """And the flat network with the float one."""
    config, feeds = SECONDARY[label], case.feeds()
    tpu = to_tpu(top_for(case.id, config), config)
    flat = run(tpu, feeds)
    assert_similar(case, label, dequantised(tpu, flat))
    program = to_program(tpu)
    found = compare_local(tpu, feeds, in_every_order(program, feeds), flat)
    assert found.compared and found.passed, [(t.name, t.verdict, t.note) for t in found.failures]
    assert all(t.bit_exact for t in found.tensors if t.is_integer)


def assert_similar(case: OpCase, label: str, real: dict[str, np.ndarray]) -> None:
    found = compare(real, top_tensors(case.id), tpu_vs_top(SECONDARY[label].mode))
    similar = found.passed or (case.id, label) in NOT_SIMILAR
    assert similar, [(t.name, t.verdict, t.cosine, t.euclidean) for t in found.failures]


def test_a_16_bit_mode_stores_16_bits() -> None:
    for mode, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        tpu = to_tpu(canonical("conv-3x3"), "bm1684x", mode)
        conv = next(op for op in tpu.ops if op.name == "tpu.Conv2D")
        assert isinstance(conv, TpuOp)
        assert storage_dtype(element_of(conv.results[0])) == dtype
        assert storage_dtype(element_of(conv.operands[1])) == dtype
        assert run(tpu, BY_ID["conv-3x3"].feeds())[op_name(conv)].dtype == dtype


def test_f16_and_bf16_are_refused_without_the_type() -> None:
    with pytest.raises(UnsupportedError, match="mode f16 on bm1684: supported are f32, int8"):
        to_tpu(canonical("conv-3x3"), "bm1684", "f16")


@pytest.mark.parametrize("chip", chips.available())
@pytest.mark.parametrize("mode", ["int4", "int8f16dyn", "w8f32", "f8e4m3"])
def test_modes_that_are_not_offered_are_refused_and_the_offered_named(mode: str, chip: str) -> None:
    """Also where the chip replaces a float type it does not have."""
    with pytest.raises(UnsupportedError, match=f"mode {mode} on {chip}: supported are .*int8"):
        to_tpu(canonical("conv-3x3"), chip, mode)


def test_dynamic_modes_say_what_tpu_mlir_computes_in_them() -> None:
    """Weights of few bits times activations of 16: its files quantise nothing while they run (DN-04)."""
    for mode, same in (
        ("INT8F16DYN", "w8f16"), ("INT4BF16DYN", "w4bf16"), ("F8E4M3BF16DYN", "w8bf16"), ("F4F16DYN", "w4f16"),
        ("MXF4BF16DYN", "w4bf16"),
    ):  # fmt: skip
        words = f"what they compute is {same}$"
        with pytest.raises(UnsupportedError, match=words):
            to_tpu(canonical("conv-3x3"), "bm1684x", mode.lower())
        with pytest.raises(ConfigError, match=words):
            read_qtable(f"y:{mode}")
        with pytest.raises(ConfigError, match=words):
            number_format(mode)


@pytest.mark.parametrize("mode", ["INT4", "W8F32", "F8E4M3", "INT8F16DYN"])
def test_modes_of_a_table_that_are_not_offered_are_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="MODE one of F32, F16, BF16, INT8, .*, W4INT8, F8E5M2 is required"):
        read_qtable(f"y:{mode}")


def test_zero_points_are_refused_where_no_rule_is_known() -> None:
    with pytest.raises(UnsupportedError, match="asymmetric quantisation on bm1684 is not supported"):
        to_tpu(calibrated("conv-3x3"), "bm1684", "int8", asymmetric=True)


def test_asymmetric_types_carry_zero_points() -> None:
    tpu = to_tpu(calibrated("conv-3x3", asymmetric=True), "bm1684x", "int8", asymmetric=True)
    zeros = [u.zero_point.value.data for op in tpu.ops if isinstance(op, TpuOp) if (u := uniform_of(op.results[0]))]
    assert any(zeros)


@pytest.mark.parametrize("text", ["y FP7", "y", "y F16 64 more", "a b c"])
def test_malformed_table_line_is_named(text: str, tmp_path) -> None:  # noqa: ANN001
    path = tmp_path / "qtable"
    path.write_text(f"# header\n\n{text}\n")
    with pytest.raises(ConfigError, match="line 3"):
        read_qtable(path)


def test_table_forms_are_the_same(tmp_path) -> None:  # noqa: ANN001
    path = tmp_path / "qtable"
    path.write_text("# name mode\na F16\n\nb INT8  # kept\n")
    assert read_qtable(path) == read_qtable("a:F16,b:int8") == {"a": "f16", "b": "int8"}
    with pytest.raises(ConfigError, match="the file does not exist"):
        read_qtable("missing")


def test_unknown_name_in_table_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no op is called nowhere"):
        to_tpu(calibrated("conv-3x3"), "bm1684x", "int8", qtable="nowhere:F16")


@pytest.mark.parametrize("mode", ["F16", "BF16", "F32"])
def test_mixed_precision_runs_in_local_memory(mode: str) -> None:
    """A float op between integer ops: casts on both sides, all in the machine, integers exact."""
    case = BY_ID["add-2"] if "add-2" in BY_ID else next(c for c in CASES if c.result == "tpu.Add")
    top = calibrated(case.id)
    name = next(op_name(op) for op in top.ops if op.name == "top.Add")
    tpu = to_tpu(top, "bm1684x", "int8", qtable=f"{name}:{mode}")
    program = to_program(tpu)
    machine = Simulator(program).run(case.feeds(), watch=True).tensors
    found = compare_local(tpu, case.feeds(), machine, run(tpu, case.feeds()), with_qtable=True)
    assert found.passed and found.compared
    add = next(op for op in tpu.ops if op.name == "tpu.Add")
    assert str(element_of(add.results[0])) == mode.lower()  # type: ignore[attr-defined]


def test_every_chip_file_loads() -> None:
    expected = {"bm1684", "bm1684x", "bm1688", "bm1690", "cv186x", "cv183x", "cv182x", "cv181x", "cv180x"}
    assert expected <= set(chips.available())
    for name in chips.available():
        assert chips.load(name).name == name
