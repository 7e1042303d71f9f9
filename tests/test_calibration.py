"""Calibration: the table's text format, streaming statistics, thresholds, samples (numerics.md 3.1 and 15)."""

import math
from datetime import datetime

import numpy as np
import pytest
from compiling import to_calibrated
from hypothesis import given
from hypothesis import strategies as st
from op_row import network, node
from plain_names import import_onnx
from tpusim_kernels.prim.forms import estimating

from tpusim.calibration import tuning
from tpusim.calibration.measured import Measured
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.statistics import ActivationStatistics, TensorStatistics, bin_counts
from tpusim.calibration.table import (
    CalibrationTable,
    Entry,
    parse_table,
    read_table,
    rewrite_thresholds,
    write_table,
)
from tpusim.calibration.thresholds import kl_threshold, thresholds
from tpusim.calibration.trial import Trial, Way
from tpusim.calibration.tuning import Tuner, tuned_thresholds
from tpusim.errors import CalibrationError, ConfigError, TableWarning, TpusimError
from tpusim.inference import Gradual
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.weights import WeightStore
from tpusim.ops import context
from tpusim.ops.conv import top
from tpusim.ops.framework.base import TopOp

RNG = np.random.default_rng(7)
HEADER = dict(method="kl", samples=100, bins=2048, tune=5, time=datetime(2026, 1, 31, 12))

UPSTREAM_TABLE = """\
# mlir version: v1.2 cali version 1.0
# mlir: yolov5s.mlir
# genetated time: 2022-08-11 10:00:59.743675
# histogram number: 2048
# sample number: 100
###
# tune number: 5
###
# op_name    threshold    min    max
images 1.0000080 0.0000000 1.0000080
122_Conv 56.4281803 -102.5830231 97.6811752
124_Mul 38.1586478 -0.2784646 97.6811752
"""


# --- table


def test_upstream_table():
    table = parse_table(UPSTREAM_TABLE)
    assert list(table.entries) == ["images", "122_Conv", "124_Mul"]
    assert table.entries["122_Conv"] == Entry(56.4281803, -102.5830231, 97.6811752)
    assert table.header[2] == "# genetated time: 2022-08-11 10:00:59.743675"
    assert table.notes == ()


def test_written_bytes(tmp_path):
    path = tmp_path / "new" / "cali_table"
    write_table(path, CalibrationTable({"x": Entry(1.00000801, -0.5, 1), 'fused["a", "b"]': Entry(2, 0, 2)}), **HEADER)
    assert path.read_text() == (
        "# genetated time: 2026-01-31 12:00:00\n"
        "# quantization threshold calculation method: kl\n"
        "# histogram number: 2048\n"
        "# sample number: 100\n"
        "###\n"
        "# tune number: 5\n"
        "###\n"
        "# op_name    threshold    min    max\n"
        "x 1.0000080 -0.5000000 1.0000000\n"
        "a 2.0000000 0.0000000 2.0000000\n"
    )
    assert [file.name for file in path.parent.iterdir()] == ["cali_table"]


def test_all_blocks_round_trip(tmp_path):
    table = CalibrationTable(
        {"a": Entry(1, -1, 1)},
        int4={"a": Entry(0.5, -0.5, 0.25)},
        fp8={"b": Entry(3, -3, 3)},
        weight_scales={"a_weight": (0.1, 1e-9)},
        weight_scales_fp8={"b_weight": (7.0,)},
        asym_ops=("gelu", "fc"),
        int4_ops=("a",),
    )
    write_table(tmp_path / "t", table, **HEADER)
    read = read_table(tmp_path / "t")
    for block in ("entries", "int4", "fp8", "weight_scales", "weight_scales_fp8", "asym_ops", "int4_ops"):
        assert getattr(read, block) == getattr(table, block), block


def test_markers_begin_blocks_and_comments_do_not():
    table = parse_table(
        "a 1 -1 1\n# note\nb 1 -1 1\n#int4_th\na 2 -2 2\n# note\nb 3 -3 3\r\n\n# x mqbench-fp8 y\nc 4 0 4"
    )
    assert (list(table.entries), list(table.int4), list(table.fp8)) == (["a", "b"], ["a", "b"], ["c"])


