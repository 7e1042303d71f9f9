"""--fuse-preprocess, --quant-input, --quant-output: frames and stored integers at the border, as TPU-MLIR 1.30.2."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from op_row import network, node

from tpusim import chips
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.canonicalize import canonicalize
from tpusim.cli import main
from tpusim.codegen import generate
from tpusim.errors import CalibrationError, ConfigError, ModeWarning, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.grouping import divide
from tpusim.images import Preprocess, images_of, inputs_of, prepare, with_preprocess
from tpusim.inference import input_specs, run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig, lower, optimize_for_chip, reorder_weights
from tpusim.memory import assign_addresses
from tpusim.ops import context
from tpusim.simulator import Simulator

IMAGES = Path(__file__).parent / "images"
RECORDED = np.load(Path(__file__).parent / "frames.npz")
"""By number of the case and tensor: what the real interpreter computes of images/china.png; of cases 3, 9 and 12, on
which it crashes, the closed simulator. 16-bit floats as float16 where that holds them."""
MEAN, SCALE = (123.675, 116.28, 103.53), (0.0171, 0.0175, 0.0174)


def filters(seed: int, *shapes: tuple[float, tuple[int, ...]]) -> dict[str, np.ndarray]:
    random = np.random.RandomState(seed)
    return {
        name: (random.randn(*shape) * factor).astype(np.float32)
        for name, (factor, shape) in zip(("w1", "b1", "w2"), shapes, strict=False)
    }


def convs(channels: int, seed: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    nodes = [
        node("Conv", "image w1 b1", "c1", pads=[1] * 4, strides=[2, 2]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "y", pads=[1] * 4),
    ]
    return nodes, filters(seed, (0.3, (8, channels, 3, 3)), (0.1, (8,)), (0.2, (6, 8, 3, 3)))


def by_channel() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """The first convolution takes every channel by itself: swapped channels are not its filter's affair."""
    nodes = [
        node("Conv", "image w1", "c1", pads=[1] * 4, strides=[2, 2], group=3),
        node("Conv", "c1 w2", "y", pads=[1] * 4),
    ]
    found = filters(5, (0.3, (3, 1, 3, 3)), (0.2, (6, 3, 3, 3)))
    return nodes, {"w1": found["w1"], "w2": found["b1"]}


@dataclass(frozen=True)
class Network:
    """table: of the real run_calibration.py on images/china.png and images/flower.png."""

    graph: tuple[list[onnx.NodeProto], dict[str, np.ndarray]]
    shape: tuple[int, ...]
    preprocess: Preprocess
    table: dict[str, tuple[float, float, float]]

    def top(self) -> Model:
        nodes, constants = self.graph
        model = with_preprocess(import_onnx(network(nodes, constants)({"image": self.shape})), self.preprocess)
        return canonicalize(model)[0]


PHOTO, DIGIT = (1, 3, 24, 32), (1, 1, 8, 8)
NETWORKS = {
    "photo": Network(
        convs(3, 0), PHOTO, Preprocess(MEAN, SCALE, "rgb", keep_aspect_ratio=True),
        {"image": (2.1601574, -2.1148427, 2.1601574), "r1_Relu": (6.5014639, 0, 6.5014639),
         "y_Conv": (13.4343815, -13.4343815, 4.2001686)},
    ),
    "digit": Network(
        convs(1, 1), DIGIT, Preprocess((0,), (0.0625,), "gray"),
        {"image": (11.5625, 1.125, 11.5625), "r1_Relu": (13.8285723, 0, 13.8285723),
         "y_Conv": (20.619194, -20.619194, 15.4828548)},
    ),
    "by_channel": Network(
        by_channel(), PHOTO, Preprocess(MEAN, SCALE, "rgb", resize_dims=(36, 50)),
        {"image": (2.2285576, -1.9609426, 2.2285576), "c1_Conv": (1.9221869, -1.8102274, 1.9221869),
         "y_Conv": (4.5464797, -3.2066321, 4.5464797)},
    ),
}  # fmt: skip

FUSED, ALIGNED = {"fuse_preprocess": True}, {"fuse_preprocess": True, "aligned_input": True}
STORED = {"quant_input": True, "quant_output": True}


def frame(format: str, **more: bool) -> dict[str, object]:
    return {**FUSED, "customization_format": format, **more}


