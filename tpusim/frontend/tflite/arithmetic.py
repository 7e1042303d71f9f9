"""Ops that compute elements from elements, rows and matrices."""

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.tflite.activation import activate, activated, function
from tpusim.frontend.tflite.file import Operator
from tpusim.frontend.tflite.writer import NCHW_AXIS, Writer

FLOOR_OF = "operands of floats are required, whole numbers are divided in another way"


def unary(w: Writer, op: Operator) -> None:
    """A function of every element."""
    function(w, op.kind, w.value(op.inputs[0], images=True), w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


def leaky_relu(w: Writer, op: Operator) -> None:
    """Alpha times x below 0."""
    x = w.value(op.inputs[0], images=True)
    w.node("LeakyRelu", [x], w.target(op.outputs[0]), alpha=op.option("Alpha", 0.0))
    w.done(op.outputs[0], images=True)


def rsqrt(w: Writer, op: Operator) -> None:
    """1 over the root."""
    y = w.target(op.outputs[0])
    w.node("Reciprocal", [w.node("Sqrt", [w.value(op.inputs[0], images=True)], f"{y}_root")], y)
    w.done(op.outputs[0], images=True)


def square(w: Writer, op: Operator) -> None:
    """The square of an operand, or of the difference of two."""
    y = w.target(op.outputs[0])
    names, images = operands(w, op)
    x = names[0] if op.kind == "SQUARE" else w.node("Sub", names, f"{y}_difference")
    w.node("Mul", [x, x], y)
    w.done(op.outputs[0], images=images)


def gelu(w: Writer, op: Operator) -> None:
    """x/2 (1 + erf(x / sqrt 2)), or with tanh of a cubic in place of erf."""
    x, y = w.value(op.inputs[0], images=True), w.target(op.outputs[0])

    def number(name: str, value: float) -> str:
        return w.array(f"{y}_{name}", np.array(value, np.float32))

    if op.option("Approximate", 0):
        cubic = w.node("Mul", [w.node("Mul", [x, x], f"{y}_square"), x], f"{y}_cube")
        inner = w.node("Add", [x, w.node("Mul", [cubic, number("c", 0.044715)], f"{y}_part")], f"{y}_sum")
        bell = w.node("Tanh", [w.node("Mul", [inner, number("s", np.sqrt(2 / np.pi))], f"{y}_inner")], f"{y}_bell")
    else:
        bell = w.node("Erf", [w.node("Div", [x, number("root", np.sqrt(2))], f"{y}_inner")], f"{y}_bell")
    weighted = w.node("Mul", [x, w.node("Add", [bell, number("one", 1.0)], f"{y}_weight")], f"{y}_double")
    w.node("Mul", [weighted, number("half", 0.5)], y)
    w.done(op.outputs[0], images=True)


BINARY = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow", "MAXIMUM": "Max", "MINIMUM": "Min",
    "ADD_N": "Sum", "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "SELECT_V2": "Where",
}  # fmt: skip


def binary(w: Writer, op: Operator) -> None:
    """An op of two or more operands, with broadcasting from the last axis of NHWC."""
    names, images = operands(w, op)
    if op.kind == "DIV" and w.tensor(op.outputs[0]).dtype.kind != "f" and not len(w.tensor(op.outputs[0]).scales):
        raise UnsupportedError(FLOOR_OF)
    w.node(BINARY[op.kind], names, activated(w, op))
    activate(w, op, images=images)


def select(w: Writer, op: Operator) -> None:
    """The elements of one operand or the other; a condition of one axis chooses whole rows."""
    condition, y = w.tensor(op.inputs[0]), w.target(op.outputs[0])
    names = [w.value(number, images=False) for number in op.inputs]
    if len(condition.shape) == 1:
        rows = np.array([-1] + [1] * (len(w.tensor(op.outputs[0]).shape) - 1))
        names[0] = w.node("Reshape", [names[0], w.array(f"{y}_rows", rows)], f"{y}_condition")
    w.node("Where", names, y)
    w.done(op.outputs[0], images=False)


def not_equal(w: Writer, op: Operator) -> None:
    """NOT_EQUAL: the negation of EQUAL."""
    y = w.target(op.outputs[0])
    names, images = operands(w, op)
    w.node("Not", [w.node("Equal", names, f"{y}_equal")], y)
    w.done(op.outputs[0], images=images)


