"""`--input` of `infer` and `simulate`: an image by the module's preprocessing; folders with an output for each file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from end_to_end import assert_equal, small_convnet, tensors
from PIL import Image

from tpusim.cli import main
from tpusim.verify.npz import save_tensors

PIXELS = np.random.default_rng(5).integers(0, 256, (3, 20, 24, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network whose input is made of images, and its images."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "images").mkdir()
    for i, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
    model = small_convnet(folder / "net.onnx")
    words = ["--mean", "10,20,30", "--scale", "0.02,0.03,0.04", "--pixel-format", "rgb", "--tune-num", "0"]
    words += ["--method", "max", "--data", str(folder / "images"), "--out", str(folder / "out")]
    assert main(["run", str(model), *words]) == 0
    return folder


def inputs_of(folder: Path) -> list[dict[str, np.ndarray]]:
    """What the network has of each image, by OpenCV's rule for what is not resized: it is checked in test_images."""
    from tpusim.calibration.samples import load_samples
    from tpusim.images import images_of
    from tpusim.inference import input_specs
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    model = load_model(folder / "out" / "4_tpu.mlir", context())
    return [dict(sample) for sample in load_samples(folder / "images", input_specs(model), images=images_of(model))]


@pytest.mark.parametrize("command", ["infer", "simulate"])
def test_an_image_and_a_folder_are_what_their_arrays_are(command: str, run: Path, tmp_path: Path) -> None:
    program = run / "out" / ("4_tpu.mlir" if command == "infer" else "7_model.tpusim")
    arrays = tmp_path / "arrays"
    (arrays / "deep").mkdir(parents=True)
    for i, sample in enumerate(inputs_of(run)):
        save_tensors(arrays / ("deep" if i == 2 else "") / f"{i}.npz", sample)
        np.save(tmp_path / f"{i}.npy", next(iter(sample.values())))

    def done(source: Path, out: str) -> Path:
        assert (
            main([command, str(program), "--input", str(source), "--keep", "outputs", "--out", str(tmp_path / out)])
            == 0
        )
        return tmp_path / out

    of_images, of_arrays = done(run / "images", "a"), done(arrays, "b.npz").with_suffix("")
    assert sorted(str(p.relative_to(of_images)) for p in of_images.rglob("*.npz")) == ["0.npz", "1.npz", "2.npz"]
    assert sorted(str(p.relative_to(of_arrays)) for p in of_arrays.rglob("*.npz")) == ["0.npz", "1.npz", "deep/2.npz"]
    alone = [tensors(done(run / "images" / f"{i}.png", f"image{i}.npz")) for i in range(3)]
    for i, one in enumerate(alone):
        assert_equal(tensors(of_images / f"{i}.npz"), one)
        assert_equal(tensors(of_arrays / ("deep" if i == 2 else "") / f"{i}.npz"), one)
        assert_equal(tensors(done(tmp_path / f"{i}.npy", "array.npz")), one)
    assert not np.array_equal(next(iter(alone[0].values())), next(iter(alone[1].values())))


def test_flat_and_machine_agree_on_every_image(run: Path, tmp_path: Path) -> None:
    words = ["--input", str(run / "images"), "--keep", "outputs"]
    assert main(["infer", str(run / "out" / "4_tpu.mlir"), *words, "--out", str(tmp_path / "flat")]) == 0
    assert main(["simulate", str(run / "out" / "7_model.tpusim"), *words, "--out", str(tmp_path / "machine")]) == 0
    for i in range(3):
        assert_equal(tensors(tmp_path / "flat" / f"{i}.npz"), tensors(tmp_path / "machine" / f"{i}.npz"))


def test_an_onnx_model_takes_folders_of_arrays(run: Path, tmp_path: Path) -> None:
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    for i, sample in enumerate(inputs_of(run)):
        save_tensors(arrays / f"{i}.npz", sample)
    assert main(["infer", str(run / "net.onnx"), "--input", str(arrays), "--out", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_what_is_missing_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone, empty, twice = tmp_path / "alone", tmp_path / "empty", tmp_path / "twice"
    for folder in (alone, empty, twice):
        folder.mkdir()
    shutil.copy(run / "out" / "7_model.tpusim", alone)
    for name in ("0.png", "0.bmp"):
        Image.fromarray(PIXELS[0]).save(twice / name)
    image, program = str(run / "images" / "0.png"), str(run / "out" / "7_model.tpusim")
    wrong = tmp_path / "wrong.png"
    wrong.write_text("no picture")
    for words, says in (
        (["simulate", str(alone / "7_model.tpusim"), "--input", image], "6_final.mlir, 5_grouped.mlir, 4_tpu.mlir for"),
        (["simulate", program, "--input", str(empty)], "a folder with .npz, .npy or image files is required, got none"),
        (["infer", str(run / "out" / "4_tpu.mlir"), "--input", str(empty)], "image files is required, got none"),
        (["simulate", program, "--input", str(twice)], "would both become"),
        (["simulate", program, "--input", str(run / "images"), "--check", "x.npz"], "--check x.npz: is one sample's"),
        (["infer", str(run / "net.onnx"), "--input", image], "needs a .mlir, which says how images are preprocessed"),
        (["simulate", program, "--input", str(wrong)], "wrong.png"),
        (["simulate", program, "--input", str(tmp_path / "no.npz")], "no.npz: no such file"),
    ):
        assert main(words) == 1
        assert says in " ".join(capsys.readouterr().err.split()), words
    assert not list(alone.glob("*.npz"))


def test_a_module_for_another_chip_does_not_describe_the_program(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(run / "out" / "7_model.tpusim", tmp_path)
    for name in ("4_tpu.mlir", "tpu_weights.npz"):
        shutil.copy(run / "out" / name, tmp_path)
    text = (tmp_path / "4_tpu.mlir").read_text()
    (tmp_path / "4_tpu.mlir").write_text(text.replace('module.chip = "bm1684x"', 'module.chip = "bm1688"'))
    assert main(["simulate", str(tmp_path / "7_model.tpusim"), "--input", str(run / "images" / "0.png")]) == 1
    assert "4_tpu.mlir for bm1684x is required" in " ".join(capsys.readouterr().err.split())
