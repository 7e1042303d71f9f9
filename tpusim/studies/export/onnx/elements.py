"""Forms of ops that compute every element by itself: activations, arithmetic, comparisons, choices."""

import numpy as np
from xdsl.ir import Operation

from tpusim.ir.types import shape_of
from tpusim.ops.activation import slope, top, without_table
from tpusim.ops.add import TopAdd
from tpusim.ops.compare import LOGICAL, TopCompare, TopCompareConst, checked_mode
from tpusim.ops.const_binary.base import ConstTop
from tpusim.ops.const_binary.top import TopSubConst
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import NaryTop, UnaryTop, is_set, relu_limit_of, relu_of
from tpusim.ops.hard import TopHardSigmoid, TopHardSwish
from tpusim.ops.minmax import TopMax, TopMin
from tpusim.ops.mul import TopMul
from tpusim.ops.power import TopMod, TopPow3
from tpusim.ops.relu import TopClip, TopRelu
from tpusim.ops.sub import TopDiv, TopSub
from tpusim.ops.where import TopWhere
from tpusim.studies.export.onnx.forms import writes
from tpusim.studies.export.onnx.graph import BOOL, INDEX, Nodes, Tensor

ONE_NODE: dict[type[UnaryTop], str] = {
    top.TopSigmoid: "Sigmoid", top.TopTanh: "Tanh", top.TopMish: "Mish", top.TopSoftplus: "Softplus",
    top.TopSoftsign: "Softsign", top.TopExp: "Exp", top.TopLog: "Log", top.TopSqrt: "Sqrt", top.TopErf: "Erf",
    top.TopSin: "Sin", top.TopCos: "Cos", top.TopSinh: "Sinh", top.TopCosh: "Cosh", top.TopAbs: "Abs",
    top.TopFloor: "Floor", top.TopCeil: "Ceil", top.TopRound: "Round", top.TopSign: "Sign", TopHardSwish: "HardSwish",
    without_table.TopTan: "Tan", without_table.TopArccos: "Acos", without_table.TopArctanh: "Atanh",
    without_table.TopArcsin: "Asin", without_table.TopArctan: "Atan",
}  # fmt: skip
"""Ops of one operand and no attribute, and the node that computes the same."""
CHAINS: dict[type[NaryTop], str] = {
    TopAdd: "Add", TopSub: "Sub", TopMul: "Mul", TopDiv: "Div",
}  # fmt: skip
"""Ops that combine their operands from left to right, and the node that combines two."""
WITH_NUMBER = {"mul": "Mul", "add": "Add", "sub": "Sub", "max": "Max", "min": "Min"}
"""Kind of an op of a tensor and a number -> the node."""
SIGMOID_FACTOR = 1.702
"""The factor of the approximation of GELU by a sigmoid."""


def fused_relu(op: Operation, nodes: Nodes, y: Tensor) -> Tensor:
    """The relu that an op computes after its result, with its limit."""
    return _relu(nodes, y, relu_limit_of(op)) if relu_of(op) else y


def _relu(nodes: Nodes, x: Tensor, limit: float) -> Tensor:
    return nodes.add("Relu", [x]) if limit < 0 else _clip(nodes, x, 0.0, limit)


def _clip(nodes: Nodes, x: Tensor, low: float, high: float) -> Tensor:
    return nodes.add("Clip", [x, nodes.number(low), nodes.number(high)])


@writes(*ONE_NODE)
def one_node(op: UnaryTop, nodes: Nodes) -> Tensor:
    """A node without attributes."""
    return nodes.add(ONE_NODE[type(op)], [nodes.tensor(op.input)])


@writes(TopRelu)
def relu(op: TopRelu, nodes: Nodes) -> Tensor:
    """Relu, with a limit Clip."""
    limit = relu_limit_of(op)
    return _relu(nodes, nodes.tensor(op.input), limit if limit > 0 else -1.0)


@writes(TopClip)
def clip(op: TopClip, nodes: Nodes) -> Tensor:
    """Clip with both limits."""
    return _clip(nodes, nodes.tensor(op.input), op.minimum.value.data, op.maximum.value.data)


@writes(top.TopSiLU)
def silu(op: top.TopSiLU, nodes: Nodes) -> Tensor:
    """The product with the sigmoid."""
    x = nodes.tensor(op.input)
    return nodes.add("Mul", [x, nodes.add("Sigmoid", [x])])


@writes(top.TopGELU)
def gelu(op: top.TopGELU, nodes: Nodes) -> Tensor:
    """Gelu, or the product with the sigmoid of 1.702 x."""
    x = nodes.tensor(op.input)
    if op.approx_mode.data == "sigm":
        return nodes.add("Mul", [x, nodes.add("Sigmoid", [nodes.add("Mul", [x, nodes.number(SIGMOID_FACTOR)])])])
    return nodes.add("Gelu", [x], approximate="tanh" if op.approx_mode.data == "tanh" else "none")


@writes(top.TopElu, slope.TopLeakyRelu)
def with_alpha(op: "top.TopElu | slope.TopLeakyRelu", nodes: Nodes) -> Tensor:
    """One Elu or LeakyRelu node."""
    kind = "Elu" if isinstance(op, top.TopElu) else "LeakyRelu"
    return nodes.add(kind, [nodes.tensor(op.input)], alpha=op.alpha.value.data)


