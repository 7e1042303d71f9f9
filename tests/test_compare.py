"""The verdicts of `npz_tool.py compare` (interface.md 6.2) and what tpusim adds to them."""

import io
import math
import zipfile
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tpusim.errors import ConfigError, TpusimError
from tpusim.numbers.closeness import Bound, bound_of, ulps_apart
from tpusim.verify import npz, render, tolerances
from tpusim.verify.about import About, read_about
from tpusim.verify.compare import Tolerance, compare, compare_tensors, sampled

LOOSE = Tolerance(0.99, 0.80)
TIGHT = Tolerance(0.99, 0.99)


def f32(*values):
    return np.array(values, np.float32)


def i8(*values):
    return np.array(values, np.int8)


def verdict(target, reference, tolerance=TIGHT, **options):
    return compare_tensors(target, reference, tolerance, **options).verdict


def test_worked_example_of_the_spec():
    result = compare_tensors(f32(1, 2, 3, 4), f32(1, 2, 3, 5), LOOSE, name="conv1")
    assert (result.verdict, result.passed, result.close_order) == ("SIMILAR", True, None)
    assert result.cosine == pytest.approx(0.993999, abs=5e-7)
    assert result.euclidean == pytest.approx(0.8291285, abs=5e-8)
    assert result.sqnr_db == pytest.approx(8.2390874, abs=5e-7)
    strict = compare_tensors(f32(1, 2, 3, 4), f32(1, 2, 3, 5), Tolerance(0.99, 0.90))
    assert (strict.verdict, strict.passed) == ("NOT_SIMLIAR", False)


def test_sqnr_takes_the_target_as_signal():
    forward = compare_tensors(f32(1, 2, 3, 4), f32(1, 2, 3, 5), LOOSE)
    backward = compare_tensors(f32(1, 2, 3, 5), f32(1, 2, 3, 4), LOOSE)
    assert backward.sqnr_db == pytest.approx(10 * math.log10(8.75 / 0.75), rel=1e-6)
    assert forward.sqnr_db != backward.sqnr_db


@pytest.mark.parametrize(("relative", "order"), [(8e-6, 5), (8e-5, 4), (8e-4, 3)])
def test_close_orders(relative, order):
    result = compare_tensors(f32(100 * (1 + relative)), f32(100), TIGHT)
    assert (result.verdict, result.close_order, result.passed) == ("CLOSE", order, True)


def test_order_two_is_not_close():
    result = compare_tensors(f32(100.8, 1), f32(100, 1), TIGHT)
    assert (result.verdict, result.close_order) == ("SIMILAR", None)


def test_closeness_is_relative_to_the_reference():
    assert verdict(f32(0.0), f32(9e-9)) == "CLOSE"
    assert verdict(f32(1.0), f32(1.0010005)) == "CLOSE"
    assert verdict(f32(1.0010005), f32(1.0)) != "CLOSE"


def test_equal_comes_before_everything():
    assert verdict(i8(1, 2), i8(1, 2)) == "EQUAL"
    assert verdict(f32(), f32()) == "EQUAL"
    assert verdict(f32(1, 2), np.array([1, 2], np.float64)) == "EQUAL"


def test_int8_that_differs_fails_whatever_the_tolerance():
    target, reference = i8(100, 100, 100), i8(100, 100, 101)
    result = compare_tensors(target, reference, Tolerance(0, 0))
    assert (result.verdict, result.passed, result.bit_exact) == ("NOT_EQUAL", False, False)
    assert 0.99 < result.cosine < 1
    assert verdict(target, reference, Tolerance(0.9, 0.9), int8_tensor_close=False) == "SIMILAR"


def test_uint8_is_compared_as_float():
    assert verdict(np.array([200, 200], np.uint8), np.array([200, 201], np.uint8), LOOSE) == "SIMILAR"


def test_common_dtype():
    assert verdict(i8(1, 2), f32(1.2, 2.9)) == "EQUAL"
    assert verdict(np.array([7], np.int32), f32(7.5)) == "EQUAL"
    assert verdict(i8(3), np.array([259], np.int32)) == "EQUAL"  # 259 as int8 is 3


def test_uint16_is_a_bf16_pattern():
    patterns = np.array([0x3F80, 0xC000], np.uint16)
    assert verdict(patterns, f32(1, -2)) == "EQUAL"


