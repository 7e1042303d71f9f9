"""`tpu.Attention`: one head of a block of attention, in bytes or in 16-bit floats (numerics.md 11.5)."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from tpusim_kernels import matmul as kernels
from tpusim_kernels.arith_int import requant_int
from tpusim_kernels.prim.smallfloat import narrowed, widened
from tpusim_kernels.softmax import softmax_attention, softmax_scaled
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa.functions.attention import attention_products
from tpusim.isa.layout import align, ceil_div
from tpusim.ops.attention.commands import emit_global, emit_local
from tpusim.ops.attention.packed import Sizes, pack_matrices, unpack_biases, unpack_matrices
from tpusim.ops.framework.base import (
    Array,
    Axis,
    EmitContext,
    GroupType,
    ReorderContext,
    Shape,
    TensorSlice,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.framework.logical import WHOLE, WITH_MM
from tpusim.ops.interfaces import Macs, OperandSlices, Reorder

MATRICES, BIASES, OUT_BIAS, MASK, TABLE = (3, 5, 7), (4, 6, 8, 10), 10, 11, 12
"""Indices of operands: matrices of queries, keys and values; biases of these and of the last layer; the last bias;
mask; table."""


class Fit(NamedTuple):
    """The numbers of a requant."""

    multiplier: int
    rshift: int
    zero_point: int


@irdl_op_definition
class TpuAttention(TpuOp, Macs, OperandSlices, Reorder):
    """`tpu.Attention`: softmax(s(x W_q + b_q) (x W_k + b_k)^T + mask) (x W_v + b_v) W_o + b_o for one head.

    Bytes: every product except the last, which stays in 32 bits, is requantised to int8. quant_param: multiplier, shift
    and zero point for queries, keys, values, scores and mixed values, then 0. Softmax by `table`, to uint8; scale: the
    scale of its result.
    Floats: f16 or bf16. Products, softmax and result are rounded to that type, the scores are not; scale: the factor of
    the scores.
    has_bias: a bit each for queries, keys, values and the last layer. After weight-reorder, queries_weight contains all
    three matrices and queries_bias all biases.
    """

    name = "tpu.Attention"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("quant_param",),)

    input = operand_def(TensorType)
    keys = operand_def(TensorType | NoneType)
    values = operand_def(TensorType | NoneType)
    queries_weight = operand_def(TensorType)
    queries_bias = operand_def(TensorType | NoneType)
    keys_weight = operand_def(TensorType | NoneType)
    keys_bias = operand_def(TensorType | NoneType)
    values_weight = operand_def(TensorType | NoneType)
    values_bias = operand_def(TensorType | NoneType)
    out_weight = operand_def(TensorType)
    out_bias = operand_def(TensorType | NoneType)
    mask = operand_def(TensorType | NoneType)
    table = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    quant_param = opt_attr_def(ArrayAttr)
    scale = attr_def(FloatAttr)
    head = attr_def(IntegerAttr)
    dim = attr_def(IntegerAttr)
    has_bias = attr_def(IntegerAttr)

    @property
    def sources(self) -> tuple[SSAValue, SSAValue, SSAValue]:
        """The tensors from which queries, keys and values are computed."""
        keys = self.input if is_none(self.keys) else self.keys
        return self.input, keys, keys if is_none(self.values) else self.values

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The requants of queries, keys, values, scores and mixed values; empty in float."""
        numbers = () if self.quant_param is None else ints(self.quant_param)
        return tuple(Fit(*numbers[i : i + 3]) for i in range(0, len(numbers) - 1, 3))

    @property
    def sizes(self) -> Sizes:
        """The extents of the matrices."""
        rows = [shape_of(x)[-1] for x in self.sources[:2]]
        return Sizes(rows[0], rows[1], self.dim.value.data, shape_of(self.out_weight)[-1])

    @property
    def is_packed(self) -> bool:
        """Whether the weights have the layout of local memory."""
        return len(shape_of(self.queries_weight)) == 4

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(B, M, columns of the last layer). Raises ValueError for operands that do not fit."""
        shapes = [shape_of(x) for x in self.sources]
        if any(len(s) != 3 or s[0] != shapes[0][0] for s in shapes) or shapes[1][:2] != shapes[2][:2]:
            raise ValueError(f"inputs (B, M, K), keys and values of one length are required, got {shapes}")
        if not self.is_packed:
            wanted = [(shape[-1], self.dim.value.data) for shape in shapes]
            given = [shape_of(self.operands[i]) for i in MATRICES if not is_none(self.operands[i])]
            if wanted != given:
                raise ValueError(f"matrices {wanted} are required, got {given}")
        if self.quant_param is not None and len(ints(self.quant_param)) != 16:
            raise ValueError(f"quant_param of 16 numbers is required, got {len(ints(self.quant_param))}")
        return ((*shapes[0][:2], self.sizes.out),)

    def _layers(self, operands: Sequence[Array]) -> tuple[list[Array], list[Array | None]]:
        """(matrices of queries, keys and values; biases of all four layers)."""
        if not self.is_packed:
            return [operands[i] for i in MATRICES], [operands[i] for i in BIASES]
        rows = unpack_biases(operands[4], self.has_bias.value.data, self.sizes)
        return unpack_matrices(operands[3], self.sizes), rows

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        sources: list[Array] = [operands[0]]
        for x in operands[1:3]:
            sources.append(sources[-1] if x is None else x)
        return ((self._in_bytes if self.fits else self._in_floats)(sources, operands),)

    def _in_bytes(self, sources: Sequence[Array], operands: Sequence[Array]) -> Array:
        matrices, biases = self._layers(operands)
        mask, table = operands[MASK], operands[TABLE]
        layers = zip(sources, matrices, biases[:3], self.fits[:3], strict=True)
        q, k, v = (_requantised(x, w, b, fit) for x, w, b, fit in layers)
        scores = _requantised(q, k, None, self.fits[3], right_transpose=True)
        rows = None if mask is None else mask.reshape(-1, 1, mask.shape[-1])
        weights = softmax_attention(scores, rows, table, self.scale.value.data)
        mixed = _requantised(weights, v, None, self.fits[4])
        return _sum(mixed, operands[9][0], biases[3])

    def _in_floats(self, sources: Sequence[Array], operands: Sequence[Array]) -> Array:
        matrices, biases = self._layers(operands)
        mask = operands[MASK]
        q, k, v = (self._rounded(_product(*layer)) for layer in zip(sources, matrices, biases[:3], strict=True))
        scores = _product(q, k, None, right_transpose=True)
        rows = None if mask is None else mask.reshape(-1, 1, mask.shape[-1])
        weights = self._rounded(softmax_scaled(scores, rows, np.float32(self.scale.value.data)))
        return _product(self._rounded(_product(weights, v, None)), operands[9][0], biases[3])

    def _rounded(self, x: Array) -> Array:
        """Rounded to the type of the result, as f32."""
        return widened(narrowed(x, storage_dtype(element_of(self.output))))

    @override
    def macs(self) -> int:
        batch, rows, _ = shape_of(self.input)
        return attention_products(batch, rows, shape_of(self.sources[1])[1], self.sizes)

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """All three matrices become one operand (1, lanes, rows, columns), all biases one row."""
        if self.is_packed:
            return
        name, none = op_name(self), ctx.none()
        matrices = [ctx.array(self.operands[i]) for i in MATRICES]
        present = [m for m in matrices if m is not None]
        vector = ctx.chip.eu_elements(present[0].dtype.itemsize)
        packed = pack_matrices(present, ctx.chip.lanes, vector)
        rows = [b.reshape(-1) for i in BIASES if (b := ctx.array(self.operands[i])) is not None]
        new = list(self.operands)
        new[3] = ctx.weight(f"{name}_filter_reorder", packed, element_of(self.queries_weight))
        for i in (*MATRICES[1:], *BIASES):
            new[i] = none
        if rows:
            new[4] = ctx.weight(f"{name}_bias_reorder", np.concatenate(rows).reshape(1, 1, -1))
        self.operands = new

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        return f"attention has no local form on {chip.name}" if chip.is_global(self.name) else None

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """An MM group cuts rows, which requires keys from another tensor (layer_group.md 3)."""
        if kind is GroupType.MM and is_none(self.keys):
            return "attention to its own input needs all rows"
        return super().why_not_in(kind, chip)

    @override
    def can_slice(self, axis: Axis) -> bool:
        """Along the batch; along rows if the keys come from another tensor."""
        return axis == "n" or (axis == "c" and not is_none(self.keys))

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The batch is cut like the result, and so are the rows of the input; everything else is needed whole."""
        activations = (0, 1, 2, MASK)
        return window if (axis == "n" and operand in activations) or (axis == "c" and operand == 0) else WHOLE

    @override
    def holds_operand(self, operand: int) -> bool:
        """Keys and values, which all slices need, are loaded once."""
        return operand in (1, 2)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Scores, weights, queries (then mixed values), keys and values; at least the area of U-84."""
        del inputs
        size, (batch, rows, _, _) = storage_dtype(element_of(self.input)).itemsize, output.shape
        others, vector = shape_of(self.sources[1])[1], chip.eu_elements(size)
        each, other = ceil_div(rows, chip.lanes), ceil_div(others, chip.lanes)
        width, wide = align(self.dim.value.data, vector) * size, align(others, vector) * size
        fixed = each * width + 2 * other * width
        scores = each * align(others, chip.eu_elements(4)) * 4
        if size > 1:
            return max(batch * (fixed + scores + each * wide), 4 * scores + fixed)
        through = max(each, other) * align(self.dim.value.data, chip.eu_elements(4)) * 4
        imm = align(max(through, scores + each * chip.eu_bytes), chip.lmem_bank_bytes)
        return max(batch * (fixed + 2 * each * wide), align(each * wide + fixed, chip.lmem_bank_bytes) + imm)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Six MM2 and a softmax in local memory; FN attention in global memory."""
        (emit_local if ctx.local else emit_global)(ctx, self)


def _requantised(x: Array, w: Array, b: Array | None, fit: Fit, *, right_transpose: bool = False) -> Array:
    """The product requantised to int8 with halves away from zero (a MatMul rounds them up)."""
    return requant_int(_sum(x, w, b, right_transpose=right_transpose), *fit[:2], 0, fit.zero_point, out_dtype="int8")


def _sum(x: Array, w: Array, b: Array | None, *, right_transpose: bool = False) -> Array:
    """The product plus the bias, in int32."""
    bias = None if b is None else b.reshape(-1)
    return kernels.matmul_int(
        x, w, bias, 1, 0, 0, left_transpose=False, right_transpose=right_transpose, do_relu=False, out_dtype="int32"
    )


def _product(x: Array, w: Array, b: Array | None, *, right_transpose: bool = False) -> Array:
    bias = None if b is None else b.reshape(-1)
    return kernels.matmul_float(x, w, bias, left_transpose=False, right_transpose=right_transpose, do_relu=False)
