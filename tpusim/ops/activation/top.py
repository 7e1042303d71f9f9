"""The activation functions of the top dialect: one class per function over one base (numerics.md 9.8, 10, 12)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from tpusim_kernels import activation as kernels
from tpusim_kernels.prim.table import Bytes, lookup_table, table_values
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.interfaces import ask
from tpusim.ir.attrs import float_attr, floats_attr, op_name, text
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.activation.tpu import TABLE_SHAPE, TpuActive, TpuLut, TpuReciprocal
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    Builder,
    FloatRule,
    LoweringContext,
    OpT,
    QuantParams,
    RangeRule,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import UnaryTop, built_in_integers
from tpusim.ops.interfaces import ChipRewrites, DefaultAlpha
from tpusim.ops.patterns.activations import DivToReciprocal, DivToSoftSign, MergeGeluTanh, MulToSiLU
from tpusim.ops.patterns.gelu import ConvertToQGELU, MergeGelu, MergeGeluPattern
from tpusim.ops.rescale import lower_same_scale

WIDE = FloatRule(f16="f32", bf16="f32")
"""Rule of functions that the 16-bit modes compute and store in f32 (numerics.md 12.2, 12.3)."""


class ByteTable:
    """An op that is a table of bytes in INT8."""

    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """The 256 entries: for each byte of the input's quantisation x the result in the output's quantisation y."""
        raise NotImplementedError


class Activation(UnaryTop, ByteTable):
    """y = f(x), element by element: by a table in INT8, else in float."""

    SPEC: ClassVar[tuple[str, ...]] = ("9.8", "10")

    MODE: ClassVar[str]
    """Name of the function (numerics.md 9.8)."""

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, name: str) -> SSAValue:
        """Append the function of a tensor."""
        return builder.build(cls, [x], {}, name)

    @property
    def mode(self) -> str:
        """Name of this op's function (numerics.md 9.8)."""
        return self.MODE

    @property
    def coeffs(self) -> tuple[float, ...]:
        """Coefficients of the function; none by default."""
        return ()

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Computed in double, rounded once to f32."""
        return (kernels.activation_float(operands[0], mode=self.mode, coeffs=self.coeffs),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """A table: tpu.Lut with 256 entries."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        return "input or output is not calibrated" if x is None or y is None else self._lower_table(ctx, x, y)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        cls, attributes = self._float_form(ctx)
        return ctx.build(cls, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_table(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> SSAValue:
        name = op_name(self)
        entries = ask(self, ByteTable, ctx.chip).entries(ctx, _bytes(x), _bytes(y))
        table = ctx.weight(name + "_table", entries.reshape(TABLE_SHAPE))
        operands = [ctx.operand(self.input, "int8", self), table]
        return built_in_integers(self, ctx, TpuLut, operands, {})

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        return self.entries_of(self.mode, ctx, x, y)

    def entries_of(self, mode: str, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """The entries for the function `mode` with the op's coefficients."""
        function = (mode, self.coeffs, x)
        if not np.isfinite(table_values(*function)).all():
            ctx.decision(self, "DN-19")
        return lookup_table(*function, y)

    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """(class, attributes) of the op in float."""
        del ctx
        return TpuActive, {"mode": text(self.mode), "coeffs": floats_attr(self.coeffs)}


def _bytes(quant: QuantParams) -> Bytes:
    return Bytes(quant.scale, quant.zero_point, quant.signed)


# ------------------------------------------------------------------------------------------- sigmoid and its relatives


@irdl_op_definition
class TopSigmoid(Activation):
    """`top.Sigmoid`: 1/(1 + e^-x)."""

    name = "top.Sigmoid"
    MODE: ClassVar[str] = "SIGMOID"
    RANGE: ClassVar[RangeRule] = RangeRule(fixed=(0.0, 1.0))
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopTanh(Activation):
    """`top.Tanh`: the hyperbolic tangent."""

    name = "top.Tanh"
    MODE: ClassVar[str] = "TANH"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSiLU(Activation):
    """`top.SiLU`: x/(1 + e^-x); exporters write x * Sigmoid(x)."""

    name = "top.SiLU"
    MODE: ClassVar[str] = "SILU"
    FLOAT: ClassVar[FloatRule] = WIDE

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """X * Sigmoid(x) becomes one op."""
        del weights
        return (MulToSiLU(),)


@irdl_op_definition
class TopGELU(Activation, ChipRewrites):
    """`top.GELU`: 0.5x(1 + erf(x/sqrt 2)).

    approx_mode "tanh": 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))); "sigm": x/(1 + e^(-1.702x)).
    """

    name = "top.GELU"
    MODE: ClassVar[str] = "GELU"
    FLOAT: ClassVar[FloatRule] = WIDE

    approx_mode = attr_def(StringAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, approx_mode: str = "normal", name: str) -> SSAValue:
        """approx_mode: normal or tanh."""
        if approx_mode not in ("normal", "tanh"):
            raise ValueError(f"approx_mode normal or tanh is required, got {approx_mode!r}")
        return builder.build(cls, [x], {"approx_mode": text(approx_mode)}, name)

    @property
    @override
    def mode(self) -> str:
        """The name of the function: GELU by erf, TGELU by tanh, or QGELU by the sigmoid."""
        return {"tanh": "TGELU", "sigm": "QGELU"}.get(self.approx_mode.data, "GELU")

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """The parts of the erf form, and those of the tanh form between two Reshapes."""
        del weights
        return MergeGelu(cls), MergeGeluPattern(cls)

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The parts of the sigmoid form."""
        del weights, chip
        return (ConvertToQGELU(cls),)


def gelu_by_tanh(weights: WeightStore) -> RewritePattern:
    """The rewrite of the tanh form, whose ops become one op only between two Reshapes (U-24)."""
    return MergeGeluTanh(weights, TopGELU)


@irdl_op_definition
class TopElu(Activation, DefaultAlpha):
    """`top.Elu`: x > 0 ? x : alpha*(e^x - 1)."""

    name = "top.Elu"
    UPSTREAM_ALPHA: ClassVar[float] = 0.0
    MODE: ClassVar[str] = "ELU"
    FLOAT: ClassVar[FloatRule] = WIDE

    alpha = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, alpha: float = 1.0, name: str) -> SSAValue:
        """alpha: minus the limit for large negative x."""
        return builder.build(cls, [x], {"alpha": float_attr(alpha)}, name)

    @property
    @override
    def coeffs(self) -> tuple[float, ...]:
        return (self.alpha.value.data,)


@irdl_op_definition
class TopMish(Activation):
    """`top.Mish`: x*tanh(ln(e^x + 1))."""

    name = "top.Mish"
    MODE: ClassVar[str] = "MISH"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSoftplus(Activation):
    """`top.Softplus`: ln(e^x + 1)."""

    name = "top.Softplus"
    MODE: ClassVar[str] = "SOFT_PLUS"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSoftsign(Activation):
    """`top.Softsign`: x/(1 + |x|)."""

    name = "top.Softsign"
    MODE: ClassVar[str] = "SOFT_SIGN"
    FLOAT: ClassVar[FloatRule] = WIDE

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """x/(1 + |x|) becomes one op."""
        del weights
        return (DivToSoftSign(),)


# ------------------------------------------------------------------------------------------- exponentials, roots, waves


@irdl_op_definition
class TopExp(Activation):
    """`top.Exp`: e to the power of x."""

    name = "top.Exp"
    MODE: ClassVar[str] = "EXP"


@irdl_op_definition
class TopLog(Activation):
    """`top.Log`: the natural logarithm of x."""

    name = "top.Log"
    MODE: ClassVar[str] = "LN"


@irdl_op_definition
class TopSqrt(Activation):
    """`top.Sqrt`: the square root."""

    name = "top.Sqrt"
    MODE: ClassVar[str] = "SQRT"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopRsqrt(Activation):
    """`top.Rsqrt`: the reciprocal of the square root."""

    name = "top.Rsqrt"
    MODE: ClassVar[str] = "RSQRT"
    FLOAT: ClassVar[FloatRule] = WIDE

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """The table; numbers outside the result's range are its ends (U-108)."""
        table, values = super().entries(ctx, x, y), table_values(self.mode, (), x) / y.scale
        return ctx.quirked(self, Quirk.ROOT_IN_RANGE_OF_ROOT, table, np.where(values > table.max(), values, table))


@irdl_op_definition
class TopErf(Activation):
    """`top.Erf`: the error function."""

    name = "top.Erf"
    MODE: ClassVar[str] = "ERF"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSin(Activation):
    """`top.Sin`: the sine of x."""

    name = "top.Sin"
    MODE: ClassVar[str] = "SIN"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopCos(Activation):
    """`top.Cos`: the cosine of x."""

    name = "top.Cos"
    MODE: ClassVar[str] = "COS"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopSinh(Activation):
    """`top.Sinh`: the hyperbolic sine."""

    name = "top.Sinh"
    MODE: ClassVar[str] = "SINH"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopCosh(Activation):
    """`top.Cosh`: the hyperbolic cosine."""

    name = "top.Cosh"
    MODE: ClassVar[str] = "COSH"
    FLOAT: ClassVar[FloatRule] = WIDE


@irdl_op_definition
class TopPow(Activation):
    """`top.Pow`: x to the power of a number."""

    name = "top.Pow"
    MODE: ClassVar[str] = "POW"
    FLOAT: ClassVar[FloatRule] = WIDE

    exponent = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, exponent: float = 1.0, name: str) -> SSAValue:
        """Append a power; the exponent may be any number."""
        return builder.build(cls, [x], {"exponent": float_attr(exponent)}, name)

    @property
    @override
    def coeffs(self) -> tuple[float, ...]:
        return (self.exponent.value.data,)


@irdl_op_definition
class TopReciprocal(Activation):
    """`top.Reciprocal`: the quotient const_val/x."""

    name = "top.Reciprocal"
    MODE: ClassVar[str] = "RECIPROCAL"
    FLOAT: ClassVar[FloatRule] = WIDE

    const_val = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, const_val: float = 1.0, name: str) -> SSAValue:
        """Append a quotient whose numerator is `const_val`."""
        return builder.build(cls, [x], {"const_val": float_attr(const_val)}, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A quotient with a scalar numerator becomes one op."""
        return (DivToReciprocal(),)

    @property
    @override
    def coeffs(self) -> tuple[float, ...]:
        return (self.const_val.value.data,)

    @override
    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        del ctx
        return TpuReciprocal, {"const_val": self.const_val}


# ----------------------------------------------------------------------------------------------------- steps and signs


@irdl_op_definition
class TopAbs(Activation):
    """`top.Abs`: |x|; bytes |q| at the input's scale (numerics.md 9.0, DN-14)."""

    name = "top.Abs"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "9.8")
    FLOAT: ClassVar[FloatRule] = NARROWEST
    MODE: ClassVar[str] = "ABSVAL"
    RANGE: ClassVar[RangeRule] = RangeRule(mirrored=True, sign=True, backward=True, forward=True)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Active, on bytes or in float."""
        return self.lower_with(ctx, {})

    def lower_with(self, ctx: LoweringContext, of_bytes: Mapping[str, Attribute]) -> SSAValue:
        """`lower`, with further attributes of an op on bytes."""
        cls, attributes = self._float_form(ctx)
        lowered = lower_same_scale(self, ctx, cls, {**attributes, **of_bytes}, float_attributes=attributes)
        if uniform_of(lowered) is not None:
            ctx.decision(self, "DN-14")
        return lowered


@irdl_op_definition
class TopFloor(Activation):
    """`top.Floor`: the largest integer that is not above x."""

    name = "top.Floor"
    MODE: ClassVar[str] = "FLOOR"


@irdl_op_definition
class TopCeil(Activation):
    """`top.Ceil`: the smallest integer that is not below x."""

    name = "top.Ceil"
    MODE: ClassVar[str] = "CEIL"


@irdl_op_definition
class TopRound(Activation):
    """`top.Round`: to the nearest integer, halves to even; the lowered op rounds halves away from zero (U-15)."""

    name = "top.Round"
    MODE: ClassVar[str] = "ROUND_EVEN"

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        """The table with halves away from zero (U-15); with halves to even if the quirk is off."""
        return ctx.quirked(self, Quirk.ROUND_HALF_AWAY, lookup_table("ROUND", (), x, y), super().entries(ctx, x, y))

    @override
    def _float_form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """ROUND (U-15), or ROUND_EVEN if the quirk is off. Whether data contain halves is not known here."""
        if not ctx.reproduces(Quirk.ROUND_HALF_AWAY):
            return super()._float_form(ctx)
        ctx.decision(self, Quirk.ROUND_HALF_AWAY.decision)
        return TpuActive, {"mode": text("ROUND"), "coeffs": floats_attr(())}


@irdl_op_definition
class TopSign(Activation):
    """`top.Sign`: -1, 0 or 1 (DN-18)."""

    name = "top.Sign"
    MODE: ClassVar[str] = "SIGN"

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """As other activations; the value at 0 is decision DN-18."""
        ctx.decision(self, "DN-18")
        return super().lower(ctx)