@writes(TopHardSigmoid)
def hard_sigmoid(op: TopHardSigmoid, nodes: Nodes) -> Tensor:
    """One HardSigmoid node with both constants."""
    return nodes.add("HardSigmoid", [nodes.tensor(op.input)], alpha=op.alpha.value.data, beta=op.beta.value.data)


@writes(slope.TopPRelu)
def prelu(op: slope.TopPRelu, nodes: Nodes) -> Tensor:
    """PRelu, its slope along axis 1."""
    rank, slopes = len(shape_of(op.input)), nodes.array(op.slope)
    shape = (-1, *(1,) * (rank - 2)) if rank > 1 else (-1,)
    y = nodes.tensor(op.slope) if slopes is None else nodes.constant(slopes.astype(np.float32).reshape(shape))
    y = nodes.add("Reshape", [y, nodes.indices(shape)]) if slopes is None and rank > 2 else y  # noqa: PLR2004
    return nodes.add("PRelu", [nodes.tensor(op.input), y])


@writes(top.TopRsqrt)
def rsqrt(op: top.TopRsqrt, nodes: Nodes) -> Tensor:
    """The reciprocal of the root."""
    return nodes.add("Reciprocal", [nodes.add("Sqrt", [nodes.tensor(op.input)])])


@writes(top.TopReciprocal)
def reciprocal(op: top.TopReciprocal, nodes: Nodes) -> Tensor:
    """Reciprocal, or the quotient of another number."""
    x, number = nodes.tensor(op.input), op.const_val.value.data
    return nodes.add("Reciprocal", [x]) if number == 1 else nodes.add("Div", [nodes.number(number), x])


@writes(top.TopPow)
def power_of_number(op: top.TopPow, nodes: Nodes) -> Tensor:
    """Pow with a constant exponent."""
    return nodes.add("Pow", [nodes.tensor(op.input), nodes.number(op.exponent.value.data)])


@writes(without_table.TopTrunc)
def trunc(op: without_table.TopTrunc, nodes: Nodes) -> Tensor:
    """A cast to integers of 64 bits, which rounds towards 0."""
    return nodes.cast(nodes.tensor(op.input), INDEX)


@writes(*CHAINS)
def chain(op: NaryTop, nodes: Nodes) -> Tensor:
    """The operands combined from left to right."""
    y, *rest = (nodes.tensor(v) for v in op.inputs)
    for operand in rest:
        y = nodes.add(CHAINS[type(op)], [y, operand])
    return fused_relu(op, nodes, y)


@writes(TopMax, TopMin)
def extreme(op: NaryTop, nodes: Nodes) -> Tensor:
    """Max or Min of all operands."""
    kind = "Max" if isinstance(op, TopMax) else "Min"
    return fused_relu(op, nodes, nodes.add(kind, [nodes.tensor(v) for v in op.inputs]))


@writes(ConstTop)
def with_number(op: ConstTop, nodes: Nodes) -> Tensor:
    """A tensor and a number."""
    pair = [nodes.tensor(op.input), nodes.number(op.number)]
    backwards = isinstance(op, TopSubConst) and is_set(op.is_reverse)
    return fused_relu(op, nodes, nodes.add(WITH_NUMBER[op.KIND], pair[::-1] if backwards else pair))


@writes(TopPow3)
def power(op: TopPow3, nodes: Nodes) -> Tensor:
    """Pow of two tensors."""
    return nodes.add("Pow", [nodes.tensor(v) for v in op.operands])


@writes(TopMod)
def mod(op: TopMod, nodes: Nodes) -> Tensor:
    """Mod of floats; with the sign of the divisor x - floor(x / y) * y, which Mod has for integers only."""
    x, y = (nodes.tensor(v) for v in op.operands)
    if is_set(op.fmod):
        return nodes.add("Mod", [x, y], fmod=1)
    return nodes.add("Sub", [x, nodes.add("Mul", [nodes.add("Floor", [nodes.add("Div", [x, y])]), y])])


@writes(TopCompare, TopCompareConst)
def compare(op: "TopCompare | TopCompareConst", nodes: Nodes) -> Tensor:
    """A node that gives bools."""
    mode = checked_mode(op.mode)
    dtype = BOOL if mode in LOGICAL else None
    if isinstance(op, TopCompare):
        left, right = (nodes.tensor(v, dtype or np.dtype(np.float32)) for v in op.inputs)
    else:
        number = nodes.number(op.const_val.value.data)
        left, right = nodes.tensor(op.input, dtype or np.dtype(np.float32)), nodes.cast(number, dtype or number.dtype)
        left, right = (right, left) if is_set(op.inversed) else (left, right)
    if mode == "NotEqual":
        return nodes.add("Not", [nodes.add("Equal", [left, right], dtype=BOOL)], dtype=BOOL)
    return nodes.add(mode, [left, right], dtype=BOOL)


@writes(TopWhere)
def where(op: TopWhere, nodes: Nodes) -> Tensor:
    """Where, its constant branches as numbers."""
    branches = [
        nodes.number(number) if is_none(value) else nodes.tensor(value)
        for value, number in zip(op.operands[1:], op.numbers, strict=True)
    ]
    return nodes.add("Where", [nodes.tensor(op.operands[0], BOOL), *branches])
