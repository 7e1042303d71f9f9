"""Element-wise ops of several tensors: arithmetic, comparisons and logic, Where, and Cast."""

import numpy as np
from onnx import TensorProto
from xdsl.ir import SSAValue

from tpusim.frontend.onnx.model_file import NUMBERS, type_text
from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ir.types import shape_of
from tpusim.numbers.border import SMALL_FLOATS, is_float, is_integer, largest
from tpusim.ops.activation import TopPow, TopReciprocal, TopSqrt, TopTrunc
from tpusim.ops.add import TopAdd
from tpusim.ops.compare import TopCompare, TopCompareConst
from tpusim.ops.conv import TopConv
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import ArithmeticTop, broadcast_shape
from tpusim.ops.minmax import TopMax, TopMin
from tpusim.ops.mul import TopMul
from tpusim.ops.power import TopMod, TopPow3
from tpusim.ops.relu import TopClip
from tpusim.ops.sub import TopDiv, TopSub
from tpusim.ops.where import TopWhere


def _of_all(cls: type[ArithmeticTop]) -> Mapper:
    """One op of all operands; a single one is the result."""

    def read(node: Node) -> SSAValue:
        values = node.values()
        return values[0] if len(values) == 1 else cls.make(node.builder, values, name=node.output)

    return read


def _constant_last(node: Node) -> list[SSAValue]:
    """The operands, those of two exchanged if the first alone is constant."""
    values = node.values()
    exchanged = len(values) == 2 and node.constant(0) is not None and node.constant(1) is None  # noqa: PLR2004
    return values[::-1] if exchanged else values


def mul(node: Node) -> SSAValue:
    """Mul, the constant last."""
    return TopMul.make(node.builder, _constant_last(node), name=node.output)


def add(node: Node) -> SSAValue:
    """Add, the constant last, and Sum as a chain of Adds; one operand is the identity.

    Without `do_relu` the Adds of a Sum are no duplicates of others (U-17). A constant before a convolution without bias
    stays first: it does not become the bias (U-19).
    """
    values = node.values()
    conv = values[-1].owner
    kept = isinstance(conv, TopConv) and is_none(conv.bias)
    total, *others = values if kept else _constant_last(node)
    for i, value in enumerate(others, 1):
        name = node.output if i == len(others) else f"{node.output}_{i}_{node.op_type}"
        do_relu = None if node.op_type == "Sum" else False
        total = TopAdd.make(node.builder, [total, value], do_relu=do_relu, name=name)
    return total


def power(node: Node) -> SSAValue:
    """Pow; constant exponents such as 2 or 0.5 become the special op."""
    exponent = node.constant(1)
    number = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else None
    keeps = exponent is not None and exponent.ndim <= len(node.shape(0)) and node.constant(0) is None
    if number is None or not keeps:
        return TopPow3.make(node.builder, node.value(0), node.value(1), name=node.output)
    x = node.value(0)
    if number not in (1.0, 2.0, 0.5, -1.0):
        return TopPow.make(node.builder, x, exponent=number, name=node.output)
    if number == 1.0:
        return x
    if number == 2.0:
        return TopMul.make(node.builder, [x, x], name=node.output)
    return (TopSqrt if number == 0.5 else TopReciprocal).make(node.builder, x, name=node.output)


def mod(node: Node) -> SSAValue:
    """Mod: the remainder, with the divisor's sign or, with fmod, the dividend's."""
    fmod = bool(node.take("fmod", 0))
    return TopMod.make(node.builder, node.value(0), node.value(1), fmod=fmod, name=node.output)


def compare(node: Node) -> SSAValue:
    """Comparisons of numbers and the logical ops of bools; axis and broadcast of old opsets are refused."""
    rank = node.rank()
    left, right = node.real(0, rank), node.real(1, rank)
    return TopCompare.make(node.builder, left, right, mode=node.op_type, name=node.output)


def logical_not(node: Node) -> SSAValue:
    """Not: equal to 0."""
    return TopCompareConst.make(node.builder, node.value(0), mode="Equal", const_val=0.0, name=node.output)


def cast(node: Node) -> SSAValue:
    """Cast: to bool it is x != 0, from floats to integers it rounds towards 0; other casts change nothing in f32.

    The importer wraps an integer that is cast to a narrower type, as it wraps all results of integers.
    """
    x, target = node.value(0), int(node.take("to", 0))
    saturates, source = bool(node.take("saturate", 1)), node.dtype(0)
    node.take("round_mode")  # an operand of a type that is refused
    if target not in NUMBERS:
        raise ValueError(f"a cast to a float, an integer or bool is required, got {type_text(target)}")
    if target == TensorProto.BOOL and source.kind != "b":
        return TopCompareConst.make(node.builder, x, mode="NotEqual", const_val=0.0, name=node.output)
    if is_integer(NUMBERS[target]) and is_float(source):
        return TopTrunc.make(node.builder, x, name=node.output)
    if NUMBERS[target] in SMALL_FLOATS:
        return _to_small_float(node, x, NUMBERS[target], saturates=saturates)
    return x


def _to_small_float(node: Node, x: SSAValue, target: np.dtype, *, saturates: bool) -> SSAValue:
    """Saturate here; the border rounds, because only a result of the network may be of 8 bits or fewer."""
    if not node.tensors.is_last(node.output):
        raise ValueError(f"only a result of the network may be cast to {target}, but other nodes read '{node.output}'")
    if not saturates:
        return x
    most = largest(target)
    return TopClip.make(node.builder, x, minimum=-most, maximum=most, name=node.output)


def where(node: Node) -> SSAValue:
    """Where; tensors and constants in any mix, numpy broadcasting. A constant of one element is a number of the op."""
    rank, shape = node.rank(), broadcast_shape([node.shape(i) for i in range(3)])
    condition = node.real(0, rank)
    branches = [_scalar(node, i) for i in (1, 2)]
    on_true, on_false = (node.real(i, rank) if b is None else b for i, b in enumerate(branches, 1))
    y = TopWhere.make(node.builder, condition, on_true, on_false, name=node.output)
    if shape_of(y) != shape:
        raise ValueError(f"a condition or a branch of the result's rank {len(shape)} is required")
    return y


def _scalar(node: Node, index: int) -> float | None:
    constant = node.constant(index)
    return float(constant.reshape(-1)[0]) if constant is not None and constant.size == 1 else None


COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")

MAPPERS: dict[str, Mapper] = {
    "Add": add, "Sum": add, "Sub": _of_all(TopSub), "Mul": mul, "Div": _of_all(TopDiv),
    "Max": _of_all(TopMax), "Min": _of_all(TopMin), **dict.fromkeys(COMPARISONS, compare), "Not": logical_not,
    "Cast": cast, "Where": where, "Pow": power, "Mod": mod,
}  # fmt: skip
