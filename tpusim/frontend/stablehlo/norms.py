"""Softmax, means and norms, put together from their parts."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import onnx

from tpusim.frontend.stablehlo.graph import Graph, Rule, in_place


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
    """Two times the same factor, as Pow, so that norms are recognised."""
    if node.op_type == "Mul" and node.input[0] == node.input[1]:
        return in_place(node, "Pow", [node.input[0], g.constant(np.float32(2), f"{node.name}_exponent")])
    return None


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
    """Of x: x of x - max(x)."""
    difference = g.maker(name, "Sub")
    largest = g.maker(difference.input[1], "ReduceMax") if difference is not None else None
    if difference is None or largest is None or largest.input[0] != difference.input[0] or g.axes(largest) != axes:
        return None
    return str(difference.input[0])


def layer_norm(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """(x - mean) / sqrt(variance + eps), with the variance as the mean of squares of the distance or of x."""
    for centred, variance, eps, constants in _over_root(g, node):
        difference = g.maker(centred, "Sub")
        average = g.maker(difference.input[1], "ReduceMean") if difference is not None else None
        if difference is None or average is None or average.input[0] != difference.input[0]:
            continue
        x, axes = str(difference.input[0]), g.axes(average)
        rank = len(g.shapes.get(x, ()))
        if not rank or list(axes) != list(range(rank - len(axes), rank)):
            continue
        positive = g.maker(variance, "Relu")
        variance = variance if positive is None else str(positive.input[0])
        if not (
            _is_variance(g, variance, centred, axes)
            or _is_fast_variance(g, variance, x, str(difference.input[1]), axes)
        ):
            continue
        return _normalised(g, node, "LayerNormalization", x, axes, eps, constants)
    return None


def rms_norm(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """X / sqrt(mean of squares + eps)."""
    for x, variance, eps, constants in _over_root(g, node):
        rank = len(g.shapes.get(x, ()))
        if rank and _is_variance(g, variance, x, (rank - 1,)):
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
        assert factor is not None  # the callers have checked it
        if prod(factor.shape[: max(0, factor.ndim - len(inner))]) != 1:
            return None
        gamma = gamma * factor.reshape(factor.shape[max(0, factor.ndim - len(inner)) :])
    named = constants[0] if [g.constant_shape(c) for c in constants] == [inner] else ""
    weight = named or g.constant(gamma.astype(np.float32), f"{node.name}_gamma")
    return in_place(node, kind, [x, weight], axis=-len(inner), epsilon=eps)


def _over_root(g: Graph, node: onnx.NodeProto) -> Iterator[tuple[str, str, float, list[str]]]:
    """(x, v, eps, constant factors) of x / sqrt(v + eps), as a product or a quotient; each way to read a node."""
    if node.op_type == "Div" and (under := _root(g, node.input[1])) is not None:
        yield str(node.input[0]), *under, []
        factors = g.factors(str(node.input[0]))
        constants = [f for f in factors if g.array(f) is not None]
        if len(factors) - len(constants) == 1:
            yield next(f for f in factors if f not in constants), *under, constants
    if node.op_type != "Mul":
        return
    for x, scaled in (node.input, node.input[::-1]):
        factors = g.factors(scaled)
        roots = {f: under for f in factors if (under := _reciprocal_root(g, f)) is not None}
        constants = [f for f in factors if f not in roots]
        if len(factors) - len(constants) == 1 and all(g.array(f) is not None for f in constants):
            yield str(x), *next(iter(roots.values())), constants


def _reciprocal_root(g: Graph, name: str) -> tuple[str, float] | None:
    """(v, eps) of 1 / sqrt(v + eps)."""
    made = g.maker(name, "Reciprocal", "Div")
    if made is None or (made.op_type == "Div" and g.number(made.input[0]) != 1):
        return None
    return _root(g, made.input[-1])


def _root(g: Graph, name: str) -> tuple[str, float] | None:
    """(v, eps) of sqrt(v + eps)."""
    root = g.maker(name, "Sqrt")
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
    """The mean of squares minus the square of the mean."""
    difference = g.maker(name, "Sub")
    if difference is None:
        return False
    power = g.maker(difference.input[1], "Pow")
    squared = power is not None and power.input[0] == average and g.number(power.input[1]) == 2  # noqa: PLR2004
    return squared and _is_variance(g, difference.input[0], x, axes)


RULES: tuple[Rule, ...] = (square, mean, softmax, layer_norm, rms_norm, scaled, shifted)
"""The rules, in the order in which each node tries them."""
