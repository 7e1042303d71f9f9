"""`tpusim verify` on folders that the real tools left: right ones pass, one planted change each is named."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rows import lowered

from tests.real_folders import CELLS, folder_of
from tpusim.errors import ConfigError
from tpusim.inference import run
from tpusim.ir.attrs import op_name, set_op_name
from tpusim.ir.dialects import context
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module
from tpusim.ir.weights import WeightStore, save_weights
from tpusim.ops.framework.base import TpuOp
from tpusim.studies.verification.folder import Folder
from tpusim.studies.verification.steps import NARROW, Reference, Step, far_apart, first_other_op, steps_of


def wrong(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.problem]


@pytest.mark.parametrize("cell", CELLS)
def test_right_folders_pass(tmp_path: Path, cell: str):
    steps = list(steps_of(Folder(folder_of(cell, tmp_path))))
    assert not wrong(steps)
    assert not [step for step in steps if step.unchecked]
    assert len(steps) >= (8 if cell.endswith("INT8") else 7)


def change_text(pattern: str, old: str, new: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        file = next(place.glob(pattern))
        source = file.read_text()
        assert re.search(old, source)
        file.write_text(re.sub(old, new, source, count=1))

    return change


def change_texts(pattern: str, old: str, new: str) -> Callable[[Path], None]:
    """Change every file of the pattern that has the text."""

    def change(place: Path) -> None:
        for file in place.glob(pattern):
            file.write_text(re.sub(old, new, file.read_text()))

    return change


def change_weight(pattern: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        file = next(place.glob(pattern))
        with np.load(file) as found:
            arrays = dict(found)
        name = max(arrays, key=lambda n: arrays[n].size)
        changed = arrays[name].copy()
        largest = int(np.abs(changed.astype(np.float64)).argmax())
        changed.reshape(-1)[largest] -= np.sign(changed.reshape(-1)[largest])
        save_weights({**arrays, name: changed}, file)

    return change


def one_address_for_two(place: Path) -> None:
    """Put the first coefficients where the second ones are."""
    file = next(place.glob("*_final.mlir"))
    source = file.read_text()
    first, second = list(dict.fromkeys(re.findall(r'"top.Weight".*-> tensor<.*, (\d+) : i64>', source)))[:2]
    file.write_text(source.replace(f", {first} : i64>", f", {second} : i64>"))


PLANTED: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a weight of the import": (change_weight("m_top_f32_all_weight.npz"), "m.mlir", "tensor '"),
    "a weight": (change_weight("*_tpu_weights.npz"), "_tpu.mlir", "weight '.*1 of .* values differ"),
    "a multiplier": (
        change_text("*_tpu.mlir", r"multiplier = \[\d+", "multiplier = [1234567"),
        "_tpu.mlir",
        r"tpu.Conv2D 'relued_Relu': multiplier is 1234567",
    ),
    "a table entry": (
        change_text("cali_table", r"relued_Relu (\d)\.", r"relued_Relu 1\1."),
        "_tpu.mlir",
        "'relued_Relu': its scale is",
    ),
    "a shift": (
        change_text("*_tpu.mlir", r"rshift = \[\d+, \d+", "rshift = [26, 27"),
        "_tpu.mlir",
        "tpu.Conv2D 'relued_Relu': rshift is 26, 27",
    ),
    "a merged coefficient": (change_weight("m_tpu_addressed_*"), "_final.mlir", "tensor '"),
    "a local address": (
        change_text("*_final.mlir", r'("tpu.Conv2D".*?out_addr = )\d+', r"\g<1>64"),
        "_final.mlir",
        ".",
    ),
    "a slice": (
        change_text("*_final.mlir", r'("tpu.MaxPool|"tpu.Pool2D)(.*?h_slice = \[)\d+', r"\g<1>\g<2>3"),
        "_final.mlir",
        ".",
    ),
    "an address": (one_address_for_two, "_final.mlir", "."),
    "a relu that changes nothing": (
        change_text("*_tpu.mlir", r'("tpu.Add".*?do_relu = )false', r"\g<1>true"),
        "_tpu.mlir",
        "tpu.Add 'sum_Add': do_relu is True and should be False",
    ),
    "a requant's form": (
        change_text("*_tpu.mlir", r'("tpu.Conv2D".*?)rq_mode MultiplierShift', r"\g<1>rq_mode QDM"),
        "_tpu.mlir",
        "tpu.Conv2D 'relued_Relu': quant_mode is QDM and should be MultiplierShift",
    ),
    "a bias": (
        change_text("*_tpu.mlir", r'("tpu.Conv2D".*?)with_bias = true', r"\g<1>with_bias = false"),
        "_tpu.mlir",
        "tpu.Conv2D 'relued_Relu': with_bias is False and should be True",
    ),
    "zero points": (
        change_text("*_tpu.mlir", "module.asymmetric = false", "module.asymmetric = true"),
        "_tpu.mlir",
        ".",
    ),
    "a mean of the camera": (
        change_text("*_tpu.mlir", r"mean = \[0.000000e\+00", "mean = [1.0"),
        "_tpu.mlir",
        "top.Input 'x': mean is 1.0, 0.0, 0.0 and should be 0.0, 0.0, 0.0",
    ),
    "a count of sections": (
        change_text("*_final.mlir", "nsecs = 1", "nsecs = 2"),
        "_final.mlir",
        ".",
    ),
    "an index of a slice": (
        change_text("*_final.mlir", r'("tpu.Load".*?h_idx = \[)0', r"\g<1>1"),
        "_final.mlir",
        "the slice of 'load_0' .* does not contain what is needed",
    ),
    "a mode": (change_text("*_final.mlir", '"INT8"', '"F16"'), "_final.mlir", "its mode is 'F16' and should be 'INT8'"),
    "a name of a result": (
        change_text("*_final.mlir", r'module.outputs = \["scores_Gemm_f32', 'module.outputs = ["scores_Gemm'),
        "_final.mlir",
        "its outputs are scores_Gemm and should be scores_Gemm_f32",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_one_planted_change_is_named(tmp_path: Path, what: str):
    change, file, words = PLANTED[what]
    place = folder_of("bm1684x-INT8", tmp_path)
    change(place)
    found = wrong(list(steps_of(Folder(place))))
    assert len(found) == 1
    assert found[0].file.endswith(file) and re.search(words, found[0].problem), found[0]


@pytest.mark.parametrize("cell", ["bm1684-INT8", "cv183x-INT8"])
@pytest.mark.parametrize("what", ["a merged coefficient", "a local address", "an address", "a shift of all"])
def test_one_planted_change_is_named_on_other_chips(tmp_path: Path, cell: str, what: str):
    every = {
        **PLANTED,
        "a shift of all": (change_text("*_tpu.mlir", r"rshift = \[\d+", "rshift = [3"), "_tpu.mlir", "."),
    }
    change, file, words = every[what]
    place = folder_of(cell, tmp_path)
    change(place)
    found = wrong(list(steps_of(Folder(place))))
    assert len(found) == 1
    assert found[0].file.endswith(file) and re.search(words, found[0].problem), found[0]


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda place: next(place.glob(pattern)).unlink()


def damage(pattern: str) -> Callable[[Path], None]:
    def damaged(place: Path) -> None:
        next(place.glob(pattern)).write_bytes(b"PK")

    return damaged


def change_arrays(
    pattern: str, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        file = next(place.glob(pattern))
        with np.load(file) as found:
            arrays = dict(found)
        save_weights(change(arrays), file)

    return changed


ONLY = "no tensor of one side has the name"
LACKING: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "the import": (remove("m_origin.mlir"), "m_origin.mlir", "does not have the file"),
    "weights of the import": (remove("*_origin_weight.npz"), "m_origin.mlir", "does not have its weights"),
    "a final module": (remove("*_final.mlir"), "_final.mlir", "does not have the file"),
    "a table": (remove("*cali_table"), "_tpu.mlir", "one calibration table, .* got none"),
    "a reference": (remove("*_tpu_outputs.npz"), "_tpu.mlir", "does not have the file"),
    "arrays of a reference": (change_arrays("*_model_outputs.npz", lambda _: {}), "_final.mlir", ONLY),
    "names of a reference": (
        change_arrays("*_tpu_outputs.npz", lambda a: {f"other_{n}": v for n, v in a.items()}),
        "_tpu.mlir",
        ONLY,
    ),
    "a mode": (change_texts("*_*.mlir", r'module.mode = "\w+"', 'module.mode = "W3"'), "_tpu.mlir", "mode 'w3'"),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_a_folder_lacks_is_not_checked_and_not_right(tmp_path: Path, what: str):
    change, file, words = LACKING[what]
    place = folder_of("bm1684x-INT8", tmp_path)
    change(place)
    steps = list(steps_of(Folder(place)))
    assert not wrong(steps)
    (unchecked,) = (step for step in steps if step.unchecked)
    assert unchecked.file.endswith(file) and re.search(words, unchecked.unchecked), unchecked


def test_ops_are_compared_by_kind_and_name() -> None:
    model = lowered("conv-relu", "bm1684x", "int8")[0]
    other, renamed = lowered("conv-relu", "bm1684x", "f32")[0], model.clone()
    for op in (op for op in renamed.ops if isinstance(op, TpuOp)):
        set_op_name(op, f"{op_name(op)}_other")
    assert first_other_op(model, model.clone()) == ""
    assert first_other_op(model, renamed) is None
    assert re.search(r"its result is not quantised and should be", first_other_op(model, other) or "")
    assert re.search(r"its result is quantised and should not be", first_other_op(other, model) or "")


def test_a_folder_without_lowered_modules_says_so(tmp_path: Path):
    place = folder_of("bm1684x-INT8", tmp_path)
    remove("*_tpu.mlir")(place)
    last = list(steps_of(Folder(place)))[-1]
    assert (last.file, last.unchecked) == ("m_*_tpu.mlir", "the folder does not have the file")


UNREADABLE: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a table": (change_text("cali_table", r"relued_Relu \S+", "relued_Relu x"), "_tpu.mlir", "decimal number"),
    "a line of a table": (change_text("cali_table", r"relued_Relu .*\n", ""), "_tpu.mlir", "missing: relued_Relu"),
    "a reference": (
        damage("*_tpu_outputs.npz"),
        "_tpu.mlir",
        "an .npz or .npy of plain arrays is required",
    ),
    "words for numbers": (
        change_arrays("*_tpu_outputs.npz", lambda a: {n: np.full(v.shape, "a") for n, v in a.items()}),
        "_tpu.mlir",
        "an array of numbers is required, got <U1",
    ),
    "NaN": (
        change_arrays("*_model_outputs.npz", lambda a: {n: v * np.float32("nan") for n, v in a.items()}),
        "_final.mlir",
        "nan is expected",
    ),
    "a chip": (change_text("*_tpu.mlir", "bm1684x", "bm9999"), "_tpu.mlir", "unknown chip 'bm9999'"),
    "another chip": (change_text("*_tpu.mlir", "bm1684x", "bm1688"), "_final.mlir", "its chip is 'bm1684x'"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_is_named_with_its_step(tmp_path: Path, what: str):
    change, file, words = UNREADABLE[what]
    place = folder_of("bm1684x-INT8", tmp_path)
    change(place)
    (found,) = wrong(list(steps_of(Folder(place))))
    assert found.file.endswith(file) and re.search(words, found.problem), found


NAN, MASK = np.float64("nan"), -3.4e38


@pytest.mark.parametrize(
    ("mine", "other", "right"),
    [
        ([1.0, MASK], [1.0, MASK], True),
        ([1.0, MASK], [1.5, MASK], False),
        ([1.0, -np.inf], [1.0, -np.inf], True),
        ([1.0, -np.inf], [1.0, MASK], False),
        ([1.0, NAN], [1.0, NAN], True),
        ([1.0, NAN], [1.0, 1.0], False),
        ([1.0, 1.0], [1.0, NAN], False),
        ([1.004, 1.0], [1.0, 1.0], True),
        ([1.006, 1.0], [1.0, 1.0], False),
    ],
)
def test_masks_are_not_the_largest_value(mine: list[float], other: list[float], right: bool):
    assert (far_apart(np.array(mine), np.array(other), NARROW) == "") == right


ROUNDED = """module @m attributes {module.chip = "bm1684x", module.mode = "INT8", module.state = "TPU_LOWERED"} {
  func.func @main(%arg0: tensor<1x2xf32>) -> tensor<1x2xf32> {
    %0 = "top.Input"(%arg0) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("x")
    %1 = "tpu.MulConst"(%0) {const_val = 1.0 : f64} : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("float")
    %2 = "tpu.Cast"(%1) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("integer")
    %3 = "tpu.Cast"(%2) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2xf32> loc("y")
    return %3 : tensor<1x2xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("reference", "problem", "unchecked"),
    [
        ({"float": [5.2500005, 50.0], "integer": [5.5, 50.0], "y": [5.5, 50.0]}, "", ""),
        ({"integer": [5.5, 50.0], "y": [5.5, 50.0]}, "", "tensor 'integer', which follows floats"),
        ({"y": [5.5, 50.0]}, "", "tensor 'y', which follows floats"),
        ({"y": [15.5, 50.0]}, "tensor 'y': differs by up to 10.5", ""),
        ({"float": [5.2499995, 50.0], "integer": [5.5, 50.0]}, "tensor 'integer': 1 of 2 values differ", ""),
        ({"float": [5.0, 40.0]}, "tensor 'float': differs by up to 10", ""),
    ],
)
def test_integers_are_rounded_from_the_floats_of_the_reference(
    reference: dict[str, list[float]], problem: str, unchecked: str
):
    """Ours has 5.2499995 where the float's last place decides the integer, so that it rounds to 10 and not to 11."""
    model = Model(parse_module(ROUNDED, context()), WeightStore())
    sample = {"x": np.array([[5.2499995, 50.0]], np.float32)}
    theirs = {name: np.array([values], np.float32) for name, values in reference.items()}
    found = Reference(model, run(model, sample), sample).compare(theirs)
    assert (found.problem.startswith(problem), found.unchecked.startswith(unchecked)) == (True, True)
    assert (bool(found.problem), bool(found.unchecked)) == (bool(problem), bool(unchecked))


def test_a_folder_without_a_module_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"one NAME\.mlir that model_transform\.py wrote is required, got none"):
        list(steps_of(Folder(tmp_path)))
