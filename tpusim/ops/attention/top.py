"""`top.Attention`: a block of attention as one op, for chips that have such an op; lowered head by head."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from tpusim_kernels import matmul, softmax
from tpusim_kernels.prim.multiplier import best_fit
from tpusim_kernels.prim.scale import quantised, round_half_away, saturate_np, symmetric_scale
from tpusim_kernels.prim.smallfloat import narrowed
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, NoneType, StringAttr, TensorType, f16, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import float_attr, floats, int_attr, ints_attr, op_name, value_name
from tpusim.ir.modes import requant_mode
from tpusim.ir.quantisation import SMALLEST_SCALE
from tpusim.ir.types import UniformType, calibrated_range, shape_of, storage_dtype, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import TpuAdd
from tpusim.ops.attention.tpu import TpuAttention
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import Array, LoweringContext, NumberMode, QuantParams, Shape, TopOp, is_none
from tpusim.ops.framework.families import relu_attributes, zero_point
from tpusim.ops.interfaces import ChipRewrites, Weighs
from tpusim.ops.matmul.product import HEADS
from tpusim.ops.patterns.attention import ProductsAsAttention
from tpusim.ops.rescale import TpuRequantInt
from tpusim.ops.softmax import exponential_table

OUT = 3
"""Index of the last of the four layers."""


class Scales(NamedTuple):
    """Calibrated symmetric scales of the tensors inside a block (`TopAttention.scale_param`)."""

    queries: float
    keys: float
    values: float
    scores: float
    scaled: float
    weights: float
    mixed: float


@irdl_op_definition
class TopAttention(TopOp, ChipRewrites, Weighs):
    """`top.Attention`: concat_h(softmax(scale * q_h x k_h^T + mask) x v_h) x W_o + b_o, q = input x W_q + b_q ...

    input (B, M, K), keys and values (B, M', K'), matrices (K, N) whose columns are divided into `head` equal heads,
    out_weight (N, K''). Formed from the ops of a block. scale_param: the scales of the tensors inside; without them the
    op has no integer form. read_by: the names of the layers that read input, keys and values; casts take these names.
    """

    name = "top.Attention"
    SPEC: ClassVar[tuple[str, ...]] = ("11.5",)

    input = operand_def(TensorType)
    keys = operand_def(TensorType)
    values = operand_def(TensorType)
    queries_weight = operand_def(TensorType)
    queries_bias = operand_def(TensorType | NoneType)
    keys_weight = operand_def(TensorType)
    keys_bias = operand_def(TensorType | NoneType)
    values_weight = operand_def(TensorType)
    values_bias = operand_def(TensorType | NoneType)
    out_weight = operand_def(TensorType)
    out_bias = operand_def(TensorType | NoneType)
    mask = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    head = attr_def(IntegerAttr)
    scale = attr_def(FloatAttr)
    scale_param = opt_attr_def(ArrayAttr)
    read_by = attr_def(ArrayAttr)

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The pattern that forms the op, on chips that have the op."""
        return (ProductsAsAttention(weights, cls),) if chip.forms.attention else ()

    @property
    def heads(self) -> int:
        """The number of attention heads."""
        return self.head.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(B, M, columns of out_weight)."""
        x, columns = shape_of(self.input), shape_of(self.queries_weight)[1]
        if len(x) != 3 or columns % self.heads:
            raise ValueError(f"an input of three axes and heads of one size are required, got {x}, {columns} columns")
        return ((*x[:2], shape_of(self.out_weight)[1]),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """In f32; products are summed in the order of U-34."""
        *sources, wq, bq, wk, bk, wv, bv, wo, bo, mask = operands
        layers = zip(sources, (wq, wk, wv), (bq, bk, bv), strict=True)
        q, k, v = (self._by_heads(_product(x, w, b)) for x, w, b in layers)
        masks = None if mask is None else mask.reshape(-1, 1, 1, mask.shape[-1])
        scores = _product(q, k, None, right_transpose=True)
        mixed = _product(softmax.softmax_scaled(scores, masks, self.scale.value.data), v, None).transpose(HEADS)
        return (_product(mixed.reshape(*mixed.shape[:2], -1), wo, bo),)

    def _by_heads(self, x: Array) -> Array:
        batch, rows, _ = x.shape
        return x.reshape(batch, rows, self.heads, -1).transpose(HEADS)

    @override
    def flops(self) -> int:
        (batch, rows, _), others = shape_of(self.input), shape_of(self.keys)[1]
        layers = zip((self.input, self.keys, self.values), self.matrices, strict=False)
        linear = sum(prod(shape_of(x)[:2]) * prod(shape_of(w)) for x, w in layers)
        inner = 2 * batch * rows * others * shape_of(self.queries_weight)[1]
        return 2 * (linear + inner + batch * rows * prod(shape_of(self.out_weight)))

    @property
    def matrices(self) -> tuple[SSAValue, ...]:
        """The matrices of queries, keys, values and result."""
        return self.queries_weight, self.keys_weight, self.values_weight, self.out_weight

    @property
    def biases(self) -> tuple[SSAValue, ...]:
        """The biases of queries, keys, values and result; an absent one is none."""
        return self.queries_bias, self.keys_bias, self.values_bias, self.out_bias

    # -------------------------------------------------------------------------------------------------------- lowering

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """One tpu.Attention of bytes per head with a 32-bit result, the sum of the heads, and one requant."""
        measured, y = calibrated_range(self.output), ctx.quant(self.output)
        if self.scale_param is None or measured is None or y is None:
            return "a tensor of the block is not calibrated"
        if any(ctx.quant(x) is None for x in (self.input, self.keys, self.values)):
            return "the input, keys or values are not calibrated"
        scales, outer = Scales(*floats(self.scale_param)), _weight_scale(_constant(ctx, self.out_weight))
        sources = self._sources(ctx, "int8")
        mask = self._mask_of_bytes(ctx)
        parts = [self._integer_head(ctx, head, sources, mask, scales, outer) for head in range(self.heads)]
        scale, _, signed = symmetric_scale(*measured)
        total = self._sum(ctx, parts, i32, "")
        m, r = best_fit(scales.mixed * outer / scale)
        attributes: dict[str, Attribute] = {"multiplier": int_attr(m), "rshift": int_attr(r)}
        attributes["quant_mode"] = requant_mode("MultiplierShift")
        element = UniformType.of_params(QuantParams.of(scale, signed=signed))
        return ctx.build(TpuRequantInt, [total], attributes, element, shape_of(self.output), op_name(self))

    def _integer_head(
        self, ctx: LoweringContext, head: int, sources: list[SSAValue], mask: SSAValue, scales: Scales, outer: float
    ) -> SSAValue:
        """One head. Its weights have separate scales, except out_weight, whose scale `outer` all heads share."""
        name, fits, layers = self._head_name(head), list[int](), list[SSAValue]()
        for i, (x, word) in enumerate(zip((self.input, self.keys, self.values), "qkv", strict=True)):
            quant, matrix = ctx.quant(x), self._matrix(ctx, i, head)
            assert quant is not None  # checked by lower_integer
            scale = _weight_scale(matrix)
            fits += [*best_fit(scale * quant.scale / scales[i]), 0]
            stored = quantised(matrix, scale, "int8")
            layers.append(ctx.weight(f"{name}_weight_{word}_int8", stored))
            bias = self._int_bias(ctx, self._bias(ctx, i, head), stored, quant, scale)
            layers.append(_row(ctx, bias, f"{name}_weight_{word}_int32"))
        fits += [*best_fit(scales.queries * scales.keys / scales.scores), 0]
        fits += [*best_fit(scales.weights * scales.values / scales.mixed), 0, 0]
        stored = _narrow_bytes(self._matrix(ctx, OUT, head), outer)[np.newaxis]
        layers.append(ctx.weight(f"{value_name(self.out_weight)}_weight_head_{head}_int8", stored))
        bias = self._bias(ctx, OUT, head)
        bias = None if bias is None else _int32(bias / np.float32(outer * scales.mixed))
        layers.append(_row(ctx, bias, f"{value_name(self.out_bias)}_int32"))
        table = ctx.weight(f"{name}_table", exponential_table(float(np.float32(scales.scaled))).reshape(1, 1, 1, -1))
        attributes = self._head_attributes(layers, scales.weights) | {"quant_param": ints_attr(fits)}
        operands = [*sources, *layers, mask, table]
        return ctx.build(TpuAttention, operands, attributes, i32, shape_of(self.output), name)

    def _int_bias(
        self, ctx: LoweringContext, bias: np.ndarray | None, stored: np.ndarray, x: QuantParams, scale: float
    ) -> np.ndarray | None:
        """The bias in units of input scale times weight scale, minus the term of the input's zero point, in f64."""
        real = np.zeros(stored.shape[1]) if bias is None else bias.astype(np.float64) / (scale * x.scale)
        offset = x.zero_point * stored.sum(0, dtype=np.int64)
        return None if bias is None and not offset.any() else _int32(real - offset)

    def _head_attributes(self, layers: Sequence[SSAValue], scale: float) -> dict[str, Attribute]:
        """Attributes of both forms. has_bias: a bit for each of the four layers."""
        biases = (layers[1], layers[3], layers[5], layers[7])
        bits = sum((not is_none(bias)) << i for i, bias in enumerate(biases))
        size = shape_of(self.queries_weight)[1] // self.heads
        return {"dim": int_attr(size), "has_bias": int_attr(bits), "head": int_attr(1), "scale": float_attr(scale)}

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """One tpu.Attention in 16 bits per head (in F16 for F32 mode), and the sum of the heads."""
        wide = ctx.float_mode(self) == "f32"
        element, mode = (f16, "f16") if wide else (ctx.float_type(self), ctx.float_mode(self))
        sources = self._sources(ctx, mode, by_head=wide)
        mask = ctx.none() if is_none(self.mask) else ctx.operand(self.mask, mode, self, self._head_name(0))
        parts = [self._float_head(ctx, head, [*sources], mask, element) for head in range(self.heads)]
        return self._sum(ctx, parts, element, op_name(self))

    def _float_head(
        self, ctx: LoweringContext, head: int, sources: list[SSAValue], mask: SSAValue, element: Attribute
    ) -> SSAValue:
        name, dtype, layers = self._head_name(head), storage_dtype(element), list[SSAValue]()
        for i, (w, b) in enumerate(zip(self.matrices, self.biases, strict=True)):
            matrix = self._matrix(ctx, i, head)
            told = f"{value_name(w)}_weight_head_{head}_{_word(dtype)}"
            layers.append(ctx.weight(told, _narrow(matrix[np.newaxis] if i == OUT else matrix, dtype)))
            bias = self._bias(ctx, i, head)
            told = f"{name}{value_name(b)}" if i == OUT else f"{value_name(b)}_bias_head_{head}"
            layers.append(_row(ctx, None if bias is None else _narrow(bias, dtype), f"{told}_{_word(dtype)}"))
        attributes = self._head_attributes(layers, self.scale.value.data)
        operands = [*sources, *layers, mask, ctx.none()]
        return ctx.build(TpuAttention, operands, attributes, element, shape_of(self.output), name)

    def _sum(self, ctx: LoweringContext, parts: Sequence[SSAValue], element: Attribute, last: str) -> SSAValue:
        """The sum of all heads in order. last: the name of the whole sum; "": named like the partial sums."""
        total, *rest = parts
        for i, part in enumerate(rest, 1):
            name = last if last and i == len(rest) else f"{op_name(self)}_attention_out_fuse_{i}"
            total = ctx.build(TpuAdd, [total, part], relu_attributes(), element, shape_of(self.output), name)
        return total

    def _sources(self, ctx: LoweringContext, mode: NumberMode, *, by_head: bool = False) -> list[SSAValue]:
        """Input, keys and values; `none` for a repeated one. by_head: casts are named after the first head."""
        tops, names = (self.input, self.keys, self.values), [cast("StringAttr", n).data for n in self.read_by]
        same = (False, self.keys is self.input, self.values is self.keys)
        return [
            ctx.none() if absent else ctx.operand(x, mode, self, self._head_name(0) if by_head else name)
            for x, absent, name in zip(tops, same, names, strict=True)
        ]

    def _mask_of_bytes(self, ctx: LoweringContext) -> SSAValue:
        """The mask: its bytes as i32, of which only 0 means "keep"; a constant or float mask stays float.

        By a quirk the zero point is not subtracted.
        """
        if is_none(self.mask):
            return ctx.none()
        constant, name = ctx.array(self.mask), self._head_name(0)
        if constant is not None:
            return ctx.weight(value_name(self.mask), np.asarray(constant, np.float32))
        stored = ctx.stored(self.mask)
        if stored is None or uniform_of(stored) is None:
            return ctx.operand(self.mask, "f16", self, name)
        told, shape = f"{value_name(self.mask)}{name}_si32", shape_of(stored)
        # By the quirk (U-09) every byte except 0 masks, whatever the zero point.
        if zero_point(stored) and not ctx.reproduces(Quirk.ATTENTION_MASK_BYTES):
            one: dict[str, Attribute] = {"multiplier": int_attr(1), "rshift": int_attr(0)}
            return ctx.build(TpuRequantInt, [stored], one, i32, shape, told)
        if zero_point(stored):
            ctx.decision(self, Quirk.ATTENTION_MASK_BYTES.decision)
        return ctx.build(TpuCast, [stored], {}, i32, shape, told)

    def _head_name(self, head: int) -> str:
        return f"{op_name(self)}_head_{head}"

    def _matrix(self, ctx: LoweringContext, index: int, head: int) -> np.ndarray:
        """The columns of a layer that belong to a head; of the last layer its rows."""
        data = _constant(ctx, self.matrices[index]).astype(np.float32)
        return np.split(data, self.heads, axis=int(index != OUT))[head]

    def _bias(self, ctx: LoweringContext, index: int, head: int) -> np.ndarray | None:
        """The part of a bias that belongs to a head; the first head has all of the last layer's. None if absent."""
        value = self.biases[index]
        if is_none(value) or (index == OUT and head):
            return None
        columns = shape_of(self.matrices[index])[1]
        row = np.broadcast_to(_constant(ctx, value).astype(np.float32).reshape(-1), (columns,))
        return row if index == OUT else np.split(row, self.heads)[head]


