"""What the end-to-end tests share: runs of the digits network (once in a test run) and small ONNX models."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from filelock import FileLock
from onnx import TensorProto, helper, numpy_helper

from tpusim.cli import main

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
SAMPLES = 24
"""Calibration samples of the shared runs."""
LABELLED = 40
MODULES = ("1_top.mlir", "2_canonical.mlir", "3_calibrated.mlir", "4_tpu.mlir", "5_grouped.mlir", "6_final.mlir")


def digits_run(factory: pytest.TempPathFactory, chip: str, mode: str) -> Path:
    """The artefacts of `tpusim run` on the digits network with LABELLED labelled samples; do not change them.

    The processes of a test run share them.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"digits_{chip}_{mode}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "out" / "report.json").exists():
            _run_digits(folder, chip, mode)
    return folder / "out"


def _run_digits(folder: Path, chip: str, mode: str) -> None:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    np.savez(data / "test.npz", image=np.load(DIGITS / "test.npz")["image"][:LABELLED])
    np.savez(data / "labels.npz", label=np.load(DIGITS / "labels.npz")["label"][:LABELLED])
    status = main(
        [
            *("run", str(DIGITS / "digits.onnx"), "--chip", chip, "--mode", mode),
            *("--data", str(DIGITS / "calibration.npz"), "--samples", str(SAMPLES)),
            *("--test-data", str(data / "test.npz"), "--labels", str(data / "labels.npz")),
            *("--out", str(folder / "out")),
        ]
    )
    assert status == 0


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def tensors(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def assert_equal(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    """The same tensors, bit for bit."""
    assert set(one) == set(other) and one
    different = [n for n in one if one[n].dtype != other[n].dtype or one[n].tobytes() != other[n].tobytes()]
    assert different == []


def hashes(folder: Path) -> dict[str, str]:
    """Content of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    """A node named after its output; `inputs` are separated by spaces."""
    return helper.make_node(op, inputs.split(), [output], name=f"n_{output}", **attributes)


def save_network(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> Path:
    """Write an ONNX model."""
    graph = helper.make_graph(
        list(nodes),
        path.stem,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def small_convnet(path: Path, batch: int | str = 1, size: int = 16) -> Path:
    """Conv, Relu, Conv, a residual Add, MaxPool, global average, Flatten, Gemm."""
    nodes = [
        node("Conv", "x w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", "c2 r1", "sum"),
        node("MaxPool", "sum", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "pool", "mean"),
        node("Flatten", "mean", "flat"),
        node("Gemm", "flat w3 b3", "y", transB=1),
    ]
    weights = {
        **{"w1": floats(8, 3, 3, 3) * 0.3, "b1": floats(8)},
        **{"w2": floats(8, 8, 3, 3) * 0.2, "b2": floats(8, seed=1)},
        **{"w3": floats(5, 8), "b3": floats(5)},
    }
    return save_network(path, nodes, {"x": (batch, 3, size, size)}, ["y"], weights)


def conv_and_gemm(path: Path, batch: int | str = 1) -> Path:
    """Conv, Relu, the mean of the image, Gemm."""
    nodes = [
        node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "mean"),
        node("Flatten", "mean", "flat"),
        node("Gemm", "flat v", "y", transB=1),
    ]
    weights = {"w": floats(8, 3, 3, 3) * 0.3, "b": floats(8), "v": floats(5, 8)}
    return save_network(path, nodes, {"x": (batch, 3, 16, 16)}, ["y"], weights)
