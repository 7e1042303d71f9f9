"""The activation functions of the top dialect: one class per function over one base (numerics.md 9.8, 10, 12)."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tpusim_kernels import activation as kernels
from tpusim_kernels.prim.table import Bytes, lookup_table, reciprocal_table, table_values
from xdsl.dialects.builtin import FloatAttr, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import RewritePattern

from tpusim.ir.attrs import float_attr, floats_attr, op_name, text
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.activation.fusion import DivToReciprocal, MergeGelu, MulToSiLU
from tpusim.ops.activation.lut_bf16 import lower_by_tables
from tpusim.ops.activation.tpu import TABLE_SHAPE, TpuActive, TpuLut, TpuReciprocal
from tpusim.ops.base import (
    Array,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    OpT,
    QuantInfo,
    RangeRule,
)
from tpusim.ops.families import UnaryTop
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.small_multiplier import threshold

WIDE = FloatRule(f16="f32", bf16="f32")
"""Functions that 16-bit modes of BM1684X compute and store in f32 (numerics.md 12.2, 12.3)."""


class Activation(UnaryTop):
    """y = f(x), element by element: a table in INT8, else in float."""

    SPEC: ClassVar[tuple[str, ...]] = ("9.8", "10")

    MODE: ClassVar[str]
    """Name of the function (numerics.md 9.8)."""
    TABLE_WITHOUT_MULTIPLIER: ClassVar[bool] = True
    """Whether BM1684 has a table of it (numerics.md 16). Decision: where it has none the op runs in f32 there."""
    TABLE_ON_CV18XX: ClassVar[bool] = True
    """Whether CV18xx has a table of it (numerics.md 10); where it has none the op runs in BF16 (DN-13)."""

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """An ONNX node of one input."""
        return ctx.build(cls, [ctx.value(node.inputs[0])], cls.onnx_attributes(node), node.outputs[0])

    @classmethod
    def onnx_attributes(cls, node: OnnxNode) -> dict[str, Attribute]:
        """The op's attributes from the node's."""
        del node
        return {}

    @property
    def mode(self) -> str:
        """The function's name."""
        return self.MODE

    @property
    def coeffs(self) -> tuple[float, ...]:
        """The function's coefficients."""
        return ()

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 from double."""
        return (kernels.activation_float(operands[0], mode=self.mode, coeffs=self.coeffs),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Lut in integers, tpu.LutBF16 on a chip with BF16 tables, else the function in float."""
        if ctx.mode(self) == "int8":
            x, y, why = ctx.quant(self.input), ctx.quant(self.output), "input or output is not calibrated"
            known = {"shift": self.TABLE_WITHOUT_MULTIPLIER, "qdm": self.TABLE_ON_CV18XX}
            if not known.get(ctx.chip.requant, True):
                why = "this chip has no table of this function (numerics.md 10, 16)"
                if ctx.chip.requant == "qdm":
                    ctx.decision(self, "DN-13")
            elif x is not None and y is not None:
                return self._lower_table(ctx, x, y)
            ctx.fallback(self, why)
        found = lower_by_tables(self, ctx, self.mode, self.coeffs)
        if found is not None:
            return found
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        cls, attributes = self._float_form(ctx)
        return ctx.build(cls, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_table(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue:
        name = op_name(self)
        entries = self._entries(ctx, _bytes(x), _bytes(y))
        table = ctx.weight(name + "_table", entries.reshape(TABLE_SHAPE))
        operands = [ctx.operand(self.input, "int8", self), table]
        return ctx.build(TpuLut, operands, {}, ctx.quantised_type(self.output), shape_of(self.output), name)

    def _entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """The 256 entries of the table."""
        function = (self._table_mode(ctx), self.coeffs, x)
        if not np.isfinite(table_values(*function)).all():
            ctx.decision(self, "DN-19")
        return lookup_table(*function, y)

    def _table_mode(self, ctx: LoweringContext) -> str:
        """The function the table is made of."""
        del ctx
        return self.mode

    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """(class, attributes) of the op in float."""
        del ctx
        return TpuActive, {"mode": text(self.mode), "coeffs": floats_attr(self.coeffs)}


def _bytes(quant: QuantInfo) -> Bytes:
    return Bytes(quant.scale, quant.zero_point, quant.signed)


# ------------------------------------------------------------------------------------------- sigmoid and its relatives


@irdl_op_definition
class TopSigmoid(Activation):
    """`top.Sigmoid`: 1/(1 + e^-x)."""

    name = "top.Sigmoid"
    MODE: ClassVar[str] = "SIGMOID"
    ONNX: ClassVar[tuple[str, ...]] = ("Sigmoid",)
    RANGE: ClassVar[RangeRule] = RangeRule(fixed=(0.0, 1.0))
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopTanh(Activation):
    """`top.Tanh`."""

    name = "top.Tanh"
    MODE: ClassVar[str] = "TANH"
    ONNX: ClassVar[tuple[str, ...]] = ("Tanh",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSiLU(Activation):
    """`top.SiLU`: x/(1 + e^-x); no ONNX node up to opset 23, found as x * Sigmoid(x)."""

    name = "top.SiLU"
    MODE: ClassVar[str] = "SILU"
    FLOAT: ClassVar[FloatRule] = WIDE

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A product of x and its sigmoid."""
        del weights
        return (MulToSiLU(cls),)


@irdl_op_definition
class TopGELU(Activation):
    """`top.GELU`: 0.5x(1 + erf(x/sqrt 2)); approx_mode "tanh": 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3)))."""

    name = "top.GELU"
    MODE: ClassVar[str] = "GELU"
    ONNX: ClassVar[tuple[str, ...]] = ("Gelu",)
    FLOAT: ClassVar[FloatRule] = WIDE

    approx_mode = attr_def(StringAttr)

    @classmethod
    def onnx_attributes(cls, node: OnnxNode) -> dict[str, Attribute]:
        """Gelu of opset 20: approximate none or tanh."""
        approximate = node.take("approximate", "none")
        if approximate not in ("none", "tanh"):
            raise node.refuse(f"approximate none or tanh is required, got {approximate!r}")
        return {"approx_mode": text("tanh" if approximate == "tanh" else "normal")}

    @property
    def mode(self) -> str:
        """GELU or its tanh form."""
        return "TGELU" if self.approx_mode.data == "tanh" else "GELU"

    def _table_mode(self, ctx: LoweringContext) -> str:
        """BM1684 tables are always of the tanh form (numerics.md 10)."""
        return "TGELU" if ctx.chip.requant == "shift" else self.mode

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """The parts of the erf form."""
        return (MergeGelu(weights, cls),)


@irdl_op_definition
class TopHardSigmoid(Activation):
    """`top.HardSigmoid`: max(0, min(1, alpha*x + beta))."""

    name = "top.HardSigmoid"
    MODE: ClassVar[str] = "HSIGMOID"
    ONNX: ClassVar[tuple[str, ...]] = ("HardSigmoid",)
    FLOAT: ClassVar[FloatRule] = FloatRule(f16="f32")

    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)

    @classmethod
    def onnx_attributes(cls, node: OnnxNode) -> dict[str, Attribute]:
        """ONNX defaults 0.2 and 0.5."""
        return {"alpha": float_attr(node.take("alpha", 0.2)), "beta": float_attr(node.take("beta", 0.5))}

    @property
    def coeffs(self) -> tuple[float, ...]:
        """(beta, alpha), as upstream stores them."""
        return self.beta.value.data, self.alpha.value.data


@irdl_op_definition
class TopHardSwish(Activation):
    """`top.HardSwish`: x*max(0, min(1, (x + 3)/6))."""

    name = "top.HardSwish"
    MODE: ClassVar[str] = "HSWISH"
    ONNX: ClassVar[tuple[str, ...]] = ("HardSwish",)


@irdl_op_definition
class TopElu(Activation):
    """`top.Elu`: x > 0 ? x : alpha*(e^x - 1)."""

    name = "top.Elu"
    MODE: ClassVar[str] = "ELU"
    ONNX: ClassVar[tuple[str, ...]] = ("Elu",)
    FLOAT: ClassVar[FloatRule] = WIDE

    alpha = attr_def(FloatAttr)

    @classmethod
    def onnx_attributes(cls, node: OnnxNode) -> dict[str, Attribute]:
        """ONNX default 1."""
        return {"alpha": float_attr(node.take("alpha", 1.0))}

    @property
    def coeffs(self) -> tuple[float, ...]:
        """(alpha,)."""
        return (self.alpha.value.data,)


@irdl_op_definition
class TopMish(Activation):
    """`top.Mish`: x*tanh(ln(e^x + 1))."""

    name = "top.Mish"
    MODE: ClassVar[str] = "MISH"
    ONNX: ClassVar[tuple[str, ...]] = ("Mish",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSoftplus(Activation):
    """`top.Softplus`: ln(e^x + 1)."""

    name = "top.Softplus"
    MODE: ClassVar[str] = "SOFT_PLUS"
    ONNX: ClassVar[tuple[str, ...]] = ("Softplus",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSoftsign(Activation):
    """`top.Softsign`: x/(1 + |x|)."""

    name = "top.Softsign"
    MODE: ClassVar[str] = "SOFT_SIGN"
    ONNX: ClassVar[tuple[str, ...]] = ("Softsign",)
    FLOAT: ClassVar[FloatRule] = WIDE


# ------------------------------------------------------------------------------------------- exponentials, roots, waves


@irdl_op_definition
class TopExp(Activation):
    """`top.Exp`."""

    name = "top.Exp"
    MODE: ClassVar[str] = "EXP"
    ONNX: ClassVar[tuple[str, ...]] = ("Exp",)


@irdl_op_definition
class TopLog(Activation):
    """`top.Log`: natural logarithm."""

    name = "top.Log"
    MODE: ClassVar[str] = "LN"
    ONNX: ClassVar[tuple[str, ...]] = ("Log",)


@irdl_op_definition
class TopSqrt(Activation):
    """`top.Sqrt`."""

    name = "top.Sqrt"
    MODE: ClassVar[str] = "SQRT"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Sqrt",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopErf(Activation):
    """`top.Erf`."""

    name = "top.Erf"
    MODE: ClassVar[str] = "ERF"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    TABLE_WITHOUT_MULTIPLIER: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Erf",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSin(Activation):
    """`top.Sin`."""

    name = "top.Sin"
    MODE: ClassVar[str] = "SIN"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Sin",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopCos(Activation):
    """`top.Cos`."""

    name = "top.Cos"
    MODE: ClassVar[str] = "COS"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Cos",)
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopReciprocal(Activation):
    """`top.Reciprocal`: const_val/x."""

    name = "top.Reciprocal"
    MODE: ClassVar[str] = "RECIPROCAL"
    ONNX: ClassVar[tuple[str, ...]] = ("Reciprocal",)
    FLOAT: ClassVar[FloatRule] = WIDE

    const_val = attr_def(FloatAttr)

    @classmethod
    def onnx_attributes(cls, node: OnnxNode) -> dict[str, Attribute]:
        """1/x."""
        del node
        return {"const_val": float_attr(1.0)}

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A quotient with a scalar numerator."""
        return (DivToReciprocal(weights, cls),)

    @property
    def coeffs(self) -> tuple[float, ...]:
        """(numerator,)."""
        return (self.const_val.value.data,)

    def _entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """On CV18xx 0 gives the calibrated maximum (numerics.md 10)."""
        if ctx.chip.requant != "qdm":
            return super()._entries(ctx, x, y)
        return reciprocal_table(self.const_val.value.data, threshold(self.output), x, y)

    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        del ctx
        return TpuReciprocal, {"const_val": self.const_val}