def test_scales_may_be_followed_by_zero_points():
    table = parse_table("#weight_scale_fp8\nw 2 0.5 1e-3 2 0 0\n#weight_scale\nw 1 0.25")
    assert table.weight_scales_fp8 == {"w": (0.5, 1e-3)}
    assert table.weight_scales == {"w": (0.25,)}


def test_infinity_becomes_65000_with_a_note():
    table = parse_table("mask inf -inf 0", "t")
    assert table.entries["mask"] == Entry(65000.0, -65000.0, 0.0)
    assert len(table.notes) == 2
    assert table.notes[0] == "t:1: 'mask' has inf, taken as 65000"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 -1", r"t:1: a line must be 'name threshold min max', got 3 fields: 'a 1 -1'"),
        ("\na 1 -1", r"t:2: a line must be"),
        ("a 1 x 1", r"t:1: a decimal number is required, got 'x' in 'a 1 x 1'"),
        ("a nan -1 1", "got 'nan'"),
        ("a 1_0 -1 1", "got '1_0'"),
        ("a __import__('os') 0 1", "a decimal number is required"),
        ("a -1 -1 1", "threshold >= 0 and min <= max are required"),
        ("a 1 2 1", "threshold >= 0 and min <= max are required"),
        ("#weight_scale\nw 2 0.5", "t:2: a weight scale line must be"),
        ("#weight_scale\nw many", "t:2: a weight scale line must be"),
        ("#weight_scale\nw 999999999 1", "t:2: a weight scale line must be"),
    ],
)
def test_malformed_lines(text, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse_table(text, "t")


def test_unreadable_table(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"a 1 \xff")
    with pytest.raises(ConfigError, match="byte 4 is not"):
        read_table(tmp_path / "bytes")


@pytest.mark.parametrize("name", ["a b", "a  b", "block 1", "a\tb c", "a#b", "a #b", 'q"uote', "\u2028x\x1cy"])
def test_names_with_blanks_inside_read_back(tmp_path, name):
    """As the real tool writes them: `name threshold min max` without quotes, scales and lists of names too."""
    blocks = {"int4": {name: Entry(3, -3, 3)}, "weight_scales": {name: (0.25, 0.5)}, "asym_ops": (name,)}
    table = CalibrationTable({name: Entry(2.5, -2.5, 1.25), "other": Entry(1, -1, 1)}, **blocks)
    write_table(tmp_path / "t", table, **HEADER)
    assert f"{name} 2.5000000 -2.5000000 1.2500000\n" in (tmp_path / "t").read_text()
    found = read_table(tmp_path / "t")
    assert (found.entries, found.asym_ops) == (table.entries, (name,))
    assert (found.int4, found.weight_scales) == (table.int4, table.weight_scales)
    rewrite_thresholds(tmp_path / "t", tmp_path / "new", {name: 2.0})
    assert read_table(tmp_path / "new").entries == {name: Entry(2, -2.5, 2), "other": Entry(1, -1, 1)}


@pytest.mark.parametrize("name", ["#a", "", "a\n", " a", "a\t", "a\nb"])
def test_names_that_would_not_read_back_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="a tensor name must not begin with '#', begin or end with a blank"):
        write_table(tmp_path / "t", CalibrationTable({name: Entry(1, -1, 1)}), **HEADER)
    assert list(tmp_path.iterdir()) == []


LINES = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(["#int4_th", "#weight_scale", "#weight_scale_fp8", "#asym_op", "#int4_op", "#tpu-mlir-fp8"]),
        st.lists(st.sampled_from(["a", "1", "-2.5", "1e3", "inf", "-", "1e999", "2"]), max_size=6).map(" ".join),
    ),
    max_size=8,
).map("\n".join)


@given(LINES)
def test_any_text_is_a_table_or_a_tpusim_error(text):
    try:
        table = parse_table(text)
    except TpusimError:
        return
    for entry in [*table.entries.values(), *table.int4.values(), *table.fp8.values()]:
        assert all(map(math.isfinite, (entry.threshold, entry.minimum, entry.maximum)))