CASES: list[tuple[str, str, str, dict[str, object], str]] = [
    ("photo", "bm1684x", "int8", frame("BGR_PACKED"), "8e058b81fca61882"),
    ("photo", "bm1688", "int8", dict(FUSED), "cff6d52c539f95b2"),
    ("photo", "bm1684x", "int8", frame("RGB_PACKED", asymmetric=True), "c1ec10c325e7c33a"),
    ("photo", "cv183x", "int8", frame("BGR_PACKED", aligned_input=True), "8e058b81fca61882"),
    ("photo", "cv181x", "int8", frame("RGB_PLANAR", aligned_input=True), "6b7faa5f2019021c"),
    ("photo", "bm1684x", "f16", frame("BGR_PLANAR"), "f4e08dc76873f7d2"),
    ("photo", "cv183x", "bf16", frame("RGB_PACKED"), "c1ec10c325e7c33a"),
    ("photo", "bm1684x", "f32", frame("RGB_PLANAR"), "cff6d52c539f95b2"),
    ("digit", "bm1684x", "int8", {**FUSED, "quant_output": True}, "032fb0bddc8d90d9"),
    ("digit", "cv183x", "int8", dict(ALIGNED), "9134da835283fe22"),
    ("by_channel", "bm1684x", "int8", frame("BGR_PACKED"), "318223bb0cb34dd6"),
    ("by_channel", "cv183x", "int8", frame("BGR_PLANAR", aligned_input=True), "7ae9f4882624fb80"),
    ("by_channel", "cv183x", "int8", frame("BGR_PACKED", aligned_input=True), "cb083048ef6a2a52"),
    ("photo", "bm1684x", "int8", dict(STORED), ""),
    ("photo", "cv183x", "int8", dict(STORED), ""),
]
"""(network, chip, mode, options, head of SHA-256 of the frame that upstream's preprocessing makes of china.png)."""


def lowered(net: str, chip: str, mode: str, options: dict[str, object]) -> Model:
    table = CalibrationTable({name: Entry(*values) for name, values in NETWORKS[net].table.items()})
    asymmetric = bool(options.get("asymmetric"))
    top = apply_table(NETWORKS[net].top(), table, asymmetric=asymmetric)
    return lower(top, LoweringConfig(chip, mode, **options))[0]  # type: ignore[arg-type]


@pytest.mark.every
@pytest.mark.parametrize("number", range(len(CASES)))
def test_tensors_are_those_of_the_real_interpreter(number: int) -> None:
    net, chip, mode, options, frame_hash = CASES[number]
    tpu = lowered(net, chip, mode, options)
    ((name, (shape, dtype)),) = input_specs(tpu).items()
    if options.get("fuse_preprocess"):
        assert (name, dtype) == ("image_raw", np.uint8)
        given = prepare([IMAGES / "china.png"], images_of(tpu)[name], shape)
        assert hashlib.sha256(given.tobytes()).hexdigest()[:16] == frame_hash
    else:
        real = prepare([IMAGES / "china.png"], NETWORKS[net].preprocess, shape)
        given = inputs_of(tpu, {name: real}, {})[name]
        assert (name, dtype, given.dtype) == ("image", np.int8, np.int8)
    found = run(tpu, {name: given})
    wanted = {k.split("/")[1].replace("c2", "y"): RECORDED[k] for k in RECORDED.files if k.startswith(f"{number}/")}
    assert wanted
    for tensor, values in wanted.items():
        real = found[tensor].astype(np.float32)
        np.testing.assert_allclose(real, values.astype(np.float32), rtol=0, atol=0 if mode != "f32" else 2e-6)


@pytest.mark.every
@pytest.mark.parametrize("number", [0, 5, 8, 11, 12, 13])
def test_the_machine_computes_the_same(number: int) -> None:
    net, chip, mode, options, _ = CASES[number]
    tpu = optimize_for_chip(lowered(net, chip, mode, options))
    final = assign_addresses(divide(reorder_weights(tpu), LayerGroupConfig()))
    sample = {"image": prepare([IMAGES / "china.png"], NETWORKS[net].preprocess, NETWORKS[net].shape)}
    given = inputs_of(tpu, sample, images_of(NETWORKS[net].top()))
    flat, local = run(tpu, given), Simulator(generate(final)).run(given).tensors
    assert {op.name for op in tpu.ops} >= ({"tpu.ScaleLut", "tpu.SwapChannel"} if number in (11, 12) else set())
    kinds = {name: flat[name].dtype.kind for name in local if name in flat}
    assert "y_Conv" in kinds or "y_Conv_f32" in kinds
    for name, kind in kinds.items():
        if kind in "iu":
            assert np.array_equal(local[name], flat[name]), name
        else:
            np.testing.assert_allclose(np.float32(local[name]), np.float32(flat[name]), atol=0.02)


