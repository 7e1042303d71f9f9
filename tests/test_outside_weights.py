"""Large weights in external files: read one by one, left in their pages by `check`; long work is reported."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.cli import main, waiting
from tpusim.errors import ImportModelError
from tpusim.frontend import inspect_onnx
from tpusim.frontend.onnx import external_files, import_onnx

SIZE = 512
"""Rows and columns: a matrix of 1 MiB is large."""


def matrices(folder: Path, count: int = 2, *, same: bool = False) -> Path:
    """X times several matrices, whose sum is returned; all in one external file."""
    rng, folder = np.random.default_rng(0), folder
    arrays = [rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(count)]
    if same:  # a copy, and one that differs in its last element only
        arrays = [arrays[0], arrays[0].copy(), arrays[0].copy()]
        arrays[2][-1, -1] += 1
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(len(arrays))]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(len(arrays))], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIZE])],
        [numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays)],
    )  # fmt: skip
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin")
    return path


def arrays_of(model: object) -> list[np.ndarray]:
    return [a for a in model.weights.values() if a.size == SIZE * SIZE]  # type: ignore[attr-defined]


def test_numbers_are_those_of_the_whole_model(tmp_path: Path) -> None:
    path = matrices(tmp_path)
    whole = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    imported, seen = import_onnx(path), inspect_onnx(path)
    for model in (imported, seen.model):
        for ours, theirs in zip(arrays_of(model), whole, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    x = np.random.default_rng(1).standard_normal((1, SIZE)).astype(np.float32)
    found = next(iter(tpusim.compile(path, mode="f32").flat({"x": x}).values()))
    np.testing.assert_allclose(found, x @ whole[0] + x @ whole[1], rtol=1e-3, atol=1e-3)


def test_check_leaves_them_in_their_file(tmp_path: Path) -> None:
    """The arrays are pages of the file: who changes it sees it."""
    path = matrices(tmp_path)
    seen, imported = inspect_onnx(path).model, import_onnx(path)
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.write(np.float32(7).tobytes())
    assert arrays_of(seen)[0][0, 0] == 7
    assert arrays_of(imported)[0][0, 0] != 7


def test_equal_matrices_are_one_node_and_almost_equal_ones_are_not(tmp_path: Path) -> None:
    kinds = [n.how for n in inspect_onnx(matrices(tmp_path, same=True)).nodes]
    assert kinds[:3] == ["mapped", "merged", "mapped"]


def test_files_that_lack_them(tmp_path: Path) -> None:
    """Cut off, away, outside the folder, a link: refused by name, in `check` as in an import."""
    path, weights = matrices(tmp_path), tmp_path / "weights.bin"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) - 4])
    for read in (import_onnx, inspect_onnx):
        with pytest.raises(ImportModelError, match=r"net\.onnx': initializer 'w1' cannot be read"):
            read(path)
    weights.unlink()
    for read in (import_onnx, inspect_onnx):
        with pytest.raises(ImportModelError, match=r"net\.onnx' cannot be read"):
            read(path)
    elsewhere, inner = tmp_path / "elsewhere", tmp_path / "inner"
    for folder in (elsewhere, inner):
        folder.mkdir()
    (elsewhere / "weights.bin").write_bytes(content)
    weights.symlink_to(elsewhere / "weights.bin")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../elsewhere/weights.bin"
    onnx.save(model, inner / "net.onnx")
    circle = inner / "circle"
    circle.symlink_to(circle)
    wrongs = [path, inner / "net.onnx"]
    for number, place in enumerate(("circle", "circle/weights.bin", "w" * 5000, "w\0")):
        model.graph.initializer[0].external_data[0].value = place
        onnx.save(model, inner / f"{number}.onnx")
        wrongs.append(inner / f"{number}.onnx")
    for wrong in wrongs:
        for read in (import_onnx, inspect_onnx):
            with pytest.raises(ImportModelError, match="cannot be read"):
                read(wrong)
        assert wrong == path or external_files(wrong) == []


def test_long_work_is_told_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = matrices(tmp_path)
    assert main(["check", str(path)]) == 0
    assert "reading" not in capsys.readouterr().err  # it took less than two seconds
    monkeypatch.setattr(waiting, "SECONDS", 0.0)
    with waiting.told("doing it", lambda: [path, tmp_path / "weights.bin", tmp_path / "none"]):
        time.sleep(0.2)
    assert capsys.readouterr().err == "tpusim: doing it ...\n"
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.truncate(2_340_000_000)  # a hole: no disk is taken
    with waiting.told("doing it", lambda: [path, tmp_path / "weights.bin"]):
        time.sleep(0.2)
    assert capsys.readouterr().err == "tpusim: doing it (2.3 GB) ...\n"