NUMBERS = st.integers(0, 10**9).map(lambda number: number / 1e4)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\f\v\n#"), min_size=1, max_size=12)


@given(st.dictionaries(NAMES.filter(lambda name: "fused[" not in name), st.tuples(NUMBERS, NUMBERS), max_size=5))
def test_table_round_trip(tmp_path_factory, values):
    entries = {name: Entry(th, -low, th) for name, (th, low) in values.items()}
    path = tmp_path_factory.mktemp("tables") / "t"
    write_table(path, CalibrationTable(entries), **HEADER)
    assert read_table(path).entries == entries


# --- statistics


def collected(*samples, bins=2048):
    statistics = TensorStatistics(bins)
    for sample in samples:
        statistics.update(np.asarray(sample, np.float32))
    return statistics


def test_histogram_of_a_few_values():
    statistics = collected([0, -0.0, -7, 1, 1.4, 1.5, 3], bins=8)
    assert statistics.width == 1
    assert bin_counts(np.float32([0, 2, -9, 100]), 1.0, 8).tolist() == [0, 0, 1, 0, 0, 0, 0, 2]
    assert statistics.histogram.tolist() == [0, 2, 1, 1, 0, 0, 0, 1]
    assert (statistics.minimum, statistics.maximum, statistics.absmax) == (-7, 3, 7)


def test_max_counts_nothing():
    """Its thresholds are extremes alone."""
    for method, counted in (("max", 0), ("kl", 3)):
        measured = Measured(logarithm(), method, 8, 0)
        measured.update({"a": np.float32([0, 1, -2, 3])}, "sample 1")
        found = measured.statistics.tensors["a"]
        assert (found.minimum, found.maximum, found.histogram.sum()) == (-2, 3, counted)


def test_merging_equals_one_histogram_of_everything():
    first = RNG.standard_normal(5000).astype(np.float32)
    first[0] = -9
    rest = [RNG.standard_normal(4000).astype(np.float32) for _ in range(3)]
    merged, whole = collected(first, *rest), collected(np.concatenate([first, *rest]))
    assert merged.width == whole.width
    assert np.array_equal(merged.histogram, whole.histogram)
    assert (merged.minimum, merged.maximum) == (whole.minimum, whole.maximum)


