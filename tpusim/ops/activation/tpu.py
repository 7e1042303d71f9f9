"""`tpu.Active` and `tpu.Reciprocal`: functions in float; `tpu.Lut`: a function of bytes by a table of 256 entries."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels import activation as kernels
from tpusim_kernels.arith import abs_int
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, TensorType
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import floats
from tpusim.ir.modes import ActiveModeAttr
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import align, lmem_bytes
from tpusim.ops.framework.base import Array, EmitContext, Shape, TensorSlice, logical_shape
from tpusim.ops.framework.families import ByTables, UnaryTpu, command_dtype, is_set, value_dtype
from tpusim.ops.framework.logical import EVERY_TYPE, GroupType
from tpusim.ops.interfaces import LibraryKernel, Margins, SharedWindows, Uncounted

ENTRIES = 256
TABLE_SHAPE = (1, 1, 1, ENTRIES)
MAX_PACKED_CHANNELS = 4096
"""Most channels of a local activation function on a chip with batch packing (layer_group.md 11)."""


class FloatFunction(UnaryTpu, LibraryKernel, SharedWindows):
    """An element-wise function that is computed by FN active."""

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    ALONE: ClassVar[str] = "a function"

    @property
    def function(self) -> tuple[str, tuple[float, ...]]:
        """(mode, coefficients) as the kernel and the command take them."""
        raise NotImplementedError

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """In double, rounded to f32 and then to the result's type (9.8); of integers only |q| (DN-14)."""
        mode, coeffs = self.function
        if uniform_of(self.output) is not None:
            largest = int(coeffs[0]) if coeffs else None
            return (abs_int(operands[0], out_dtype=value_dtype(self.output), largest=largest),)
        return (kernels.activation_float(operands[0], mode=mode, coeffs=coeffs),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """As other element-wise ops; on a chip with batch packing up to 4096 channels are local."""
        channels = logical_shape(shape_of(self.input))[1]
        if chip.hardware.batch_packing and channels > MAX_PACKED_CHANNELS:
            return f"{channels} channels, more than {MAX_PACKED_CHANNELS}"
        return super().why_global(chip)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        del output
        assert inputs[0] is not None  # the operand is a tensor
        element = element_of(self.input)
        whole = lmem_bytes(inputs[0].shape, command_dtype(element), chip)
        return work_bytes(self.function[0], whole, inputs[0].shape[0], storage_dtype(element).itemsize, chip)

    @override
    def emit(self, ctx: EmitContext) -> None:
        mode, coeffs = self.function
        ctx.emit(isa.Fn, function=functions.Active(mode, coeffs), inputs=(ctx.input(0),), output=ctx.output())


_SERIES = ("EXP", "TANH", "SIGMOID", "SILU", "SWISH", "MISH", "ELU", "LOG_SIGMOID", "TGELU", "QGELU", "SOFT_PLUS")


def work_bytes(mode: str, whole: int, batch: int, size: int, chip: ChipSpec) -> int:
    """Bytes per lane of the work area for a slice of `whole` bytes per lane (layer_group.md 9.3)."""
    one = whole // batch

    def constants(count: int) -> int:
        return align(count * size, chip.eu_bytes)

    if mode in _SERIES:
        extra = align(16 * size if size == 4 else 8 * size, chip.eu_bytes) if mode == "SOFT_PLUS" else 0
        return 2 * align(one, chip.eu_bytes) + constants(32) + extra
    if mode in ("ERF", "GELU"):
        return (3 if mode == "ERF" else 4) * one + constants(32) + constants(10)
    if mode in ("LN", "LOG2", "SIN", "COS", "TAN"):
        return 2 * (one + constants(32))
    if mode == "ARCCOS":
        return one + constants(32)
    return whole if mode in ("HSWISH", "HSIGMOID") else 0


@irdl_op_definition
class TpuActive(FloatFunction):
    """`tpu.Active`: the function `mode` with its coefficients in float; ABSVAL also of integers.

    saturates: |-128| is 127, not -128 (DN-14).
    """

    name = "tpu.Active"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    mode = attr_def(ActiveModeAttr)
    coeffs = opt_attr_def(ArrayAttr)
    saturates = opt_attr_def(BoolAttr)

    @property
    @override
    def function(self) -> tuple[str, tuple[float, ...]]:
        if is_set(self.saturates):
            return self.mode.data, (float(np.iinfo(value_dtype(self.output)).max),)
        return self.mode.data, floats(self.coeffs) if self.coeffs is not None else ()

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """Only ABSVAL has an integer form."""
        return ((),) if self.mode.data == "ABSVAL" else ()


@irdl_op_definition
class TpuReciprocal(FloatFunction):
    """`tpu.Reciprocal`: const_val / x."""

    name = "tpu.Reciprocal"

    const_val = attr_def(FloatAttr)

    @property
    @override
    def function(self) -> tuple[str, tuple[float, ...]]:
        return "RECIPROCAL", (self.const_val.value.data,)


@irdl_op_definition
class TpuLut(ByTables, LibraryKernel, SharedWindows, Uncounted):
    """`tpu.Lut`: output = table[byte of input]; table (1, 1, 1, 256) of the output's stored type (numerics.md 10)."""

    name = "tpu.Lut"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE
    MARGINS: ClassVar[Margins] = "passed"
    ALONE: ClassVar[str] = "a table"
    COPIED_OPERANDS: ClassVar[tuple[int, ...]] = (1,)

    input = operand_def(TensorType)
    table = operand_def(TensorType)
    output = result_def(TensorType)

    @override
    def infer(self) -> tuple[Shape, ...]:
        if shape_of(self.table) != TABLE_SHAPE:
            raise ValueError(f"a table of shape {TABLE_SHAPE} is required, got {shape_of(self.table)}")
        return (shape_of(self.input),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, table = operands
        if table.dtype.itemsize == 4:  # TPU-MLIR may state a byte in each word
            table = table.astype("uint8").view(value_dtype(self.output))
        return (kernels.lut(x, table.reshape(ENTRIES)),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One SG table gather. In a SMALL_C group the entries lie along another axis, in the same bytes."""
        table = msgspec.structs.replace(ctx.input(1), shape=TABLE_SHAPE)
        ctx.emit(isa.Lut, input=ctx.input(0), table=table, output=ctx.output())