def test_nan_and_infinity():
    nan, inf = math.nan, math.inf
    assert verdict(f32(nan, 1), f32(nan, 1)) == "CLOSE"
    assert verdict(f32(nan, 1), f32(0, 1)) != "CLOSE"
    assert compare_tensors(f32(nan, 1), f32(0, 1), TIGHT).cosine == pytest.approx(1)
    assert compare_tensors(f32(inf, 0), f32(10000, 0), TIGHT).euclidean == pytest.approx(1)
    assert compare_tensors(f32(-inf, 0), f32(inf, 0), TIGHT).cosine == pytest.approx(-1)


def test_all_zero_has_cosine_zero():
    assert compare_tensors(f32(0, 0), f32(1, 1), TIGHT).cosine == 0
    assert compare_tensors(f32(1, 1), f32(0, 0), TIGHT).cosine == 0


LOWEST = float(np.finfo(np.float32).min)
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.every
@pytest.mark.parametrize(
    ("dtype", "found", "wanted", "verdict"),
    [
        (np.float16, (-np.inf, 1, 2), (LOWEST, 1, 2), "EQUAL"),
        (np.float16, (-np.inf, 1, 2), (-1e9, 1, 2), "EQUAL"),
        (np.float16, (-65504, 1, 2), (-1e9, 1, 2), "EQUAL"),  # a conversion that saturates
        (np.float16, (np.inf, 1, 2), (1e9, 1, 2), "EQUAL"),
        (BF16, (-np.inf, 1, 2), (LOWEST, 1, 2), "EQUAL"),
        (ml_dtypes.float8_e5m2, (-np.inf, 1, 2), (-1e9, 1, 2), "EQUAL"),
        (np.float32, (-np.inf, 1, 2), (LOWEST, 1, 2), "EQUAL"),  # made of F16
        (np.float16, (-np.inf, 1, 2), (-np.inf, 1, 2), "EQUAL"),
        (np.float16, (-np.inf, 1, -2), (LOWEST, 1, 2), "NOT_SIMLIAR"),  # the mask does not hide the others
        (np.float16, (np.inf, 1, 2), (LOWEST, 1, 2), "NOT_SIMLIAR"),
        (np.float16, (-np.inf, 1, 2), (-100, 1, 2), "NOT_SIMLIAR"),  # F16 holds it
        (BF16, (-np.inf, 1, 2), (-1e9, 1, 2), "NOT_SIMLIAR"),  # so does BF16
        (np.float32, (-np.inf, 1, 2), (-1e9, 1, 2), "NOT_SIMLIAR"),
        (np.float16, (0, 1, 2), (LOWEST, 1, 2), "NOT_SIMLIAR"),
    ],
)
def test_a_number_that_the_type_does_not_hold_is_its_infinity(dtype, found, wanted, verdict):
    target = np.array(found, np.float32).astype(dtype)
    result = compare_tensors(target, f32(*wanted), TIGHT)
    assert result.verdict == verdict
    if target.dtype == BF16:
        assert compare_tensors(target.view(np.uint16), f32(*wanted), TIGHT).verdict == verdict
    assert ("at its end" in result.note) is (verdict == "EQUAL" and found != wanted or found[2] == -2)


def test_upstream_has_ten_thousand_for_an_infinity():
    found = compare({"m": np.float16([-np.inf, 1, 2])}, {"m": f32(-1e9, 1, 2)}, TIGHT, upstream=True)
    assert found.tensors[0].verdict == "NOT_SIMLIAR" and not found.passed


def test_sums_that_overflow_in_f32_are_taken_in_f64():
    result = compare_tensors(f32(3e38, 1), f32(1e38, 1), TIGHT)
    assert (result.euclidean, result.verdict) == (pytest.approx(0, abs=1e-6), "NOT_SIMLIAR")
    mask = -np.finfo(np.float32).max
    same = compare_tensors(f32(mask, 1, 2, 0), f32(mask, 1.1, 2, 0), TIGHT)
    assert (same.verdict, same.cosine, same.euclidean) == ("SIMILAR", pytest.approx(1), pytest.approx(1))
    opposite = compare_tensors(f32(mask, 1), f32(-mask, 1), TIGHT)
    assert (opposite.verdict, opposite.cosine) == ("NOT_SIMLIAR", pytest.approx(-1))
    noise = compare_tensors(f32(mask, 0, 0), f32(mask / 2, 0, 0), TIGHT)
    assert noise.sqnr_db == pytest.approx(10 * math.log10(4))


