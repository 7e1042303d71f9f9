"""Arithmetic that is made of other arithmetic."""

from collections.abc import Callable

import numpy as np

from tpusim.frontend.onnx.parts import Parts


def f32(value: float) -> np.ndarray:
    """A scalar constant in f32."""
    return np.array(value, np.float32)


def mean(p: Parts) -> None:
    """The sum over the number of operands."""
    total = p.op("Sum", *p.node.inputs)
    p.result("Div", total, np.array(len(p.node.inputs), p.node.dtype(0)))


def is_nan(p: Parts) -> None:
    """IsNaN: a number that is unequal to itself."""
    p.result("Not", p.op("Equal", p.x, p.x))


def is_inf(p: Parts) -> None:
    """Equal to one infinity, or both."""
    signs = {"detect_positive": np.inf, "detect_negative": -np.inf}
    wanted = [value for key, value in signs.items() if p.node.take(key, 1)]
    dtype = p.node.dtype(0)
    if len(wanted) == 1:
        p.result("Equal", p.x, np.array(wanted[0], dtype))
    elif wanted:
        p.result("Equal", p.op("Abs", p.x), np.array(np.inf, dtype))
    else:
        p.result("Greater", p.x, np.array(np.inf, dtype))


def clip(p: Parts) -> None:
    """Computed bounds: Max, then Min."""
    low, high = p.input(1), p.input(2)
    x = p.op("Max", p.x, low) if low else p.x
    p.result("Min", x, high) if high else p.result("Identity", x)


def inverse_sine(p: Parts) -> None:
    """asinh(x) = sign(x) log(|x| + sqrt(x^2 + 1))."""
    size = p.op("Abs", p.x)
    root = p.op("Sqrt", p.op("Add", p.op("Mul", p.x, p.x), f32(1)))
    p.result("Mul", p.op("Sign", p.x), p.op("Log", p.op("Add", size, root)))


def inverse_cosine(p: Parts) -> None:
    """acosh(x) = log(x + sqrt(x^2 - 1))."""
    root = p.op("Sqrt", p.op("Sub", p.op("Mul", p.x, p.x), f32(1)))
    p.result("Log", p.op("Add", p.x, root))


def hardmax(p: Parts) -> None:
    """1 at the first of the largest, else 0."""
    shape = p.node.shape(0)
    rank, opset = len(shape), p.node.opset
    axis = int(p.node.take("axis", -1 if opset >= 13 else 1)) % rank
    place = p.op("ArgMax", p.x, axis=axis)
    along = np.arange(shape[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(rank)])
    p.result("Where", p.op("Equal", place, along), f32(1), f32(0))


def lp_normalization(p: Parts) -> None:
    """X over the norm along an axis; 0 where that is 0."""
    order, axis = int(p.node.take("p", 2)), int(p.node.take("axis", -1))
    norm = p.op("ReduceL1" if order == 1 else "ReduceL2", p.x, np.array([axis]))
    zero = p.op("Equal", norm, f32(0))
    p.result("Div", p.x, p.op("Where", zero, f32(1), norm))


def reduction(p: Parts) -> None:
    """ReduceSumSquare, ReduceLogSum and ReduceLogSumExp; the exponentials are those of distances to the largest."""
    kind, keepdims = p.node.op_type, int(p.node.take("keepdims", 1))
    axes = p.node.take("axes") if p.node.opset < 18 else p.node.numbers(1, "axes")
    rank = len(p.node.shape(0))
    none = not axes and p.node.take("noop_with_empty_axes", 0)
    along = np.array([] if none else axes or range(rank), np.int64)

    def reduced(op_type: str, x: str, keep: int) -> str:
        return x if none else p.op(op_type, x, along, keepdims=keep)

    if kind == "ReduceSumSquare":
        p.result("Identity", reduced("ReduceSum", p.op("Mul", p.x, p.x), keepdims))
    elif kind == "ReduceLogSum":
        p.result("Log", reduced("ReduceSum", p.x, keepdims))
    else:
        most = float(np.finfo(np.float32).max)
        first = p.op("Clip", reduced("ReduceMax", p.x, 1), f32(-most), f32(most))
        total = reduced("ReduceSum", p.op("Exp", p.op("Sub", p.x, first)), 1)
        y = p.op("Add", p.op("Log", total), first)
        p.result("Identity", y if keepdims or none else p.op("Squeeze", y, along))


def bit_shift(p: Parts) -> None:
    """BitShift as products with powers of two, rounded down; a shift by all bits leaves only the sign."""
    dtype, bits = p.node.dtype(0), 8 * p.node.dtype(0).itemsize
    right = p.node.take("direction") == "RIGHT"
    x, count = p.op("Cast", p.x, to=1), p.op("Cast", p.input(1), to=1)
    outside = p.op("Or", p.op("Less", count, f32(0)), p.op("Greater", count, f32(bits - 1)))
    inside = p.op("Where", outside, f32(0), count)
    y = p.op("Mul", x, p.op("Pow", f32(0.5 if right else 2), inside))
    if right:
        signs = p.op("Where", p.op("Less", x, f32(0)), f32(-1), f32(0))
        y = p.op("Where", outside, signs, p.op("Floor", y))
    else:
        y = _with_sign(p, p.op("Mod", p.op("Where", outside, f32(0), y), f32(2.0**bits)), dtype)
    p.result("Cast", y, to=p.node.tensors.types.of(p.node.output))


