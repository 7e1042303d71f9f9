"""Activations, put together from their parts."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from math import pi, sqrt

import numpy as np
import onnx

from tpusim.frontend.stablehlo.graph import Graph, Rule, in_place

CUBE, ROOT_HALF, ROOT_TWO_OVER_PI = 0.044715, sqrt(0.5), sqrt(2 / pi)


def relu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Write max(x, 0) as Relu."""
    if node.op_type != "Max" or len(node.input) != 2:  # noqa: PLR2004
        return None
    for zero, x in (node.input, node.input[::-1]):
        if g.number(zero) == 0 and g.array(x) is None:
            return in_place(node, "Relu", [x])
    return None


def clip(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Write min(max(x, a), b) as Clip."""
    if node.op_type != "Min":
        return None
    for most, inner in (node.input, node.input[::-1]):
        made = g.maker(inner, "Max", "Relu")
        limit = g.array(most)
        if limit is None or g.number(most) is None or made is None:
            continue
        x, low = (
            (made.input[0], 0.0)
            if made.op_type == "Relu"
            else next(
                (
                    (other, g.number(part))
                    for part, other in (made.input, made.input[::-1])
                    if g.number(part) is not None
                ),
                ("", None),
            )
        )
        if low is not None:
            ends = [
                g.constant(np.asarray(v, limit.dtype), f"{node.name}_{k}")
                for k, v in (("least", low), ("most", g.number(most)))
            ]
            return in_place(node, "Clip", [x, *ends])
    return None


def sigmoid(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """1 / (1 + exp(-x))."""
    under = node.input[1] if node.op_type == "Div" and g.is_number(node.input[0], 1) else None
    exponential = g.plus(under, 1) if under else None
    made = g.maker(exponential, "Exp") if exponential else None
    negative = g.maker(made.input[0], "Neg") if made is not None else None
    return None if negative is None else in_place(node, "Sigmoid", [negative.input[0]])


def gelu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Of x: x * 0.5 * erfc(-x / sqrt 2), x * 0.5 * (1 + erf(x / sqrt 2)), and the form with tanh."""
    if node.op_type != "Mul":
        return None
    products = [(g.maker(inner, "Mul"), other) for inner, other in (node.input, node.input[::-1])]
    parts = [[*made.input, other] for made, other in products if made is not None]
    halves = [[p for p in three if not g.is_number(p, 0.5)] for three in parts]
    for x, function in (pair for rest in halves if len(rest) == 2 for pair in (rest, rest[::-1])):  # noqa: PLR2004
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
    """Of x: x + 0.044715 x^3."""
    found = g.split(name, "Add", lambda part: part == x) if name else None
    cubic = g.times(found[1], CUBE) if found else None
    if cubic is None:
        return False
    power = g.maker(cubic, "Pow")
    if power is not None:
        return power.input[0] == x and g.number(power.input[1]) == 3  # noqa: PLR2004
    parts = g.factors(cubic, x)
    powers = [m for p in parts if p != x and (m := g.maker(p, "Pow")) is not None]
    squares = [m for m in powers if m.input[0] == x and g.number(m.input[1]) == 2]  # noqa: PLR2004
    return parts.count(x) + 2 * len(squares) == 3 and len(parts) == parts.count(x) + len(squares)  # noqa: PLR2004


def leaky_relu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Where(x > 0, x, a * x)."""
    if node.op_type != "Where" or not _is_positive(g, node.input[0], node.input[1]):
        return None
    scaled = g.split(node.input[2], "Mul", lambda part: part == node.input[1])
    slope = g.number(scaled[1]) if scaled else None
    return None if slope is None else in_place(node, "LeakyRelu", [node.input[1]], alpha=slope)


def elu(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Where(x > 0, x, a * (exp(x) - 1))."""
    if node.op_type != "Where" or not _is_positive(g, node.input[0], node.input[1]):
        return None
    x, name, alpha = node.input[1], str(node.input[2]), 1.0
    if (scaled := g.split(name, "Mul", lambda part: g.number(part) is not None)) is not None:
        alpha, name = g.number(scaled[0]) or 0.0, scaled[1]
    less = g.maker(name, "Sub")
    made = g.maker(less.input[0], "Exp") if less is not None and g.is_number(less.input[1], 1) else None
    safe = g.maker(made.input[0], "Where") if made is not None else None
    inner = None if made is None else made.input[0] if safe is None else safe.input[2]
    return in_place(node, "Elu", [x], alpha=alpha) if inner == x else None


def _is_positive(g: Graph, name: str, x: str) -> bool:
    made = g.maker(name, "Greater", "GreaterOrEqual")
    return made is not None and made.input[0] == x and g.number(made.input[1]) == 0


def softplus(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """max(x, 0) + log(1 + exp(-|x|)), also with a Where for NaN around it."""
    if node.op_type == "Where":
        made = g.maker(node.input[2], "Softplus")
        same = made is not None and _with_zero(g, node.input[1]) == made.input[0] and _is_nan(g, node.input[0])
        return in_place(node, "Softplus", made.input) if made is not None and same else None
    if node.op_type != "Add":
        return None
    for first, second in (node.input, node.input[::-1]):
        positive, log = g.maker(first, "Relu"), g.maker(second, "Log")
        inner = g.plus(log.input[0], 1) if log is not None else None
        made = g.maker(inner, "Exp") if inner is not None else None
        negative = g.maker(made.input[0], "Neg") if made is not None else None
        size = g.maker(negative.input[0], "Abs") if negative is not None else None
        if positive is not None and size is not None and _with_zero(g, size.input[0]) == positive.input[0]:
            return in_place(node, "Softplus", positive.input)
    return None


def _with_zero(g: Graph, name: str) -> str:
    """The x of x + 0."""
    found = g.split(name, "Add", lambda part: g.number(part) == 0)
    return found[1] if found else name


def _is_nan(g: Graph, name: str) -> bool:
    """Whether a bool says that a number is NaN."""
    differs = g.maker(name, "Not")
    equal = g.maker(differs.input[0], "Equal") if differs is not None else None
    return equal is not None and equal.input[0] == equal.input[1]


def hard_sigmoid(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """min(max(x + 3, 0), 6) / 6."""
    if node.op_type != "Div" or not g.is_number(node.input[1], 6):
        return None
    limited = g.maker(node.input[0], "Clip")
    if limited is None or g.number(limited.input[1]) != 0 or not g.is_number(limited.input[2], 6):
        return None
    x = g.plus(limited.input[0], 3)
    return in_place(node, "HardSigmoid", [x], alpha=1 / 6, beta=0.5) if x else None


def hard_swish(g: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Of x: x * hard_sigmoid(x)."""
    if node.op_type != "Mul":
        return None
    for x, factor in (node.input, node.input[::-1]):
        made = g.maker(factor, "HardSigmoid")
        if made is not None and made.input[0] == x:
            return in_place(node, "HardSwish", [x])
    return None


RULES: tuple[Rule, ...] = (
    relu, clip, sigmoid, gelu, leaky_relu, elu, softplus, hard_sigmoid, hard_swish,
)  # fmt: skip
"""The rules, in the order in which each node tries them."""
