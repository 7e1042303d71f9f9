"""`tpusim compare --by-layout`: dumps of boards and other tools compared with ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tpusim.cli import main
from tpusim.verify.about import About
from tpusim.verify.npz import save_tensors
from tpusim.verify.pairing import paired

RNG = np.random.default_rng(4)
IMAGE = RNG.normal(size=(6, 3, 4, 5)).astype(np.float32)


def in_4n(x: np.ndarray, *, five_axes: bool) -> np.ndarray:
    """Element by element: sample 4i + j of a channel's pixel is the j-th of its word; the last words are filled up."""
    n, c, h, w = x.shape
    found = np.zeros((-(-n // 4), c, h, w, 4), x.dtype)
    for index in np.ndindex(x.shape):
        found[(index[0] // 4, *index[1:], index[0] % 4)] = x[index]
    return found if five_axes else found.reshape(-1, c, h, w * 4)


@pytest.mark.every
@pytest.mark.parametrize(
    ("target", "layout"),
    [
        (IMAGE, ""),
        (IMAGE.transpose(0, 2, 3, 1), "NHWC"),
        (in_4n(IMAGE, five_axes=True), "4N"),
        (in_4n(IMAGE, five_axes=False), "4N"),
    ],
)
def test_layouts_that_shapes_tell(target: np.ndarray, layout: str) -> None:
    found = paired({"a": target}, {"a": IMAGE})
    assert np.array_equal(found.targets["a"], IMAGE)
    assert found.notes == ((f"a: {layout} in the target",) if layout else ())


def test_a_reference_in_nhwc_and_shapes_that_tell_nothing() -> None:
    reference = IMAGE.transpose(0, 2, 3, 1)
    assert np.array_equal(paired({"a": IMAGE}, {"a": reference}).targets["a"], reference)
    same = RNG.normal(size=(1, 4, 4, 4))
    assert paired({"a": same}, {"a": same + 1}).notes == ()  # NCHW and NHWC look alike: as they are
    flat = IMAGE.reshape(6, -1)
    assert paired({"a": flat}, {"a": IMAGE}).targets["a"] is flat


def test_names_by_the_suffixes_of_upstream() -> None:
    references = {"c1_Conv": IMAGE, "y_Softmax_f32": IMAGE[:1], "x": IMAGE, "b_Add": IMAGE, "b_Relu": IMAGE}
    targets = {"c1": IMAGE.transpose(0, 2, 3, 1), "y": IMAGE[:1], "x": IMAGE, "b": IMAGE, "z_Conv": IMAGE}
    found = paired(targets, references)
    assert sorted(found.targets) == ["b", "c1_Conv", "x", "y_Softmax_f32", "z_Conv"]  # b may be either: left alone
    assert np.array_equal(found.targets["c1_Conv"], IMAGE)
    assert set(found.notes) == {
        "c1 is compared as c1_Conv", "c1_Conv: NHWC in the target", "y is compared as y_Softmax_f32",
    }  # fmt: skip
    assert "c1" in paired({"c1": IMAGE[:5]}, {"c1_Conv": IMAGE}).targets  # of another number of elements


def test_the_command_lists_and_counts_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, reference = tmp_path / "board.npz", tmp_path / "ours.npz"
    np.savez(target, c1=IMAGE.transpose(0, 2, 3, 1))
    np.savez(reference, c1_Conv=IMAGE, d_Conv=IMAGE, e_Conv=IMAGE)
    assert main(["compare", str(target), str(reference), "--by-layout"]) == 0
    out = capsys.readouterr().out
    assert "c1 is compared as c1_Conv" in out and "missing in the target: d_Conv" in out
    assert "2 of 3 tensors are missing in the target" in out and "1 compared" in out
    np.savez(target, c1_Conv=IMAGE.transpose(0, 2, 3, 1))
    assert main(["compare", str(target), str(reference)]) == 1  # as npz_tool.py: bytes in their order


LOGITS = RNG.normal(size=(1, 10)).astype(np.float32)


@pytest.mark.every
@pytest.mark.parametrize(
    ("target", "reference", "status"),
    [
        ({"logits_Gemm_f32": LOGITS}, {"logits_Gemm": LOGITS}, 0),
        ({"logits_Gemm": LOGITS}, {"logits_Gemm_f32": LOGITS}, 0),
        ({"y_f16": LOGITS.astype(np.float16)}, {"y": LOGITS}, 0),
        ({"logits_Gemm_f32": -LOGITS}, {"logits_Gemm": LOGITS}, 1),
        ({"logits_Gemm_f32": LOGITS, "logits_Gemm": -LOGITS}, {"logits_Gemm": LOGITS}, 1),  # the equal name goes first
        ({"logits_Gemm_f32": LOGITS, "logits_Gemm_f16": LOGITS}, {"logits_Gemm": LOGITS}, 1),  # either of them?
        ({"logits_Gemm_f32": LOGITS[:, :5]}, {"logits_Gemm": LOGITS}, 1),  # of another number of elements
        ({"logits_f99": LOGITS}, {"logits": LOGITS}, 1),
        ({"logits": LOGITS}, {"logits_Gemm": LOGITS}, 1),  # the kind of an op only with --by-layout
        ({"a": LOGITS}, {"b": LOGITS}, 1),
    ],
)
def test_a_cast_is_compared_as_what_it_casts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
    target: dict[str, np.ndarray], reference: dict[str, np.ndarray], status: int,
) -> None:  # fmt: skip
    files = tmp_path / "target.npz", tmp_path / "reference.npz"
    for path, tensors in zip(files, (target, reference), strict=True):
        np.savez(path, **tensors)  # pyright: ignore[reportArgumentType]
    assert main(["compare", *map(str, files)]) == status
    out = capsys.readouterr().out
    assert ("NOTHING COMPARED" in out) is ("0 compared" in out) and "0 passed" in out or status == 0
    if not target.keys() & reference.keys():
        for word in ("--upstream", "--upstream-sampling"):
            assert main(["compare", *map(str, files), word]) == 0
        assert "npz compare PASSED" in capsys.readouterr().out


def test_integers_of_a_cast_are_compared_as_what_they_stand_for(tmp_path: Path) -> None:
    integers = np.array([[-40, 3, 100]], np.int8)
    save_tensors(tmp_path / "a.npz", {"x_si8": integers}, About("tpu", "INT8", quantised={"x_si8": (0.5, 0)}))
    np.savez(tmp_path / "b.npz", x=np.array([[-20, 1.5, 50]], np.float32))
    assert main(["compare", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 0
