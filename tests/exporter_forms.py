"""Forms in which exporters write norms, activations and linear layers: constants, operand order, operator set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from exported import FLOATS, Net

ROWS, WIDTH = 6, 8
IMAGE = (1, 8, 6, 6)
Numbers = Callable[[float], np.ndarray]


def numbers(rank: int) -> Numbers:
    """Constants of one element with so many axes."""
    return lambda value: np.full((1,) * rank, value, np.float32)


def layer_norm(
    net: Net, x: str, *, axes: Sequence[int] = (-1,), eps: int = 0, power: int | None = 0, swap: bool = False,
    affine: int = 2, shape: Sequence[int] = (WIDTH,), twice: bool = False, reciprocal: bool = False,
) -> str:  # fmt: skip
    """LayerNorm of its parts; eps, power: axes of the constants, None: a product; swap: constants first."""
    axis: dict[str, Any] = {"axes": list(axes)} if net.opset < 18 else {}
    more = () if axis else (np.array(axes),)
    mean = net("ReduceMean", x, *more, **axis)
    apart = net("Sub", x, mean)
    again = net("Sub", x, mean) if twice else apart
    square = net("Mul", again, again) if power is None else net("Pow", again, numbers(power)(2))
    variance = net("ReduceMean", square, *more, **axis)
    root = net("Sqrt", net("Add", *_ordered(variance, numbers(eps)(1e-5), swap)))
    y = net("Mul", apart, net("Reciprocal", root)) if reciprocal else net("Div", apart, root)
    for op in ("Mul", "Add")[:affine]:
        y = net(op, *_ordered(y, net.rng.standard_normal(shape).astype(np.float32), swap))
    return y


def hard_swish(net: Net, x: str, *, rank: int = 0, swap: bool = False, gate: str = "Mul Div") -> str:
    """HardSwish, x * clip(x + 3, 0, 6)/6, and relatives; gate: the ops after the Clip; swap: the product's order."""
    number = numbers(rank)
    raised = net("Add", x, number(3))
    y = net("Clip", raised, min=0.0, max=6.0) if net.opset < 11 else net("Clip", raised, number(0), number(6))
    for op in gate.split():
        y = {
            "Mul": lambda y: net("Mul", *_ordered(x, y, swap)),
            "Div": lambda y: net("Div", y, number(6)),
            "Sixth": lambda y: net("Mul", y, number(1 / 6)),
        }[op](y)  # fmt: skip
    return y


