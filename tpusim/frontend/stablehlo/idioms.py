"""What JAX's libraries take apart, put together again: ONNX nodes that are one function, as one node."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from math import pi, prod, sqrt

import numpy as np
import onnx
from onnx import helper, numpy_helper

CLOSE = 1e-5
"""Relative distance up to which a number of the network counts as the number of a formula (f32 or bf16 constants)."""
CUBE, ROOT_HALF, ROOT_TWO_OVER_PI = 0.044715, sqrt(0.5), sqrt(2 / pi)


class Graph:
    """Nodes with their producers, and numbers of constants. `replace` puts another node in a node's place."""

    def __init__(self, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, onnx.TensorProto], shapes: Mapping[str, Sequence[int]]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = dict(constants)
        self.shapes = shapes
        self._arrays: dict[str, np.ndarray] = {}
        self._makers: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            for rule in RULES:
                node = rule(self, node) or node
            self.nodes.append(node)
            self._makers |= dict.fromkeys(node.output, node)

    def array(self, name: str) -> np.ndarray | None:
        """The elements of a constant, None for a computed tensor."""
        if name in self.constants and name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self.constants[name])
        return self._arrays.get(name)

    def number(self, name: str) -> float | None:
        """The one number of a constant."""
        array = self.array(name)
        return float(array.flat[0]) if array is not None and array.size and (array == array.flat[0]).all() else None

    def is_number(self, name: str, wanted: float) -> bool:
        """Whether a constant is a number."""
        found = self.number(name)
        return found is not None and abs(found - wanted) <= CLOSE * abs(wanted)

    def maker(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The node of one of these kinds that makes a tensor, None for another."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def split(self, name: str, kind: str, is_part: Callable[[str], bool]) -> tuple[str, str] | None:
        """(part, other) of a node of two operands of which one satisfies a condition."""
        node = self.maker(name, kind)
        if node is None:
            return None
        one, other = node.input
        return (one, other) if is_part(one) else (other, one) if is_part(other) else None

    def times(self, name: str, number: float) -> str | None:
        """The other factor of a product with a number."""
        found = self.split(name, "Mul", lambda part: self.is_number(part, number))
        return found and found[1]

    def plus(self, name: str, number: float) -> str | None:
        """The other term of a sum with a number."""
        found = self.split(name, "Add", lambda part: self.is_number(part, number))
        return found and found[1]

    def factors(self, name: str) -> list[str]:
        """The factors of products of products."""
        node = self.maker(name, "Mul")
        return [name] if node is None else [f for part in node.input for f in self.factors(part)]

    def constant(self, array: np.ndarray, name: str) -> str:
        """Add a constant; its name."""
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def inner(self, name: str) -> np.ndarray | None:
        """The elements of a constant without leading axes of extent 1."""
        array = self.array(name)
        if array is None:
            return None
        first = next((axis for axis, size in enumerate(array.shape) if size != 1), array.ndim)
        return array.reshape(array.shape[first:])

    def constant_shape(self, name: str) -> tuple[int, ...]:
        """The extents of a constant."""
        array = self.array(name)
        return () if array is None else array.shape

    def attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """The attributes of a node."""
        return {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def axes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """The axes of a reduction."""
        array = self.array(node.input[1])
        return () if array is None else tuple(int(a) for a in array.reshape(-1))


def in_place(node: onnx.NodeProto, kind: str, inputs: Sequence[str], **attributes: object) -> onnx.NodeProto:
    """A node with the result of another."""
    return helper.make_node(kind, list(inputs), list(node.output), name=node.name, **attributes)


def relu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """max(x, 0)."""
    if node.op_type != "Max" or len(node.input) != 2:  # noqa: PLR2004
        return None
    for zero, x in (node.input, node.input[::-1]):
        if g.number(zero) == 0 and g.array(x) is None:
            return in_place(node, "Relu", [x])
    return None


def clip(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """min(max(x, a), b)."""
    if node.op_type != "Min":
        return None
    for most, inner in (node.input, node.input[::-1]):
        made = g.maker(inner, "Max", "Relu")
        if g.number(most) is None or made is None:
            continue
        x, low = (made.input[0], 0.0) if made.op_type == "Relu" else next(
            ((other, g.number(part)) for part, other in (made.input, made.input[::-1]) if g.number(part) is not None), ("", None)
        )
        if low is not None:
            ends = [g.constant(np.asarray(v, np.float32), f"{node.name}_{k}") for k, v in (("least", low), ("most", g.number(most)))]
            return in_place(node, "Clip", [x, *ends])
    return None


def mean(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """A sum divided by the number of its terms."""
    if node.op_type not in ("Div", "Mul"):
        return None
    for total, number in (node.input,) if node.op_type == "Div" else (node.input, node.input[::-1]):
        made = g.maker(total, "ReduceSum")
        if made is None or g.number(number) is None or made.input[0] not in g.shapes:
            continue
        count = prod(g.shapes[made.input[0]][a] for a in g.axes(made))
        if g.is_number(number, count if node.op_type == "Div" else 1 / count):
            return in_place(node, "ReduceMean", made.input, keepdims=1)
    return None


def square(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """x times x, as Pow, so that norms are recognised."""
    if node.op_type == "Mul" and node.input[0] == node.input[1]:
        return in_place(node, "Pow", [node.input[0], g.constant(np.float32(2), f"{node.name}_exponent")])
    return None


def sigmoid(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """1 / (1 + exp(-x))."""
    under = node.input[1] if node.op_type == "Div" and g.is_number(node.input[0], 1) else None
    exponential = g.plus(under, 1) if under else None
    made = g.maker(exponential, "Exp") if exponential else None
    negative = g.maker(made.input[0], "Neg") if made is not None else None
    return None if negative is None else in_place(node, "Sigmoid", [negative.input[0]])


def softmax(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """exp(x - max) / its sum, and the logarithm of that."""
    if node.op_type == "Div":
        total, e = g.maker(node.input[1], "ReduceSum"), g.maker(node.input[0], "Exp")
        if total is None or e is None or total.input[0] != node.input[0] or len(g.axes(total)) != 1:
            return None
        x = _without_maximum(g, e.input[0], g.axes(total))
        return None if x is None else in_place(node, "Softmax", [x], axis=g.axes(total)[0])
    if node.op_type == "Sub" and (log := g.maker(node.input[1], "Log")) is not None:
        total = g.maker(log.input[0], "ReduceSum")
        e = g.maker(total.input[0], "Exp") if total is not None else None
        if total is None or e is None or e.input[0] != node.input[0] or len(g.axes(total)) != 1:
            return None
        x = _without_maximum(g, node.input[0], g.axes(total))
        return None if x is None else in_place(node, "LogSoftmax", [x], axis=g.axes(total)[0])
    return None


def _without_maximum(g: Graph, name: str, axes: tuple[int, ...]) -> str | None:
    """x of x - max(x)."""
    difference = g.maker(name, "Sub")
    largest = g.maker(difference.input[1], "ReduceMax") if difference is not None else None
    if difference is None or largest is None or largest.input[0] != difference.input[0] or g.axes(largest) != axes:
        return None
    return str(difference.input[0])


def gelu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """x * 0.5 * erfc(-x / sqrt 2), x * 0.5 * (1 + erf(x / sqrt 2)), and the form with tanh."""
    if node.op_type != "Mul":
        return None
    parts = [f for operand in node.input for f in g.factors(operand)]
    rest = [p for p in parts if not g.is_number(p, 0.5)]
    if len(rest) != 2 or len(parts) != 3:  # noqa: PLR2004  x, one half, and the function
        return None
    for x, function in (rest, rest[::-1]):
        if _is_erfc(g, function, x):
            return in_place(node, "Gelu", [x])
        inner = g.plus(function, 1)
        if inner is None:
            continue
        erf, tanh = g.maker(inner, "Erf"), g.maker(inner, "Tanh")
        if erf is not None and (g.times(erf.input[0], ROOT_HALF) == x or _is_quotient(g, erf.input[0], x)):
            return in_place(node, "Gelu", [x])
        if tanh is not None and _is_cubic(g, g.times(tanh.input[0], ROOT_TWO_OVER_PI), x):
            return in_place(node, "Gelu", [x], approximate="tanh")
    return None


def _is_quotient(g: Graph, name: str, x: str) -> bool:
    made = g.maker(name, "Div")
    return made is not None and made.input[0] == x and g.is_number(made.input[1], sqrt(2))


def _is_erfc(g: Graph, name: str, x: str) -> bool:
    """1 - erf(-x / sqrt 2)."""
    made = g.maker(name, "Sub")
    erf = g.maker(made.input[1], "Erf") if made is not None and g.is_number(made.input[0], 1) else None
    inner = g.times(erf.input[0], ROOT_HALF) if erf is not None else None
    negative = g.maker(inner, "Neg") if inner is not None else None
    return negative is not None and negative.input[0] == x


def _is_cubic(g: Graph, name: str | None, x: str) -> bool:
    """x + 0.044715 x^3."""
    found = g.split(name, "Add", lambda part: part == x) if name else None
    cubic = g.times(found[1], CUBE) if found else None
    if cubic is None:
        return False
    power = g.maker(cubic, "Pow")
    if power is not None:
        return power.input[0] == x and g.number(power.input[1]) == 3  # noqa: PLR2004
    parts = [f if g.maker(f, "Pow") is None else f for f in g.factors(cubic)]
    squares = [m for p in parts if (m := g.maker(p, "Pow")) is not None and m.input[0] == x and g.number(m.input[1]) == 2]  # noqa: PLR2004
    return parts.count(x) + 2 * len(squares) == 3 and len(parts) == parts.count(x) + len(squares)  # noqa: PLR2004


def layer_norm(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """(x - mean) / sqrt(variance + eps), with the variance as the mean of squares of the distance or of x."""
    if node.op_type != "Mul":
        return None
    for centred, scaled in (node.input, node.input[::-1]):
        difference = g.maker(centred, "Sub")
        average = g.maker(difference.input[1], "ReduceMean") if difference is not None else None
        if difference is None or average is None or average.input[0] != difference.input[0]:
            continue
        x, axes = str(difference.input[0]), g.axes(average)
        factors = g.factors(scaled)
        roots = [f for f in factors if _root_of(g, f) is not None]
        constants = [f for f in factors if f not in roots]
        if len(roots) != 1 or any(g.array(f) is None for f in constants):
            continue
        variance, eps = _root_of(g, roots[0]) or ("", 0.0)
        rank = len(g.shapes.get(x, ()))
        if not rank or list(axes) != list(range(rank - len(axes), rank)):
            continue
        if not (_is_variance(g, variance, centred, axes) or _is_fast_variance(g, variance, x, str(difference.input[1]), axes)):
            continue
        return _normalised(g, node, "LayerNormalization", x, axes, eps, constants)
    return None


def rms_norm(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """X / sqrt(mean of squares + eps)."""
    if node.op_type != "Mul":
        return None
    for x, scaled in (node.input, node.input[::-1]):
        factors = g.factors(scaled)
        roots = [f for f in factors if _root_of(g, f) is not None]
        constants = [f for f in factors if f not in roots]
        rank = len(g.shapes.get(x, ()))
        if len(roots) != 1 or any(g.array(f) is None for f in constants) or not rank:
            continue
        variance, eps = _root_of(g, roots[0]) or ("", 0.0)
        if _is_variance(g, variance, x, (rank - 1,)):
            return _normalised(g, node, "RMSNormalization", x, (rank - 1,), eps, constants)
    return None


def scaled(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """A norm times a constant."""
    if node.op_type != "Mul":
        return None
    for y, factor in (node.input, node.input[::-1]):
        norm, inner = g.maker(y, "LayerNormalization", "RMSNormalization"), g.inner(factor)
        if norm is None or inner is None or len(norm.input) != 2 or g.number(norm.input[1]) != 1:  # noqa: PLR2004
            continue
        if inner.shape == g.constant_shape(norm.input[1]):
            named = factor if g.constant_shape(factor) == inner.shape else g.constant(inner, f"{node.name}_gamma")
            return in_place(node, norm.op_type, [norm.input[0], named], **g.attributes(norm))
    return None


def shifted(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """A layer norm plus a constant."""
    if node.op_type != "Add":
        return None
    for y, term in (node.input, node.input[::-1]):
        norm, inner = g.maker(y, "LayerNormalization"), g.inner(term)
        if norm is None or inner is None or len(norm.input) != 2:  # noqa: PLR2004  it has a bias already
            continue
        if inner.shape == g.constant_shape(norm.input[1]):
            named = term if g.constant_shape(term) == inner.shape else g.constant(inner, f"{node.name}_beta")
            return in_place(node, norm.op_type, [*norm.input, named], **g.attributes(norm))
    return None


def _normalised(
    g: Graph, node: onnx.NodeProto, kind: str, x: str, axes: tuple[int, ...], eps: float, constants: Sequence[str]
) -> onnx.NodeProto | None:
    inner = tuple(g.shapes[x][a] for a in axes)
    gamma = np.ones(inner, np.float32)
    for name in constants:
        factor = g.array(name)
        assert factor is not None  # whoever calls this asked for it
        if prod(factor.shape[: max(0, factor.ndim - len(inner))]) != 1:
            return None
        gamma = gamma * factor.reshape(factor.shape[max(0, factor.ndim - len(inner)) :])
    weight = constants[0] if len(constants) == 1 and g.array(constants[0]).shape == inner else g.constant(gamma.astype(np.float32), f"{node.name}_gamma")  # type: ignore[union-attr]
    return in_place(node, kind, [x, weight], axis=-len(inner), epsilon=eps)


def _root_of(g: Graph, name: str) -> tuple[str, float] | None:
    """(v, eps) of 1 / sqrt(v + eps)."""
    made = g.maker(name, "Reciprocal")
    root = g.maker(made.input[0], "Sqrt") if made is not None else None
    total = g.maker(root.input[0], "Add") if root is not None else None
    if total is None:
        return None
    for number, v in (total.input, total.input[::-1]):
        eps = g.number(number)
        if eps is not None and g.array(v) is None:
            return str(v), eps
    return None


def _is_variance(g: Graph, name: str, centred: str, axes: tuple[int, ...]) -> bool:
    """Whether a tensor is the mean of the squares of another."""
    average = g.maker(name, "ReduceMean")
    power = g.maker(average.input[0], "Pow") if average is not None else None
    return (
        average is not None and power is not None and power.input[0] == centred and g.axes(average) == axes
        and g.number(power.input[1]) == 2  # noqa: PLR2004
    )  # fmt: skip


def _is_fast_variance(g: Graph, name: str, x: str, average: str, axes: tuple[int, ...]) -> bool:
    """max(0, mean of squares - square of the mean)."""
    positive = g.maker(name, "Relu")
    difference = g.maker(positive.input[0] if positive is not None else name, "Sub")
    if difference is None:
        return False
    power = g.maker(difference.input[1], "Pow")
    squared = power is not None and power.input[0] == average and g.number(power.input[1]) == 2  # noqa: PLR2004
    return squared and _is_variance(g, difference.input[0], x, axes)


RULES: tuple[Callable[[Graph, onnx.NodeProto], onnx.NodeProto | None], ...] = (
    square, relu, clip, mean, sigmoid, softmax, gelu, layer_norm, rms_norm, scaled, shifted,
)  # fmt: skip
"""What is tried at each node, in this order."""