def test_growth_keeps_every_count_and_the_indices_of_the_old_ones():
    first, second = RNG.uniform(1, 2, 3000), RNG.uniform(-6, 6, 3000)
    before, after = collected(first), collected(first, second)
    added = int((np.abs(second).max().astype(np.float32) - before.absmax) // (before.absmax / 2048) + 1)
    assert len(after.histogram) == 2048 + added
    alone = collected([], bins=2048 + added)
    alone._grow_to(after.width * (2047 + added))
    alone.update(second)
    assert np.array_equal(after.histogram, np.pad(before.histogram, (0, added)) + alone.histogram)
    assert after.width == pytest.approx(before.width, rel=1 / 2048)
    assert after.histogram.sum() == 6000


def test_a_much_larger_sample_restarts_the_histogram():
    statistics = collected([1e-6, 2e-6], [1.0, 50.0])
    assert (len(statistics.histogram), statistics.histogram.sum()) == (2048, 2)
    assert statistics.minimum == pytest.approx(1e-6)


def test_zeros_first():
    statistics = collected([0, 0], [0, 2, -1])
    assert (statistics.histogram.sum(), statistics.absmax, statistics.width) == (2, 2, 2 / 2047)


def test_values_that_are_not_finite():
    statistics = collected([math.nan, 1, 70000], [-math.inf, math.nan])
    assert (statistics.minimum, statistics.maximum) == (-65000, 70000)
    assert (statistics.nans, statistics.infinities, statistics.histogram.sum()) == (2, 1, 2)
    assert thresholds(statistics, "kl") == Entry(70000, -65000, 70000)


@pytest.mark.parametrize("top", [1e-45, 1e-38, 3e38])
def test_extreme_magnitudes(top):
    statistics = collected([top, -top / 2, top / 4])
    assert statistics.histogram.sum() == np.count_nonzero(np.asarray([top, top / 2, top / 4], np.float32))
    assert thresholds(statistics, "kl").threshold <= max(statistics.absmax, 1e-5)


def test_statistics_of_a_model():
    statistics = ActivationStatistics()
    statistics.update({"a": np.float32([1, 2]), "b": np.float32([math.nan, 1])})
    statistics.update({"a": np.float32([-3])})
    assert (statistics.tensors["a"].minimum, statistics.tensors["a"].samples) == (-3, 2)
    assert statistics.notes() == ["'b' has 1 NaN (ignored) and 0 infinite values (taken as 65000), first in sample 1"]


# --- thresholds


def literal_kl(histogram, width, groups):
    """The rule of numerics.md 15.2 word by word, in f32 loops."""
    f = np.float32
    count, best, best_m = f(sum(histogram)), None, 0
    for m, i in enumerate(range(groups, len(histogram) + 1, groups)):
        p = [f(h) for h in histogram[:i]]
        for outliers in histogram[i:]:
            p[-1] += f(outliers)
        p = [value / count for value in p]
        kept = f(0)
        for h in histogram[:i]:
            kept += f(h)
        divergence, size = f(0), i // groups
        for index in range(i):
            group = histogram[index // size * size : index // size * size + size]
            share = f(sum(group)) / f(max(sum(h > 0 for h in group), 1)) / kept if kept else f(0)
            q = share if histogram[index] > 0 else f(0)
            term = float(p[index]) * (math.log10(float(p[index]) + 1e-30) - math.log10(float(q) + 1e-30))
            divergence = f(float(divergence) + term)
        if best is None or divergence < best:
            best, best_m = divergence, m
    return float(f(width) * f(best_m + 1) * f(groups))


@pytest.mark.parametrize("kind", ["normal", "laplace", "spike", "sparse", "relu", "narrow"])
@pytest.mark.parametrize("groups", [128, 8])
def test_kl_equals_the_literal_rule(kind, groups):
    draw = {
        "normal": lambda: RNG.standard_normal(4000),
        "laplace": lambda: RNG.laplace(size=4000),
        "spike": lambda: np.append(RNG.standard_normal(4000), [80.0, 90.0]),
        "sparse": lambda: RNG.standard_normal(30),
        "relu": lambda: np.maximum(RNG.standard_normal(4000), 0),
        "narrow": lambda: RNG.uniform(0.98, 1, 500),
    }[kind]
    statistics = collected(draw(), bins=512 if groups == 128 else 64)
    expected = literal_kl(statistics.histogram.tolist(), statistics.width, groups)
    assert kl_threshold(statistics.histogram, statistics.width, groups) == expected


def test_kl_cuts_outliers_off():
    body = np.random.default_rng(1).standard_normal(200_000)
    entry = thresholds(collected(np.append(body, [100.0])), "kl")
    assert 6 < entry.threshold < 30
    assert entry.maximum == 100


def test_kl_pads_a_grown_histogram_to_whole_groups():
    histogram = RNG.integers(0, 50, 700)
    padded = np.pad(histogram, (0, 768 - 700))
    assert kl_threshold(histogram, 0.1) == kl_threshold(padded, 0.1)


def test_kl_halves_a_huge_histogram():
    huge = np.zeros(2**18, np.int64)
    huge[:512] = 100
    assert kl_threshold(huge, 0.5, groups=2**15) == kl_threshold(huge[::2] + huge[1::2], 1.0, groups=2**15)


def test_threshold_is_at_most_the_largest_value():
    statistics = collected([1.0, -1.5])
    assert thresholds(statistics, "kl") == Entry(1.5, -1.5, 1.0)
    assert thresholds(statistics, "max") == Entry(1.5, -1.5, 1.0)


@pytest.mark.parametrize(("values", "minimum"), [([0, 0], 0), ([1e-6], 0), ([-1e-6, 0], -1e-5)])
def test_all_zero_tensors(values, minimum):
    for method in ("kl", "max"):
        assert thresholds(collected(values), method) == Entry(1e-5, minimum, 1e-5)


def test_errors_of_thresholds():
    with pytest.raises(ConfigError, match="method 'median' is unknown; the methods of histograms are kl, max"):
        thresholds(collected([1]), "median")
    with pytest.raises(CalibrationError, match="tensor 'x' needs at least one number, got 2 NaN"):
        thresholds(collected([math.nan] * 2), "max", name="x")


# --- samples

F32 = np.dtype(np.float32)
INPUTS = {"x": ((2, 3), F32), "ids": ((2,), np.dtype(np.int64))}
ONE = {"x": ((2, 3), F32)}


def test_samples_of_an_npz_are_split_into_batches(tmp_path):
    x, ids = np.arange(18, dtype=np.uint8).reshape(6, 3), np.arange(6, dtype=np.float32)
    np.savez(tmp_path / "s.npz", x=x, ids=ids, label=np.zeros(1))
    samples = list(load_samples(tmp_path / "s.npz", INPUTS))
    assert len(samples) == 3
    assert samples[1]["x"].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert (samples[2]["ids"].tolist(), samples[2]["ids"].dtype, samples[2]["x"].dtype) == (
        [4, 5],
        np.int64,
        np.float32,
    )
    assert len(list(load_samples(tmp_path / "s.npz", INPUTS, limit=2))) == 2


def test_samples_of_a_folder_come_in_order_of_names(tmp_path):
    np.save(tmp_path / "b.npy", np.ones((4, 3), np.float32))
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3), np.float64))
    (tmp_path / "notes.txt").write_text("not a sample")
    assert [sample["x"][0, 0] for sample in load_samples(tmp_path, ONE)] == [0, 1, 1]