def test_a_module_with_frames_is_read_again_and_the_frame_is_that_of_the_floats(tmp_path: Path) -> None:
    net, chip, mode, options, _ = CASES[4]
    save_model(lowered(net, chip, mode, options), tmp_path / "m.mlir", weight_file="w.npz")
    tpu = load_model(tmp_path / "m.mlir", context())
    (sample,) = load_samples(IMAGES / "china.png", input_specs(tpu), images=images_of(tpu))
    preprocess = NETWORKS[net].preprocess
    floats = prepare([IMAGES / "china.png"], preprocess, PHOTO)
    made = inputs_of(tpu, {"image": floats}, {"image": preprocess})
    assert np.array_equal(sample["image_raw"], made["image_raw"])
    with pytest.raises(CalibrationError, match="'image' takes frames of a camera: .* away from one; give image files"):
        inputs_of(tpu, {"image": floats + np.float32(0.004)}, {"image": preprocess})


def test_with_zero_points_the_quirk_can_be_switched_off() -> None:
    net, chip, mode, options, _ = CASES[2]
    name = "image_preprocess_scale_lut_image_preprocess_table"
    theirs, ours = (
        lowered(net, chip, mode, {**options, "quirks_off": off}).weights[name].astype(int)
        for off in ((), ("frames_without_zero_point",))
    )
    inside = (theirs > -126) & (theirs < 127)
    assert np.array_equal(ours[inside], theirs[inside] - 2)  # the zero point of the input is -2


def test_what_cannot_be_fused_is_named() -> None:
    def refused(options: dict[str, object], chip: str = "bm1684x", net: str = "photo") -> None:
        lowered(net, chip, "int8", options)

    with pytest.raises(UnsupportedError, match="--fuse-preprocess on bm1684"):
        refused(dict(FUSED), "bm1684")
    with pytest.raises(ConfigError, match="--customization-format: needs --fuse-preprocess"):
        refused({"customization_format": "BGR_PACKED"})
    with pytest.raises(ConfigError, match="'image': --customization-format YUV_NV12 cannot be fused; RGB_PLANAR"):
        refused(frame("YUV_NV12"))
    with pytest.raises(ConfigError, match="GRAYSCALE does not fit images in rgb"):
        refused(frame("GRAYSCALE"))
    with pytest.raises(ConfigError, match="RGB_PACKED does not fit images in gray"):
        refused(frame("RGB_PACKED"), net="digit")
    with pytest.raises(ConfigError, match="--quant-input: an input that one cast to integers alone reads"):
        lowered("photo", "bm1684x", "f16", {"quant_input": True})
    with pytest.warns(ModeWarning, match="--aligned-input on bm1684x: its frames are not aligned"):
        refused(dict(ALIGNED))
    plain = canonicalize(import_onnx(network([node("Relu", "image")])({"image": PHOTO})))[0]
    with pytest.raises(ConfigError, match="--fuse-preprocess: an input that is an image is required"):
        lower(plain, LoweringConfig(mode="f32", fuse_preprocess=True))


def test_commands_that_compare_floats_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, _, _, _, _ = CASES[0]
    save_model(NETWORKS[net].top(), tmp_path / "m.mlir", weight_file="w.npz")
    for command in ("why", "bisect", "search-threshold"):
        asked = [command, str(tmp_path / "m.mlir"), "--fuse-preprocess"]
        assert main(asked) == 1
        assert "--fuse-preprocess: inputs and results of floats are required here" in capsys.readouterr().err


def test_run_makes_frames_of_its_samples(tmp_path: Path) -> None:
    nodes, constants = NETWORKS["digit"].graph
    (tmp_path / "n.onnx").write_bytes(network(nodes, constants)({"image": DIGIT}).SerializeToString())
    command = ["run", str(tmp_path / "n.onnx"), "--chip", "cv183x", "--fuse-preprocess", "--aligned-input"]
    shown = ["--mean", "0", "--scale", "0.0625", "--pixel-format", "gray", "--tune-num", "0", "--out", str(tmp_path)]
    assert main([*command, *shown, "--data", str(IMAGES / "china.png"), "--quant-output"]) == 0
    tpu = load_model(tmp_path / "4_tpu.mlir", context())
    assert [op_name(op) for op in tpu.ops if op.name == "top.Input"] == ["image_raw"]
    assert chips.of(tpu).frame_alignment == (32, 4096)
    given, found = str(IMAGES / "china.png"), tmp_path / "y.npz"
    assert main(["infer", str(tmp_path / "4_tpu.mlir"), "--input", given, "--out", str(found)]) == 0
    with np.load(found) as flat, np.load(tmp_path / "local_outputs.npz") as local:
        assert np.array_equal(flat["y_Conv"], local["y_Conv"])
