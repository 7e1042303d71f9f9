"""Forms of ops that compute every element by itself, in floats."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from xdsl.dialects.builtin import f32, i1
from xdsl.ir import Operation

from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.activation import slope, top, without_table
from tpusim.ops.add import TopAdd
from tpusim.ops.compare import LOGICAL, TopCompare, TopCompareConst, TpuCompare, TpuCompareConst, checked_mode
from tpusim.ops.const_binary.base import ConstTop
from tpusim.ops.const_binary.top import TopSubConst
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import NaryTop, UnaryTop, is_set, relu_limit_of, relu_of
from tpusim.ops.hard import TopHardSigmoid, TopHardSwish
from tpusim.ops.minmax import TopMax, TopMin
from tpusim.ops.mul import TopMul
from tpusim.ops.power import TopMod, TopPow3
from tpusim.ops.relu import TopClip, TopRelu, TpuClip
from tpusim.ops.sub import TopDiv, TopSub, TpuDiv
from tpusim.ops.where import TopWhere, TpuWhere
from tpusim.studies.export.tosa.forms import writes
from tpusim.studies.export.tosa.graph import Tensor
from tpusim.studies.export.tosa.walk import Writer, along

ONE_OP: Mapping[type[UnaryTop], str] = {
    top.TopSigmoid: "sigmoid", top.TopTanh: "tanh", top.TopExp: "exp", top.TopLog: "log", top.TopErf: "erf",
    top.TopSin: "sin", top.TopCos: "cos", top.TopAbs: "abs", top.TopFloor: "floor", top.TopCeil: "ceil",
    top.TopRsqrt: "rsqrt",
}  # fmt: skip
"""Ops of one operand, and the op of TOSA that computes the same."""
SIGMOID_FACTOR = 1.702
"""The factor of the approximation of GELU by a sigmoid."""
TANH_CUBE = 0.044715
BINARY = {"mul": "mul", "add": "add", "sub": "sub", "max": "maximum", "min": "minimum"}
"""Kind of an op of a tensor and a number -> the op."""
RELATIONS: Mapping[str, tuple[str, bool, bool]] = {
    "Equal": ("equal", False, False), "NotEqual": ("equal", False, True), "Greater": ("greater", False, False),
    "GreaterOrEqual": ("greater_equal", False, False), "Less": ("greater", True, False),
    "LessOrEqual": ("greater_equal", True, False), "And": ("logical_and", False, False),
    "Or": ("logical_or", False, False), "Xor": ("logical_xor", False, False),
}  # fmt: skip
"""Mode of a comparison -> the op, whether its operands are exchanged, whether its result is negated."""


def fused_relu(op: Operation, g: Writer, y: Tensor) -> Tensor:
    """The relu that an op computes after its float result, with its limit."""
    return g.relu(y, relu_limit_of(op)) if relu_of(op) else y


def two(g: Writer, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """An op of two float or i32 tensors."""
    return g.mul(x, y) if kind == "mul" else g.point(kind, x, y)


def quotient(g: Writer, x: Tensor, y: Tensor) -> Tensor:
    """The product of x with the reciprocal of y."""
    return g.mul(x, g.point("reciprocal", y))


def root(g: Writer, x: Tensor) -> Tensor:
    """The square root: of 0 it is 0."""
    positive = g.point("greater", x, g.scalar(0, x.rank), element=i1)
    return g.point("select", positive, g.point("reciprocal", g.point("rsqrt", x)), x)


def below(g: Writer, x: Tensor, number: float = 0.0) -> Tensor:
    """Whether elements are smaller than a number."""
    return g.point("greater", g.scalar(number, x.rank), x, element=i1)


@writes(*ONE_OP)
def one_op(op: UnaryTop, g: Writer) -> Tensor:
    """One op of every element."""
    return g.point(ONE_OP[type(op)], g.float(op.input))


@writes(top.TopSqrt)
def sqrt(op: top.TopSqrt, g: Writer) -> Tensor:
    """The reciprocal of RSQRT."""
    return root(g, g.float(op.input))


@writes(top.TopSiLU)
def silu(op: top.TopSiLU, g: Writer) -> Tensor:
    """The product with the sigmoid."""
    x = g.float(op.input)
    return g.mul(x, g.point("sigmoid", x))


@writes(top.TopGELU)
def gelu(op: top.TopGELU, g: Writer) -> Tensor:
    """By ERF, by TANH, or by the sigmoid of 1.702 x."""
    x, mode = g.float(op.input), op.approx_mode.data
    if mode == "sigm":
        return g.mul(x, g.point("sigmoid", g.scale(x, SIGMOID_FACTOR)))
    if mode == "tanh":
        cube = g.scale(g.mul(g.mul(x, x), x), TANH_CUBE)
        curve = g.point("tanh", g.scale(g.point("add", x, cube), float(np.sqrt(2 / np.pi))))
    else:
        curve = g.point("erf", g.scale(x, float(np.sqrt(0.5))))
    return g.mul(g.scale(x, 0.5), g.shift(curve, 1.0))


@writes(top.TopElu)
def elu(op: top.TopElu, g: Writer) -> Tensor:
    """Where x is negative, alpha * (exp(x) - 1)."""
    x = g.float(op.input)
    curve = g.shift(g.point("exp", g.point("minimum", x, g.scalar(0, x.rank))), -1.0)
    return g.point("select", below(g, x), g.scale(curve, op.alpha.value.data), x)


@writes(slope.TopLeakyRelu)
def leaky_relu(op: slope.TopLeakyRelu, g: Writer) -> Tensor:
    """Where x is negative, alpha * x."""
    x = g.float(op.input)
    return g.point("select", below(g, x), g.scale(x, op.alpha.value.data), x)


@writes(slope.TopPRelu)
def prelu(op: slope.TopPRelu, g: Writer) -> Tensor:
    """Where x is negative, slope * x; slopes are along axis 1."""
    x = g.float(op.input)
    factors = g.const(along(g.needed(op.slope, "the slope").astype(np.float32).reshape(-1), x.rank, 1))
    return g.point("select", below(g, x), g.mul(x, factors), x)


@writes(TopHardSigmoid)
def hard_sigmoid(op: TopHardSigmoid, g: Writer) -> Tensor:
    """The clamped line alpha * x + beta."""
    return g.clamp(g.shift(g.scale(g.float(op.input), op.alpha.value.data), op.beta.value.data), 0.0, 1.0)


@writes(TopHardSwish)
def hard_swish(op: TopHardSwish, g: Writer) -> Tensor:
    """The product x * clamp(x + 3, 0, 6) / 6."""
    x = g.float(op.input)
    return g.mul(x, g.scale(g.clamp(g.shift(x, 3.0), 0.0, 6.0), 1 / 6))


def softplus_of(g: Writer, x: Tensor) -> Tensor:
    """max(x, 0) + log(1 + exp(-|x|))."""
    small = g.point("exp", g.scale(g.point("abs", x), -1.0))
    return g.point("add", g.point("maximum", x, g.scalar(0, x.rank)), g.point("log", g.shift(small, 1.0)))


@writes(top.TopSoftplus)
def softplus(op: top.TopSoftplus, g: Writer) -> Tensor:
    """log(1 + exp(x)) without overflow."""
    return softplus_of(g, g.float(op.input))


@writes(top.TopMish)
def mish(op: top.TopMish, g: Writer) -> Tensor:
    """The product x * tanh(softplus(x))."""
    x = g.float(op.input)
    return g.mul(x, g.point("tanh", softplus_of(g, x)))


@writes(top.TopSoftsign)
def softsign(op: top.TopSoftsign, g: Writer) -> Tensor:
    """The quotient x / (1 + |x|)."""
    x = g.float(op.input)
    return quotient(g, x, g.shift(g.point("abs", x), 1.0))


@writes(top.TopSinh, top.TopCosh)
def hyperbolic(op: "top.TopSinh | top.TopCosh", g: Writer) -> Tensor:
    """Half the difference or sum of exp(x) and exp(-x)."""
    x = g.float(op.input)
    pair = g.point("exp", x), g.point("exp", g.scale(x, -1.0))
    return g.scale(g.point("sub" if isinstance(op, top.TopSinh) else "add", *pair), 0.5)


@writes(top.TopSign)
def sign(op: top.TopSign, g: Writer) -> Tensor:
    """-1, 0 or 1."""
    x = g.float(op.input)
    numbers = {value: g.scalar(value, x.rank) for value in (-1, 0, 1)}
    positive = g.point("greater", x, numbers[0], element=i1)
    return g.point("select", positive, numbers[1], g.point("select", below(g, x), numbers[-1], numbers[0]))


@writes(top.TopRound)
def round_(op: top.TopRound, g: Writer) -> Tensor:
    """Halves to even: the floor, or one more if it is odd or the rest is larger."""
    x = g.float(op.input)
    whole = g.point("floor", x)
    rest = g.point("sub", x, whole)
    half = g.scale(whole, 0.5)
    odd = g.point("greater", half, g.point("floor", half), element=i1)
    up = g.point("greater", rest, g.scalar(0.5, x.rank), element=i1)
    tie = g.point("logical_and", g.point("equal", rest, g.scalar(0.5, x.rank), element=i1), odd)
    return g.point("select", g.point("logical_or", up, tie), g.shift(whole, 1.0), whole)


@writes(without_table.TopTrunc)
def trunc(op: without_table.TopTrunc, g: Writer) -> Tensor:
    """The whole part, rounded towards zero."""
    x = g.float(op.input)
    return g.point("select", below(g, x), g.point("ceil", x), g.point("floor", x))


@writes(without_table.TopTan)
def tan(op: without_table.TopTan, g: Writer) -> Tensor:
    """The quotient of SIN and COS."""
    x = g.float(op.input)
    return quotient(g, g.point("sin", x), g.point("cos", x))


@writes(without_table.TopArctanh)
def arctanh(op: without_table.TopArctanh, g: Writer) -> Tensor:
    """log((1 + x) / (1 - x)) / 2."""
    x = g.float(op.input)
    return g.scale(g.point("log", quotient(g, g.shift(x, 1.0), g.shift(g.scale(x, -1.0), 1.0))), 0.5)


@writes(top.TopReciprocal)
def reciprocal(op: top.TopReciprocal, g: Writer) -> Tensor:
    """A number times RECIPROCAL."""
    y, factor = g.point("reciprocal", g.float(op.input)), op.const_val.value.data
    return y if factor == 1 else g.scale(y, factor)


@writes(top.TopPow)
def power_of_number(op: top.TopPow, g: Writer) -> Tensor:
    """POW; of 2 a product, of 1/2 a root."""
    x, exponent = g.float(op.input), op.exponent.value.data
    if exponent == 2:  # noqa: PLR2004
        return g.mul(x, x)
    return root(g, x) if exponent == 0.5 else g.point("pow", x, g.scalar(exponent, x.rank))  # noqa: PLR2004


@writes(TopPow3)
def power(op: TopPow3, g: Writer) -> Tensor:
    """POW of two tensors."""
    return g.point("pow", *(g.float(v) for v in op.operands))


@writes(TopMod)
def mod(op: TopMod, g: Writer) -> Tensor:
    """The rest x - whole(x / y) * y, rounded towards zero for the sign of x, down for that of y."""
    x, y = (g.float(v) for v in op.operands)
    ratio = quotient(g, x, y)
    whole = g.point("floor", ratio)
    if is_set(op.fmod):
        whole = g.point("select", below(g, ratio), g.point("ceil", ratio), whole)
    return g.point("sub", x, g.mul(whole, y))


CHAINS: Mapping[type[NaryTop], str] = {
    TopAdd: "add", TopSub: "sub", TopMul: "mul", TopMax: "maximum", TopMin: "minimum"
}  # fmt: skip


@writes(*CHAINS)
def chain(op: NaryTop, g: Writer) -> Tensor:
    """The operands combined from left to right."""
    y, *rest = (g.float(v) for v in op.inputs)
    for operand in rest:
        y = two(g, CHAINS[type(op)], y, operand)
    return fused_relu(op, g, y)


@writes(TopDiv, TpuDiv)
def divide(op: "TopDiv | TpuDiv", g: Writer) -> Tensor:
    """Products with reciprocals from left to right."""
    y, *rest = (g.float(v) for v in op.inputs)
    for operand in rest:
        y = quotient(g, y, operand)
    return fused_relu(op, g, y)


@writes(ConstTop)
def with_number(op: ConstTop, g: Writer) -> Tensor:
    """A tensor and a number."""
    x = g.float(op.input)
    pair = [x, g.scalar(op.number, x.rank)]
    backwards = isinstance(op, TopSubConst) and is_set(op.is_reverse)
    return fused_relu(op, g, two(g, BINARY[op.KIND], *(pair[::-1] if backwards else pair)))


@writes(TopRelu)
def relu(op: TopRelu, g: Writer) -> Tensor:
    """MAXIMUM with 0, or CLAMP."""
    limit = relu_limit_of(op)
    return g.relu(g.float(op.input), limit if limit > 0 else -1.0)


@writes(TopClip, TpuClip)
def clip(op: "TopClip | TpuClip", g: Writer) -> Tensor:
    """CLAMP with both limits."""
    return g.clamp(g.float(op.input), op.minimum.value.data, op.maximum.value.data)


def relation(g: Writer, mode: str, x: Tensor, y: Tensor) -> Tensor:
    """A comparison of f32 or of i32, as bools."""
    kind, exchanged, negated = RELATIONS[mode]
    if mode in LOGICAL:
        x, y = truth(g, x), truth(g, y)
    found = g.point(kind, *((y, x) if exchanged else (x, y)), element=i1)
    return g.point("logical_not", found) if negated else found


def truth(g: Writer, x: Tensor) -> Tensor:
    """Whether numbers are not 0."""
    if x.element == i1:
        return x
    zero = g.scalar(0, x.rank, "float32" if x.is_float else "int32")
    return g.point("logical_not", g.point("equal", x, zero, element=i1))


def _numbers(g: Writer, op: Operation) -> Callable[..., Tensor]:
    """How operands are read: stored integers in i32, else floats."""
    return partial(g.integers, zero=0) if uniform_of(op.operands[0]) is not None else g.float


@writes(TopCompare, TpuCompare)
def compare(op: "TopCompare | TpuCompare", g: Writer) -> Tensor:
    """A relation of two tensors."""
    x, y = map(_numbers(g, op), op.operands)
    return g.bools(relation(g, checked_mode(op.mode), x, y), op.output)


@writes(TopCompareConst, TpuCompareConst)
def compare_const(op: "TopCompareConst | TpuCompareConst", g: Writer) -> Tensor:
    """A relation of a tensor and a number."""
    x, number = _numbers(g, op)(op.input), op.const_val.value.data
    y = g.scalar(number, x.rank) if x.element == f32 else g.scalar(int(number), x.rank, "int32")
    pair = (y, x) if is_set(op.inversed) else (x, y)
    return g.bools(relation(g, checked_mode(op.mode), *pair), op.output)


@writes(TopWhere)
def where(op: TopWhere, g: Writer) -> Tensor:
    """SELECT, its constant branches as numbers."""
    condition = truth(g, g.float(op.operands[0]))
    rank = len(shape_of(op.output))
    branches = [
        g.scalar(number, rank) if is_none(value) else g.float(value)
        for value, number in zip(op.operands[1:], op.numbers, strict=True)
    ]
    return g.point("select", condition, *branches)


@writes(TpuWhere)
def where_stored(op: TpuWhere, g: Writer) -> Tensor:
    """SELECT of stored bytes or floats."""
    if uniform_of(op.output) is None:
        return where(op, g)  # type: ignore[arg-type]
    condition = truth(g, _numbers(g, op)(op.operands[0]))
    kind = g.dtype_of(op.output)
    rank = len(shape_of(op.output))
    branches = [
        g.const(np.full((1,) * rank, number).astype(kind)) if is_none(value) else g.stored(value)
        for value, number in zip(op.operands[1:], op.numbers, strict=True)
    ]
    offset = next(b.offset for b in branches)
    return g.point("select", condition, *branches, offset=offset)
