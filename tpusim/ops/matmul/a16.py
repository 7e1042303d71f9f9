"""`tpu.A16MatMul`: 16-bit activations times weights of 4 or 8 bits, dequantised by groups (numerics.md 14)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import a16 as kernels
from tpusim_kernels.prim.grouped import LANE_GROUP, grouped_weights, packed_codes
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, NoneType, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import flag, int_attr, op_name, text, value_name
from tpusim.ir.formats import LEAST_GROUP, NumberFormat
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.multiplications import of_product
from tpusim.isa.steps import array
from tpusim.ops.concat import TpuConcat
from tpusim.ops.framework.base import Array, EmitContext, LoweringContext, ReorderContext, Shape, TopOp, TpuOp, is_none
from tpusim.ops.framework.families import relu_attributes, relu_limit_of, relu_of
from tpusim.ops.interfaces import ChipInference, Macs, Reorder, TwoArithmetics
from tpusim.ops.matmul.product import Product
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.relu import TpuRelu

PACKED_BITS = 4
"""Two codes of this many bits share a byte."""


@irdl_op_definition
class TpuA16MatMul(TpuOp, TwoArithmetics, ChipInference, Macs, Reorder):
    """`tpu.A16MatMul`: (..., K) x (N, K) codes + bias (N,) in f16 or bf16 (numerics.md 14).

    weight: a row of codes for each column of the result, uint8 (N, K), or (N, K/2) with two of 4 bits in a byte, the
    low half first. scale (16 bits) and zp (uint8): (N, groups); after weight-reorder (lanes, N/lanes, groups), row n in
    lane n mod lanes, if N is a multiple of the lanes. bias: 16 bits.
    """

    name = "tpu.A16MatMul"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    scale = operand_def(TensorType)
    zp = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    sign = attr_def(BoolAttr)
    weight_bits = attr_def(IntegerAttr)
    w_transpose = attr_def(BoolAttr)
    q_group_size = attr_def(IntegerAttr)
    dq_type = attr_def(StringAttr)
    arithmetic = opt_attr_def(StringAttr)

    @property
    def bits(self) -> int:
        """Bits of a weight."""
        return self.weight_bits.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(..., N). Raises ValueError for operands that do not fit."""
        *rows, inner = shape_of(self.input)
        columns, stored = shape_of(self.weight)
        if stored * (8 // self.bits) != inner:
            raise ValueError(f"weights of {inner} elements a row are required, got {stored} bytes of {self.bits} bits")
        for value in (self.scale, self.zp):
            groups, rest = divmod(prod(shape_of(value)), columns)
            if rest or not groups or inner % groups:
                raise ValueError(f"groups that divide {inner} in {columns} rows are required, got {shape_of(value)}")
        if not is_none(self.bias) and prod(shape_of(self.bias)) != columns:
            raise ValueError(f"a bias of {columns} elements is required, got {shape_of(self.bias)}")
        return ((*rows, columns),)

    @override
    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        x, codes, scale, zp, bias = operands
        given, narrow = (self.by_row(scale), self.by_row(zp), bias), storage_dtype(element_of(self.output)).name
        if self.as_interpreter:
            return (kernels.a16_matmul_interpreter(x, codes, *given, bits=self.bits, narrow=narrow),)
        depth = self._depth(chip)
        return (kernels.a16_matmul(x, codes, *given, bits=self.bits, narrow=narrow, depth=depth),)

    def _depth(self, chip: ChipSpec) -> int:
        """How many products the chip's array adds up at once."""
        return array(chip, storage_dtype(element_of(self.output)).itemsize, shape_of(self.input)[-1]).depth

    def by_row(self, stored: Array) -> Array:
        """(N, groups) of scales or zero points."""
        if stored.ndim == 2:  # noqa: PLR2004
            return stored
        return stored.swapaxes(0, 1).reshape(-1, stored.shape[-1])

    @override
    def macs(self) -> int:
        return of_product(prod(shape_of(self.output)), shape_of(self.input)[-1])

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Give scales and zero points the layout of local memory, and the bias the rank of the input."""
        lanes, columns = ctx.chip.lanes, shape_of(self.weight)[0]
        for index in (2, 3):
            data = ctx.array(self.operands[index])
            if data is not None and data.ndim == 2 and columns % lanes == 0:  # noqa: PLR2004
                laid = np.ascontiguousarray(data.reshape(columns // lanes, lanes, -1).swapaxes(0, 1))
                name = f"{value_name(self.operands[index])}_lanes"
                self.operands[index] = ctx.weight(name, laid, element_of(self.operands[index]))

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "a product with weights of few bits has no local form (numerics.md 14)"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Fn `a16_matmul`, whose tiles unpack, dequantise and multiply."""
        given = [i for i, value in enumerate(self.operands) if not is_none(value)]
        arithmetic = "interpreter" if self.as_interpreter else "chip"
        biased = not is_none(self.bias)
        function = functions.A16MatMul(self.bits, biased, self._depth(ctx.chip), arithmetic)
        ctx.emit(isa.Fn, function=function, inputs=tuple(ctx.input(i) for i in given), output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ lowering


class WeightsOfFewBits(Product, TopOp):
    """The lowering of a product to `tpu.A16MatMul`, for `top.MatMul`."""

    def lower_weight_only(self, ctx: LoweringContext) -> SSAValue | str:
        """Quantised columns, then the remaining columns in 16 bits; or why the product stays in 16 bits."""
        right, format = ctx.array(self.right), ctx.format(self)
        why = self._why_16_bits(ctx, right, format)
        if why is not None or right is None:
            return why or ""
        matrix = right.reshape(right.shape[-2:])
        rows = matrix if self.transposes[1] else matrix.T
        quantised = _quantised_columns(len(rows), ctx.chip.lanes)
        name = op_name(self)
        stem = name if not relu_of(self) else f"{name}_product"
        whole = quantised == len(rows)
        y = self._of_few_bits(ctx, rows[:quantised], format, stem if whole else f"{stem}_0_{quantised}")
        if not whole:
            rest = self._in_16_bits(ctx, rows[quantised:], quantised, f"{stem}_{quantised}_{len(rows)}")
            axis = {"axis": int_attr(len(shape_of(self.output)) - 1)}
            y = ctx.build(TpuConcat, [y, rest], axis, ctx.float_type(self), shape_of(self.output), stem)
        if relu_of(self):
            limit = relu_attributes(limit=relu_limit_of(self))
            attributes = {"relu_limit": limit["relu_limit"]}
            y = ctx.build(TpuRelu, [y], attributes, ctx.float_type(self), shape_of(self.output), name)
        return y

    def chip_products(self, ctx: LoweringContext) -> dict[str, Attribute]:
        """The attribute of a product in 16 bits with the chip's arithmetic, which modes of few bits have (DN-24)."""
        in_16_bits = ctx.format(self).family == "weight_only" and ctx.float_mode(self) != "f32"
        return {"arithmetic": text("chip")} if in_16_bits else {}

    def _why_16_bits(self, ctx: LoweringContext, right: np.ndarray | None, format: NumberFormat) -> str | None:
        """Why the weights are not quantised; None if they are. Raises UnsupportedError for rows without groups."""
        if ctx.array(self.input) is not None:
            return "the left operand is constant (numerics.md 14)"
        if right is None or prod(right.shape[:-2]) > 1 or self.has_heads or self.transposes[0]:
            return "one constant right matrix is required (numerics.md 14)"
        if not is_none(self.bias) and ctx.array(self.bias) is None:
            return "the bias is not constant"
        inner, group = self.inner, format.group_size
        if not group and inner % LANE_GROUP:
            able = [size for size in range(LEAST_GROUP, LANE_GROUP + 1, LEAST_GROUP) if inner % size == 0]
            other = f"groups of {able[-1]}, or " if able else ""
            raise UnsupportedError(
                f"top.MatMul '{op_name(self)}': without groups (group size 0) rows must be a multiple of {LANE_GROUP} "
                f"weights, got {inner}; use {other}F16 or BF16 for this op in a quantisation table"
            )
        return f"rows of {inner} weights are no multiple of the group of {group}" if group and inner % group else None

    def _of_few_bits(self, ctx: LoweringContext, rows: np.ndarray, format: NumberFormat, name: str) -> SSAValue:
        bits, group = format.weight_bits, format.group_size
        found = grouped_weights(rows, bits, group, symmetric=format.symmetric)
        stem = f"{value_name(self.right)}_{name}"
        operands = [
            ctx.operand(self.input, ctx.float_mode(self), self),
            ctx.weight(f"{stem}_codes", packed_codes(found.codes, bits)),
            ctx.float_weight(self, f"{stem}_scale", found.scales),
            ctx.weight(f"{stem}_zp", found.zero_points),
            self._bias_part(ctx, 0, len(rows), f"{name}_bias"),
        ]
        attributes: dict[str, Attribute] = {
            "sign": flag(True), "weight_bits": int_attr(bits), "w_transpose": flag(True),
            "q_group_size": int_attr(group or LANE_GROUP), "dq_type": text("NONE"),
        }  # fmt: skip
        shape = (*shape_of(self.output)[:-1], len(rows))
        return ctx.build(TpuA16MatMul, operands, attributes, ctx.float_type(self), shape, name)

    def _in_16_bits(self, ctx: LoweringContext, rows: np.ndarray, start: int, name: str) -> SSAValue:
        """The product with the columns that are no multiple of the lanes."""
        matrix = ctx.float_weight(self, f"{value_name(self.right)}_{name}", np.ascontiguousarray(rows.T))
        x = ctx.operand(self.input, ctx.float_mode(self), self)
        bias = self._bias_part(ctx, start, start + len(rows), f"{name}_bias", narrow=ctx.chip.bias_rounded)
        stated = {"left_transpose": flag(False), "right_transpose": flag(False), **relu_attributes()}
        attributes = {**stated, **self.chip_products(ctx)}
        shape = (*shape_of(self.output)[:-1], len(rows))
        return ctx.build(TpuMatMul, [x, matrix, bias], attributes, ctx.float_type(self), shape, name)

    def _bias_part(self, ctx: LoweringContext, start: int, stop: int, name: str, *, narrow: bool = True) -> SSAValue:
        """Some elements of the bias, in the type of the mode, or else (`narrow`) in f32."""
        bias = None if is_none(self.bias) else ctx.array(self.bias)
        if bias is None:
            return ctx.none()
        row = np.broadcast_to(bias.reshape(-1), (shape_of(self.output)[-1],))[start:stop]
        part = row.reshape(*(1,) * (len(shape_of(self.input)) - 1), -1)
        return ctx.float_weight(self, name, part) if narrow else ctx.weight(name, part.astype(np.float32))


def _quantised_columns(columns: int, lanes: int) -> int:
    """How many columns are quantised: all of fewer than the lanes, else a multiple of the lanes."""
    return columns if columns < lanes else columns - columns % lanes