def test_random_samples():
    first, second = list(load_samples("random:2", INPUTS)), list(load_samples("random:2:0", INPUTS))
    other = list(load_samples("random:2:1", INPUTS))
    assert len(first) == 2
    assert (first[0]["x"].shape, first[0]["x"].dtype, first[0]["ids"].dtype) == ((2, 3), np.float32, np.int64)
    assert np.array_equal(first[1]["x"], second[1]["x"])
    assert not np.array_equal(first[0]["x"], other[0]["x"])
    large = next(load_samples("random:1", {"x": ((100_000,), F32)}))["x"]
    assert abs(large.mean()) < 0.02 and abs(large.std() - 1) < 0.02


def test_scalar_inputs(tmp_path):
    np.savez(tmp_path / "s.npz", t=np.float32(3))
    assert [sample["t"].item() for sample in load_samples(tmp_path / "s.npz", {"t": ((), F32)})] == [3]


@pytest.mark.parametrize("spec", ["random:", "random:0", "random:-1", "random:x", "random:1:2:3", "random:1e3"])
def test_bad_random_specs(spec):
    with pytest.raises(CalibrationError, match="'random:N' or 'random:N:seed'"):
        load_samples(spec, ONE)


def failing(tmp_path, message, inputs=ONE, **arrays):
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(CalibrationError, match=message):
        list(load_samples(tmp_path / "s.npz", inputs))


def test_arrays_that_do_not_fit(tmp_path):
    x = np.zeros((2, 3), np.float32)
    failing(tmp_path, r"s.npz has no array for input x; it has: y, z", y=x, z=x)
    failing(
        tmp_path, r"must have shape \(2, 3\) \(the first dimension may be a multiple\), got \(3, 3\)", x=x[[0, 1, 1]]
    )
    failing(tmp_path, r"got \(3,\)", x=x[0])
    failing(tmp_path, r"got \(0, 3\)", x=x[:0])
    failing(
        tmp_path, r"same number of samples for every input, got {'x': 1, 'ids': 2}", INPUTS, x=x, ids=np.zeros(4, int)
    )
    failing(tmp_path, "must be float32, got int64 with values", x=np.full((2, 3), 2**24 + 1))
    failing(tmp_path, "must be float32, got <U1", x=np.full((2, 3), "a"))
    failing(tmp_path, "must be float32, got float64 with values", x=np.full((2, 3), 1e300))
    failing(tmp_path, "must be int64, got float32 with values", INPUTS, x=x, ids=np.float32([0.5, 1]))
    failing(tmp_path, "readable .npz or .npy of plain numbers", x=np.full((2, 3), None))


