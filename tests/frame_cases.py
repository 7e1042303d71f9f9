"""Networks that take frames of a camera, and the chips, modes and options that test_frames.py holds to TPU-MLIR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from compiling import to_canonical, to_tpu
from op_row import network, node

from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.frontend import import_onnx
from tpusim.images import Preprocess, with_preprocess
from tpusim.ir.module import Model

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
        return to_canonical(model)


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
    ("photo", "cv183x", "int8", frame("YUV420_PLANAR"), "6e11f893e4977a1f"),
    ("by_channel", "cv181x", "int8", frame("YUV_NV12"), "203e53cd1c148f15"),
    ("photo", "cv182x", "bf16", frame("YUV_NV21"), "38e517a8a6a54694"),
]
"""(network, chip, mode, options, head of SHA-256 of the frame that upstream's preprocessing makes of china.png)."""


def lowered(net: str, chip: str, mode: str, options: dict[str, object]) -> Model:
    return to_tpu(NETWORKS[net].top(), chip, mode, ranges=table_of(net), **options)


def table_of(net: str) -> CalibrationTable:
    return CalibrationTable({name: Entry(*values) for name, values in NETWORKS[net].table.items()})