def test_absolute_tolerance_of_f32():
    """ONNX Runtime's sigmoid of -20 is 0, the right one 2e-9; a tensor that is wrong beyond that still fails."""
    small, zero = f32(2.06e-9, 1.5e-8, 8e-8), f32(0, 0, 0)
    assert verdict(small, zero, TIGHT) == "NOT_SIMLIAR"
    result = compare_tensors(small, zero, tolerances.TOP_VS_ONNX)
    assert (result.verdict, result.passed, result.close_order) == ("CLOSE", True, None)
    assert result.note == "nowhere further from the reference than 2.4e-07"
    assert verdict(small * 4, zero, tolerances.TOP_VS_ONNX) == "NOT_SIMLIAR"
    assert "close order" not in printed(compare({"a": small}, {"a": zero}, tolerances.TOP_VS_ONNX), verbose=1)


def test_float_bound_of_the_machine():
    """Equal NaN and infinities do not differ, whatever their bits; a mask is no unit for the other values."""
    nan, inf, mask = math.nan, math.inf, -np.finfo(np.float32).max
    other = f32(nan).view(np.uint32) ^ np.uint32(1 << 31)
    flat = np.concatenate([f32(inf, -inf, mask, 1.0, 2.0, 3.0), other.view(np.float32)])
    machine = f32(inf, -inf, mask, 1.0, 2.0, 3.0, nan)
    assert apart(machine.astype(np.float64), flat) == 0
    assert apart(machine.astype(np.float64) + np.float64([0, 0, 0, 2.0**-22, 0, 0, 0]), flat) == 1
    assert apart(np.float64([inf, 1]), f32(1, 1)) == inf
    assert apart(np.float64([nan, 1]), f32(1, 1)) == inf
    assert apart(np.float64([1, 1]), f32(mask, 1)) > 1e6


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(ulps_apart(one, other, other, 23).max())


def test_one_rule_for_floats():
    """From the same operands 16-bit floats are neighbours; through a network they and what is made of them drift."""
    f16, wide, bf16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
    assert bound_of(wide) == bound_of(wide, narrowest=23) == Bound(23, 256)
    assert bound_of(f16) == Bound(10, 1) and bound_of(bf16) == Bound(7, 1)
    assert bound_of(f16, narrowest=10) == bound_of(wide, narrowest=10) == Bound(10, 4)
    assert bound_of(f16, narrowest=7) == Bound(7, 4)


def test_int32_squares_wrap_and_never_raise():
    big = np.array([2**30, -(2**30), 40000], np.int32)
    assert verdict(big, -big) == "NOT_SIMLIAR"


def test_constant_noise_has_infinite_sqnr():
    assert compare_tensors(f32(1, 5), f32(2, 6), LOOSE).sqnr_db == math.inf


def test_strictly_above_the_tolerance():
    result = compare_tensors(f32(1, 2, 3, 4), f32(1, 2, 3, 5), LOOSE)
    assert verdict(f32(1, 2, 3, 4), f32(1, 2, 3, 5), Tolerance(result.cosine, 0.8)) == "NOT_SIMLIAR"
    assert verdict(f32(1, 2, 3, 4), f32(1, 2, 3, 5), Tolerance(0.9, result.euclidean)) == "NOT_SIMLIAR"


def test_shapes_are_aligned():
    grid = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert verdict(grid, grid.reshape(6, 4)) == "EQUAL"
    cropped = compare_tensors(grid, grid[:, :2, :3], TIGHT)
    assert (cropped.verdict, cropped.note) == ("EQUAL", "WARRING: not the same shape  (2, 3, 4) v.s. (2, 2, 3)")
    assert verdict(grid[:1], grid) == "EQUAL"
    assert verdict(grid[:, :2], grid[:1]) == "NOT_MATCH"
    assert verdict(grid, grid[0]) == "NOT_MATCH"


def test_non_max_suppression_is_cropped_to_fewer_rows():
    boxes = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert verdict(boxes, boxes[:2], name="out_NonMaxSuppression") == "EQUAL"
    assert verdict(np.vstack([boxes, boxes]), np.full((2, 6), 1, np.float32), name="x") == "NOT_MATCH"


def test_inputs_are_not_changed():
    target, reference = f32(math.nan, math.inf, 1), f32(1, 2, 3)
    compare_tensors(target, reference, TIGHT)
    assert np.isnan(target[0]) and np.isinf(target[1])


