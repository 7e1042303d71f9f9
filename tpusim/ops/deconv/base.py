"""The base class of transposed convolutions of images and volumes: geometry, shape, multiply-accumulates."""

from math import prod
from typing import Any

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr
from xdsl.irdl import attr_def, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, ints, ints_attr
from tpusim.ir.types import shape_of
from tpusim.isa.multiplications import of_transposed
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.deconv.geometry import deconv_extents
from tpusim.ops.framework.base import ReorderContext, Shape, is_none
from tpusim.ops.framework.families import is_set
from tpusim.ops.interfaces import Macs


class DeconvBase(PackedConvTpu, Macs):
    """Input (n, ic, axes ...), filter (oc, ic/g, kernel axes ...); stride - 1 elements are inserted between inputs.

    `filter_turned`: the packed filter is turned by 180 degrees, the form that TPU-MLIR stores for chips that do not
    turn it.
    """

    output_padding = attr_def(ArrayAttr)
    filter_turned = opt_attr_def(BoolAttr)

    @property
    @override
    def geometry(self) -> dict[str, Any]:
        """strides, pads, output_padding, dilations, groups and relu, as the kernels take them."""
        return {**super().geometry, "output_padding": ints(self.output_padding)}

    @override
    def take_form(self) -> str:
        """TPU-MLIR leaves an `output_padding` of zeros out."""
        if "output_padding" not in self.attributes:
            self.attributes["output_padding"] = ints_attr([0] * len(self.kernel))
        return super().take_form()

    @override
    def _take_packed(self, chip: ChipSpec) -> None:
        super()._take_packed(chip)
        if self.packed and self._stores_turned(chip):
            self.filter_turned = flag(True)

    def _stores_turned(self, chip: ChipSpec) -> bool:
        """Whether the library of a chip reads packed filters that are turned already."""
        kind = chip.hardware.coefficients
        return kind == "channel_rows" or (self.depthwise and kind == "separate")

    @override
    def reorder_filter(self, ctx: ReorderContext) -> str | None:
        constant = ctx.array(self.filter) is not None and (is_none(self.bias) or ctx.array(self.bias) is not None)
        if constant and self._stores_turned(ctx.chip):
            self.filter_turned = flag(True)
        return super().reorder_filter(ctx)

    @override
    def packed_rows(self, filter: np.ndarray, packing: int) -> np.ndarray:
        return super().packed_rows(self._turned_if_stored(filter), packing)

    @override
    def unpacked_filter(self, packed: np.ndarray) -> np.ndarray:
        return self._turned_if_stored(super().unpacked_filter(packed))

    def _turned_if_stored(self, filter: np.ndarray) -> np.ndarray:
        return np.flip(filter, tuple(range(2, filter.ndim))) if is_set(self.filter_turned) else filter

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, axes ...)."""
        oc, *_ = self.logical_filter_shape()
        x = shape_of(self.input)
        return ((x[0], oc, *deconv_extents(x[2:], self.reach, self.geometry)),)

    @override
    def macs(self) -> int:
        return of_transposed(prod(shape_of(self.input)), self.channels[1] // self.groups, self.kernel)
