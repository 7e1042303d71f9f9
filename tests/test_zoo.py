"""The zoo's networks are whole, valid, deterministic and alive; the digits example is as accurate as it says."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from tpusim import zoo
from tpusim.errors import ConfigError

FAST = ("shufflenet", "squeezenet")
DIGITS = Path(__file__).parents[1] / "examples" / "digits"

# Counted from the shapes that the light models hold; batch norm counts four values per channel.
PARAMETERS = {
    "bvlc_alexnet": 60_965_224,
    "densenet121": 8_146_152,
    "inception_v1": 6_998_552,
    "inception_v2": 11_234_792,
    "resnet50": 25_610_152,
    "shufflenet": 1_420_152,
    "squeezenet": 1_235_496,
    "vgg19": 143_667_240,
    "zfnet512": 87_250_536,
}

every_network = pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in zoo.ZOO]
)


@cache
def built(name: str) -> bytes:
    return zoo.build(name).SerializeToString(deterministic=True)


def session_of(content: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3  # resnet50 and zfnet512 keep an initializer that nobody reads
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def logits_of(name: str, images: np.ndarray) -> np.ndarray:
    """Return [N, 1000]: the input of the final Softmax, or the output where there is none."""
    model = onnx.load_from_string(built(name))
    last = model.graph.node[-1]
    logits = last.input[0] if last.op_type == "Softmax" else last.output[0]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(logits, onnx.TensorProto.FLOAT, None))
    session = session_of(model.SerializeToString())
    feed = session.get_inputs()[0].name
    return np.stack([np.asarray(session.run(None, {feed: image[None]})[0]).ravel() for image in images])


def test_a_seed_below_zero_is_refused():
    with pytest.raises(ConfigError, match="zoo: seed -1: 0 or more is required"):
        zoo.build("squeezenet", -1)


def test_the_zoo_lists_every_topology_onnx_ships():
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    assert sorted(zoo.ZOO) == list(zoo.ZOO)
    assert set(zoo.ZOO) == {path.stem.removeprefix("light_") for path in folder.glob("light_*.onnx")}


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="'resnet18'.*densenet121.*zfnet512"):
        zoo.build("resnet18")


@every_network
def test_a_network_is_valid_and_complete(name: str):
    model = onnx.load_from_string(built(name))
    onnx.checker.check_model(model, full_check=name != "vgg19")
    graph = model.graph
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 9)]
    assert len(graph.input) == 1
    assert all(node.name for node in graph.node)
    assert not any(node.op_type == "ConstantOfShape" for node in graph.node)
    weights = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    made = {graph.input[0].name} | {out for node in graph.node for out in node.output}
    made |= {tensor.name for tensor in graph.initializer}
    assert all(key in made for node in graph.node for key in node.input)
    read = {key for node in graph.node for key in node.input}
    assert sum(int(np.prod(tensor.dims)) for tensor in weights if tensor.name in read) == PARAMETERS[name]


@every_network
def test_only_the_weights_differ_from_the_light_model(name: str):
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    light = onnx.load(folder / f"light_{name}.onnx")
    kept = [node for node in light.graph.node if node.op_type != "ConstantOfShape"]
    for node in kept:
        node.name = node.name or node.output[0]
    graph = onnx.load_from_string(built(name)).graph
    assert list(graph.node) == kept
    assert list(graph.output) == list(light.graph.output)


@every_network
def test_logits_are_neither_saturated_nor_flat(name: str):
    logits = logits_of(name, zoo.images(4, seed=99))
    deviation = logits.std(axis=1)
    assert np.all((deviation > 1.5) & (deviation < 4.0)), deviation
    probability = np.exp(logits - logits.max(axis=1, keepdims=True))
    top = (probability / probability.sum(axis=1, keepdims=True)).max(axis=1)
    assert np.all((top > 0.01) & (top < 0.95)), top
    assert logits.std(axis=0).mean() > 0.02, "all images give the same logits"


@every_network
def test_the_output_is_a_distribution_where_the_network_ends_in_softmax(name: str):
    session = session_of(built(name))
    image = zoo.images(1, seed=7)
    (output,) = session.run(None, {session.get_inputs()[0].name: image})
    assert np.asarray(output).size == 1000
    assert np.isfinite(np.asarray(output)).all()
    if name != "densenet121":
        assert np.asarray(output).sum() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_a_seed_decides_the_bytes(name: str):
    again = zoo.build(name, seed=0).SerializeToString(deterministic=True)
    assert again == built(name)
    other = zoo.build(name, seed=1).graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in other.initializer}
    for tensor in onnx.load_from_string(built(name)).graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            assert not np.array_equal(numpy_helper.to_array(tensor), values[tensor.name]), tensor.name


def test_batch_norm_statistics_fit_what_the_layer_receives():
    """The first batch norm of shufflenet holds a share of the channel means, and the mean squares around it."""
    model = onnx.load_from_string(built("shufflenet"))
    norm = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    mean, var = values[norm.input[3]], values[norm.input[4]]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(norm.input[0], onnx.TensorProto.FLOAT, None))
    session = session_of(model.SerializeToString())
    feed = session.get_inputs()[0].name
    images = zoo.images(zoo.MEASURED_IMAGES)
    seen = np.concatenate([np.asarray(session.run(None, {feed: image[None]})[0]) for image in images])
    np.testing.assert_array_less(np.abs((1 - zoo.KEPT_MEAN) * seen.mean((0, 2, 3)) - mean), 0.5 * np.sqrt(var))
    around = np.square(seen - mean.reshape(1, -1, 1, 1)).mean((0, 2, 3))
    np.testing.assert_allclose(var, np.maximum(around, around.mean()), rtol=0.25)


def test_save_writes_the_whole_file_and_nothing_else(tmp_path: Path):
    zoo.save("squeezenet", tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx").read_bytes() == built("squeezenet")
    assert os.listdir(tmp_path) == ["net.onnx"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "net.onnx"
    target.write_bytes(b"old")

    def interrupted(self: Path, content: bytes) -> int:
        with open(self, "wb") as file:
            file.write(content[:100])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(ConfigError, match="disk full"):
        zoo.save("squeezenet", target)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.onnx"]


def test_the_digits_network_is_small_and_accurate():
    path = DIGITS / "digits.onnx"
    assert path.stat().st_size < 300_000
    onnx.checker.check_model(onnx.load(path), full_check=True)
    with np.load(DIGITS / "test.npz") as data, np.load(DIGITS / "labels.npz") as answers:
        image, label = data["image"], answers["label"]
    assert image.dtype == np.float32
    assert image.shape == (len(label), 1, 8, 8)
    assert len(label) >= 360
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = [np.asarray(session.run(["logits"], {"image": one[None]})[0]).argmax() for one in image]
    assert np.mean(np.array(found) == label) >= 0.97


def test_the_digits_calibration_data_is_disjoint_from_the_test_data():
    with np.load(DIGITS / "test.npz") as test, np.load(DIGITS / "calibration.npz") as calibration:
        tested = {one.tobytes() for one in test["image"]}
        image = calibration["image"]
    assert image.dtype == np.float32
    assert image.shape == (200, 1, 8, 8)
    assert image.min() >= 0.0
    assert image.max() <= 1.0
    assert not any(one.tobytes() in tested for one in image)