def test_bit_exact_is_about_bits():
    assert compare_tensors(f32(math.nan), f32(math.nan), TIGHT).bit_exact
    assert not compare_tensors(f32(0.0), f32(-0.0), TIGHT).bit_exact
    assert not compare_tensors(i8(1), np.array([1], np.uint8), TIGHT).bit_exact
    assert not compare_tensors(i8(1, 2), i8(1, 2).reshape(1, 2), TIGHT).bit_exact


def test_names_follow_the_reference_and_the_rest_is_accounted_for():
    targets = {"a": f32(1), "b": f32(1), "d": f32(1), "x": f32(1)}
    references = {"d": f32(1), "c": f32(1), "b": f32(2), "a": f32(1)}
    found = compare(targets, references, TIGHT, label="t", excepts=["a"])
    assert [tensor.name for tensor in found.tensors] == ["d", "b"]
    assert (found.only_in_target, found.only_in_reference, found.excepted) == (("x",), ("c",), ("a",))
    assert (found.compared, found.missing, found.passed, found.worst) == (2, 1, False, "b")
    assert found.coverage() == "coverage: 2 compared, 1 only in target, 1 only in reference, 1 excepted"


def test_key_replaces_the_list():
    tensors = {"a": f32(1), "b": f32(2)}
    assert [t.name for t in compare(tensors, tensors, TIGHT, key="b").tensors] == ["b"]
    with pytest.raises(ConfigError, match="the target has no tensor 'z'"):
        compare(tensors, tensors, TIGHT, key="z")


def test_nothing_compared_is_said():
    found = compare({"a": f32(1)}, {"b": f32(1)}, TIGHT)
    assert found.empty and not found.passed and not found.bit_exact and not found.to_json()["passed"]
    assert "nothing was compared" in (found.warning() or "") and "the reference has b" in (found.warning() or "")
    assert list(render.summary_lines(found))[-1] == "npz compare NOTHING COMPARED."
    excepted = compare({"a": f32(1)}, {"a": f32(1)}, TIGHT, excepts=["a"])
    assert not excepted.passed and "none else" in (excepted.warning() or "")
    as_the_tool = compare({"a": f32(1)}, {"b": f32(1)}, TIGHT, upstream=True)
    assert as_the_tool.passed and list(render.summary_lines(as_the_tool))[-1] == "npz compare PASSED."


def test_bit_exact_of_a_comparison_is_over_integer_tensors():
    references = {"q": i8(1, 2), "f": f32(1.0)}
    assert compare({"q": i8(1, 2), "f": f32(1.0000001)}, references, TIGHT).bit_exact
    assert not compare({"q": i8(1, 3), "f": f32(1.0)}, references, TIGHT).bit_exact
    assert not compare({"f": f32(1.0000001)}, references, TIGHT).bit_exact


@pytest.mark.parametrize(
    ("count", "kept"),
    [(5, range(5)), (200, range(200)), (399, range(399)), (401, [*range(0, 401, 2)]), (400, [*range(0, 400, 2), 399])],
)
def test_upstream_sampling(count, kept):
    names = [f"t{index}" for index in range(count)]
    assert sampled(names) == [f"t{index}" for index in kept]


def test_sampling_is_off_unless_asked_for():
    tensors = {f"t{index}": f32(index) for index in range(600)}
    assert compare(tensors, tensors, TIGHT).compared == 600
    some = compare(tensors, tensors, TIGHT, upstream=True)
    assert some.compared == 201
    assert len(some.not_sampled) == 399
    assert "399 not sampled" in some.coverage()


def test_json_object():
    found = compare({"a": f32(1, 2, 3, 4), "b": i8(1)}, {"a": f32(1, 2, 3, 5), "b": i8(1)}, LOOSE)
    content = found.to_json()
    assert {key: content[key] for key in ("passed", "bit_exact", "compared", "missing")} == {
        "passed": True,
        "bit_exact": True,
        "compared": 2,
        "missing": 0,
    }
    assert content["min_cosine"] == pytest.approx(0.993999, abs=1e-6)
    first, second = content["tensors"]
    assert (first["name"], first["verdict"], first["bit_exact"]) == ("a", "SIMILAR", False)
    assert (second["verdict"], second["cosine"], second["sqnr_db"]) == ("EQUAL", 1.0, None)


def test_csv_has_ones_for_what_was_not_measured():
    found = compare({"a": i8(1), "b": f32(1, 2, 3, 4)}, {"a": i8(2), "b": f32(1, 2, 3, 5)}, LOOSE)
    header, first, second = found.to_csv().splitlines()
    assert header == "name, op, quant, pass, sim_cos, sim_euc, sqnr"
    assert first == "a, -, -, False, 1.0, 1.0, inf"
    assert second.startswith("b, -, -, True, 0.99399")


