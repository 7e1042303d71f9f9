"""What a row of the idiom table is, and the network that it writes in a form of constants, operand order and opset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.conformance.fuzz.net import Net, Operand

TORCHSCRIPT, DYNAMO, TF2ONNX, PADDLE, SKLEARN, KERAS = "torchscript", "dynamo", "tf2onnx", "paddle", "sklearn", "keras"
"""Exporters: torch.onnx.export of old and new, tf2onnx, paddle2onnx, skl2onnx, and keras by tf2onnx."""
CHANNELS, SIZE = 8, 12
TOKENS, WIDTH, HEADS = 10, 32, 4
"""Sizes of the images and token sequences of the rows."""


@dataclass(frozen=True)
class Form:
    """How a row is written. rank: of its scalar constants; swapped: constants come first in sums and products."""

    opset: int = 17
    rank: int = 0
    swapped: bool = False

    def __str__(self) -> str:
        return f"o{self.opset}r{self.rank}" + "s" * self.swapped


FORMS = (
    Form(), Form(rank=1), Form(rank=4), Form(swapped=True), Form(11), Form(13), Form(18), Form(13, 4, swapped=True)
)  # fmt: skip
"""The default, each choice in turn, and several at once."""


class Idiom(Net):
    """A network with the short names that rows are written in."""

    def __init__(self, name: str, form: Form) -> None:
        super().__init__(name, form.opset)
        self.form = form

    def k(self, value: float) -> str:
        """A scalar constant in the form's rank."""
        return self.constant(np.full((1,) * self.form.rank, value, np.float32))

    def add(self, a: Operand, b: Operand) -> str:
        """A sum, in the form's order."""
        return self.op("Add", *((b, a) if self.form.swapped else (a, b)))

    def mul(self, a: Operand, b: Operand) -> str:
        """A product, in the form's order."""
        return self.op("Mul", *((b, a) if self.form.swapped else (a, b)))

    def sub(self, a: Operand, b: Operand) -> str:
        """A difference."""
        return self.op("Sub", a, b)

    def div(self, a: Operand, b: Operand) -> str:
        """A quotient."""
        return self.op("Div", a, b)

    def clip(self, x: str, low: float, high: float) -> str:
        """Between two bounds, which are inputs."""
        return self.op("Clip", x, np.float32(low), np.float32(high))

    def reduced(self, kind: str, x: str, *axes: int, keep: int = 1) -> str:
        """A reduction; its axes are an input from opset 18 on, of a sum from 13 on."""
        if self.opset >= (13 if kind == "Sum" else 18):
            return self.op(f"Reduce{kind}", x, np.array(axes, np.int64), keepdims=keep)
        return self.op(f"Reduce{kind}", x, axes=list(axes), keepdims=keep)

    def squeezed(self, x: str, *axes: int) -> str:
        """Without axes of size 1."""
        more = {} if self.opset >= 13 else {"axes": list(axes)}
        return self.op("Squeeze", x, *([np.array(axes, np.int64)] if self.opset >= 13 else []), **more)

    def unsqueezed(self, x: str, *axes: int) -> str:
        """With new axes of size 1."""
        more = {} if self.opset >= 13 else {"axes": list(axes)}
        return self.op("Unsqueeze", x, *([np.array(axes, np.int64)] if self.opset >= 13 else []), **more)

    def parts(self, x: str, axis: int, *sizes: int) -> list[str]:
        """A split into parts of these sizes."""
        if self.opset >= 13:
            return self.several("Split", len(sizes), x, np.array(sizes, np.int64), axis=axis)
        return self.several("Split", len(sizes), x, split=list(sizes), axis=axis)

    def cut(self, x: str, axis: int, begin: int, end: int, step: int = 1) -> str:
        """A slice along one axis."""
        return self.op("Slice", x, *(np.array([v], np.int64) for v in (begin, end, axis, step)))

    def view(self, x: str, *shape: int) -> str:
        """A reshape."""
        return self.op("Reshape", x, np.array(shape, np.int64))

    def turn(self, x: str, *perm: int) -> str:
        """A transpose."""
        return self.op("Transpose", x, perm=list(perm))

    def joined(self, *parts: str, axis: int) -> str:
        """A concatenation."""
        return self.op("Concat", *parts, axis=axis)

    def w(self, *shape: int, std: float | None = None) -> np.ndarray:
        """A new weight of ordinary statistics."""
        fan_in = max(int(np.prod(shape[1:])), 1)
        return self.rng.normal(0.0, std or fan_in**-0.5, shape).astype(np.float32)

    def dense(self, x: str, cin: int, cout: int, *, bias: bool = True) -> str:
        """A linear layer as MatMul and Add."""
        y = self.op("MatMul", x, self.w(cin, cout, std=cin**-0.5))
        return self.add(self.constant(self.w(cout, std=0.2)), y) if bias else y

    def image(self, channels: int = CHANNELS, size: int = SIZE, name: str = "x") -> str:
        """An image input."""
        return self.input(name, 1, channels, size, size)

    def tokens(self, count: int = TOKENS, width: int = WIDTH, name: str = "x") -> str:
        """A sequence of tokens."""
        return self.input(name, 1, count, width)

    def convolved(self, x: str, cin: int = CHANNELS, cout: int = CHANNELS, k: int = 3, **more: int) -> str:
        """A convolution that keeps the size."""
        return self.conv(x, cin, cout, k, **more)


Write = Callable[[Idiom], str | Sequence[str]]


@dataclass(frozen=True)
class Row:
    """One idiom: its name, the exporter that writes it, and the function that does so."""

    name: str
    exporter: str
    write: Write

    def network(self, form: Form) -> onnx.ModelProto:
        """The network in a form. Raises what ONNX's shape inference does if the opset lacks it."""
        net = Idiom(f"{self.name}_{form}", form)
        found = self.write(net)
        net.output(*([found] if isinstance(found, str) else found))
        return net.model()

    def variants(self) -> Iterator[tuple[Form, onnx.ModelProto]]:
        """Every form that gives another network, the default first."""
        known = set[tuple[object, ...]]()
        for form in FORMS:
            try:
                proto = self.network(form)
                onnx.checker.check_model(proto)
            except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError):
                continue
            parts = (*proto.graph.node, *proto.graph.initializer)
            mark = (form.opset, *(part.SerializeToString(deterministic=True) for part in parts))
            if mark not in known:
                known.add(mark)
                yield form, proto


class Rows(list[Row]):
    """The rows of one file."""

    def row(self, exporter: str, name: str = "") -> Callable[[Write], Write]:
        """A decorator that appends a row named after the function."""

        def keep(write: Write) -> Write:
            self.append(Row(name or write.__name__, exporter, write))
            return write

        return keep
