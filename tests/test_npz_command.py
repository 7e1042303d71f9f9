"""`tpusim npz`: what it says of a file is in the file, parts keep values and scales, errors name the next step."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tpusim.cli import main
from tpusim.verify.about import About, read_about
from tpusim.verify.npz import load_tensors, save_tensors

TENSORS = {
    "a/b": np.array([[1.5, -2.25], [0.125, 4]], np.float32),
    "all": np.array([-3, 7, 100], np.int8),
    "layer1": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    "layer10": np.array([1, np.nan, np.inf, -np.inf, 3], np.float32),
    "outputs": np.array(2.5, np.float64),
    "empty": np.zeros((0, 3), np.float32),
}
ABOUT = About("tpu", "INT8", quantised={"all": (0.5, 2), "layer1": (0.25, 0)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_tensors(tmp_path / "t.npz", TENSORS, ABOUT)
    return tmp_path / "t.npz"


def out_of(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert main(["npz", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_show_says_type_shape_and_values(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in out_of(capsys, "show", file).splitlines()}
    assert lines == {
        "a/b": "float32 2x2: -2.25 to 4, mean 0.84375",
        "all": "int8 3: -3 to 100, mean 34.6667; scale 0.5, zero point 2",
        "layer1": "int32 2x3x4: 0 to 23, mean 11.5; scale 0.25, zero point 0",
        "layer10": "float32 5: 1 to 3, mean 2, 3 of 5 not finite",
        "outputs": "float64 scalar: 2.5 to 2.5, mean 2.5",
        "empty": "float32 0x3: no values",
    }


def test_dump_has_every_value(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    save_tensors(file, {"big": big})
    head, rest = out_of(capsys, "dump", file, "big").split("\n", 1)
    assert head == "big: float32 3000"
    assert np.array_equal(np.array(re.sub(r"[\[\]\s]+", " ", rest).split(), np.float32), big)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("layer1",), {"layer1"}),
        (("layer*",), {"layer1", "layer10"}),
        (("a/b,all",), {"a/b", "all"}),
        (("all", "outputs"), {"all", "outputs"}),
        (("layer?", "*/*"), {"layer1", "a/b"}),
    ],
)
def test_extract_takes_names_and_patterns(
    words: tuple[str, ...], names: set[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words that mean something to --keep are names here; values, scales and the level stay."""
    part = file.with_name("part.npz")
    assert f"{len(names)} of {len(TENSORS)} tensors" in out_of(capsys, "extract", file, part, *words)
    found, about = load_tensors(part), read_about(part)
    assert set(found) == names and all(np.array_equal(found[name], TENSORS[name]) for name in names)
    assert all(found[name].dtype == TENSORS[name].dtype for name in names)
    assert about.level == "tpu" and about.quantised == {n: q for n, q in ABOUT.quantised.items() if n in names}


def test_rename_changes_a_name_and_nothing_else(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out_of(capsys, "rename", file, "layer1", "x")
    found = load_tensors(file)
    assert list(found) == ["x" if name == "layer1" else name for name in TENSORS]
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(found["x" if name == "layer1" else name], value)
    assert read_about(file) == About("tpu", "INT8", quantised={"all": (0.5, 2), "x": (0.25, 0)})


def test_a_file_of_another_program_stays_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(file, a=np.ones(3), b=np.zeros(2))
    out_of(capsys, "rename", file, "a", "c")
    assert set(np.load(file)) == {"b", "c"} and read_about(file) == About()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "npz: show FILE, dump FILE NAME, extract IN OUT NAME..., or rename IN OLD NEW is required"),
        ("print t.npz", "npz print t.npz: show FILE, dump"),
        ("extract t.npz u.npz", "or rename IN OLD NEW is required"),
        ("dump t.npz layer2", "has no tensor 'layer2'; did you mean layer1 or layer10?"),
        ("dump t.npz zzz", "`tpusim npz show t.npz` lists them"),
        ("extract t.npz u.npz layer1 lay*z", "has no tensor 'lay*z'"),
        ("rename t.npz layer1 all", "'all' is one; rename that one first"),
        ("rename one.npy one two", "an .npz is required"),
        ("show none.npz", "none.npz: no such file"),
        ("show text.npz", "an .npz or .npy of plain arrays is required"),
        ("compare t.npz t.npz", "`tpusim compare` compares two files"),
    ],
)
def test_what_cannot_be_done_is_named(
    words: str, says: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    np.save("one.npy", np.ones(2))
    Path("text.npz").write_text("no archive")
    before = file.read_bytes()
    assert main(["npz", *words.split()]) == 1
    assert says in " ".join(capsys.readouterr().err.split())
    assert file.read_bytes() == before and not Path("u.npz").exists()