def printed(comparison, **options):
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    render.print_comparison(console, comparison, **options)
    return console.file.getvalue()


def test_lines_of_the_tool():
    targets = {"[bold]122_Conv": f32(1, 2, 3, 4), "q": i8(127, -128, 0, 9), "c": f32(100.005)}
    references = {"[bold]122_Conv": f32(1, 2, 3, 5), "q": i8(127, -128, 0, 9), "c": f32(100)}
    found = compare(targets, references, LOOSE)
    text = printed(found, verbose=1, target_name="t.npz", reference_name="r.npz")
    assert "[[bold]122_Conv                  ]      SIMILAR [PASSED]\n    (4,) float32 \n" in text
    assert "    cosine_similarity      = 0.993999\n    euclidean_similarity   = 0.829128\n" in text
    assert "    sqnr_similarity        = 8.239087\n" in text
    assert "    close order            = 4\n" in text
    assert "    pos(x=127)    = 0.2500  [1/4]\n    neg(x=-128)   = 0.2500  [1/4]\n" in text
    assert "    zeros(x=0)    = 0.2500  [1/4]\n    low(abs(x)<8) = 0.2500  [1/4]\n" in text
    assert "3 compared\n3 passed\n  1 equal, 1 close, 1 similar\n0 failed\n  0 not equal, 0 not similar\n" in text
    assert "min_similiarity = (0.993999" in text
    assert text.endswith("npz compare PASSED.\n")


def test_minimum_line_counts_similar_tensors_only():
    found = compare({"q": i8(1, 2)}, {"q": i8(1, 3)}, LOOSE)
    assert render.upstream_minimum(found) == (1.0, 1.0, math.inf)
    assert found.min_cosine < 1


def test_verbose_lines_show_the_differences_of_failures():
    targets, references = {"a": f32(1, 9, 3), "ok": f32(1)}, {"a": f32(1, 2, 3), "ok": f32(1)}
    found = compare(targets, references, TIGHT)
    text = printed(found, verbose=4, targets=targets, references=references)
    assert "top-k:\n idx-t  target  idx-r  ref\n  1 9.0 2 3.0\n" in text
    assert "all-diffs:\n idx  target  ref\n  1 9.0 2.0\n" in text
    assert text.count("all-elements:") == 1


def test_summary_table():
    console = Console(file=io.StringIO(), width=160)
    comparisons = [
        compare({"a[red]": f32(1, 9)}, {"a[red]": f32(1, 2)}, TIGHT, label="tpu_vs_top"),
        compare({}, {}, TIGHT, label="local_vs_tpu"),
    ]
    console.print(render.summary_table(comparisons))
    text = console.file.getvalue()
    for part in ("tpu_vs_top", "a[red]", "FAILED", "NOTHING COMPARED", "0.99,0.99"):
        assert part in text


def test_tolerance_text():
    assert Tolerance.parse("0.99,0.90") == Tolerance(0.99, 0.9)
    assert Tolerance.parse(" 0.9 , 0.8, 50") == Tolerance(0.9, 0.8)
    assert str(Tolerance(0.99, 0.9)) == "0.99,0.90"
    assert str(Tolerance(0.9999, 0.9)) == "0.9999,0.9"


@given(st.text(max_size=20))
def test_tolerance_of_any_text_parses_or_is_a_config_error(text):
    try:
        parsed = Tolerance.parse(text)
    except TpusimError:
        return
    assert math.isfinite(parsed.cosine) and math.isfinite(parsed.euclidean)


def test_default_tolerances():
    assert Tolerance(0.99, 0.99, 2.0**-22) == tolerances.TOP_VS_ONNX
    assert tolerances.tpu_vs_top("INT8") == Tolerance(0.90, 0.80)
    assert tolerances.tpu_vs_top("bf16") == Tolerance(0.99, 0.90)
    assert tolerances.tpu_vs_top("f8e5m2") == Tolerance(0.80, 0.50)
    assert tolerances.local_vs_tpu(with_qtable=False) == Tolerance(0.99, 0.90)
    assert tolerances.local_vs_tpu(with_qtable=True) == Tolerance(0.98, 0.80)
    with pytest.raises(ConfigError, match="mode 'int4' has no default"):
        tolerances.tpu_vs_top("int4")


