"""Files that are no models: each is called what it is, with the next step, before anything else is said."""

from __future__ import annotations

import gzip
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tpusim
from tpusim.errors import ConfigError, ImportModelError


def relu() -> bytes:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty, it has 0 bytes; export or download it again"),
    "text": (b"hello, this is no model\n", "is text that begins 'hello, this is no model'; a model is required"),
    "letters": ("größe: 3\n".encode() * 999, "is text that begins 'größe: 3'"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "a Git LFS pointer"),
    "html": (b"<!DOCTYPE html><html>", "is a page of HTML or XML, perhaps of a download that failed"),
    "gzip": (gzip.compress(b"model"), "is compressed by gzip; unpack it"),
    "pickle": (pickle.dumps({"a": 1}), "is a Python pickle, as PyTorch saves modules"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(8), "is an HDF5 file, as Keras saves models"),
    "zeros": (bytes(5000), "is zeros for its first 4,096 bytes"),
    "module": (
        b'builtin.module attributes {module.state = "TOP_F32"} {}',
        "is a module of tpusim; its name must end in",
    ),
    "report": (b'{\n "schema": 1,\n "tpusim": "0.2.0"}', "is the report of a run; `tpusim run --again` repeats it"),
    "zip": (b"PK\x03\x04 cut off", "is a zip archive that is cut off or damaged"),
}


@pytest.mark.every
@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
@pytest.mark.parametrize("name", CONTENTS)
def test_contents_are_named(name: str, suffix: str, tmp_path: Path) -> None:
    content, words = CONTENTS[name]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(content)
    with pytest.raises(ImportModelError) as caught:
        tpusim.load(path)
    assert str(caught.value).startswith(f"model '{path}' ") and words in str(caught.value)


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_archives_and_folders(suffix: str, tmp_path: Path) -> None:
    arrays, folder = tmp_path / f"arrays{suffix}", tmp_path / f"folder{suffix}"
    folder.mkdir()
    with arrays.open("wb") as file:
        np.savez(file, x=np.zeros(3))
    with pytest.raises(ImportModelError, match="is an npz of arrays; give it as samples, and a model here"):
        tpusim.load(arrays)
    with pytest.raises(ConfigError, match="or the folder of a `tpusim run` is required; this folder has no manifest"):
        tpusim.load(folder)
    for member, words in (("net/data.pkl", "as PyTorch saves modules"), ("a.txt", "is a zip archive of a.txt; unpack")):
        with zipfile.ZipFile(arrays, "w") as archive:
            archive.writestr(member, b"")
        with pytest.raises(ImportModelError, match=words):
            tpusim.load(arrays)
    with pytest.raises(ImportModelError, match="cannot be read: .*No such file"):
        tpusim.load(tmp_path / f"none{suffix}")


def test_models_of_another_name_or_cut_off(tmp_path: Path) -> None:
    """A model keeps its form under a wrong name, and a part of one is no model."""
    lite, proto, part = tmp_path / "lite.onnx", tmp_path / "proto.tflite", tmp_path / "part.onnx"
    lite.write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
    with pytest.raises(ImportModelError, match=r"is a TFLite file; its name must end in \.tflite"):
        tpusim.load(lite)
    proto.write_bytes(relu())
    with pytest.raises(ImportModelError, match=r"is an ONNX protobuf by its first byte; its name must end in \.onnx"):
        tpusim.load(proto)
    for size in (1, 20, len(relu()) - 1):
        part.write_bytes(relu()[:size])
        with pytest.raises(ImportModelError, match=r"part\.onnx' is an ONNX protobuf by its first byte, but cut off"):
            tpusim.load(part)
    part.write_bytes(relu())
    assert tpusim.load(part).results
