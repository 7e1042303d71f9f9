"""`tpu.Cast`: between float and quantised integers (numerics.md 8.1)."""

from collections.abc import Sequence
from typing import ClassVar, cast

import ml_dtypes
import numpy as np
from tpusim_kernels import cast as kernels
from tpusim_kernels.arith_shift import quantize_bf16
from tpusim_kernels.prim.smallfloat import to_finite_bf16, truncate_bf16
from typing_extensions import override
from xdsl.dialects.builtin import BFloat16Type, BoolAttr, Float16Type, IntegerType, StringAttr, i32
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.types import UniformType, element_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.casts import dequantizing_scale, quantizing_scale
from tpusim.isa.layout import lmem_bytes
from tpusim.ops.framework.base import Array, EmitContext
from tpusim.ops.framework.families import UnaryTpu, command_dtype, is_set, value_dtype
from tpusim.ops.framework.logical import EVERY_TYPE, GroupType, TensorSlice
from tpusim.ops.interfaces import (
    Arithmetic,
    ChipInference,
    HostComputed,
    Inserted,
    LibraryKernel,
    Margins,
    SharedWindows,
    TwoArithmetics,
)


@irdl_op_definition
class TpuCast(UnaryTpu, ChipInference, TwoArithmetics, HostComputed, Inserted, LibraryKernel, SharedWindows):
    """`tpu.Cast`: float -> uniform: sat(round-half-away(x * f32(1/s)) + z); uniform -> float: s * (q - z).

    Indices (i32) -> float: the number itself. Uniform -> i32: the stored integer. Float -> float: one rounding. If one
    of the types is f16 or bf16, every step is rounded to it: reciprocal and product, scale, integer and product
    (numerics.md 8.1).

    On a chip whose only float unit is BF16, bf16 -> int8 is sat(RNE(BF16(x * BF16(1/s)))), int8 -> float is
    BF16(BF16(s) * q), and f32 -> bf16 truncates. `truncated`: f32 -> int8 goes through bf16. On such a chip the host
    quantises the network's input ("quant"), in f32 with f32(1)/f32(s) for 1/s.

    with_scale false: the scale is 1; in some final modules TPU-MLIR multiplies by it with another op.

    arithmetic "chip": f32 to 16 bits rounds halves away from zero (DN-24).
    """

    name = "tpu.Cast"
    with_scale = opt_attr_def(BoolAttr)
    truncated = opt_attr_def(BoolAttr)
    arithmetic = opt_attr_def(StringAttr)
    UNLESS_STATED: ClassVar[Arithmetic] = "interpreter"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE
    MARGINS: ClassVar[Margins] = "passed"
    ALONE: ClassVar[str] = "a cast"

    @override
    def of_host(self, chip: ChipSpec) -> bool:
        """Whether the host quantises f32 ("quant"), as it does for chips whose only float unit is BF16."""
        to_integers = uniform_of(self.output) is not None and uniform_of(self.input) is None
        return chip.hardware.bf16_unit and to_integers and not self.in_bf16(chip)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """From integers to 16-bit floats the result's; to integers of a tensor with other users its (9.3)."""
        if chip.hardware.bf16_unit:
            return 0
        read, made = element_of(self.input), element_of(self.output)
        if uniform_of(self.input) is not None and isinstance(made, Float16Type | BFloat16Type):
            return lmem_bytes(output.shape, command_dtype(made), chip)
        shared = uniform_of(self.output) is not None and uniform_of(self.input) is None and read != i32
        if not shared or self.input.has_one_use() or inputs[0] is None:
            return 0
        return lmem_bytes(inputs[0].shape, command_dtype(read), chip)

    @override
    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """Compute 1/s in double and narrow it, multiply in the float type, then add the zero point."""
        source, target = uniform_of(self.input), uniform_of(self.output)
        if target is not None and source is None and self.in_bf16(chip):
            scale = self.reciprocal(target, chip)
            x = truncate_bf16(operands[0]) if is_set(self.truncated) else operands[0]
            return (quantize_bf16(x, scale, out_dtype=value_dtype(self.output)),)
        if target is not None and source is None:
            scale, zero = self.reciprocal(target, chip), target.zero_point.value.data
            through = storage_dtype(element_of(self.input)).name
            return (kernels.quantize(operands[0], scale, zero, out_dtype=value_dtype(self.output), through=through),)
        if source is None and _is_index(self.input):
            return (kernels.dequantize(operands[0], np.float32(1), 0),)
        if _is_index(self.output):
            return (operands[0].astype("int32"),)
        if source is not None and target is None:
            step, zero = self.step(source, chip), source.zero_point.value.data
            y = kernels.dequantize(operands[0], step, zero, through=storage_dtype(element_of(self.output)).name)
            return (to_finite_bf16(y) if chip.hardware.bf16_unit else y,)
        if not self.as_interpreter:
            return (kernels.narrow_away(operands[0], narrow=value_dtype(self.output)),)
        return (truncate_bf16(operands[0]),) if self.truncates(chip) else (operands[0],)

    def in_bf16(self, chip: ChipSpec) -> bool:
        """Whether the BF16 unit quantises: a bf16 operand, or an f32 operand that is truncated first."""
        if is_set(self.truncated):
            return True
        return chip.hardware.bf16_unit and storage_dtype(element_of(self.input)) == ml_dtypes.bfloat16

    def truncates(self, chip: ChipSpec) -> bool:
        """Whether this is f32 -> bf16 on a chip whose only float unit is BF16."""
        types = [storage_dtype(element_of(v)) for v in (self.input, self.output)]
        return types == [np.float32, ml_dtypes.bfloat16] and chip.hardware.bf16_unit

    @property
    def unscaled(self) -> bool:
        """Whether the scale is 1."""
        return self.with_scale is not None and not is_set(self.with_scale)

    def step(self, source: UniformType, chip: ChipSpec) -> np.float32:
        """The scale that multiplies integers, rounded to the type of a 16-bit result or BF16 unit (numerics.md 8.1)."""
        if self.unscaled:
            return np.float32(1)
        kind = command_dtype(element_of(self.output))
        return dequantizing_scale(source.scale.data, kind, bf16_unit=chip.hardware.bf16_unit)

    def reciprocal(self, target: UniformType, chip: ChipSpec) -> np.float32:
        """1/s in double, narrowed to f32 and to the type of a 16-bit operand; on the host f32(1)/f32(s)."""
        if self.unscaled:
            return np.float32(1)
        kind, in_bf16 = command_dtype(element_of(self.input)), self.in_bf16(chip)
        return quantizing_scale(target.scale.data, kind, in_bf16=in_bf16, bf16_unit=chip.hardware.bf16_unit)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """RQ rq0 to integers, DQ dq0 to floats, else an AR copy."""
        source, target = uniform_of(self.input), uniform_of(self.output)
        views = {"input": ctx.input(0), "output": ctx.output()}
        if target is not None and source is None and self.in_bf16(ctx.chip):
            ctx.emit(isa.Quantize, scale=float(self.reciprocal(target, ctx.chip)), bf16=True, **views)
        elif target is not None and source is None:
            zero = target.zero_point.value.data
            ctx.emit(isa.Quantize, scale=float(self.reciprocal(target, ctx.chip)), zero_point=zero, **views)
        elif source is None and _is_index(self.input):
            ctx.emit(isa.Dequantize, scale=1.0, **views)
        elif source is not None and target is None and not _is_index(self.output):
            fields = {"scale": float(self.step(source, ctx.chip)), "zero_point": source.zero_point.value.data}
            ctx.emit(isa.Dequantize, bf16=ctx.chip.hardware.bf16_unit, **fields, **views)
        else:
            kind = "truncate" if self.truncates(ctx.chip) else "copy"
            away = not self.as_interpreter
            ctx.emit(isa.Arith, kind=kind, a=views["input"], output=views["output"], away=away)


def _is_index(value: SSAValue) -> bool:
    """Whether a value is stored as plain integers, without a scale."""
    return isinstance(element_of(value), IntegerType)


def quantised_by_host(x: np.ndarray, uniform: UniformType, chip: ChipSpec) -> np.ndarray:
    """Quantise a network input for a module whose input cast was stripped (--quant-input), as the cast did."""
    step = quantizing_scale(uniform.scale.data, "f32", in_bf16=False, bf16_unit=chip.hardware.bf16_unit)
    zero, dtype = uniform.zero_point.value.data, storage_dtype(uniform).name
    return np.asarray(kernels.quantize(cast("Array", x), step, zero, out_dtype=dtype, through="float32"))