def _product(x: Array, w: Array, b: Array | None, *, right_transpose: bool = False) -> Array:
    bias = None if b is None else b.reshape(-1)
    return matmul.matmul_float(x, w, bias, left_transpose=False, right_transpose=right_transpose, do_relu=False)


def _constant(ctx: LoweringContext, value: SSAValue) -> np.ndarray:
    data = ctx.array(value)
    assert data is not None  # the pattern takes constants only
    return data


def _weight_scale(matrix: np.ndarray) -> float:
    """The symmetric 8-bit scale of one weight matrix: max|W|/127."""
    return float(np.abs(matrix).max(initial=0.0).astype(np.float32)) / 127 or SMALLEST_SCALE


def _narrow_bytes(matrix: np.ndarray, scale: float) -> np.ndarray:
    """The last layer in bytes; scale and quotient are f32."""
    return saturate_np(round_half_away(matrix / np.float32(scale)), "int8")


def _int32(values: np.ndarray) -> np.ndarray:
    return saturate_np(round_half_away(values), "int32")


def _narrow(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return np.asarray(narrowed(cast("Array", values), dtype))


def _word(dtype: np.dtype[Any]) -> str:
    return dtype.name.replace("float", "f")


def _row(ctx: LoweringContext, row: np.ndarray | None, name: str) -> SSAValue:
    """A bias as a weight (1, 1, N); `none` if absent."""
    return ctx.none() if row is None else ctx.weight(name, row.reshape(1, 1, -1))