def gelu(net: Net, x: str, *, form: str, rank: int = 0, views: bool = False) -> str:
    """GELU, by the error function or the hyperbolic tangent; form: what is halved, and where."""
    number = numbers(rank)
    x = net("Reshape", x, np.array([1, ROWS, 2, WIDTH // 2])) if views else x
    where, function = form.split()
    half = net("Mul", x, number(0.5)) if where == "first" else ""
    if function == "erf":
        inner = net("Erf", net("Div", x, number(2**0.5)))
    else:
        cube = net("Pow", x, number(3)) if function == "tanh" else net("Mul", net("Mul", x, x), x)
        inner = net("Tanh", net("Mul", net("Add", x, net("Mul", cube, number(0.044715))), number(0.7978845608)))
    gate = net("Add", inner, number(1))
    half = net("Mul", x, number(0.5)) if where == "late" else half
    y = net("Mul", half, gate) if half else net("Mul", net("Mul", x, gate), number(0.5))
    return net("Reshape", y, np.array([1, ROWS, WIDTH])) if views else y


def quick_gelu(net: Net, x: str, *, factor: float = 1.702, swap: bool = False) -> str:
    """GELU as x * sigmoid(factor * x)."""
    return net("Mul", *_ordered(x, net("Sigmoid", net("Mul", x, numbers(0)(factor))), swap))


def layer_scale(
    net: Net, x: str, *, shape: Sequence[int] = (WIDTH,), bias: bool = True, op: str = "Mul", swap: bool = False,
    relu: bool = False, factors: Sequence[float] = (),
) -> str:  # fmt: skip
    """A linear layer whose result is multiplied or divided by constants of a shape."""
    y = net.linear(x, WIDTH, WIDTH) if bias else net("MatMul", x, net.rng.standard_normal((WIDTH, WIDTH)))
    y = net("Relu", y) if relu else y
    given = np.resize(np.array(factors or net.rng.standard_normal(WIDTH) + 3, np.float32), tuple(shape))
    return net(op, *_ordered(y, given, swap))


def group_norm(net: Net, x: str, *, affine: bool = False, unit: bool = True, first: int = 1) -> str:
    """nn.GroupNorm: an InstanceNormalization of groups between two Reshapes, then a factor and a number by channel."""
    view = net("Reshape", x, np.array([first, 2, -1]))
    weights = (np.ones(2), np.zeros(2)) if unit else (np.array([0.5, 2]), np.array([0.1, -0.1]))
    y = net("Reshape", net("InstanceNormalization", view, *weights), np.array(IMAGE))
    if affine:
        channels = (net.rng.standard_normal((WIDTH, 1, 1)) for _ in range(2))
        y = net("Add", net("Mul", y, next(channels)), next(channels))
    return y


def norm(net: Net, x: str, *, op: str, weight: float, bias: float | None) -> str:
    """A norm whose weights, and biases, are all the same."""
    size = WIDTH if op == "InstanceNormalization" else IMAGE[-1]
    weights = [np.full(size, float(value)) for value in (weight, bias) if value is not None]
    return net(op, x, *weights)


def focus(net: Net, x: str, *, places: str, conv: bool = True, group: int = 1) -> str:
    """Every other pixel from places (row, column) on, joined along the channels, and a convolution."""
    parts = []
    for place in places.split():
        row, column = map(int, place)
        ends = [np.array(v) for v in ([row, column], [99, 99], [2, 3], [2, 2])]
        parts.append(net("Slice", x, *ends))
    y = net("Concat", *parts, axis=1)
    return net("Conv", y, net.rng.standard_normal((WIDTH, 4 * IMAGE[1] // group, 1, 1)), group=group) if conv else y


def column(net: Net, x: str, *, width: int = 1, shape: Sequence[int] = (1,), swap: bool = False) -> str:
    """A linear layer of `width` columns with a number as its bias."""
    y = net("MatMul", x, net.rng.standard_normal((WIDTH, width)))
    return net("Add", *_ordered(y, np.full(tuple(shape), 0.25, np.float32), swap))


def _ordered(a: str | np.ndarray, b: str | np.ndarray, swap: bool) -> tuple[str | np.ndarray, str | np.ndarray]:
    return (b, a) if swap else (a, b)


def network(write: Callable[..., str], extents: Sequence[int], /, opset: int = 17, **options: Any) -> onnx.ModelProto:
    net = Net(opset)
    return net.model({"x": (FLOATS, tuple(extents))}, net("Relu", write(net, "x", **options)))


def _rows() -> Iterator[tuple[str, Callable[..., str], tuple[int, ...], dict[str, Any]]]:
    rows, batch = (1, ROWS, WIDTH), (2, ROWS, WIDTH)
    for opset in (11, 13, 17):
        yield f"layer_norm-{opset}", layer_norm, rows, {"opset": opset}
    for name, options in {
        "plain": {"affine": 0}, "weight": {"affine": 1}, "swapped": {"swap": True}, "eps-axis": {"eps": 1},
        "power-axis": {"power": 1}, "power-axes": {"power": 3}, "product": {"power": None}, "axis-2": {"axes": (2,)},
        "two-axes": {"axes": (-2, -1), "shape": (ROWS, WIDTH)}, "wide-weight": {"shape": (1, 1, WIDTH)},
        "twice": {"twice": True}, "reciprocal": {"reciprocal": True},
    }.items():  # fmt: skip
        yield f"layer_norm-{name}", layer_norm, rows, options
    yield "layer_norm-2d", layer_norm, (ROWS, WIDTH), {}
    yield "layer_norm-4d", layer_norm, (1, 3, ROWS, WIDTH), {}
    channels = {"axes": (1,), "shape": (WIDTH, 1, 1)}
    for name, shape, options in (
        ("affine", IMAGE, {}), ("plain", IMAGE, {"affine": 0}), ("weight", IMAGE, {"affine": 1}),
        ("swapped", IMAGE, {"swap": True}), ("four-axes", IMAGE, {"shape": (1, WIDTH, 1, 1)}),
        ("power-axes", IMAGE, {"power": 3}), ("product", IMAGE, {"power": None}), ("front", IMAGE, {"axes": (-3,)}),
        ("tokens", (2, WIDTH, ROWS), {"shape": (WIDTH, 1)}), ("rows", (ROWS, WIDTH), {"shape": (WIDTH,)}),
    ):  # fmt: skip
        yield f"pixel_norm-{name}", layer_norm, shape, channels | options
    for opset in (10, 11, 17):
        yield f"hard_swish-{opset}", hard_swish, IMAGE, {"opset": opset}
    for name, options in {
        "swapped": {"swap": True}, "axis": {"rank": 1}, "sixth": {"gate": "Mul Sixth"},
        "gate": {"gate": "Div Mul"}, "gate-sixth": {"gate": "Sixth Mul"}, "sigmoid": {"gate": "Div"},
        "sigmoid-axis": {"gate": "Div", "rank": 1}, "sigmoid-sixth": {"gate": "Sixth"},
    }.items():  # fmt: skip
        yield f"hard_swish-{name}", hard_swish, IMAGE, options
    for form in ("first erf", "last erf", "first tanh", "last tanh", "late tanh", "first products"):
        yield f"gelu-{form.replace(' ', '-')}", gelu, rows, {"form": form}
        yield f"gelu-{form.replace(' ', '-')}-views", gelu, rows, {"form": form, "views": True}
    yield "gelu-tanh-axis", gelu, rows, {"form": "first tanh", "rank": 1}
    yield "gelu-tanh-axes", gelu, rows, {"form": "first tanh", "rank": 3}
    yield "quick_gelu", quick_gelu, rows, {}
    for name, options in {
        "bias": {}, "no-bias": {"bias": False}, "swapped": {"swap": True}, "axes": {"shape": (1, 1, WIDTH)},
        "rows": {"shape": (ROWS, WIDTH)}, "column": {"shape": (ROWS, 1)}, "quotient": {"op": "Div"},
        "after-relu": {"relu": True, "factors": (0.5, 2, 3)},
    }.items():  # fmt: skip
        yield f"layer_scale-{name}", layer_scale, rows, options
    yield "layer_scale-batch", layer_scale, batch, {}
    yield "layer_scale-4d", layer_scale, (1, 2, ROWS, WIDTH), {}
    for name, options in {
        "unit": {},
        "weights": {"unit": False},
        "affine": {"affine": True},
        "copied": {"first": 0},
    }.items():
        yield f"group_norm-{name}", group_norm, IMAGE, options
    for op in ("LayerNormalization", "InstanceNormalization"):
        for weight, bias in ((1, 0), (1, 0.5), (2, 0), (2, 0.5)):
            yield f"{op}-{weight}-{bias}", norm, IMAGE, {"op": op, "weight": weight, "bias": bias}


def _layers() -> Iterator[tuple[str, Callable[..., str], tuple[int, ...], dict[str, Any]]]:
    rows = (1, ROWS, WIDTH)
    for name, options in {
        "columns": {"places": "00 10 01 11"}, "rows": {"places": "00 01 10 11"},
        "own-inverse": {"places": "11 01 10 00"},
        "groups": {"places": "00 10 01 11", "group": 2}, "columns-alone": {"places": "00 10 01 11", "conv": False},
        "other-alone": {"places": "11 01 10 00", "conv": False},
    }.items():  # fmt: skip
        yield f"focus-{name}", focus, IMAGE, options
    for name, options in {
        "one": {}, "one-number": {"shape": ()}, "one-swapped": {"swap": True}, "one-axes": {"shape": (1, 1)},
        "two": {"width": 2}, "two-number": {"width": 2, "shape": ()},
    }.items():  # fmt: skip
        yield f"column-{name}", column, rows, options
    yield "column-one-2d", column, (ROWS, WIDTH), {}


FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    name: partial(network, form, shape, **options) for name, form, shape, options in (*_rows(), *_layers())
}
"""The networks by name; each ends with a Relu."""
