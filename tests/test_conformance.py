"""The readers and counters of make conformance, on text and arrays written by hand."""

import numpy as np
import pytest

from benchmarks.accuracy.results import Key
from benchmarks.conformance.compare import all_stored, compare_alone, compare_lowering, gaps, stored
from benchmarks.conformance.explained import Explained
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.results import Cell, Difference, Part
from benchmarks.conformance.text import Tensor, read
from benchmarks.conformance.timing import profile
from benchmarks.conformance.upstream import VARIABLE, Upstream
from tpusim.errors import ConfigError

I8 = "tensor<1x4x!quant.uniform<i8:f32, 5.000000e-01>>"
OURS = f"""
    %1 = "top.Input"(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %2 = "tpu.Cast"(%1) : (tensor<1x4xf32>) -> {I8} loc("x_y_int8")
    %3 = "top.Weight"() : () -> tensor<4xi8> loc("w")
    %4 = "tpu.Add"(%2, %3) {{multipliers = [1 : i64, 3 : i64], do_relu = false}} : ({I8}, tensor<4xi8>) -> {I8} loc("y")
"""
THEIRS = f"""
    %1 = "top.Input"(%arg0) {{mean = [0.0]}} : (tensor<1x4xf32>) -> tensor<1x4xf32> loc(#loc1)
    %2 = "tpu.Cast"(%1) {{round_mode = #tpu<round_mode HalfUp>}} : (tensor<1x4xf32>) -> {I8} loc(#loc2)
    %3 = "top.Weight"() : () -> tensor<4xsi8> loc(#loc3)
    %4 = "tpu.Add"(%2, %3) {{do_relu = false, multipliers = [1, 4]}} : ({I8}, tensor<4xsi8>) -> {I8} loc(#loc4)
#loc1 = loc("x")
#loc2 = loc("xy_Add_si8")
#loc3 = loc("w_i8")
#loc4 = loc("y_Add")
"""


def test_ops_are_read_with_names_types_and_numbers():
    cast, add = read(THEIRS)[1], read(THEIRS)[3]
    assert (cast.name, cast.operands, add.operands) == ("xy_Add_si8", ("x",), ("xy_Add_si8", "w_i8"))
    assert add.numbers("multipliers") == (1, 4)
    assert read(OURS)[3].numbers("multipliers") == (1, 3)
    assert add.types == (Tensor((1, 4), "i8", 0.5),)
    assert read(THEIRS)[2].types[0].storage == "i8"


def test_ops_of_regions_and_of_several_results_are_read():
    text = """
    %7:2 = "tpu.Group"(%arg0) ({
      %8 = "tpu.Load"(%arg0) {ginfo = #tpu.lg<n_idx = [0], id = 0>} : (tensor<2xf32>) -> tensor<2xf32> loc("load")
      %a, %b = "tpu.Arg"(%8) : (tensor<2xf32>) -> (tensor<1xf32>, none) loc(#loc3)
    }) {flow = [-1, 0], hsecs = 3 : i64} : (tensor<2xf32>) -> (tensor<1xf32>, tensor<1xf32>) loc(#loc4)
    %9 = "tpu.Add"(%7#0, %7#1) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32> loc("sum")
#loc3 = loc("index")
#loc4 = loc(fused[#loc3, "other"])
"""
    load, arg, group, add = read(text)
    assert (load.kind, arg.name, arg.operands) == ("tpu.Load", "index", ("load",))
    assert (group.names, group.attributes["hsecs"], add.operands) == (("index", "other"), "3 : i64", ("index", "other"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tensor<2x!quant.uniform<u8<0:1>:f32, 3.9E-8:7>>", Tensor((2,), "u8", 3.9e-8, 7)),
        ("tensor<1x2x!quant.calibrated<f32<-1.0:2.5>>, 4295057408 : i64>", Tensor((1, 2), "f32", range=(-1.0, 2.5))),
        ("tensor<f16>", Tensor((), "f16")),
        ("tensor<3xbf16, 64 : i64>", Tensor((3,), "bf16")),
    ],
)
def test_types_are_read(text, found):
    (op,) = read(f'%1 = "tpu.Neg"(%0) : (tensor<1xf32>) -> {text} loc("y")')
    assert op.types == (found,)


def test_casts_are_paired_by_their_operand_and_the_rest_by_name():
    pairs = pair(computing(read(OURS)), computing(read(THEIRS)))
    assert [(a.name, b.name) for a, b in pairs] == [("x", "x"), ("x_y_int8", "xy_Add_si8"), ("y", "y_Add")]


