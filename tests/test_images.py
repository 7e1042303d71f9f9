"""Image files as inputs: ten files, every pixel format and way of resizing, compared with TPU-MLIR's preprocessing."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiling import to_canonical
from op_row import network, node
from PIL import Image
from plain_names import import_onnx

from tpusim.calibration.samples import Samples
from tpusim.cli import main
from tpusim.errors import CalibrationError, ConfigError
from tpusim.images import Preprocess, images_of, prepare, with_preprocess
from tpusim.inference import input_specs
from tpusim.ir.module import load_model, save_model
from tpusim.ir.text import parse_module
from tpusim.ops import context
from tpusim.ops.structure import TopInput

IMAGES = Path(__file__).parent / "images"
RECORDED = json.loads((IMAGES / "recorded.json").read_text())
"""By file, pixel format and way: the head of SHA-256 of what TPU-MLIR 1.30.2 makes of it for a network of
24 x 32, by MEAN and SCALE; None: it refuses (a letterbox of four channels)."""
MEAN, SCALE = (123.675, 116.28, 103.53, 100.5), (0.0171, 0.0175, 0.0174, 0.02)
WAYS = {
    "stretch": {},
    "letterbox": {"keep_aspect_ratio": True, "pad_value": 114},
    "top_left": {"keep_aspect_ratio": True, "pad_type": "normal"},
    "short_side": {"keep_aspect_ratio": True, "keep_ratio_mode": "short_side_scale"},
    "crop": {"resize_dims": (37, 50)},
    "nhwc": {"channel_format": "nhwc", "resize_dims": (31, 33)},
}


@pytest.mark.every
@pytest.mark.parametrize("file", RECORDED)
def test_images_are_those_of_the_real_preprocessing(file):
    for pixel_format, ways in RECORDED[file].items():
        channels = {"gray": 1, "rgba": 4}.get(pixel_format, 3)
        for way, recorded in ways.items():
            shape = (1, 24, 32, channels) if way == "nhwc" else (1, channels, 24, 32)
            asked = Preprocess(MEAN, SCALE, pixel_format=pixel_format, **WAYS[way]).fitted("x", shape)
            found = prepare([IMAGES / file], asked, shape)
            assert (found.shape, found.dtype) == (shape, np.float32)
            if recorded is not None:
                assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == recorded, (pixel_format, way)


def small(*inputs):
    """The larger of its inputs, which are images."""
    first, last = inputs[0], inputs[-1]
    return import_onnx(network([node("Max", f"{first} {last}")])(dict.fromkeys(inputs, (2, 3, 24, 32))))


UPSTREAM = """\
module @n3 attributes {module.FLOPs = 1 : i64, module.chip = "ALL", module.platform = "ONNX", \
module.state = "TOP_F32", module.weight_file = "w.npz"} {
  func.func @main(%arg0: tensor<1x3x24x32xf32>) -> tensor<1x3x24x32xf32> {
    %0 = "top.Input"(%arg0) {channel_format = "nchw", do_preprocess = true, keep_aspect_ratio = true, \
keep_ratio_mode = "letterbox", mean = [123.67500305175781, 116.27999877929688, 103.52999877929688], \
pad_type = "center", pad_value = 114 : i64, pixel_format = "rgb", resize_dims = [24, 32], \
scale = [0.017100000753998756, 0.017500000074505806, 0.017400000244379044], yuv_type = ""} : \
(tensor<1x3x24x32xf32>) -> tensor<1x3x24x32xf32> loc("image")
    return %0 : tensor<1x3x24x32xf32>
  }
}
"""
"""As model_transform.py wrote it."""


def test_the_module_has_upstreams_attributes():
    (op,) = (op for op in parse_module(UPSTREAM, context()).walk() if isinstance(op, TopInput))
    asked = Preprocess(MEAN[:3], SCALE[:3], "rgb", keep_aspect_ratio=True, pad_value=114)
    assert asked.fitted("image", (1, 3, 24, 32)).attributes() == op.attributes
    read = Preprocess.of(op)
    assert read is not None
    assert read.attributes() == op.attributes


@pytest.mark.parametrize(
    ("was", "put", "what"),
    [
        ('"rgb"', '"yuv420"', r'pixel_format must be "bgr" or "rgb" .* got "yuv420"'),
        ('"rgb"', "3 : i64", r'pixel_format must be "bgr" .* got 3 : i64'),
        ('yuv_type = ""', 'yuv_type = "YUV_NV12"', r'yuv_type must be "", got "YUV_NV12"'),
        ('"nchw"', '"chwn"', 'channel_format must be "nchw" or "nhwc", got "chwn"'),
        ("pad_value = 114 : i64", "pad_value = 1.0 : f64", "pad_value must be an integer, got 1.0"),
        ("pad_value = 114 : i64", "pad_value = 300 : i64", "--pad-value 300: 0 to 255"),
        ("keep_aspect_ratio = true", 'keep_aspect_ratio = "no"', 'keep_aspect_ratio must be true or false, got "no"'),
        ("resize_dims = [24, 32]", "resize_dims = [24.0, 32.0]", r"resize_dims must be an array of integers, got \["),
        ("mean = [123.67500305175781,", 'mean = ["1",', r'mean must be an array of floats, got \["1"'),
        ("do_preprocess = true", "do_preprocess = 0.5", "do_preprocess must be true or false"),
    ],
)
def test_attributes_of_another_kind_are_named(was, put, what):
    assert was in UPSTREAM
    (op,) = (op for op in parse_module(UPSTREAM.replace(was, put, 1), context()).walk() if isinstance(op, TopInput))
    with pytest.raises(ConfigError, match=f"input 'image': .*{what}"):
        Preprocess.of(op)


def test_attributes_stay_with_the_chosen_inputs(tmp_path):
    asked = Preprocess(pixel_format="rgb")
    model = to_canonical(with_preprocess(small("a", "b"), asked, (2,)))
    save_model(model, tmp_path / "m.mlir", weight_file="w.npz")
    assert images_of(load_model(tmp_path / "m.mlir", context())) == {"b": replace(asked, resize_dims=(24, 32))}


def test_a_batch_of_one_image_and_lists_of_images(tmp_path):
    model = with_preprocess(small("a", "b"), Preprocess())
    (tmp_path / "list.txt").write_text(f"{IMAGES}/china.png, {IMAGES}/flower.png\n\n")
    (sample,) = Samples(tmp_path / "list.txt", input_specs(model), images=images_of(model))
    assert sample["b"].shape == (2, 3, 24, 32)
    assert np.array_equal(sample["b"][0], sample["b"][1])
    assert not np.array_equal(sample["a"], sample["b"])


def test_a_folder_has_images_of_folders_below(tmp_path):
    model = with_preprocess(small("a"), Preprocess(pixel_format="rgb"))
    for name, level in (("k/2.png", 2), ("1.bmp", 1), ("k/3.PNG", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (5, 5), (level, 0, 0)).save(tmp_path / name)
    found = list(Samples(tmp_path, input_specs(model), images=images_of(model)))
    assert [sample["a"][0, 0, 0, 0] for sample in found] == [1, 2, 3]


def test_what_is_no_image_of_the_input_is_named(tmp_path):
    plain = small("a")
    with pytest.raises(CalibrationError, match=r"china.png is an image, but input 'a' .* pixel_format=..."):
        next(iter(Samples(IMAGES / "china.png", input_specs(plain))))
    (tmp_path / "no.png").write_text("no")
    with pytest.raises(CalibrationError, match=r"no\.png must be a readable image"):
        prepare([tmp_path / "no.png"], Preprocess(), (1, 3, 4, 4))
    for options, what in [
        (dict(pixel_format="gray"), r"input 'a': images in gray .* 1 channels, got \(2, 3, 24, 32\)"),
        (dict(resize_dims=(23, 40)), r"resize_dims=\(23, 40\): at least the image of input 'a', 24,32"),
    ]:
        with pytest.raises(ConfigError, match=what):
            with_preprocess(plain, Preprocess(**options))
    with pytest.raises(ConfigError, match="preprocess_list=2: the number of an input, 1 to 1,"):
        with_preprocess(plain, Preprocess(), (2,))
    with pytest.raises(ConfigError, match=r"mean=\(1.*\): 3 finite numbers"):
        Preprocess(mean=(1, 2))


def test_run_calibrates_and_infer_reads_images(tmp_path, capsys):
    path = tmp_path / "n.onnx"
    path.write_bytes(network([node("Relu", "a")])({"a": (1, 3, 24, 32)}).SerializeToString())
    out = tmp_path / "out"
    options = ["--mean", "127.5,127.5,127.5", "--scale", "0.0078,0.0078,0.0078", "--pixel-format", "rgb"]
    command = ["run", str(path), "--data", str(IMAGES), "--out", str(out), "--to", "calibrate", *options]
    assert main(command) == 0
    assert "# sample number: 10\n" in (out / "cali_table").read_text()
    assert (
        main(
            ["infer", str(out / "3_calibrated.mlir"), "--input", str(IMAGES / "china.png"), "--out", str(out / "y.npz")]
        )
        == 0
    )
    asked = Preprocess((127.5,) * 3, (0.0078,) * 3, "rgb")
    wanted = prepare([IMAGES / "china.png"], asked, (1, 3, 24, 32))
    assert np.array_equal(np.load(out / "y.npz")["y_Relu"], np.maximum(wanted, 0))
    assert main([*command, "--pad-value", "3"]) == 1
    assert "--pad-value: needs --keep-aspect-ratio" in capsys.readouterr().err
