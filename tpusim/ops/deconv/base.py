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
from tpusim.ops.framework.base import Shape
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
        kind = chip.hardware.coefficients
        if kind == "channel_rows" or (self.depthwise and kind == "separate"):
            self.filter_turned = flag(True)

    @override
    def unpacked_filter(self, packed: np.ndarray) -> np.ndarray:
        filter = super().unpacked_filter(packed)
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