def floor_pair(w: Writer, op: Operator) -> None:
    """The whole part of a quotient, or what it leaves of the dividend."""
    y = w.target(op.outputs[0])
    if w.tensor(op.outputs[0]).dtype != np.float32:
        raise UnsupportedError(FLOOR_OF)
    (a, b), images = operands(w, op)
    whole = w.node("Floor", [w.node("Div", [a, b], f"{y}_quotient")], y if op.kind == "FLOOR_DIV" else f"{y}_whole")
    if op.kind == "FLOOR_MOD":
        w.node("Sub", [a, w.node("Mul", [whole, b], f"{y}_part")], y)
    w.done(op.outputs[0], images=images)


def prelu(w: Writer, op: Operator) -> None:
    """A slope below 0 for each channel, or element."""
    names, images = operands(w, op)
    w.node("PRelu", names, w.target(op.outputs[0]))
    w.done(op.outputs[0], images=images)


def operands(w: Writer, op: Operator) -> tuple[list[str], bool]:
    """The operands, and whether they are NCHW images: all have four axes, or are constants padded to four axes."""
    rank = len(w.tensor(op.outputs[0]).shape)
    tensors = [w.tensor(n) for n in op.inputs]
    images = rank == 4 and all(len(t.shape) == 4 or t.data is not None for t in tensors)
    return [_operand(w, n) if images else w.value(n, images=False) for n in op.inputs], images


def _operand(w: Writer, number: int) -> str:
    """An operand as NCHW; a constant of fewer axes first gets leading axes of length 1."""
    tensor = w.tensor(number)
    if tensor.data is None or tensor.data.ndim == 4:
        return w.value(number, images=True)
    wide = tensor.data.reshape((1,) * (4 - tensor.data.ndim) + tensor.data.shape)
    return w.constant(number, wide.transpose(0, 3, 1, 2), 1, "nchw")


# ------------------------------------------------------------------------------------------------------------- matrices


def fully_connected(w: Writer, op: Operator) -> None:
    """The product of x (..., ic) and weights (oc, ic)."""
    weight, matrix = w.tensor(op.inputs[1]), w.value(op.inputs[1], images=False)
    if len(weight.shape) != 2 or op.option("WeightsFormat", 0):
        raise UnsupportedError("a matrix in the plain form is required")
    y = op.outputs[0]
    x, width, given = w.value(op.inputs[0], images=False), weight.shape[-1], w.tensor(op.inputs[0]).shape
    if len(given) != 2 or given[1] != width:
        rows = w.array(f"{w.target(y)}_rows", np.array([-1, width]))
        x = w.node("Reshape", [x, rows], f"{w.target(y)}_input")
    bias = [w.value(op.inputs[2], images=False)] if len(op.inputs) > 2 and op.inputs[2] >= 0 else []
    target, shape = activated(w, op), w.tensor(y).shape
    product = target if len(shape) == 2 else f"{target}_product"
    w.node("Gemm", [x, matrix, *bias], product, transB=1)
    if product != target:
        w.node("Reshape", [product, w.array(f"{target}_shape", np.array(shape))], target)
    activate(w, op, images=False)


def batch_matmul(w: Writer, op: Operator) -> None:
    """Matrices of the last two axes, either one perhaps transposed."""
    names, y = list[str](), w.target(op.outputs[0])
    for number, flag in zip(op.inputs, ("AdjX", "AdjY"), strict=True):
        name, rank = w.value(number, images=False), len(w.tensor(number).shape)
        if op.option(flag, 0):
            name = w.node("Transpose", [name], f"{y}_{flag}", perm=[*range(rank - 2), rank - 1, rank - 2])
        names.append(name)
    w.node("MatMul", names, y)
    w.done(op.outputs[0], images=False)


# ----------------------------------------------------------------------------------------------------------------- rows


def softmax(w: Writer, op: Operator) -> None:
    """Softmax of beta times x along the last axis, or its logarithm."""
    x, y, beta = w.value(op.inputs[0], images=True), w.target(op.outputs[0]), op.option("Beta", 1.0)
    if op.kind == "SOFTMAX" and beta != 1.0:
        x = w.node("Mul", [x, w.array(f"{y}_beta", np.array(beta, np.float32))], f"{y}_scaled")
    axis = 1 if len(w.tensor(op.inputs[0]).shape) == 4 else -1
    w.node("Softmax" if op.kind == "SOFTMAX" else "LogSoftmax", [x], y, axis=axis)
    w.done(op.outputs[0], images=True)