# ----------------------------------------------------------------------------------------------------- steps and signs


@irdl_op_definition
class TopAbs(Activation):
    """`top.Abs`: |x|; bytes |q| at the input's scale (numerics.md 9.0, DN-14)."""

    name = "top.Abs"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "9.8")
    MODE: ClassVar[str] = "ABSVAL"
    ONNX: ClassVar[tuple[str, ...]] = ("Abs",)
    RANGE: ClassVar[RangeRule] = RangeRule(mirrored=True, sign=True, backward=True, forward=True)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Active on bytes or in float; BM1684 looks bytes up."""
        if ctx.chip.requant == "shift":
            return super().lower(ctx)
        cls, attributes = self._float_form(ctx)
        lowered = lower_same_scale(self, ctx, cls, attributes)
        if uniform_of(lowered) is not None:
            ctx.decision(self, "DN-14")
        return lowered


@irdl_op_definition
class TopFloor(Activation):
    """`top.Floor`."""

    name = "top.Floor"
    MODE: ClassVar[str] = "FLOOR"
    ONNX: ClassVar[tuple[str, ...]] = ("Floor",)


@irdl_op_definition
class TopCeil(Activation):
    """`top.Ceil`."""

    name = "top.Ceil"
    MODE: ClassVar[str] = "CEIL"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    TABLE_WITHOUT_MULTIPLIER: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Ceil",)


@irdl_op_definition
class TopRound(Activation):
    """`top.Round`: to the nearest integer, halves to the even one; lowered with halves away from zero, as upstream."""

    name = "top.Round"
    MODE: ClassVar[str] = "ROUND_EVEN"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    TABLE_WITHOUT_MULTIPLIER: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Round",)

    def _entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """Upstream's table; the other one with the quirk off."""
        return ctx.quirked(self, "round_half_away", lookup_table("ROUND", (), x, y), super()._entries(ctx, x, y))

    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """Upstream's function, whose halves show only in the data; the other one with the quirk off."""
        if not ctx.reproduces("round_half_away"):
            return super()._float_form(ctx)
        ctx.decision(self, "DN-02 round_half_away")
        return TpuActive, {"mode": text("ROUND"), "coeffs": floats_attr(())}


@irdl_op_definition
class TopSign(Activation):
    """`top.Sign`: -1, 0 or 1 (DN-18)."""

    name = "top.Sign"
    MODE: ClassVar[str] = "SIGN"
    TABLE_ON_CV18XX: ClassVar[bool] = False
    ONNX: ClassVar[tuple[str, ...]] = ("Sign",)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """As every activation; the value at 0 is a decision."""
        ctx.decision(self, "DN-18")
        return super().lower(ctx)
