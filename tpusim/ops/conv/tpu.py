"""`tpu.Conv2D`: exact integer or float convolution, its slices, and the CONV / depthwise commands."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from tpusim_kernels import conv as kernels
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, NoneType, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, int_attr, ints, ints_attr, value_name
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, ceil_div, channel_stride, lmem_bytes
from tpusim.isa.region import View
from tpusim.ops.base import (
    Array,
    Axis,
    EmitContext,
    ReorderContext,
    Shape,
    TensorSlice,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.conv.coeff import MergedLayout, foldable_shape, pack_filter, unpack_filter
from tpusim.ops.families import (
    clip,
    command_dtype,
    conv_extent,
    is_set,
    relu_limit_of,
    relu_of,
    value_dtype,
    window_need,
    window_pads,
    zero_point,
)


@irdl_op_definition
class TpuConv2D(TpuOp):
    """`tpu.Conv2D`: filter (oc, ic/g, kh, kw) and bias (oc,) as constants, or packed for the chip after weight-reorder.

    `filter_packed`: filter is (1, oc, h, w), rows of `pack_filter`. `coeff_merged`: filter is one row per lane with
    requant parameters and bias inside, `with_bias` says whether there is one (hardware.md 2.3).
    """

    name = "tpu.Conv2D"
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

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
    multiplier = opt_attr_def(ArrayAttr)
    rshift = opt_attr_def(ArrayAttr)
    quant_mode = opt_attr_def(StringAttr)
    with_bias = opt_attr_def(BoolAttr)
    filter_packed = opt_attr_def(BoolAttr)
    coeff_merged = opt_attr_def(BoolAttr)
    filter_packing = opt_attr_def(IntegerAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    # ------------------------------------------------------------------------------------------------------ attributes

    @property
    def kernel(self) -> tuple[int, int]:
        """(kh, kw)."""
        kh, kw = ints(self.kernel_shape)
        return kh, kw

    @property
    def groups(self) -> int:
        """Channel groups."""
        return self.group.value.data if self.group else 1

    @property
    def geometry(self) -> dict[str, tuple[int, ...]]:
        """strides, pads (top, left, bottom, right), dilations."""
        dilations = ints(self.dilations) if self.dilations else (1, 1)
        return {"strides": ints(self.strides), "pads": ints(self.pads), "dilations": dilations}

    @property
    def channels(self) -> tuple[int, int]:
        """(input channels per group, output channels)."""
        return shape_of(self.input)[1] // self.groups, shape_of(self.output)[1]

    @property
    def depthwise(self) -> bool:
        """One filter per channel: groups == ic == oc > 1."""
        ic, oc = self.channels
        return self.groups > 1 and ic == 1 and oc == self.groups

    @property
    def relu(self) -> bool:
        """Whether relu is fused."""
        return relu_of(self)

    @property
    def quantised(self) -> bool:
        """Integer in, integer out."""
        return uniform_of(self.output) is not None

    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, oh, ow), from the output channels of whichever filter layout is present."""
        x, (kh, kw), g = shape_of(self.input), self.kernel, self.geometry
        if len(x) != 4 or x[1] % self.groups:
            raise ValueError(f"an input (n, c, h, w) with c divisible by {self.groups} groups is required, got {x}")
        logical = not (is_set(self.filter_packed) or is_set(self.coeff_merged))
        oc = shape_of(self.filter)[0] if logical else shape_of(self.output)[1]
        if logical and shape_of(self.filter) != (oc, x[1] // self.groups, kh, kw):
            raise ValueError(
                f"a filter (oc, {x[1] // self.groups}, {kh}, {kw}) is required, got {shape_of(self.filter)}"
            )
        (top, left, bottom, right), (sh, sw), (dh, dw) = g["pads"], g["strides"], g["dilations"]
        return ((x[0], oc, conv_extent(x[2], kh, sh, top, bottom, dh), conv_extent(x[3], kw, sw, left, right, dw)),)

    # ------------------------------------------------------------------------------------------------------- inference

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers: accumulate, bias, requant, relu at the zero point, saturate (numerics.md 9.1)."""
        x, w, b = operands
        geometry: dict[str, Any] = {**self.geometry, "groups": self.groups, "do_relu": self.relu}
        m: Array = np.array(ints(self.multiplier), np.int64) if self.multiplier else None
        r: Array = np.array(ints(self.rshift), np.int64) if self.rshift else None
        if is_set(self.coeff_merged):
            w, b, m, r = self._unmerge(np.asarray(w))
        elif is_set(self.filter_packed):
            w = self._unpack(np.asarray(w).reshape(self.channels[1], -1))
        if not self.quantised:
            limit = relu_limit_of(self)
            return (kernels.conv2d_float(x, w, _flat(b), relu_limit=limit, **geometry),)
        y = kernels.conv2d_int(
            x, w, _flat(b), m, r, zero_point(self.input), zero_point(self.output),
            out_dtype=value_dtype(self.output), requant="only_shift" if self._only_shift else "multiply_shift",
            **geometry,
        )  # fmt: skip
        return (y,)

    @property
    def _only_shift(self) -> bool:
        return self.quant_mode is not None and self.quant_mode.data == "OnlyShift"

    def _unpack(self, rows: np.ndarray) -> Array:
        ic, oc = self.channels
        if self.depthwise:
            return rows.reshape(oc, 1, *self.kernel)
        assert self.filter_packing is not None
        return unpack_filter(rows, ic, self.kernel, self.filter_packing.value.data)

    def _unmerge(self, image: np.ndarray) -> tuple[Array, np.ndarray | None, np.ndarray, np.ndarray]:
        layout = self._merged_layout_of_type()
        rows, bias, requant = layout.unpack(image.reshape(layout.rows, -1), with_bias=is_set(self.with_bias))
        m, shift = requant[:, 0], requant[:, 1]
        if layout.requant_words == 2:
            shift = (shift & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32)
        return self._unpack(rows), bias, m.astype(np.int64), -shift.astype(np.int64)

    def needs_concrete_weights(self) -> bool:
        """Packed coefficients are unpacked on the host."""
        return is_set(self.coeff_merged) or is_set(self.filter_packed)

    def macs(self) -> int:
        """Out * ic/g * kh * kw."""
        return prod(shape_of(self.output)) * self.channels[0] * prod(self.kernel)

    # --------------------------------------------------------------------------------------------- weights on the chip

    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack filter, bias and requant parameters; a computed filter stays as it is (global layer)."""
        filter, bias = ctx.array(self.filter), None if is_none(self.bias) else ctx.array(self.bias)
        if filter is None or (bias is None and not is_none(self.bias)):
            return
        packing = ctx.chip.filter_packing(filter.dtype.itemsize)
        rows = filter.reshape(filter.shape[0], -1) if self.depthwise else pack_filter(filter, packing)
        name = value_name(self.filter)
        self.attributes["filter_packing"] = int_attr(packing)
        self.attributes["with_bias"] = flag(bias is not None)
        if self.quantised and ctx.chip.coeff_merged:
            self._merge(ctx, rows, bias, name)
            return
        self.attributes["filter_packed"] = flag(True)
        packed = rows.reshape(foldable_shape(len(rows), rows.shape[1], packing))
        self.operands[1] = ctx.weight(name + "_packed", packed)
        if bias is not None:
            self.operands[2] = ctx.weight(name + "_bias", bias.reshape(1, -1, 1, 1))

    def _merge(self, ctx: ReorderContext, rows: np.ndarray, bias: np.ndarray | None, name: str) -> None:
        assert self.multiplier is not None and self.rshift is not None and self.filter_packing is not None
        layout = MergedLayout.of(
            len(rows), rows.shape[1], ctx.chip, with_bias=bias is not None, depthwise=self.depthwise
        )
        m, r = np.array(ints(self.multiplier), np.int64), np.array(ints(self.rshift), np.int64)
        image = layout.pack(rows, bias, m, r, zero_point(self.output))
        shape = foldable_shape(len(image), image.shape[1], self.filter_packing.value.data)
        self.operands[1] = ctx.weight(name + "_merged", image.reshape(shape))
        self.operands[2] = ctx.none()
        self.attributes["coeff_merged"] = flag(True)
        self.attributes["coeff_layout"] = _layout_attr(layout)
        for key in ("multiplier", "rshift"):
            del self.attributes[key]

    def _merged_layout_of_type(self) -> MergedLayout:
        words, pitch, bias_offset, filter_offset, row_bytes = ints(self.attributes["coeff_layout"])
        _, oc = self.channels
        rows = shape_of(self.filter)[1]
        elements = (row_bytes - filter_offset) // ceil_div(oc, rows)
        return MergedLayout(oc, elements, words, pitch, bias_offset, filter_offset, row_bytes, rows)

    # ----------------------------------------------------------------------------------------------------- local memory

    def why_global(self, chip: ChipSpec) -> str | None:
        """Local with a constant filter; BM1684 limits stride, dilation and channels (layer_group.md 2)."""
        ic, oc = shape_of(self.input)[1], self.channels[1]
        reach = max(*self.geometry["strides"], *self.geometry["dilations"])
        if not (is_set(self.filter_packed) or is_set(self.coeff_merged)):
            return "the filter is not constant"
        if reach > chip.max_stride:
            return f"stride or dilation {reach} above {chip.max_stride}"
        if max(ic, oc) > chip.max_conv_channels:
            return f"{max(ic, oc)} channels, above {chip.max_conv_channels}"
        if max(self.geometry["pads"]) > 15:
            return "pads above 15"
        return None

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: t = (s-1)*stride + max(K, stride), i = o*stride - pad (layer_group.md 7.2)."""
        if axis == "c" and not self.depthwise:
            return None  # every output channel needs all input channels of its group
        if axis not in ("h", "w") or operand != 0:
            return window
        i = 0 if axis == "h" else 1
        stride, reach = self.geometry["strides"][i], (self.kernel[i] - 1) * self.geometry["dilations"][i] + 1
        return window[0] * stride - self.geometry["pads"][i], (window[1] - 1) * stride + max(reach, stride)

    def accepts_margins(self) -> bool:
        """Reads any window of a larger slice."""
        return True

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """int32 accumulators of merged convs, and the copies of a grouped conv (layer_group.md 9.3)."""
        total = 0
        out = lmem_bytes(output.shape, "i32", chip)
        if is_set(self.coeff_merged) and chip.conv_accumulators:
            total += out
        if self.depthwise and self.quantised and chip.conv_accumulators:
            total += out + ceil_div(output.shape[1], chip.lanes) * prod(self.kernel)
        elif self.groups > 1:
            x = inputs[0]
            assert x is not None
            n, c, h, w = x.shape
            dtype = command_dtype(element_of(self.input))
            size = storage_dtype(element_of(self.input)).itemsize
            rows = ceil_div(c // self.groups, chip.lanes)
            total += n * rows * channel_stride(h, w, dtype, chip, aligned=True) * size + 2 * rows * size
        return align(total, chip.eu_bytes)

    # ---------------------------------------------------------------------------------------------------------- codegen

    def emit(self, ctx: EmitContext) -> None:
        """One CONV or depthwise command with bias, requant and relu (codegen.md DC-04)."""
        out, x = ctx.output_slice(), TensorSlice.whole(shape_of(self.input))
        g = self.geometry
        needs = [window_need(out.h, self.kernel[0], g["strides"][0], g["pads"][0], g["dilations"][0]),
                 window_need(out.w, self.kernel[1], g["strides"][1], g["pads"][1], g["dilations"][1])]  # fmt: skip
        rows, columns = clip(needs[0], x.h[1]), clip(needs[1], x.w[1])
        (top, bottom), (left, right) = window_pads(needs[0], rows), window_pads(needs[1], columns)
        filter, bias, table = self._coefficient_views(ctx)
        fields: dict[str, object] = {
            "input": ctx.input(0, h=rows, w=columns), "filter": filter, "bias": bias, "output": ctx.output(),
            "kernel": self.kernel, "strides": g["strides"], "dilations": g["dilations"],
            "pads": (top, left, bottom, right), "pad_value": zero_point(self.input), "requant_table": table,
            "requant": self._constant_requant(table), "relu": self.relu,
            "relu_limit": relu_limit_of(self),
        }  # fmt: skip
        if self.depthwise:
            ctx.emit(isa.Depthwise, **fields)
        else:
            ctx.emit(isa.Conv, groups=self.groups, **fields)

    def _constant_requant(self, table: View | None) -> isa.Requant | None:
        if table is not None or not self.quantised:
            return None
        assert self.rshift is not None
        return isa.Requant(rshift=ints(self.rshift)[0], zero_point=zero_point(self.output))

    def _coefficient_views(self, ctx: EmitContext) -> tuple[View, View | None, View | None]:
        """(filter, bias, requant table) wherever the coefficients are."""
        base = ctx.input(1)
        if is_set(self.coeff_merged):
            return self._merged_layout_of_type().views(base, with_bias=is_set(self.with_bias))
        bias = None if is_none(self.bias) else ctx.input(2)
        if not is_set(self.filter_packed):  # computed, in f32: (oc, ic/g, kh, kw) in memory is what packing would give
            oc = self.channels[1]
            base = replace(base, shape=(1, oc, 1, base.elements // oc))
            bias = bias and replace(bias, shape=(1, oc, 1, 1))
        return base, bias, None


def _layout_attr(layout: MergedLayout) -> ArrayAttr[Attribute]:
    return ints_attr(
        [layout.requant_words, layout.requant_pitch_words, layout.bias_offset, layout.filter_offset, layout.row_bytes]
    )


def _flat(bias: Array) -> Array:
    return None if bias is None else bias.reshape(-1)
