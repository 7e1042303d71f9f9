"""Activations, arithmetic of two values with broadcasting, and logic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.conformance.fuzz.net import Net
from benchmarks.conformance.fuzz.production import Family

FAMILY = Family()
PLAIN = (
    "Sigmoid", "Tanh", "Exp", "Abs", "Erf", "Softplus", "HardSwish", "Neg", "Floor", "Ceil", "Round", "Sin", "Cos",
    "Softsign", "Sign", "Identity", "Atan",
)  # fmt: skip
OF_POSITIVE = ("Log", "Sqrt", "Reciprocal")
WITH_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Selu": (), "Celu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
}  # fmt: skip


@FAMILY.add("Relu", weight=2)
def relu(net: Net, x: str) -> str:
    """The commonest of all."""
    return net.op("Relu", x)


@FAMILY.add("Activation", weight=2)
def plain(net: Net, x: str) -> str:
    """An activation without attributes."""
    return net.op(net.pick(*PLAIN), x)


@FAMILY.add("OfPositive")
def of_positive(net: Net, x: str) -> str:
    """A function of positive values only."""
    return net.op(net.pick(*OF_POSITIVE), net.op("Add", net.op("Abs", x), net.pick(0.1, 0.5, 1.0)))


@FAMILY.add("WithAttributes")
def with_attributes(net: Net, x: str) -> str:
    """An activation with attributes, written or left at ONNX's default."""
    op = net.pick(*WITH_ATTRIBUTES)
    names = WITH_ATTRIBUTES[op] if net.chance(0.7) else ()
    return net.op(op, x, **{name: net.uniform(0.05, 0.9) for name in names})


@FAMILY.add("Clip")
def clip(net: Net, x: str) -> str:
    """Two bounds, or one."""
    low, high = net.pick((0.0, 6.0), (-0.5, 0.8), (0.0, 1.0), ("", 0.7), (-0.3, ""), (-1.0, 1.0))
    return net.op("Clip", x, *(b if isinstance(b, str) else np.float32(b) for b in (low, high) if b != "" or b is low))


@FAMILY.add("Softmax")
def softmax(net: Net, x: str) -> str:
    """Softmax and its logarithm over any axis."""
    rank = len(net.shape(x))
    return net.op(net.pick("Softmax", "Softmax", "LogSoftmax"), x, axis=net.pick(-1, net.between(0, rank - 1)))


@FAMILY.add("PowConstant")
def power(net: Net, x: str) -> str:
    """A constant power; the base is positive where the power is no whole number."""
    exponent = net.pick(2.0, 2.0, 3.0, 0.5, -1.0, 1.0)
    base = x if exponent in (1.0, 2.0, 3.0) else net.op("Add", net.op("Abs", x), 0.3)
    return net.op("Pow", base, np.float32(exponent))


def constant_form(net: Net, x: str) -> np.ndarray:
    """A constant that broadcasts to a value: scalar, [1], per channel, per column, a plane, or whole."""
    shape = net.shape(x)
    forms = [(), (1,), (1,) * len(shape), shape, shape[-1:]]
    if len(shape) > 1:
        forms += [(1, shape[1]) + (1,) * (len(shape) - 2), (1,) * (len(shape) - 2) + shape[-2:]]
        forms += [(shape[1],) + (1,) * (len(shape) - 2)]
    chosen = forms[net.between(0, len(forms) - 1)]
    values = net.rng.normal(0, 0.8, chosen)
    if net.chance(0.15):
        values = np.full(chosen, net.pick(0.0, 1.0, -1.0, 2.0, 1e-4, 100.0))
    return np.asarray(values, np.float32)


@FAMILY.add("WithConstant", weight=2)
def with_constant(net: Net, x: str) -> str:
    """Arithmetic with a constant on either side."""
    op, c = net.pick("Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Add"), constant_form(net, x)
    if op == "Div":
        c = np.where(np.abs(c) < 0.2, 0.5, c).astype(np.float32)
        if net.chance(0.3):
            return net.op("Div", c, net.op("Add", net.op("Abs", x), 0.3))
        return net.op("Div", x, c)
    return net.op(op, *net.pick((x, c), (x, c), (c, x)))


def partner(net: Net, x: str) -> str:
    """Another value that broadcasts with x: an existing one if there is any, or a new input with dimensions of 1."""
    shape = net.shape(x)
    known = [v for v in net.values() if v != x and net.is_float(v) and fits(net.shape(v), shape)]
    if known and net.chance(0.75):
        return known[net.between(0, len(known) - 1)]
    new = [1 if net.chance(0.3) else n for n in shape][net.pick(0, 0, 0, min(1, len(shape) - 1)) :]
    return net.input(f"in{net.mark}", *new)


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether a broadcasts to b."""
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(a[::-1], b[::-1], strict=False))


@FAMILY.add("OfTwo", weight=4)
def of_two(net: Net, x: str) -> str:
    """Arithmetic of two values."""
    op, y = net.pick("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div"), partner(net, x)
    if op == "Div":
        return net.op("Div", x, net.op("Add", net.op("Abs", y), net.pick(0.3, 1.0)))
    return net.op(op, *net.pick((x, y), (y, x)))


@FAMILY.add("OfThree", weight=0.5)
def of_three(net: Net, x: str) -> str:
    """Sum, mean, largest and smallest of several values."""
    return net.op(net.pick("Sum", "Mean", "Max", "Min"), x, partner(net, x), partner(net, x))


@FAMILY.add("Where", weight=0.7)
def where(net: Net, x: str) -> str:
    """A choice by a comparison."""
    y = net.pick(partner(net, x), net.constant(np.float32(net.uniform(-0.5, 0.5))))
    condition = net.op(net.pick("Greater", "Less", "GreaterOrEqual", "LessOrEqual"), x, y)
    if net.chance(0.2):
        condition = net.op("Not", condition)
    return net.op("Where", condition, *net.pick((x, y), (y, x), (x, net.constant(np.float32(0.0)))))


@FAMILY.add("CastOfComparison", weight=0.5)
def cast_of_comparison(net: Net, x: str) -> str:
    """A comparison as numbers."""
    other: Any = net.pick(partner(net, x), net.constant(np.float32(0.2)))
    return net.op("Cast", net.op(net.pick("Greater", "Less", "Equal"), x, other), to=TensorProto.FLOAT)