def test_constants_that_differ_are_named():
    ours, theirs = {"w": np.array([1, 2, 3, 4], np.int8)}, {"w_i8": np.array([1, 2, 3, 6], np.int8)}
    found = compare_lowering(read(OURS), read(THEIRS), ours, theirs)
    assert (found.compared, found.equal, found.differing) == (3, 2, 2)
    multiplier, weight = found.differences
    assert (multiplier.tensor, multiplier.what, multiplier.share) == ("y", "multipliers[1] 3 here, 4 there", 0.5)
    assert (weight.share, weight.largest) == (0.25, 2)


def test_tensors_are_compared_as_they_are_stored():
    ours, theirs = read(OURS), read(THEIRS)
    stored = all_stored(theirs, {"y_Add": np.array([0.5, -1.0, 63.5, 0.0], np.float32), "nobody": np.zeros(1)})
    assert stored["y_Add"].dtype == np.int8
    pairs = pair(computing(ours), computing(theirs))
    assert compare_alone(pairs, {"y": np.array([1, -2, 127, 0], np.int8)}, stored, {}).equal == 1
    (found,) = compare_alone(pairs, {"y": np.array([1, -2, 125, 0], np.int8)}, stored, {}).differences
    assert (found.tensor, found.share, found.largest, found.tolerated) == ("y", 0.25, 2, False)


def test_distances_of_floats_are_units_in_the_last_place():
    one = np.array([1.0, np.nan, 1000.0])
    assert gaps(one, one, "f16").tolist() == [0, 0, 0]
    assert gaps(np.array([1 + 2.0**-10]), np.array([1.0]), "f16").tolist() == [1]
    assert gaps(np.array([1 + 2.0**-7, 4.0]), np.array([1.0, 4.0]), "bf16").tolist() == [1, 0]
    assert gaps(np.array([2.0**-23, 1.0]), np.array([0.0, 1.0]), "f32").tolist() == [1, 0]
    assert gaps(np.array([np.nan]), np.array([1.0]), "f16")[0] != 0


def test_a_profile_is_read_command_by_command():
    line = "Conv_2|CONV|s:10|b:1|g:1|e:25|t:16   Load_3|GDMA_TENSOR|s:18|b:0|g:2|e:623|t:606|dr:0|sz:4096|bw:6.29"
    conv, load = profile(line)
    assert (conv.layer, conv.kind, conv.start, conv.end, conv.moved) == ("Conv_2", "CONV", 10, 25, 0)
    assert (load.kind, load.end, load.moved) == ("GDMA_TENSOR", 623, 4096)


def test_a_cell_is_equal_only_if_every_deciding_part_is():
    key, equal = Key("n", "bm1684x", "int8"), Part.of(3, 3, [])
    near = Part.of(3, 2, [Difference("y", "f16", 0.1, 1.0, tolerated=True)])
    assert Cell(key, "v", {"lowering": equal, "ops": equal, "tensors": equal, "outputs": equal}).equal
    found = Cell(key, "v", {"lowering": equal, "ops": near, "tensors": near, "outputs": equal})
    assert (found.equal, found.near) == (False, True)
    assert not Cell(key, "v", {"lowering": equal, "ops": equal, "tensors": equal}).equal
    assert not Cell(key, "v", {}, refused={"there": "no such op"}).near


def test_a_reason_covers_only_what_it_names():
    line = Explained("why", ("conv/*/int8",), ("plain",), ("multiplier*",), ("lowering",))
    key = Key("conv", "bm1684x", "int8")
    assert line.covers(key, "lowering", Difference("plain", "multiplier[0] 1 here, 2 there"))
    assert not line.covers(key, "lowering", Difference("plain", "scale 1 here, 2 there"))
    assert not line.covers(key, "ops", Difference("plain", "multiplier[0] 1 here, 2 there"))
    assert not line.covers(Key("add", "bm1684x", "int8"), "lowering", Difference("plain", "multiplier[0]"))


@pytest.mark.parametrize("place", ["", "nowhere"])
def test_without_the_environment_the_error_says_what_is_needed(monkeypatch, place):
    monkeypatch.setenv(VARIABLE, place)
    with pytest.raises(ConfigError, match=f"{VARIABLE}.*required"):
        Upstream.find()


def test_a_dumped_float_that_a_mask_makes_infinite_is_its_integer() -> None:
    """-127 in steps of 2.68e36 is beyond f32, so that the interpreter dumps an infinity."""
    step = 2.6793885562088886e36
    dumped = np.array([-np.inf, np.inf, 0.0, np.float32(-3 * step)], np.float32)
    assert stored(dumped, Tensor((4,), "i8", step)).tolist() == [-127, 127, 0, -3]
