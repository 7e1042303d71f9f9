"""Inputs that are fixed to values, networks that they decide about, and what a refusal says instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.cli import main
from tpusim.errors import ConfigError, ImportModelError, TpusimError, UnsupportedError, spelled_as_options
from tpusim.frontend import Cut, OnnxReference, inspect_onnx
from tpusim.frontend.onnx import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.lowering import LoweringConfig
from tpusim.studies.prospect import prospect

SHAPES = {"input": (1, 64), "state": (1, 4)}
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(autouse=True)
def typed() -> Iterator[None]:
    """Messages are those of the command line."""
    with spelled_as_options():
        yield


def body(tag: str, kernel: int) -> onnx.GraphProto:
    """A branch: a convolution of the outer input, its mean plus the state."""
    weight = np.random.default_rng(kernel).standard_normal((4, 1, kernel)).astype(np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["input", "one"], [f"{tag}u"]),
        helper.make_node("Conv", [f"{tag}u", f"{tag}w"], [f"{tag}c"], strides=[kernel]),
        helper.make_node("ReduceMean", [f"{tag}c"], [f"{tag}m"], axes=[2], keepdims=0),
        helper.make_node("Add", [f"{tag}m", "state"], [f"{tag}s"]),
        helper.make_node("Sigmoid", [f"{tag}s"], [f"{tag}y"]),
    ]
    results = [helper.make_tensor_value_info(f"{tag}{n}", FLOAT, None) for n in "ys"]
    return helper.make_graph(nodes, tag, [], results, [numpy_helper.from_array(weight, f"{tag}w")])


def speech() -> onnx.ModelProto:
    """Two networks, of which the sample rate chooses one, as exporters write them: followed by Identity and Shape."""
    nodes = [
        helper.make_node("Identity", ["sr"], ["rate"]),
        helper.make_node("Equal", ["rate", "k16"], ["is16"]),
        helper.make_node("If", ["is16"], ["prob", "next"], name="which", then_branch=body("a", 8),
                         else_branch=body("b", 4)),
        helper.make_node("Identity", ["prob"], ["output"]),
        helper.make_node("Shape", ["next"], ["extents"]),
        helper.make_node("Concat", ["extents", "one"], ["more"], axis=0),
        helper.make_node("Reshape", ["next", "more"], ["after"]),
    ]  # fmt: skip
    inputs = {"input": (FLOAT, ("b", 64)), "state": (FLOAT, ("b", 4)), "sr": (INT64, ())}
    return model(nodes, inputs, ["output", "after"], {"k16": np.array(16000), "one": np.array([1])})


def model(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, tuple[int, tuple[int | str, ...]]], outputs: list[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def of_runtime(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(y) for y in ort.InferenceSession(proto.SerializeToString()).run(None, dict(feeds))]


def results(top: Any, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    found = tpusim.infer(top, feeds)
    return [found[op_name(value.owner)] for value in top.results]


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_branch_is_decided_by_a_fixed_input(rate: int) -> None:
    feeds = {n: np.random.default_rng(1).standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    proto = speech()
    top = import_onnx(proto, input_shapes=SHAPES, cut=Cut(values={"sr": rate}))
    assert "sr" not in {op_name(op) for op in top.ops}
    expected = of_runtime(proto, {**feeds, "sr": np.array(rate)})
    for ours, theirs in zip(results(top, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    reference = OnnxReference(proto, ["output"], input_shapes=SHAPES, cut=Cut(values={"sr": rate}))
    np.testing.assert_array_equal(reference.run(feeds)["output"], expected[0])
    assert any(i.name == "sr" for i in proto.graph.input)  # the caller's model is as it was


def test_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the terminal, a whole run with a reference, and from Python."""
    path, out = tmp_path / "speech.onnx", tmp_path / "out"
    onnx.save(speech(), path)
    words = ["--input-shapes", "input=1x64", "state=1x4", "--input-values", "sr=16000"]
    assert main(["check", str(path), *words]) == 0
    assert main(["run", str(path), *words, "--data", "random:2", "--out", str(out), "--mode", "f32"]) == 0
    assert "PASSED" in capsys.readouterr().out
    net = tpusim.compile(path, mode="f32", input_shapes=SHAPES, input_values={"sr": np.int64(16000)})
    assert net.verify({n: np.ones(s, np.float32) for n, s in SHAPES.items()}).passed
    assert len(tpusim.load(path, input_shapes=SHAPES, input_values={"sr": 8000}).results) == 2


