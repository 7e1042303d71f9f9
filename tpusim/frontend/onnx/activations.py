"""Functions of one tensor: activations, rectifiers, rounding, Clip."""

from xdsl.ir import SSAValue

from tpusim.errors import UnsupportedError
from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ops.activation import (
    TopAbs,
    TopArccos,
    TopArcsin,
    TopArctan,
    TopArctanh,
    TopCeil,
    TopCos,
    TopCosh,
    TopElu,
    TopErf,
    TopExp,
    TopFloor,
    TopGELU,
    TopLeakyRelu,
    TopLog,
    TopMish,
    TopPRelu,
    TopReciprocal,
    TopRound,
    TopSigmoid,
    TopSign,
    TopSin,
    TopSinh,
    TopSoftplus,
    TopSoftsign,
    TopSqrt,
    TopTan,
    TopTanh,
)
from tpusim.ops.activation.top import Activation
from tpusim.ops.const_binary import TopMulConst
from tpusim.ops.hard import TopHardSigmoid, TopHardSwish
from tpusim.ops.relu import TopClip, TopRelu


def _plain(cls: type[Activation]) -> Mapper:
    """The mapper of a function of one operand that has no attributes."""
    return lambda node: cls.make(node.builder, node.value(0), name=node.output)


def gelu(node: Node) -> SSAValue:
    """Gelu: approximate none or tanh."""
    approximate = node.take("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise UnsupportedError(f"approximate none or tanh is required, got {approximate!r}")
    mode = "tanh" if approximate == "tanh" else "normal"
    return TopGELU.make(node.builder, node.value(0), approx_mode=mode, name=node.output)


def hard_sigmoid(node: Node) -> SSAValue:
    """HardSigmoid; defaults 0.2 and 0.5."""
    given = {key: float(value) for key, value in node.options("alpha", "beta").items()}
    return TopHardSigmoid.make(node.builder, node.value(0), **given, name=node.output)


def elu(node: Node) -> SSAValue:
    """Elu, whose alpha is 1 by default."""
    return TopElu.make(node.builder, node.value(0), **node.options("alpha"), name=node.output)


def leaky_relu(node: Node) -> SSAValue:
    """LeakyRelu, whose alpha is 0.01 by default."""
    return TopLeakyRelu.make(node.builder, node.value(0), **node.options("alpha"), name=node.output)


def prelu(node: Node) -> SSAValue:
    """PRelu with a constant slope; before opset 7 its axes are the channels."""
    slope = node.need(1, "slopes")
    return TopPRelu.make(node.builder, node.value(0), slope, trailing=node.opset >= 7, name=node.output)


def relu(node: Node) -> SSAValue:
    """Relu, which is max(x, 0)."""
    return TopRelu.make(node.builder, node.value(0), name=node.output)


def neg(node: Node) -> SSAValue:
    """Neg, as a product with -1."""
    return TopMulConst.make(node.builder, node.value(0), const_val=-1.0, name=node.output)


def clip(node: Node) -> SSAValue:
    """Clip: bounds are attributes before opset 11 and constant inputs after."""
    bounds: dict[str, float] = {}
    for index, (option, key) in enumerate((("minimum", "min"), ("maximum", "max")), 1):
        if node.opset < 11:
            bounds |= node.options(**{option: key})
        elif node.has(index):
            constant = node.constant(index)
            if constant is None or constant.size != 1:
                raise ValueError(f"a constant scalar {key} is required, '{node.inputs[index]}' is not one")
            bounds[option] = float(constant.reshape(-1)[0])
    return TopClip.make(node.builder, node.value(0), **bounds, name=node.output)


PLAIN: dict[str, type[Activation]] = {
    "Abs": TopAbs, "Ceil": TopCeil, "Cos": TopCos, "Erf": TopErf, "Exp": TopExp, "Floor": TopFloor,
    "HardSwish": TopHardSwish, "Log": TopLog, "Mish": TopMish, "Reciprocal": TopReciprocal, "Round": TopRound,
    "Sigmoid": TopSigmoid, "Sign": TopSign, "Sin": TopSin, "Softplus": TopSoftplus, "Softsign": TopSoftsign,
    "Sqrt": TopSqrt, "Tanh": TopTanh, "Tan": TopTan, "Sinh": TopSinh, "Cosh": TopCosh, "Acos": TopArccos,
    "Asin": TopArcsin, "Atan": TopArctan, "Atanh": TopArctanh,
}  # fmt: skip

MAPPERS: dict[str, Mapper] = {
    **{op_type: _plain(cls) for op_type, cls in PLAIN.items()},
    "Gelu": gelu, "HardSigmoid": hard_sigmoid, "Elu": elu, "LeakyRelu": leaky_relu, "PRelu": prelu, "Relu": relu,
    "Neg": neg, "Clip": clip,
}  # fmt: skip