def _with_sign(p: Parts, x: str, dtype: np.dtype) -> str:
    """The number that bits represent in two's complement."""
    if dtype.kind != "i":
        return x
    bits = 8 * dtype.itemsize
    high = p.op("GreaterOrEqual", x, f32(2.0 ** (bits - 1)))
    return p.op("Sub", x, p.op("Mul", p.op("Cast", high, to=1), f32(2.0**bits)))


def bitwise(p: Parts) -> None:
    """Bit by bit, of integers of 8 bits and of 16; negative ones are in two's complement."""
    dtype, kind = p.node.dtype(0), p.node.op_type
    if dtype.itemsize > 2:
        raise ValueError(f"integers of 8 or 16 bits are required, got {dtype}, whose bits f32 does not hold")
    bits = 8 * dtype.itemsize
    a, b = (p.op("Mod", p.op("Cast", p.input(i), to=1), f32(2.0**bits)) for i in (0, 1))
    total = ""
    for bit in range(bits):
        one, two = (_bit(p, x, bit) for x in (a, b))
        both = p.op("Mul", one, two)
        if kind != "BitwiseAnd":
            both = p.op("Sub", p.op("Add", one, two), p.op("Mul", both, f32(1 if kind == "BitwiseOr" else 2)))
        part = p.op("Mul", both, f32(2.0**bit))
        total = p.op("Add", total, part) if total else part
    p.result("Cast", _with_sign(p, total, dtype), to=p.node.tensors.types.of(p.node.output))


def bit_cast(p: Parts) -> None:
    """Between integers, and bools, of at most 16 bits."""
    source, target = p.node.dtype(0), p.node.tensors.types.dtype(p.node.output)
    p.node.take("to")
    if source.kind not in "iub" or target.kind not in "iu" or source.itemsize > 2:
        raise ValueError(f"integers of 8 or 16 bits are required, got {source} and {target}")
    p.result("Cast", p.x, to=p.node.tensors.types.of(p.node.output))


def _bit(p: Parts, x: str, bit: int) -> str:
    return p.op("Mod", p.op("Floor", p.op("Mul", x, f32(0.5**bit))), f32(2))


def bitwise_not(p: Parts) -> None:
    """-1 - x, or the largest number less x without sign."""
    dtype = p.node.dtype(0)
    largest = np.array(-1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)
    p.result("Sub", largest, p.x)


def gemm(p: Parts) -> None:
    """Gemm with alpha and beta and computed operands; C may have any shape that broadcasts."""
    left = p.op("Transpose", p.x, perm=[1, 0]) if p.node.take("transA", 0) else p.x
    right = p.op("Transpose", p.input(1), perm=[1, 0]) if p.node.take("transB", 0) else p.input(1)
    alpha, beta = (float(p.node.take(key, 1.0)) for key in ("alpha", "beta"))
    y = p.op("MatMul", left, right)
    y = p.op("Mul", y, f32(alpha)) if alpha != 1 else y
    if p.input(2):
        c = p.op("Mul", p.input(2), f32(beta)) if beta != 1 else p.input(2)
        p.result("Add", y, c)
    else:
        p.result("Identity", y)


def prelu(p: Parts) -> None:
    """Slopes of any shape: max(x, 0) + slope * min(x, 0)."""
    zero = np.zeros((), p.node.dtype(0))
    below = p.op("Mul", p.op("Min", p.x, zero), p.input(1))
    p.result("Add", p.op("Max", p.x, zero), below)


def batch_normalization(p: Parts) -> None:
    """Computed parameters: (x - mean) / sqrt(variance + epsilon) * scale + bias."""
    shape = p.node.shape(0)
    side = [shape[1] if a == 1 else 1 for a in range(len(shape))]
    if p.node.take("training_mode", 0):
        raise ValueError("training_mode must be 0; export the model for inference")
    scale, bias, mean, variance = (p.reshape(p.input(i), *side) for i in range(1, 5))
    root = p.op("Sqrt", p.op("Add", variance, f32(float(p.node.take("epsilon", 1e-5)))))
    p.result("Add", p.op("Mul", p.op("Div", p.op("Sub", p.x, mean), root), scale), bias)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {
    "Mean": mean, "IsNaN": is_nan, "IsInf": is_inf, "Clip": clip, "Asinh": inverse_sine, "Acosh": inverse_cosine,
    "Hardmax": hardmax, "LpNormalization": lp_normalization, "BitCast": bit_cast, "BitShift": bit_shift,
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), bitwise), "BitwiseNot": bitwise_not, "Gemm": gemm,
    "PRelu": prelu, "BatchNormalization": batch_normalization,
    **dict.fromkeys(("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), reduction),
}  # fmt: skip