def added(dims: tuple[int | str, ...], kind: int = FLOAT) -> onnx.ModelProto:
    nodes = [helper.make_node("Cast", ["k"], ["kf"], to=FLOAT), helper.make_node("Add", ["x", "kf"], ["y"])]
    return model(nodes, {"x": (FLOAT, (2, 3)), "k": (kind, dims)}, ["y"])


@pytest.mark.parametrize(
    ("dims", "kind", "value", "addend"),
    [
        ((), FLOAT, 2.5, 2.5),
        ((), FLOAT, [2.5], 2.5),
        ((2, 3), FLOAT, 4, 4.0),
        ((3,), FLOAT, [1, 2, 3], [1, 2, 3]),
        ((2, 3), FLOAT, [1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]),
        ((2, 3), FLOAT, np.array([[1, 2, 3], [4, 5, 6]]), [[1, 2, 3], [4, 5, 6]]),
        (("n", 3), FLOAT, [1, 2, 3], [[1, 2, 3]]),
        (("n", 3), FLOAT, 7, [[7, 7, 7]]),
        (("n", "m"), FLOAT, np.ones((2, 3), np.float16), np.ones((2, 3))),
        ((3,), INT64, [1, -2, 2**24], [1, -2, 2**24]),
        ((1,), BOOL, True, 1.0),
    ],
)
def test_values_take_the_shape_and_type_of_their_input(dims: Any, kind: int, value: Any, addend: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    top = import_onnx(added(dims, kind), cut=Cut(values={"k": value}))
    np.testing.assert_array_equal(results(top, {"x": x})[0], x + np.array(addend, np.float32))


@pytest.mark.parametrize(
    ("dims", "kind", "value", "words"),
    [
        ((), FLOAT, [1, 2], r"has shape \(\): one number, or one for each element, is required, got 2"),
        ((2, 3), FLOAT, [1, 2, 3], r"has shape \(2, 3\): one number"),
        (("n", 3), FLOAT, [1, 2], "one number, or one for each element"),
        (("n", "m"), FLOAT, [1, 2], "one number, or one for each element"),
        ((2, 3), FLOAT, np.ones((3, 2)), r"got 6 of shape \(3, 2\)"),
        ((), INT64, 1.5, "is int64: values that it holds are required, got 1.5"),
        ((), TensorProto.UINT8, 256, "is uint8: values that it holds"),
        ((), TensorProto.STRING, 1, "is string, which no number is a value of"),
    ],
)
def test_values_that_an_input_does_not_hold(dims: Any, kind: int, value: Any, words: str) -> None:
    with pytest.raises(ImportModelError, match=words):
        import_onnx(added(dims, kind), cut=Cut(values={"k": value}))


@pytest.mark.parametrize("value", ["16000", None, [[1], [1, 2]], {"a": 1}])
def test_what_is_no_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"input 'k': (a number or )?an array of numbers is required"):
        Cut(values={"k": value})


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("sr=x", "--input-values sr=x: NAME=16000 or NAME=1,2,3 is required"),
        ("sr=", "--input-values sr=: NAME=16000"),
        ("=1", "--input-values =1: NAME=16000"),
        ("16000", "--input-values 16000: NAME=16000"),
        ("rs=16000", "no input 'rs' to fix to a value, its inputs are input, state, sr"),
        ("sr=1,2", "input 'sr' has shape (): one number"),
        ("input=0", "input 'input' is fixed to a value, which says its shape; leave it out of --input-shapes"),
    ],
)
def test_wrong_words(word: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "speech.onnx"
    onnx.save(speech(), path)
    assert main(["check", str(path), "--input-shapes", "input=1x64", "state=1x4", "--input-values", word]) == 1
    assert words in " ".join(capsys.readouterr().err.split())


# ------------------------------------------------------------------------------------------------ refusals and remedies


def test_the_remedy_is_the_input_and_no_cut_at_what_decides(tmp_path: Path) -> None:
    """One cause, no consequence of it, the input to fix; the condition is no place to end a network at."""
    path = tmp_path / "speech.onnx"
    onnx.save(speech(), path)
    found = prospect(path, LoweringConfig(), input_shapes=SHAPES)
    assert found.cut == () and "1 problem at import" in found.refused
    assert "If 'which' (ai.onnx opset 16): constant conditions are required, 'is16' is computed" in found.refused
    assert "if input 'sr' is always the same, give --input-values sr=VALUE; else replace" in found.refused
    assert [n.how for n in found.nodes][2:] == ["refused", *["after a refusal"] * 4]


CONSEQUENCES: dict[str, list[tuple[str, list[str], dict[str, Any]]]] = {
    "identity": [("Identity", ["u"], {})],
    "dropout": [("Dropout", ["u"], {})],
    "cast": [("Cast", ["u"], {"to": FLOAT})],
    "shape": [("Shape", ["u"], {}), ("Reshape", ["x", "a"], {})],
    "size": [("Size", ["u"], {}), ("Cast", ["a"], {"to": FLOAT}), ("Add", ["x", "b"], {})],
    "range": [("Size", ["u"], {}), ("Range", ["zero", "a", "one"], {}), ("Gather", ["x", "b"], {})],
    "filled": [("Shape", ["u"], {}), ("ConstantOfShape", ["a"], {}), ("Add", ["x", "b"], {})],
    "non-zero": [("Shape", ["u"], {}), ("ConstantOfShape", ["a"], {}), ("NonZero", ["b"], {}),
                 ("Gather", ["x", "c"], {})],
}  # fmt: skip


@pytest.mark.parametrize("name", CONSEQUENCES)
def test_consequences_of_a_refusal_are_no_causes(name: str) -> None:
    """A network after an op that tpusim does not have: that op alone is listed."""
    names = iter("abcd")
    nodes = [helper.make_node("Unique", ["x"], ["u"], name="cause")]
    nodes += [helper.make_node(kind, ins, [next(names)], **more) for kind, ins, more in CONSEQUENCES[name]]
    proto = model(nodes, {"x": (FLOAT, (2, 3))}, [nodes[-1].output[0]], {"zero": np.array(0), "one": np.array(1)})
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(proto)
    lines = str(caught.value).splitlines()
    assert "1 problem at import" in lines[0] and lines[1].startswith("  Unique 'cause'") and len(lines) == 3


def test_causes_behind_a_refusal_are_listed() -> None:
    """What would be refused whatever is before it; nodes of constants are not among it."""
    nodes = [
        helper.make_node("Unique", ["x"], ["u"]),
        helper.make_node("NonZero", ["u"], ["a"]),
        helper.make_node("Det", ["u"], ["b"]),
        helper.make_node("Gather", ["b", "a"], ["y"]),
    ]
    found = inspect_onnx(model(nodes, {"x": (FLOAT, (2, 3))}, ["y"]))
    assert [n.how for n in found.nodes] == ["refused"] * 3 + ["after a refusal"]


def test_an_image_is_not_offered_as_a_value() -> None:
    """Of an input of many elements nobody fixes the values: the remedy is the usual one."""
    nodes = [helper.make_node("Cast", ["x"], ["k"], to=INT64), helper.make_node("Reshape", ["x", "k"], ["y"])]
    with pytest.raises(TpusimError) as caught:
        import_onnx(model(nodes, {"x": (FLOAT, (100,))}, ["y"]))
    assert "--input-values" not in str(caught.value) and "--outputs ends it" in str(caught.value)


# -------------------------------------------------------------------------------------------------------------- extents


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        (("N", 3, 48, "W"), "--input-shapes x=1x3x48xW with numbers for W"),
        (("batch", 3, 8, 8), "--input-shapes x=1x3x8x8"),
        ((None, 3, None, None), "--input-shapes x=1x3xHxW with numbers for H, W"),
        (("batch", "sequence"), "--input-shapes x=1xsequence with numbers for sequence"),
        ((1, 16, "s0 + 1"), "--input-shapes x=1x16xL with numbers for L"),
        ((1, 2, "x", "xs"), "--input-shapes x=1x2xHxW with numbers for H, W"),
        ((1, None), "--input-shapes x=1xD1 with numbers for D1"),
        (None, "--input-shapes x=EXTENTS with numbers for EXTENTS"),
    ],
)
def test_extents_that_only_the_user_knows_are_asked_for(dims: Any, words: str) -> None:
    """A batch is 1; any other free extent is a word, because 1 is refused later or wrong."""
    with pytest.raises(ImportModelError) as caught:
        import_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, dims)}, ["y"]))
    assert str(caught.value).endswith(words)
