"""Matrix product: `top.MatMul` and `tpu.MatMul` (numerics.md 5.4, 7.1, 7.2, 9.2)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import matmul as kernels
from tpusim_kernels.prim.multiplier import best_fit, bm1684_conv_shift
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, NoneType, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, ints, ints_attr, op_name, value_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.add import TopAdd
from tpusim.ops.base import (
    Array,
    EmitContext,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    Shape,
    TopOp,
    TpuOp,
    is_none,
)
from tpusim.ops.conv.top import shift_and_bias
from tpusim.ops.families import (
    broadcast_shape,
    emit_limit,
    is_set,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)

SMALLEST_SCALE = 1e-5
"""Scale of an all-zero weight, as for filters (numerics.md 7.1)."""


def product_shape(left: Shape, right: Shape, transposes: tuple[bool, bool], bias: Shape | None) -> Shape:
    """(..., M, N) of (..., M, K) x (..., K, N), each transposed on request. Raises ValueError if they do not fit."""
    if len(left) < 2 or len(right) < 2:
        raise ValueError(f"operands of rank 2 or more are required, got {left} and {right}")
    m, k = left[-2:][::-1] if transposes[0] else left[-2:]
    inner, n = right[-2:][::-1] if transposes[1] else right[-2:]
    if k != inner:
        raise ValueError(f"equal inner extents are required, got {left} x {right} (after the transposes)")
    if bias is not None and prod(bias) != n:
        raise ValueError(f"a bias of {n} elements is required, got {bias}")
    return (*broadcast_shape([left[:-2], right[:-2]]), m, n)


@irdl_op_definition
class TopMatMul(TopOp):
    """`top.MatMul`: left (..., M, K) x right (..., K, N) + bias (N,), NumPy batches, optional relu."""

    name = "top.MatMul"
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")
    ONNX: ClassVar[tuple[str, ...]] = ("MatMul", "Gemm")

    input = operand_def(TensorType)
    right = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    left_transpose = opt_attr_def(BoolAttr)
    right_transpose = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX MatMul and Gemm."""
        if node.op_type == "Gemm":
            return _import_gemm(ctx, node)
        left, right = ctx.value(node.inputs[0]), ctx.value(node.inputs[1])
        if len(shape_of(left)) < 2 or len(shape_of(right)) < 2:
            raise node.refuse(
                f"operands of rank 2 or more are required, got {shape_of(left)} and {shape_of(right)}; "
                "reshape the vector to a matrix"
            )
        return ctx.build(cls, [left, right, ctx.none()], _attributes(False, False), node.outputs[0])

    @property
    def transposes(self) -> tuple[bool, bool]:
        """(left, right)."""
        return is_set(self.left_transpose), is_set(self.right_transpose)

    @property
    def inner(self) -> int:
        """K."""
        return shape_of(self.input)[-2 if self.transposes[0] else -1]

    def infer(self) -> tuple[Shape, ...]:
        """(..., M, N)."""
        bias = None if is_none(self.bias) else shape_of(self.bias)
        return (product_shape(shape_of(self.input), shape_of(self.right), self.transposes, bias),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 product, bias, relu."""
        x, w, b = operands
        left, right = self.transposes
        bias = None if b is None else b.reshape(-1)
        y = kernels.matmul_float(x, w, bias, left_transpose=left, right_transpose=right, do_relu=relu_of(self))
        return (limited(y, self),)

    def flops(self) -> int:
        """Out * (2*K + bias + relu) (DN-27)."""
        return prod(shape_of(self.output)) * (2 * self.inner + (not is_none(self.bias)) + relu_of(self))

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.MatMul in integers, else in float."""
        if ctx.mode(self) == "int8":
            why = self._why_not_int8(ctx)
            if why is None:
                if ctx.array(self.right) is None:
                    return _lower_activations(self, ctx)
                return _lower_multiplier(self, ctx) if ctx.chip.requant_words > 0 else _lower_shift(self, ctx)
            ctx.fallback(self, why)
        mode = ctx.float_mode(self)
        operands = [ctx.operand(v, mode, self) for v in (self.input, self.right)]
        bias_mode = mode if mode == "f16" else "f32"  # numerics.md 9.2: F16 rounds the bias too
        operands.append(ctx.none() if is_none(self.bias) else ctx.operand(self.bias, bias_mode, self))
        return self.build_tpu(ctx, operands, ctx.float_type(self), {}, relu_limit_of(self))

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        x, y, right = ctx.quant(self.input), ctx.quant(self.output), ctx.array(self.right)
        if ctx.array(self.input) is not None:
            return "the left operand is constant (numerics.md 9.2)"
        if x is None or y is None:
            return "input or output is not calibrated"
        if not is_none(self.bias) and ctx.array(self.bias) is None:
            return "the bias is not constant"
        batch = prod(shape_of(self.right)[:-2])
        if ctx.chip.requant_words == 0 and (right is None or batch > 1):
            return f"{ctx.chip.name} multiplies integers by one constant matrix only (numerics.md 5.4)"
        if right is not None:
            return "a batched matrix needs an input without zero point" if batch > 1 and x.zero_point else None
        second = ctx.quant(self.right)
        if second is None:
            return "the right operand is not calibrated"
        zeros = x.zero_point or y.zero_point or second.zero_point
        return "the product of two asymmetric activations is computed in float (numerics.md 9.0)" if zeros else None

    def build_tpu(
        self,
        ctx: LoweringContext,
        operands: Sequence[SSAValue],
        element: Attribute,
        more: dict[str, Attribute],
        limit: float = -1.0,
    ) -> SSAValue:
        """The tpu op for these operands."""
        attributes = {**_attributes(*self.transposes), **relu_attributes(relu_of(self), limit), **more}
        return ctx.build(TpuMatMul, operands, attributes, element, shape_of(self.output), op_name(self))


def _attributes(left: bool, right: bool) -> dict[str, Attribute]:
    return {"left_transpose": flag(left), "right_transpose": flag(right), **relu_attributes()}


# ----------------------------------------------------------------------------------------------------------- ONNX Gemm


def _import_gemm(ctx: ImportContext, node: OnnxNode) -> SSAValue:
    """alpha*A'*B' + beta*C: alpha goes into a constant B, beta into a constant C; C that is no row is added apart."""
    alpha, beta = float(node.take("alpha", 1.0)), float(node.take("beta", 1.0))
    transposes = bool(node.take("transA", 0)), bool(node.take("transB", 0))
    node.take("broadcast")  # before opset 7; C has always been broadcast here
    left, name = ctx.value(node.inputs[0]), node.outputs[0]
    right, transposes = _gemm_matrix(ctx, node, alpha, transposes)
    n = product_shape(shape_of(left), shape_of(right), transposes, None)[-1]
    attributes = _attributes(*transposes)
    term = node.inputs[2] if len(node.inputs) > 2 else ""
    if not term or beta == 0.0:
        return ctx.build(TopMatMul, [left, right, ctx.none()], attributes, name)
    constant = ctx.constant(term)
    if constant is not None and constant.size == 1 < n and constant.dtype == np.float32:
        row = np.full(n, constant.reshape(-1)[0] * np.float32(beta), np.float32)
        return ctx.build(TopMatMul, [left, right, ctx.weight(term + "_row", row)], attributes, name)
    added = _scaled(ctx, node, term, beta)
    if constant is not None and constant.size == n == prod(constant.shape[-1:]):
        return ctx.build(TopMatMul, [left, right, added], attributes, name)
    product = ctx.build(TopMatMul, [left, right, ctx.none()], attributes, name + "_product")
    return ctx.build(TopAdd, [product, added], relu_attributes(), name)


def _gemm_matrix(
    ctx: ImportContext, node: OnnxNode, alpha: float, transposes: tuple[bool, bool]
) -> tuple[SSAValue, tuple[bool, bool]]:
    """(B, remaining transposes): a constant B is stored as (K, N), so that every later stage sees one form."""
    constant, name = ctx.constant(node.inputs[1]), node.inputs[1]
    if constant is None or constant.dtype != np.float32 or not transposes[1]:
        return _scaled(ctx, node, name, alpha), transposes
    matrix = np.ascontiguousarray(constant.T) * np.float32(alpha)
    return ctx.weight(name + "_transposed", matrix), (transposes[0], False)


def _scaled(ctx: ImportContext, node: OnnxNode, name: str, factor: float) -> SSAValue:
    """The tensor times a factor, which only a constant can take in."""
    if factor == 1.0:
        return ctx.value(name)
    constant = ctx.constant(name)
    if constant is None or constant.dtype != np.float32:
        raise node.refuse(f"alpha and beta of 1 are required for computed operands, got {factor} for '{name}'")
    return ctx.weight(name + "_scaled", constant * np.float32(factor))


# ------------------------------------------------------------------------------------------------------------ lowering


def _rescaling(ctx: LoweringContext, op: TopMatMul, m: int, r: int) -> tuple[Attribute, dict[str, Attribute]]:
    """(element type of the result, requant attributes)."""
    return ctx.quantised_type(op.output), {"multipliers": ints_attr([m]), "rshifts": ints_attr([r])}


def _bias(op: TopMatMul, ctx: LoweringContext, columns: int) -> np.ndarray | None:
    """The bias as (N,) doubles."""
    bias = None if is_none(op.bias) else ctx.array(op.bias)
    return None if bias is None else np.broadcast_to(bias.astype(np.float64).reshape(-1), (columns,))


def _bias_operand(op: TopMatMul, ctx: LoweringContext, stored: np.ndarray | None, suffix: str) -> SSAValue:
    return ctx.none() if stored is None else ctx.weight(f"{op_name(op)}_bias_{suffix}", stored)


def _lower_multiplier(op: TopMatMul, ctx: LoweringContext) -> SSAValue:
    """X family, constant right: one weight scale, int32 bias with -z_in*sum(W) inside, one 32-bit multiplier."""
    x, y, w = ctx.quant(op.input), ctx.quant(op.output), ctx.array(op.right)
    assert x is not None and y is not None and w is not None  # held by _why_not_int8
    largest = float(np.abs(w).max(initial=0.0).astype(np.float32))
    scale = largest / 127 or SMALLEST_SCALE
    stored = saturate_np(round_half_away(w.astype(np.float64) / scale), "int8")
    bias = _bias(op, ctx, shape_of(op.output)[-1])
    int_bias = None
    if bias is not None or x.zero_point:
        offset = x.zero_point * stored.astype(np.int64).sum(axis=-1 if op.transposes[1] else -2).reshape(-1)
        real = np.zeros(offset.shape) if bias is None else bias / (scale * x.scale)
        int_bias = saturate_np(round_half_away(real - offset), "int32")
    operands = [
        ctx.operand(op.input, "int8", op),
        ctx.weight(value_name(op.right) + "_int8", stored),
        _bias_operand(op, ctx, int_bias, "int32"),
    ]
    return op.build_tpu(ctx, operands, *_rescaling(ctx, op, *best_fit(scale * x.scale / y.scale)))


def _lower_activations(op: TopMatMul, ctx: LoweringContext) -> SSAValue:
    """X family, two symmetric activations: one multiplier for s_in*s_right/s_out, int32 bias."""
    x, right, y = ctx.quant(op.input), ctx.quant(op.right), ctx.quant(op.output)
    assert x is not None and right is not None and y is not None  # held by _why_not_int8
    bias, scale = _bias(op, ctx, shape_of(op.output)[-1]), x.scale * right.scale
    int_bias = None if bias is None else saturate_np(round_half_away(bias / scale), "int32")
    operands = [*(ctx.operand(v, "int8", op) for v in (op.input, op.right)), _bias_operand(op, ctx, int_bias, "int32")]
    return op.build_tpu(ctx, operands, *_rescaling(ctx, op, *best_fit(scale / y.scale)))


def _lower_shift(op: TopMatMul, ctx: LoweringContext) -> SSAValue:
    """BM1684: the weight's scale is tied to one right shift, int16 bias, multiplier 1 (numerics.md 5.4)."""
    x, y, w = ctx.quant(op.input), ctx.quant(op.output), ctx.array(op.right)
    assert x is not None and y is not None and w is not None  # held by _why_not_int8
    r = max(bm1684_conv_shift(float(np.abs(w).max(initial=0.0)), x.scale, y.scale), 0)
    r, int_bias = shift_and_bias(r, _bias(op, ctx, shape_of(op.output)[-1]), y.scale)
    stored = saturate_np(round_half_away(w.astype(np.float64) * 2.0**r * x.scale / y.scale), "int8")
    operands = [
        ctx.operand(op.input, "int8", op),
        ctx.weight(value_name(op.right) + "_int8", stored),
        _bias_operand(op, ctx, int_bias, "int16"),
    ]
    return op.build_tpu(ctx, operands, *_rescaling(ctx, op, 1, r))


# ------------------------------------------------------------------------------------------------------------- tpu op


@irdl_op_definition
class TpuMatMul(TpuOp):
    """`tpu.MatMul`: integers sat(RSR(relu(acc + bias)*m, r) + z), or f32; weights stay (K, N) in global memory."""

    name = "tpu.MatMul"

    input = operand_def(TensorType)
    right = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    left_transpose = opt_attr_def(BoolAttr)
    right_transpose = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def transposes(self) -> tuple[bool, bool]:
        """(left, right)."""
        return is_set(self.left_transpose), is_set(self.right_transpose)

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift), None in float."""
        if self.multipliers is None or self.rshifts is None:
            return None
        return ints(self.multipliers)[0], ints(self.rshifts)[0]

    def infer(self) -> tuple[Shape, ...]:
        """(..., M, N)."""
        bias = None if is_none(self.bias) else shape_of(self.bias)
        return (product_shape(shape_of(self.input), shape_of(self.right), self.transposes, bias),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers: exact product, bias, relu, one requant (numerics.md 9.2)."""
        x, w, b = operands
        bias, relu = None if b is None else b.reshape(-1), relu_of(self)
        left, right = self.transposes
        if self.scaling is None:
            y = kernels.matmul_float(x, w, bias, left_transpose=left, right_transpose=right, do_relu=relu)
            return (limited(y, self),)
        y = kernels.matmul_int(
            x, w, bias, *self.scaling, zero_point(self.output), left_transpose=left, right_transpose=right,
            do_relu=relu, out_dtype=value_dtype(self.output),
        )  # fmt: skip
        return (y,)

    def macs(self) -> int:
        """Out * K."""
        return prod(shape_of(self.output)) * shape_of(self.input)[-2 if self.transposes[0] else -1]

    def why_global(self, chip: ChipSpec) -> str | None:
        """No local form in this version (layer_group.md 2 allows some 3-D and 4-D forms)."""
        del chip
        if self.scaling is None:
            return "matrix product in float"
        return "2-D matrix product" if len(shape_of(self.input)) == 2 else "batched matrix product"

    def emit(self, ctx: EmitContext) -> None:
        """One MM2 with bias, relu and requant."""
        left, right = self.transposes
        requant = None if self.scaling is None else isa.Requant(*self.scaling, zero_point(self.output))
        ctx.emit(
            isa.MatMul, left=ctx.input(0), right=ctx.input(1), bias=None if is_none(self.bias) else ctx.input(2),
            output=ctx.output(), left_transpose=left, right_transpose=right, requant=requant, relu=relu_of(self),
        )  # fmt: skip
        emit_limit(ctx, self)
