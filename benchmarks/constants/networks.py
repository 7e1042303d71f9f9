"""Networks of one op whose profiles show what the library does with it, by op and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.upstream.networks import IR_VERSION, OPSET, Builder

Sizes = tuple[int, ...]
BOTH = ("bm1684x", "bm1688")


class Case(NamedTuple):
    """A network on a chip in a mode; sizes: as its builder takes them."""

    op: str
    chip: str
    mode: str
    sizes: Sizes

    @property
    def key(self) -> str:
        """Its name in the recorded file."""
        return f"{self.op}/{self.chip}/{self.mode}/{'x'.join(map(str, self.sizes))}"

    @classmethod
    def of(cls, key: str) -> Case:
        """The case of a name."""
        op, chip, mode, sizes = key.split("/")
        return cls(op, chip, mode, tuple(map(int, sizes.split("x"))))

    def network(self) -> onnx.ModelProto:
        """The network as ONNX."""
        return BUILDERS[self.op](*self.sizes)


def _node(
    op: str, shape: Sizes, constants: Mapping[str, np.ndarray] | None = None, *inputs: str, **attributes: Any
) -> onnx.ModelProto:
    """One node that reads x and constants and writes y."""
    constant_arrays = {name: np.asarray(array) for name, array in (constants or {}).items()}
    read = ["x", *(inputs or constant_arrays)]
    values = [numpy_helper.from_array(array, name) for name, array in constant_arrays.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, read, ["y"], **attributes)], "one", [x], [y], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return onnx.shape_inference.infer_shapes(model)


def _seeded(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.02, shape).astype(np.float32)


def _conv(ic: int, oc: int, rows: int, kernel: int, stride: int) -> onnx.ModelProto:
    constants = {"w": _seeded(oc, ic, kernel, kernel), "b": np.full(oc, 0.1, np.float32)}
    size = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [kernel // 2] * 4}
    return _node("Conv", (1, ic, rows, rows), constants, **size)


def _resize(c: int, h: int, w: int, rows: int, columns: int) -> onnx.ModelProto:
    return _node("Resize", (1, c, h, w), {"s": np.array([1, c, rows, columns])}, "", "", "s", mode="linear")


def _matmul(rows: int, inner: int, columns: int) -> onnx.ModelProto:
    b = Builder("product")
    b.output(b.node("MatMul", b.input("x", rows, inner), b.input("z", inner, columns), out="y"))
    return b.model()


def _flash(rows: int, keys: int, heads: int, size: int) -> onnx.ModelProto:
    """Attention of all heads, without a mask."""
    b = Builder("attention")
    q, k, v = (b.input(name, 1, length, heads, size) for name, length in (("q", rows), ("k", keys), ("v", keys)))
    q, v = (b.node("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 3, 1]))
    weights = b.node("Softmax", b.node("Mul", scores, b.constant(size**-0.5)), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    b.output(b.node("Relu", b.reshape(mixed, 1, rows, heads * size), out="y"))
    return b.model()


def _gather(rows: int, columns: int, count: int) -> onnx.ModelProto:
    return _node("Gather", (rows, columns), {"i": np.arange(count) * 7 % rows}, axis=0)


BUILDERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "conv": _conv,
    "turn": lambda c, h, w: _node("Transpose", (1, c, h, w), perm=[0, 3, 2, 1]),
    "resize": _resize,
    "matmul": _matmul,
    "flash": _flash,
    "rowsum": lambda c, h, w: _node("ReduceSum", (1, c, h, w), {"a": np.array([3])}, keepdims=1),
    "pool": lambda c, h, w, k, s: _node(
        "MaxPool", (1, c, h, w), kernel_shape=[k, k], strides=[s, s], pads=[k // 2] * 4
    ),
    "upsample": lambda c, h, w, scale: _node(
        "Resize",
        (1, c, h, w),
        {"s": np.array([1, 1, scale, scale], np.float32)},
        "",
        "s",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "planes": lambda c, h, w: _node("GlobalAveragePool", (1, c, h, w)),
    "softmax": lambda c, h, w: _node("Softmax", (1, c, h, w), axis=1),
    "lrn": lambda c, h, w, size: _node("LRN", (1, c, h, w), size=size),
    "norm": lambda rows, width: _node(
        "LayerNormalization",
        (1, rows, width),
        {"s": np.linspace(0.5, 1.5, width, dtype=np.float32), "b": np.linspace(-1, 1, width, dtype=np.float32)},
        axis=-1,
    ),
    "gather": _gather,
    "extreme": lambda axis, *shape: _node("ArgMax", shape, axis=axis),
    "running": lambda axis, *shape: _node("CumSum", shape, {"a": np.array(axis, np.int32)}),
    "product": lambda axis, *shape: _node("ReduceProd", shape, axes=[axis]),
    "largest": lambda axis, *shape: _node("ReduceMax", shape, axes=[axis]),
    "least": lambda axis, *shape: _node("ReduceMin", shape, axes=[axis]),
    "repeat": lambda rank, *of: _node("Tile", of[:rank], {"r": np.array(of[rank:], np.int64)}),
    "copy": lambda c, h, w: _node("Transpose", (1, c, h, w), perm=[0, 2, 1, 3]),
}
"""What a case's sizes are: channels in and out, rows, kernel and stride; or (c, h, w), with rows and columns of the
result, or with window and step; rows, inner axis, columns; rows, keys, heads, their size; rows, columns, indices;
axis and extents; rank, extents and repetitions."""

_CONVOLUTIONS = (
    (960, 1280, 7, 1, 1), (512, 512, 14, 3, 1), (2048, 2048, 7, 1, 1), (1024, 1024, 20, 3, 1), (256, 1024, 8, 3, 2),
    (2048, 1024, 14, 1, 1), (512, 2048, 7, 1, 1), (1024, 512, 14, 3, 1), (768, 768, 14, 1, 1), (512, 1024, 28, 1, 1),
)  # fmt: skip
_TURNED = (
    (64, 56, 56), (128, 28, 28), (256, 56, 56), (3, 224, 224), (512, 14, 14), (32, 112, 112), (100, 40, 40),
    (64, 112, 112), (16, 256, 256), (320, 20, 20),
)  # fmt: skip
_RESIZED = (
    (3, 10, 12, 20, 24), (16, 16, 16, 32, 32), (64, 20, 20, 40, 40), (3, 32, 32, 128, 128), (8, 13, 9, 20, 17),
    (32, 7, 7, 17, 15), (48, 8, 8, 11, 13), (70, 16, 12, 25, 31),
)  # fmt: skip
_PRODUCTS = (
    (12, 64, 48), (12, 64, 256), (20, 64, 96), (33, 64, 200), (50, 64, 64), (64, 64, 128), (64, 64, 512),
    (100, 64, 256), (150, 64, 100), (200, 64, 400), (30, 64, 30), (80, 64, 1000), (600, 32, 256), (1000, 16, 512),
    (400, 16, 2048), (5, 16, 116), (2, 32, 116), (30, 32, 256),
)  # fmt: skip
_ATTENTIONS = (
    (197, 197, 12, 64), (256, 256, 8, 64), (1024, 1024, 4, 64), (128, 128, 12, 128), (64, 64, 32, 64),
    (64, 64, 64, 32), (512, 512, 16, 32), (256, 256, 64, 16), (128, 128, 48, 64), (32, 32, 96, 16), (256, 256, 32, 128),
)  # fmt: skip
_ROWS = ((64, 20, 21), (100, 10, 50), (8, 12, 13), (40, 30, 7))
_WINDOWS = ((64, 20, 20, 3, 1), (64, 20, 20, 3, 2), (100, 31, 33, 3, 2), (40, 28, 28, 5, 2))
_UPSAMPLED = ((64, 40, 40, 2), (256, 20, 20, 2), (32, 80, 80, 2), (128, 52, 52, 2), (64, 56, 56, 4), (3, 160, 160, 2))
_PLANES = ((512, 56, 56), (100, 8, 8), (1280, 7, 7), (256, 40, 40), (64, 112, 112), (1000, 28, 28))
_INNER = ((10, 8, 8), (21, 65, 65), (80, 40, 40), (4, 100, 100), (150, 32, 32), (3, 224, 224))
_EXTREMES = (
    (0, 5, 6, 7),
    (1, 1, 21, 16, 16),
    (1, 200, 11),
    (2, 2, 5, 6, 7),
    (1, 1, 300),
    (1, 1, 3, 8, 9),
    (1, 70, 21, 3),
)
_RUNNING = ((1, 2, 3, 4, 5), (3, 2, 3, 4, 5), (1, 1, 8, 40), (0, 3, 20), (1, 1, 30), (2, 2, 3, 4, 5))
_LINES = ((1, 2, 3, 4, 5), (1, 1, 64, 20, 20), (1, 100, 20), (1, 197, 64), (0, 3, 20, 7), (1, 2, 64, 16, 16), (1, 7, 5))
_REPEATED = ((2, 4, 7, 5, 1), (3, 2, 5, 6, 4, 3, 2), (4, 1, 64, 20, 20, 1, 1, 2, 2))
_FLOATS = ("f32", "f16")

CASES = (
    *(Case("conv", chip, "f32", sizes) for sizes in _CONVOLUTIONS for chip in BOTH),
    *(Case("turn", "bm1688", "int8", sizes) for sizes in _TURNED),
    *(Case("turn", "bm1684x", "int8", sizes) for sizes in _TURNED[:5]),
    *(Case("resize", chip, mode, sizes) for sizes in _RESIZED for mode in _FLOATS for chip in BOTH),
    *(Case("matmul", chip, "f32", sizes) for sizes in _PRODUCTS for chip in BOTH),
    *(Case("flash", "bm1688", "f16", sizes) for sizes in _ATTENTIONS),
    *(Case("rowsum", chip, mode, sizes) for sizes in _ROWS for mode in _FLOATS for chip in BOTH),
    *(Case("pool", chip, mode, sizes) for sizes in _WINDOWS for mode in ("f32", "int8") for chip in BOTH),
    *(Case("upsample", chip, "f32", sizes) for sizes in _UPSAMPLED for chip in BOTH),
    *(Case("planes", chip, "f32", sizes) for sizes in _PLANES for chip in BOTH),
    *(Case("softmax", chip, "int8", sizes) for sizes in _INNER for chip in BOTH),
    *(Case("lrn", chip, "f32", s) for s in ((96, 27, 27, 5), (256, 13, 13, 3), (40, 20, 20, 7)) for chip in BOTH),
    *(Case("norm", chip, "f32", s) for s in ((197, 192), (64, 256), (100, 64), (300, 384)) for chip in BOTH),
    *(Case("gather", chip, "f32", s) for s in ((100, 64, 50), (1000, 256, 200), (50, 1000, 300)) for chip in BOTH),
    *(Case("extreme", chip, "f32", sizes) for sizes in _EXTREMES for chip in BOTH),
    *(Case("running", chip, "f32", sizes) for sizes in _RUNNING for chip in BOTH),
    *(Case(op, chip, "f32", sizes) for op in ("largest", "least") for sizes in _LINES for chip in BOTH),
    *(Case("product", chip, "f32", sizes) for sizes in (_LINES[0], _LINES[4]) for chip in BOTH),
    *(Case("repeat", chip, "f32", sizes) for sizes in _REPEATED for chip in BOTH),
    *(
        Case("copy", chip, "f32", s)
        for s in ((8, 50, 64), (16, 100, 256), (64, 64, 64), (3, 200, 1024))
        for chip in BOTH
    ),
)