REDUCTIONS = {
    "MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
}  # fmt: skip


def reduce(w: Writer, op: Operator) -> None:
    """Reduce images as NCHW if the axes stay or only height and width are removed; else in the file's order."""
    rank, keep = len(w.tensor(op.inputs[0]).shape), int(op.option("KeepDims", 0))
    axes = sorted({int(a) % rank for a in w.integers(op.inputs[1]).reshape(-1)})
    images, y = rank == 4 and (bool(keep) or axes == [1, 2]), w.target(op.outputs[0])
    x = w.value(op.inputs[0], images=images)
    axes = sorted(NCHW_AXIS[a] for a in axes) if images else axes
    kind = REDUCTIONS[op.kind]
    if kind == "ReduceSum":  # the one whose axes are an operand in the operator set that is written
        w.node(kind, [x, w.array(f"{y}_axes", np.array(axes))], y, keepdims=keep)
    else:
        w.node(kind, [x], y, axes=axes, keepdims=keep)
    w.done(op.outputs[0], images=images)


def arg(w: Writer, op: Operator) -> None:
    """The position of the largest or smallest element along an axis, which is removed."""
    axis, y = int(w.integers(op.inputs[1]).reshape(-1)[0]), w.target(op.outputs[0])
    kind, x = "ArgMax" if op.kind == "ARG_MAX" else "ArgMin", w.value(op.inputs[0], images=False)
    w.node("Cast", [w.node(kind, [x], f"{y}_place", axis=axis, keepdims=0)], y, to=w.elem_type(op.outputs[0]))
    w.done(op.outputs[0], images=False)


def top_k(w: Writer, op: Operator) -> None:
    """The largest elements of the rows, and their places."""
    k = w.array(f"{w.target(op.outputs[0])}_k", w.integers(op.inputs[1]).reshape(1))
    places = f"{w.target(op.outputs[1])}_places"
    x = w.value(op.inputs[0], images=False)
    w.node("TopK", [x, k], w.target(op.outputs[0]), places)
    w.done(op.outputs[0], images=False)
    w.node("Cast", [places], w.target(op.outputs[1]), to=w.elem_type(op.outputs[1]))
    w.done(op.outputs[1], images=False)


def l2_normalize(w: Writer, op: Operator) -> None:
    """Rows over the root of their sum of squares, or over 1e-6 if that is larger."""
    images = len(w.tensor(op.inputs[0]).shape) == 4
    x, y = w.value(op.inputs[0], images=True), w.target(op.outputs[0])
    norm = w.node("ReduceL2", [x], f"{y}_norm", axes=[1 if images else -1], keepdims=1)
    least = w.array(f"{y}_least", np.array(1e-6, np.float32))
    w.node("Div", [x, w.node("Max", [norm, least], f"{y}_divisor")], activated(w, op))
    activate(w, op)


def local_response(w: Writer, op: Operator) -> None:
    """LRN over 2 radius + 1 channels; alpha is per channel, not for all channels as in ONNX."""
    size = 2 * op.option("Radius", 0) + 1
    more = {key: op.option(key.capitalize(), 0.0) for key in ("bias", "beta")}
    alpha = op.option("Alpha", 0.0) * size
    w.node("LRN", [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]), size=size, alpha=alpha, **more)
    w.done(op.outputs[0], images=True)


def cumulate(w: Writer, op: Operator) -> None:
    """CUMSUM: the sum of all elements up to each position."""
    axis = w.array(f"{w.target(op.outputs[0])}_axis", w.integers(op.inputs[1]).reshape(()))
    flags = {key: int(op.option(key.capitalize(), 0)) for key in ("exclusive", "reverse")}
    w.node("CumSum", [w.value(op.inputs[0], images=False), axis], w.target(op.outputs[0]), **flags)
    w.done(op.outputs[0], images=False)


def requantise(w: Writer, op: Operator) -> None:
    """Quantize and Dequantize: the same numbers; the result gets a separate Q and DQ pair."""
    w.node("Identity", [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


def cast(w: Writer, op: Operator) -> None:
    """Into the type of the result."""
    w.node("Cast", [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]), to=w.elem_type(op.outputs[0]))
    w.done(op.outputs[0], images=True)
