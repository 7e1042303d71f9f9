"""Element-wise ops of several tensors: arithmetic, comparisons and logic, Where, and Cast between what they hold."""

from onnx import TensorProto
from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ir.types import shape_of
from tpusim.ops.add import TopAdd
from tpusim.ops.base import holds
from tpusim.ops.compare import TopCompare, TopCompareConst
from tpusim.ops.families import ArithmeticTop, broadcast_shape
from tpusim.ops.minmax import TopMax, TopMin
from tpusim.ops.mul import TopMul
from tpusim.ops.sub import TopDiv, TopSub
from tpusim.ops.where import TopWhere

INTEGERS = {TensorProto.INT32, TensorProto.INT64}
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


def _of_all(cls: type[ArithmeticTop]) -> Mapper:
    """One op of all operands; a single one is the result."""

    def read(node: Node) -> SSAValue:
        values = node.values()
        return values[0] if len(values) == 1 else cls.make(node.builder, values, name=node.output)

    return read


def add(node: Node) -> SSAValue:
    """Add, and Sum as a chain of Adds; one operand is the identity.

    Without `do_relu` the Adds of a Sum are no duplicates of others, as upstream's.
    """
    total, *others = node.values()
    for i, value in enumerate(others, 1):
        name = node.output if i == len(others) else f"{node.output}_{i}_{node.op_type}"
        do_relu = None if node.op_type == "Sum" else False
        total = TopAdd.make(node.builder, [total, value], do_relu=do_relu, name=name)
    return total


def compare(node: Node) -> SSAValue:
    """Comparisons of numbers and the logical ops of bools; axis and broadcast of old opsets are refused."""
    rank = node.rank()
    left, right = node.real(0, rank), node.real(1, rank)
    return TopCompare.make(node.builder, left, right, mode=node.op_type, name=node.output)


def logical_not(node: Node) -> SSAValue:
    """Not: equal to 0."""
    return TopCompareConst.make(node.builder, node.value(0), mode="Equal", const_val=0.0, name=node.output)


def cast(node: Node) -> SSAValue:
    """To bool: not equal to 0; other casts are the identity where no value changes (floats are f32 in a top module)."""
    x, target = node.value(0), int(node.take("to", 0))
    kind = holds(x)
    if target in FLOATS or kind == "bool" and target in (*INTEGERS, TensorProto.BOOL):
        return x
    if kind in ("index", "integer") and target in INTEGERS:
        return x
    if target != TensorProto.BOOL:
        to = TensorProto.DataType.Name(target)  # type: ignore[arg-type]
        raise ValueError(f"a cast to float or bool is required (of bools and indices also to int), got {to}")
    return TopCompareConst.make(node.builder, x, mode="NotEqual", const_val=0.0, name=node.output)


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
    "Add": add, "Sum": add, "Sub": _of_all(TopSub), "Mul": _of_all(TopMul), "Div": _of_all(TopDiv),
    "Max": _of_all(TopMax), "Min": _of_all(TopMin), **dict.fromkeys(COMPARISONS, compare), "Not": logical_not,
    "Cast": cast, "Where": where,
}  # fmt: skip
