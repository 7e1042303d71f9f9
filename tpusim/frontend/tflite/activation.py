"""Activation functions: as ops, and fused into another op."""

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.tflite.file import Operator
from tpusim.frontend.tflite.writer import Writer

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
"""`ActivationFunctionType` of the schema, by number."""
CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}
FUNCTIONS = {
    "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "ABS": "Abs", "NEG": "Neg",
    "SQRT": "Sqrt", "EXP": "Exp", "LOG": "Log", "SIN": "Sin", "COS": "Cos", "FLOOR": "Floor", "CEIL": "Ceil",
    "ROUND": "Round", "SIGN": "Sign", "ELU": "Elu", "LOGICAL_NOT": "Not",
}  # fmt: skip
"""Ops of one operand that are one ONNX node without attributes."""


def activated(w: Writer, op: Operator) -> str:
    """The name for the result of an op before its fused activation function."""
    target, number = w.target(op.outputs[0]), _fused(op)
    if not 0 <= number < len(ACTIVATIONS):
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(ACTIVATIONS))
        raise UnsupportedError(
            f"fused activation function {number} is not one of {known}; convert the model with the activation as an op"
        )
    return target if number == 0 else f"{target}_linear"


def activate(w: Writer, op: Operator, *, images: bool = True) -> None:
    """The fused activation function, and the end of the op."""
    target, number = w.target(op.outputs[0]), _fused(op)
    if number:
        function(w, ACTIVATIONS[number], f"{target}_linear", target)
    w.done(op.outputs[0], images=images)


def _fused(op: Operator) -> int:
    return int(op.option("FusedActivationFunction", 0))


def function(w: Writer, kind: str, x: str, y: str) -> None:
    """A function of one operand."""
    if kind in CLIPS:
        least, most = (np.array(end, np.float32) for end in CLIPS[kind])
        w.node("Clip", [x, w.array(f"{y}_least", least), w.array(f"{y}_most", most)], y)
    else:
        w.node(FUNCTIONS[kind], [x], y)
