"""The base class of the tpu convolutions, with separate coefficients: packed filter rows, bias, requant.

`tpu.Deconv` and `tpu.Conv3D` compute int32 accumulators (or floats) and leave the requant to `tpu.RequantIntAxis`. Only
`tpu.Conv2D` merges its coefficients into one row per lane (hardware.md 2.3).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from tpusim_kernels.prim.narrow import Narrow
from typing_extensions import override
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    Signedness,
    TensorType,
    i8,
    i32,
)
from xdsl.ir import Attribute
from xdsl.irdl import attr_def, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, int_attr, ints, ints_attr, value_name
from tpusim.ir.modes import RequantModeAttr
from tpusim.ir.module import State
from tpusim.ir.reading import reshape_constant
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa.region import View
from tpusim.ops.conv.coeff import (
    bias_from_planes,
    foldable_shape,
    pack_filter,
    unpack_channels,
    unpack_filter,
)
from tpusim.ops.framework.accumulator import exact_sums, limits_of_sums
from tpusim.ops.framework.base import Array, EmitContext, ReorderContext, Shape, TpuOp, is_none
from tpusim.ops.framework.families import is_set, relu_of
from tpusim.ops.interfaces import Accumulates, LibraryTypes, PackedWeights, Reorder
from tpusim.ops.view import as_column, chip_of_module, model_of

BYTE = IntegerType(8, Signedness.UNSIGNED)


class PackedConvTpu(TpuOp, Accumulates, LibraryTypes, PackedWeights, Reorder):
    """Filter (oc, ic/g, kernel axes) and bias (oc,) as constants, or packed for the chip after weight-reorder.

    `filter_packed`: the filter is (1, oc, h, w), rows of `pack_filter` with `filter_packing` interleaved channels, and
    the bias (1, oc, 1, 1). A computed filter is not packed and makes the op a global layer. `channel_packed`: the bias
    operand is the bytes of `pack_channels` (bias, multiplier, shift), or in BF16 the planes of `bias_planes`.
    """

    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    dilations = opt_attr_def(ArrayAttr)
    group = opt_attr_def(IntegerAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    filter_packed = opt_attr_def(BoolAttr)
    filter_packing = opt_attr_def(IntegerAttr)
    channel_packed = opt_attr_def(BoolAttr)
    multiplier = opt_attr_def(ArrayAttr)
    rshift = opt_attr_def(ArrayAttr)
    quant_mode = opt_attr_def(RequantModeAttr)
    with_bias = opt_attr_def(BoolAttr)

    @override
    def derived(self, name: str) -> Attribute | None:
        """`with_bias`, until the bias is packed with the filter."""
        stated = name == "with_bias" and len(self.operands) > 2
        return flag(not is_none(self.operands[2])) if stated else None

    @override
    def take_form(self) -> str:
        """TPU-MLIR may give a filter an axis of groups and an input three axes, and states no multiplier of 1."""
        if declined := as_column(self):
            return declined
        groups = shape_of(self.filter)
        if len(groups) == len(self.kernel) + 3:
            reshape_constant(self.filter, (groups[0] * groups[1], *groups[2:]))
        chip = chip_of_module(self)
        if chip is not None and not self.packed and self._is_packed_shape():
            self._take_packed(chip)
        if chip is not None and self.packed and self.filter_packing is None:
            self.filter_packing = int_attr(self._packing_on(chip))
        only_shift = self.quant_mode is not None and self.quant_mode.data == "OnlyShift"
        if only_shift and self.rshift is not None and self.multiplier is None:
            self.multiplier = ints_attr([1] * len(self.rshift.data))
        return super().take_form()

    def _take_packed(self, chip: ChipSpec) -> None:
        """State the layout of coefficients that TPU-MLIR packed for a chip, which says nothing but their shapes.

        Before coefficients are packed, the filter of a depthwise op has this shape too.
        """
        model = model_of(self)
        if self.depthwise and model is not None and model.state == State.LOWERED:
            reshape_constant(self.filter, (self.channels[1], 1, *self.kernel))
            return
        self.filter_packed = flag(True)
        self.filter_packing = int_attr(self._packing_taken(chip))
        if not is_none(self.bias) and len(shape_of(self.bias)) == 1:
            reshape_constant(self.bias, (1, self.channels[1], *(1 for _ in self.kernel)))
        if chip.hardware.coefficients == "channel_rows" and not is_none(self.bias):
            self.channel_packed = flag(True)
            if self.integer:
                reshape_constant(self.bias, shape_of(self.bias), BYTE)

    def _packing_taken(self, chip: ChipSpec) -> int:
        """The packing of rows that TPU-MLIR packed: the chip's."""
        return self._packing_on(chip)

    def _is_packed_shape(self) -> bool:
        """Whether the filter is (1, oc, h, w), the shape that TPU-MLIR states for packed rows."""
        filter, (ic, oc) = shape_of(self.filter), self.channels
        return len(filter) == 4 and filter != (oc, ic, *self.kernel) and filter[:2] == (1, oc)  # noqa: PLR2004  axes

    def _packing_on(self, chip: ChipSpec) -> int:
        return chip.filter_packing(storage_dtype(element_of(self.filter)).itemsize, self.channels[0], self.groups)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's extents along the image's axes."""
        return ints(self.kernel_shape)

    @property
    def groups(self) -> int:
        """The number of channel groups; 1 if the attribute is absent."""
        return self.group.value.data if self.group else 1

    @property
    def geometry(self) -> dict[str, Any]:
        """strides, pads, dilations, groups and relu, as the kernels take them."""
        return {
            "strides": ints(self.strides), "pads": ints(self.pads),
            "dilations": ints(self.dilations) if self.dilations else (1,) * len(self.kernel),
            "groups": self.groups, "do_relu": relu_of(self),
        }  # fmt: skip

    @property
    def linear(self) -> dict[str, Any]:
        """The geometry without relu."""
        return {**self.geometry, "do_relu": False}

    @property
    def reach(self) -> tuple[int, ...]:
        """The extents that the dilated kernel covers: (k - 1) * dilation + 1."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.geometry["dilations"], strict=True))

    @override
    def library_types(self, chip: ChipSpec) -> Mapping[int, Attribute]:
        """The packed bytes of channels are signed."""
        del chip
        return {2: i8} if is_set(self.channel_packed) and self.integer else {}

    @property
    def channels(self) -> tuple[int, int]:
        """(input channels per group, output channels)."""
        return shape_of(self.input)[1] // self.groups, shape_of(self.output)[1]

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """None for int32 accumulators, which another op requantises; else a requant."""
        return ((),) if element_of(self.output) == i32 else self.INTEGER_FORMS

    @property
    def depthwise(self) -> bool:
        """One filter per channel: groups == ic == oc > 1."""
        ic, oc = self.channels
        return self.groups > 1 and ic == 1 and oc == self.groups

    @property
    def integer(self) -> bool:
        """Whether the operands are quantised integers."""
        return uniform_of(self.input) is not None

    @property
    def packed(self) -> bool:
        """Whether the coefficients are in the chip's layout."""
        return is_set(self.filter_packed)

    @override
    def limits_of_sums(self, constants: Sequence[np.ndarray | None]) -> tuple[int, int]:
        """Over all products of an output channel, with a constant filter."""
        _, filter, bias = constants
        if not self.integer or self.packed or filter is None:
            return 0, 0
        axes = tuple(range(1, filter.ndim))
        return limits_of_sums(filter, axes, bias, storage_dtype(element_of(self.input)))

    @override
    def sums(self, operands: Sequence[Array]) -> np.ndarray:
        """For all windows, with the bias along axis 1."""
        x, w, b, _ = self.unpacked(operands)
        found = exact_sums(lambda filter: self._accumulated(x, filter), np.asarray(w))
        return found if b is None else found + np.asarray(b, np.int64).reshape(-1, *(1,) * (found.ndim - 2))

    def _accumulated(self, x: Array, filter: Array) -> Array:
        """Sums of integer products without bias and relu, in int32."""
        raise NotImplementedError

    def logical_filter_shape(self) -> Shape:
        """(oc, ic/g, kernel axes). Raises ValueError if the filter does not fit the input."""
        x, oc = shape_of(self.input), shape_of(self.output)[1]
        if len(x) != 2 + len(self.kernel) or x[1] % self.groups:
            raise ValueError(f"an input (n, c, ...) with c divisible by {self.groups} groups is required, got {x}")
        if not self.packed:
            oc = shape_of(self.filter)[0]
            wanted = (oc, x[1] // self.groups, *self.kernel)
            if shape_of(self.filter) != wanted or oc % self.groups:
                raise ValueError(f"a filter {wanted} is required, got {shape_of(self.filter)}")
        return oc, x[1] // self.groups, *self.kernel

    def unpacked(self, operands: Sequence[Array]) -> tuple[Array, Array, Array, tuple[Array, Array] | None]:
        """(input, filter, bias or None, (multiplier, right shift) or None) as the kernels take them."""
        x, w, b = operands
        requant: tuple[Array, Array] | None = None
        if self.rshift is not None and self.multiplier is not None:
            requant = np.array(ints(self.multiplier), np.int64), np.array(ints(self.rshift), np.int64)
        if is_set(self.channel_packed):
            if self.integer:
                b, m, r = unpack_channels(np.asarray(b))
                requant = m, r
            else:
                b = bias_from_planes(np.asarray(b))
        if self.packed:
            w = self.unpacked_filter(np.asarray(w))
        return x, w, b if b is None or isinstance(b, Narrow) else b.reshape(-1), requant

    def unpacked_filter(self, packed: np.ndarray) -> np.ndarray:
        """The filter (oc, ic/g, kernel axes) of packed rows."""
        ic, oc = self.channels
        rows = packed.reshape(oc, -1)
        if self._rows_are_taps:
            return rows.reshape(oc, 1, *self.kernel)
        assert self.filter_packing is not None  # set together with filter_packed
        return unpack_filter(rows, ic, self.kernel, self.filter_packing.value.data)

    def packed_rows(self, filter: np.ndarray, packing: int) -> np.ndarray:
        """The filter as rows (oc, K) in the layout of the chip."""
        return filter.reshape(len(filter), -1) if self._rows_are_taps else pack_filter(filter, packing)

    @property
    def _rows_are_taps(self) -> bool:
        """Whether a filter row is just the taps: a 2-D depthwise filter has no channels to interleave."""
        return self.depthwise and len(self.kernel) == 2

    @override
    def needs_concrete_weights(self) -> bool:
        """If they are packed: the host unpacks them."""
        return self.packed

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack the filter; put the bias along the channels."""
        bias = None if is_none(self.bias) else ctx.array(self.bias)
        name = self.reorder_filter(ctx)
        if name is not None and bias is not None:
            self.operands[2] = ctx.weight(name + "_bias", bias.reshape(1, -1, 1, 1))

    def reorder_filter(self, ctx: ReorderContext) -> str | None:
        """Pack the filter and return its name; None if filter or bias is computed: the op stays a global layer."""
        filter, bias = ctx.array(self.filter), None if is_none(self.bias) else ctx.array(self.bias)
        if filter is None or (bias is None and not is_none(self.bias)):
            return None
        packing = ctx.chip.filter_packing(filter.dtype.itemsize, filter.shape[1], self.groups)
        name = value_name(self.filter)
        rows = self.packed_rows(filter, packing)
        self.filter_packed = flag(True)
        self.filter_packing = int_attr(packing)
        self.with_bias = flag(bias is not None)
        shape = foldable_shape(len(rows), rows.shape[1], packing)
        if ctx.chip.ic_parallel_bytes == 0:
            shape = (1, len(rows), *(self.kernel if self._rows_are_taps else (prod(self.kernel), packing)))
        self.operands[1] = ctx.weight(name + "_packed", rows.reshape(shape))
        return name

    def _packed_view(self, filter: View, chip: ChipSpec) -> dict[str, Any]:
        """The packed filter as rows of the command, and its packing if it is not the chip's."""
        packing, oc = self.filter_packing.value.data if self.filter_packing else 0, self.channels[1]
        if self._rows_are_taps or not chip.ic_parallel_bytes:
            return {"filter": filter}
        if filter.shape[-1] % (prod(self.kernel) * packing):
            filter = replace(filter, shape=(1, oc, 1, filter.elements // oc))
        return {"filter": filter} | ({} if packing == self._packing_on(chip) else {"packing": packing})

    def coefficient_fields(self, ctx: EmitContext) -> dict[str, Any]:
        """filter, bias and requant_table of the command; also packing, if the filter is computed."""
        filter, bias = ctx.input(1), None if is_none(self.bias) else ctx.input(2)
        oc, rows = self.channels[1], ctx.chip.ic_parallel_bytes == 0
        if self.packed:
            table = bias if is_set(self.channel_packed) and self.integer else None
            return self._packed_view(filter, ctx.chip) | {"bias": None if table else bias, "requant_table": table}
        # a computed filter (oc, ic/g, ...) has the layout of a packing of 1
        row = self.kernel if self._rows_are_taps and rows else (1, filter.elements // oc)
        found: dict[str, Any] = {"filter": replace(filter, shape=(1, oc, *row))}
        found["bias"] = bias and replace(bias, shape=(1, oc, 1, 1))
        return found | ({"packing": 1} if rows and not self._rows_are_taps else {})