def test_sources_that_cannot_be_read(tmp_path):
    with pytest.raises(CalibrationError, match="is neither a file nor a folder"):
        load_samples(tmp_path / "none", ONE)
    with pytest.raises(CalibrationError, match="must hold .npz, .npy or image files for this model, got none"):
        load_samples(tmp_path, ONE)
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    with pytest.raises(CalibrationError, match="must hold .npz files for this model"):
        load_samples(tmp_path, INPUTS)
    with pytest.raises(CalibrationError, match=r"the model has 2 inputs \(x, ids\)"):
        list(load_samples(tmp_path / "a.npy", INPUTS))
    (tmp_path / "a.npy").write_text("hello")
    with pytest.raises(CalibrationError, match="readable .npz or .npy"):
        list(load_samples(tmp_path, ONE))


# --- what a table says and tpusim does not offer


def typed(table: str, **options: bool) -> Model:
    """A sum of a tensor with itself, with the types of a table."""
    text = """builtin.module attributes {module.name = "net", module.state = "TOP_F32"} {
      func.func @main(%0: tensor<1x4xf32>) -> tensor<1x4xf32> {
        %x = "top.Input"(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32>
        %y = "top.Add"(%x, %x) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
        func.return %y : tensor<1x4xf32>
      }
    }"""
    module = parse_module(text, context())
    return to_calibrated(Model(module, WeightStore()), parse_table("x 1 -1 1\ny 2 -2 2\n" + table), **options)


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ("#weight_scale\nconv_weight 2 0.1 0.2\n", "#weight_scale .*conv_weight"),
        ("#asym_op\ny\n", "asym_op .*: y"),
        ("#int4_op\na\nb\nc\nd\ne\n", r"int4_op .*: a, b, c, d \.\.\.: tpusim does not support them"),
    ],
)
def test_blocks_that_would_change_int8_are_refused(block: str, named: str):
    with pytest.raises(CalibrationError, match=named):
        typed(block)


def test_thresholds_of_other_modes_change_nothing():
    plain = print_module(typed("").module)
    assert print_module(typed("#int4_th\nx 9 -9 9\n#tpu-mlir-fp8 x\ny 9 -9 9\n").module) == plain
    assert "<-1.0:1.0>" in plain


def test_an_infinite_threshold_is_replaced_with_a_warning():
    with pytest.warns(TableWarning, match="'y' has inf, taken as 65000"):
        assert "65000" in print_module(typed("y inf -1 1\n").module)


# --- samples and tensors that are not finite

LOGARITHM = """
module attributes {module.name = "t", module.state = "TOP_F32"} {
  func.func @main(%a: tensor<1x4xf32> loc("in")) -> tensor<1x4xf32> {
    %x = "top.Input"(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %y = "top.Log"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    return %y : tensor<1x4xf32>
  }
}
"""


def logarithm() -> Model:
    return Model(parse_module(LOGARITHM, context()), WeightStore())


@pytest.mark.parametrize(("value", "what"), [(math.inf, "0 NaN and 1 infinite"), (math.nan, "1 NaN and 0 infinite")])
def test_a_sample_that_is_not_finite_is_refused_by_its_name(tmp_path, value, what):
    images = np.ones((3, 4), np.float32)
    images[1, 2] = value
    np.savez(tmp_path / "data.npz", x=images)
    samples = load_samples(tmp_path / "data.npz", {"x": ((1, 4), np.dtype(np.float32))})
    with pytest.raises(CalibrationError, match=rf"data.npz, sample 2 of 3: input 'x' must be finite, got {what}"):
        calibrate(logarithm(), samples, CalibrationConfig("max"))
    with pytest.raises(CalibrationError, match="samples: sample 2: input 'x' must be finite"):
        calibrate(logarithm(), [{"x": image[None]} for image in images], CalibrationConfig("max"))


def test_a_tensor_that_is_not_finite_is_named_with_its_sample():
    samples = [{"x": np.float32([[1, 2, 3, 4]])}, {"x": np.float32([[1, 0, -3, 4]])}]
    with pytest.warns(TableWarning, match=r"'y' has 1 NaN \(ignored\) and 1 infinite .* first in sample 2"):
        calibrate(logarithm(), samples, CalibrationConfig("max"))
    with pytest.warns(TableWarning), pytest.raises(CalibrationError, match="'y' needs .* got 4 NaN, first in sample 1"):
        calibrate(logarithm(), [{"x": np.float32([[-1, -1, -1, -1]])}], CalibrationConfig("max"))


