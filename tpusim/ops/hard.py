"""The piecewise linear activations HardSigmoid and HardSwish."""

from typing import ClassVar

from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.ir.attrs import float_attr
from tpusim.ops.activation.top import Activation
from tpusim.ops.framework.base import Builder, FloatRule
from tpusim.ops.framework.building import names_op
from tpusim.ops.interfaces import DefaultAlpha


@irdl_op_definition
class TopHardSigmoid(Activation, DefaultAlpha):
    """`top.HardSigmoid`: max(0, min(1, alpha*x + beta))."""

    name = "top.HardSigmoid"
    MODE: ClassVar[str] = "HSIGMOID"
    FLOAT: ClassVar[FloatRule] = FloatRule(f16="f32")
    UPSTREAM_ALPHA: ClassVar[float] = 1 / 6

    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, alpha: float = 0.2, beta: float = 0.5, name: str) -> SSAValue:
        """alpha, beta: slope and offset; PyTorch has 1/6 and 0.5."""
        return builder.build(cls, [x], {"alpha": float_attr(alpha), "beta": float_attr(beta)}, name)

    @property
    @override
    def coeffs(self) -> tuple[float, ...]:
        """(beta, alpha), in the order of U-96."""
        return self.beta.value.data, self.alpha.value.data


@irdl_op_definition
class TopHardSwish(Activation):
    """`top.HardSwish`: x*max(0, min(1, (x + 3)/6))."""

    name = "top.HardSwish"
    MODE: ClassVar[str] = "HSWISH"