def test_tensor_files(tmp_path):
    path = tmp_path / "new" / "x.npz"
    tensors = {"file": i8(1, -2), "a/b": f32(0.5), "scalar": np.array(3, np.int32)}
    npz.save_tensors(path, tensors)
    loaded = npz.load_tensors(path)
    assert list(loaded) == list(tensors)
    assert all(
        np.array_equal(loaded[name], tensors[name]) and loaded[name].dtype == tensors[name].dtype for name in loaded
    )
    assert [file.name for file in path.parent.iterdir()] == ["x.npz"]
    np.save(tmp_path / "one.npy", f32(1))
    assert npz.load_tensors(tmp_path / "one.npy").keys() == {"one"}


def test_bf16_is_saved_as_its_pattern(tmp_path):
    values = f32(1, -2.5).astype(ml_dtypes.bfloat16)
    npz.save_tensors(tmp_path / "x.npz", {"a": values})
    loaded = npz.load_tensors(tmp_path / "x.npz")["a"]
    assert loaded.dtype == np.uint16
    assert verdict(loaded, f32(1, -2.5)) == "EQUAL"


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.npz"
    npz.save_tensors(path, {"a": f32(1)})
    with pytest.raises(ConfigError, match="must hold plain numbers, got object"):
        npz.save_tensors(path, {"a": np.array([None])})
    with pytest.raises(ConfigError, match="cannot be written"):
        npz.save_tensors(path / "below_a_file.npz", {"a": f32(1)})
    assert list(npz.load_tensors(path)) == ["a"]
    assert len(list(tmp_path.iterdir())) == 1


def test_unreadable_tensor_files(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        npz.load_tensors(tmp_path / "none.npz")
    np.savez(tmp_path / "pickled.npz", a=np.array([{}], object))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    whole = tmp_path / "whole.npz"
    np.savez(whole, a=f32(1, 2, 3))
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:-30])
    for name in ("pickled", "text", "empty", "cut"):
        with pytest.raises(ConfigError, match=f"{name}.npz: an .npz or .npy of plain arrays is required"):
            npz.load_tensors(tmp_path / f"{name}.npz")


def test_files_say_what_they_are_and_foreign_ones_nothing(tmp_path):
    said = About("tpu", "int8", mixed=True, quantised={"q": (0.5, -3)})
    npz.save_tensors(tmp_path / "x.npz", {"q": i8(1, -2), "f": f32(1)}, said)
    assert read_about(tmp_path / "x.npz") == said
    with np.load(tmp_path / "x.npz") as archive:
        assert archive.files == ["q", "f"] and archive["q"].dtype == np.int8
    assert said.real({"q": i8(1, -2), "f": f32(1)})["q"].tolist() == [2.0, 0.5]
    np.savez(tmp_path / "foreign.npz", q=i8(1))
    (tmp_path / "text.npz").write_text("hello")
    for name, comment in (("a", b"[1]"), ("b", b'{"tpusim": 1}'), ("c", b'{"tpusim": {"level": 3, "scale": "x"}}')):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            info = zipfile.ZipInfo("q.npy")
            archive.comment = info.comment = comment
            archive.writestr(info, b"")
    assert all(read_about(tmp_path / f"{name}.npz") == About() for name in ("foreign", "text", "none", "a", "b", "c"))


def test_by_channel_one_large_channel_hides_no_others() -> None:
    """Along whichever axis channels lie; a slice of zeros in the reference counts for nothing."""
    rng = np.random.default_rng(3)
    reference = rng.standard_normal((1, 4, 6, 6)).astype(np.float32)
    reference[:, 0] *= 1000
    reference[:, 3] = 0
    target = reference.copy()
    target[:, 1] = 0
    strict = replace(LOOSE, by_channel=True)
    assert compare_tensors(target, reference, LOOSE).verdict == "SIMILAR"
    found = compare_tensors(target, reference, strict)
    assert (found.verdict, found.note) == ("NOT_SIMLIAR", "euclidean 0.6667 by channel on average")
    last = [np.moveaxis(array, 1, 3) for array in (target, reference)]
    assert compare_tensors(last[0], last[1], strict).note == found.note
    assert compare_tensors(reference * np.float32(1.05), reference, strict).passed
    assert not compare_tensors(reference * np.float32(1.5), reference, strict).passed
    assert compare_tensors(f32(1, 2, 3, 4), f32(1, 2, 3, 5), replace(LOOSE, euclidean=0.7, by_channel=True)).passed