# --- tuning


def tuned_by_hand(x: np.ndarray, w: np.ndarray | np.floating, threshold: float) -> float:
    """The best of 22 thresholds up to the maximum for y = w*x, by the definition."""
    step = (float(abs(x).max()) - threshold) / 21
    losses = []
    for i in range(22):
        scale = 127 / (threshold + step * i)
        found = w * np.clip(np.rint(x * scale), -128, 127) / scale
        losses.append(np.linalg.norm(w * x - found) / abs(w * x).sum())
    return threshold + step * int(np.argmin(losses))


def test_tuning_takes_the_threshold_that_loses_least():
    """A few outliers in a channel with small weights do not pay; with large weights they do."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1, 2, 40, 40)).astype(np.float32)
    x[0, 0, 0, :4] = 30.0
    for large, clipped in ((0.001, True), (10.0, False)):
        weights = np.array([large, 1.0], np.float32).reshape(1, 2, 1, 1)
        build = network([node("Mul", "x w")], {"w": weights})
        model = import_onnx(build({"x": x.shape}))
        found = tuned_thresholds(Gradual(model, "all"), [{"x": x}], {"x": 4.0, "y": 9.0}, {"x": 30.0, "y": 300.0})
        assert found["x"] == pytest.approx(tuned_by_hand(x, weights, 4.0), rel=1e-12)
        assert (found["x"] < 10) == clipped and found["y"] == 9.0


def test_a_threshold_near_the_maximum_stays_and_a_second_reader_only_raises():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1, 1, 8, 8)).astype(np.float32)
    x[0, 0, 0, 0] = 6.0
    build = network([node("Mul", "x large", "a"), node("Mul", "x small", "b"), node("Add", "a b")],
                    {"large": np.float32([[[[9.0]]]]), "small": np.float32([[[[0.1]]]])})  # fmt: skip
    model = import_onnx(build({"x": x.shape}))
    absmax = {"x": 6.0, "a": 54.0, "b": 0.6, "y": 54.6}
    near = tuned_thresholds(
        Gradual(model, "all"), [{"x": x}], {name: top - 0.009 for name, top in absmax.items()}, absmax
    )
    assert near == {name: top - 0.009 for name, top in absmax.items()}
    far = tuned_thresholds(Gradual(model, "all"), [{"x": x}], {"x": 1.0, "a": 54.0, "b": 0.6, "y": 54.6}, absmax)
    assert far["x"] == pytest.approx(max(tuned_by_hand(x, w, 1.0) for w in np.float32([9.0, 0.1])), rel=1e-12)


@pytest.fixture(params=[True, False], ids=["int8", "f32"])
def byte_products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A processor whose int8 products are quick, and one whose are not."""
    monkeypatch.setattr(top, "has_byte_products", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("byte_products")
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("window", [{}, {"strides": [2, 1], "pads": [0, 2, 1, 0], "dilations": [2, 1]}])
def test_estimates_are_near(window: dict[str, list[int]], channels: int):
    """By floats (few channels) and by integers a convolution loses as much as in order, but for rounding."""
    rng = np.random.default_rng(6)
    w, b = rng.normal(size=(5, channels, 3, 2)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    w[1], shape = 0, (1, channels, 9, 8)
    model = import_onnx(network([node("Conv", "x w b", **window)], {"w": w, "b": b})({"x": shape}))
    require_near_estimates(model, {"x": rng.normal(size=shape).astype(np.float32)})


@pytest.mark.usefixtures("byte_products")
@pytest.mark.parametrize("channels", [16, 160])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_estimates_of_a_linear_map_are_near(strides: list[int], channels: int):
    """By fewer channels than a 1x1 convolution makes, one filter of which is another one's multiple."""
    rng, oc = np.random.default_rng(8), channels * 5 // 2
    w, b = rng.normal(size=(oc, channels, 1, 1)).astype(np.float32), rng.normal(size=oc).astype(np.float32)
    w[1], w[:, 3], shape = 2 * w[0], w[:, 4], (1, channels, 9, 8)
    model = import_onnx(network([node("Conv", "x w b", strides=strides)], {"w": w, "b": b})({"x": shape}))
    require_near_estimates(model, {"x": rng.normal(size=shape).astype(np.float32)})


@pytest.mark.parametrize("op", ["Add", "Mul", "MatMul"])
def test_estimates_of_two_operands_are_near(op: str):
    """Operands that are both rounded, of ops that are compiled with rounding and difference."""
    rng = np.random.default_rng(7)
    model = import_onnx(network([node(op, "x z")], {})({"x": (2, 6, 6), "z": (2, 6, 6)}))
    require_near_estimates(model, {k: rng.normal(size=(2, 6, 6)).astype(np.float32) for k in "xz"})


def require_near_estimates(model: Model, sample: dict[str, np.ndarray]) -> None:
    tuner = Tuner(Gradual(model, "all"), [sample])
    (op,), (floats,) = [op for op in model.ops if op_name(op) == "y"], tuner._floats
    assert isinstance(op, TopOp)
    operands = tuner._operands(op, floats)
    way = Way(op, operands, {})
    trial = Trial(way, operands, floats["y"])
    thresholds = (0.5, 1.0, 3.0)
    wanted = [tuner._distance(op, threshold) for threshold in thresholds]
    near = tuning.ROUNDING * trial.unit + tuning.DOUBT * way.error / floats["y"].size ** 0.5 * max(wanted)
    assert near < max(wanted) / 10
    assert trial.distances(thresholds) == pytest.approx(wanted, abs=near)


def test_large_linear_maps_are_factored_where_int8_products_are_not_quick(byte_products: bool):
    """A factor has the filter's norm up to rounding; int8 has the filter's error. Ones need no rounding."""
    w, shape = np.random.default_rng(9).normal(size=(400, 160, 1, 1)).astype(np.float32), (1, 160, 3, 3)
    model = import_onnx(network([node("Conv", "x w")], {"w": w})({"x": shape}))
    tuner = Tuner(Gradual(model, "all"), [{"x": np.ones(shape, np.float32)}])
    op, operands = tuner._ops["y"], tuner._operands(tuner._ops["y"], tuner._floats[0])
    way = Way(op, operands, {})
    found = way.of(operands, tuner._floats[0]["y"])(np.float32([50, 1000]))
    assert found[0] < 1e-6
    assert found[1] == pytest.approx(9 * (w.sum(axis=1) ** 2).sum() * (1 - 0.127) ** 2, rel=2 * way.error + 1e-5)
    assert (way.error > 0) == byte_products


@pytest.mark.usefixtures("byte_products")
def test_estimates_choose_no_other_threshold(monkeypatch: pytest.MonkeyPatch):
    """What the library's order of sums decides is what all sums in order decide, and few thresholds are tried twice."""
    rng = np.random.default_rng(5)
    w = rng.normal(size=(8, 64, 3, 3)).astype(np.float32)
    model = import_onnx(network([node("Conv", "x w")], {"w": w})({"x": (1, 64, 9, 9)}))
    samples = [{"x": rng.standard_t(3, size=(1, 64, 9, 9)).astype(np.float32)} for _ in range(2)]
    tuner, absmax = Tuner(Gradual(model, "all"), samples), max(float(abs(s["x"]).max()) for s in samples)
    runs: list[bool] = []
    exact, estimated = Tuner._run, Trial.distances
    monkeypatch.setattr(Tuner, "_run", lambda *args: runs.append(estimating()) or exact(*args))
    monkeypatch.setattr(
        Trial, "distances", lambda *args: runs.extend([estimating()] * len(args[1])) or estimated(*args)
    )
    found = [tuner.best("y", share * absmax, absmax) for share in (0.1, 0.3, 0.6)]
    assert runs.count(True) == 3 * 22 * 2 and runs.count(False) < runs.count(True) / 4
    monkeypatch.setattr(Tuner, "_near", lambda tuner, op, candidates: candidates)
    assert found == [tuner.best("y", share * absmax, absmax) for share in (0.1, 0.3, 0.6)]
