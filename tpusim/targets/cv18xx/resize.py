"""Enlarged images: transposed convolutions, and convolutions over an image with inserted zeros (U-45)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import (
    copy_name,
    float_attr,
    int_attr,
    ints_attr,
    op_name,
    set_op_name,
    text,
    value_name,
)
from tpusim.ir.types import element_of, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv import TopConv
from tpusim.ops.deconv import TopDeconv
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.pad import TopPad
from tpusim.ops.resize.interp import TopInterp
from tpusim.ops.resize.upsample import TopUpsample
from tpusim.ops.structure import make_none, make_weight
from tpusim.targets.cv18xx.target import TARGET

LARGEST_FACTOR = 13
"""The largest prime factor of an extent that the compiler enlarges in steps."""


@TARGET.attach(TopUpsample, ChipRewrites)
class CopiesByDeconv(Model[TopUpsample], ChipRewrites):
    """Upsample becomes a transposed convolution if its factors are legal strides."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Upsample becomes a transposed convolution."""
        return (UpsampleToDeconv(weights, chip),)


@TARGET.attach(TopInterp, ChipRewrites)
class InterpolationByConv(Model[TopInterp], ChipRewrites):
    """Interp becomes a convolution if possible; else the host computes it."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The pattern for the cases that become convolutions or copies."""
        return (InterpToConv(weights, chip),)


@dataclass
class UpsampleToDeconv(RewritePattern):
    """Upsample by factors that are legal strides -> depthwise Deconv with a filter of ones and strides of its size."""

    weights: WeightStore
    chip: ChipSpec

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The new op takes name and range."""
        if not isinstance(op, TopUpsample) or max(op.factors) > self.chip.max_stride:
            return
        channels, none = shape_of(op.input)[1], make_none()
        ones = np.ones((channels, 1, *op.factors), np.float32)
        weight = make_weight(self.weights, f"{op_name(op)}_filter", ones)
        attributes = {
            "kernel_shape": ints_attr(op.factors), "strides": ints_attr(op.factors), "pads": ints_attr((0, 0, 0, 0)),
            "output_padding": ints_attr((0, 0)), "dilations": ints_attr((1, 1)), "group": int_attr(channels),
            **relu_attributes(),
        }  # fmt: skip
        new = TopDeconv.create(
            operands=[op.input, weight.output, none.output], result_types=[op.output.type], attributes=attributes
        )
        copy_name(new, op)
        rewriter.insert([weight, none], InsertPoint.before(op))
        rewriter.replace(op, new)


@dataclass
class InterpToConv(RewritePattern):
    """Interp by whole factors, by a half, or to every second element -> depthwise Conv; others stay.

    An Interp of a single element becomes an Upsample if its extents cannot be reached in steps, and so does one of mode
    nearest that repeats every element, which TPU-MLIR stops at.
    """

    weights: WeightStore
    chip: ChipSpec

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The new op takes name and range."""
        if isinstance(op, TopInterp) and op.is_nearest:
            if not op.geometry[2] and (repeats := op.whole_factors()):
                self._repeat(op, repeats, rewriter)
            return
        if not isinstance(op, TopInterp) or op.is_asymmetric:
            return
        if op.geometry[2]:
            self._align_corners(op, rewriter)
        elif (factors := op.whole_factors()) and min(factors) > 1 and max(factors) <= self.chip.max_stride:
            self._enlarge(op, factors, rewriter)
        elif op.geometry[1] == (2.0, 2.0):
            self._convolve(op, op.input, np.full((2, 2), 0.25, np.float32), {"strides": ints_attr((2, 2))}, rewriter)

    def _align_corners(self, op: TopInterp, rewriter: PatternRewriter) -> None:
        """Every second element, or a single element enlarged to extents that cannot be reached in steps."""
        before, after = shape_of(op.input)[2:], shape_of(op.output)[2:]
        if before == (1, 1) and min(after) > 1 and any(_largest_prime(size) > LARGEST_FACTOR for size in after):
            self._repeat(op, after, rewriter)
        elif min(after) > 1 and all(i == 2 * o - 1 for i, o in zip(before, after, strict=True)):
            first = np.array([[1, 0], [0, 0]], np.float32)
            more = {"strides": ints_attr((2, 2)), "pads": ints_attr((0, 0, 1, 1))}
            self._convolve(op, op.input, first, more, rewriter)

    def _repeat(self, op: TopInterp, factors: tuple[int, ...], rewriter: PatternRewriter) -> None:
        """Every element repeated along h and w."""
        repeated = {"scale_h": int_attr(factors[0]), "scale_w": int_attr(factors[1])}
        new = TopUpsample.create(operands=[op.input], result_types=[op.output.type], attributes=repeated)
        copy_name(new, op)
        rewriter.replace(op, new)

    def _enlarge(self, op: TopInterp, factors: tuple[int, int], rewriter: PatternRewriter) -> None:
        """Repeat the border once, insert zeros between the elements, and convolve with `hat`."""
        edged = self._edged(op, rewriter)
        taps = np.outer(*(hat(f) for f in factors))
        before = [f // 2 - 1 for f in factors]
        after = [f - b - 2 for f, b in zip(factors, before, strict=True)]
        more = {"pads": ints_attr((*before, *after)), "inserts": ints_attr([f - 1 for f in factors])}
        self._convolve(op, edged, taps, more, rewriter)

    def _edged(self, op: TopInterp, rewriter: PatternRewriter) -> SSAValue:
        """The input with its border repeated once; several enlargements of one input share it."""
        name, x = f"{value_name(op.input)}_pad_edge", op.input
        for use in x.uses:
            if isinstance(use.operation, TopPad) and op_name(use.operation) == name:
                return use.operation.output
        n, c, h, w = shape_of(x)
        attributes = {"paddings": ints_attr((0, 0, 1, 1) * 2), "mode": text("edge"), "val": float_attr(0.0)}
        pad = TopPad.create(
            operands=[x], result_types=[tensor((n, c, h + 2, w + 2), element_of(x))], attributes=attributes
        )
        set_op_name(pad, name)
        rewriter.insert(pad, InsertPoint.before(op))
        return pad.output

    def _convolve(
        self, op: TopInterp, x: SSAValue, taps: np.ndarray, more: Mapping[str, Attribute], rewriter: PatternRewriter
    ) -> None:
        channels, none = shape_of(x)[1], make_none()
        filter = np.tile(taps, (channels, 1, 1, 1))
        weight = make_weight(self.weights, f"{op_name(op)}_filter", filter)
        attributes = {
            "kernel_shape": ints_attr(taps.shape), "strides": ints_attr((1, 1)), "pads": ints_attr((0, 0, 0, 0)),
            "dilations": ints_attr((1, 1)), "group": int_attr(channels), **relu_attributes(), **more,
        }  # fmt: skip
        new = TopConv.create(
            operands=[x, weight.output, none.output], result_types=[op.output.type], attributes=attributes
        )
        copy_name(new, op)
        rewriter.insert([weight, none], InsertPoint.before(op))
        rewriter.replace(op, new)


def hat(factor: int) -> np.ndarray:
    """The 2*factor weights (f32) of linear interpolation in an image with factor - 1 zeros between its elements.

    At distance d from the element before, that element has the weight 1 - d and the next element d; all in f32.
    """
    phase = np.arange(factor)
    distance = ((phase + 0.5) / factor + 0.5).astype(np.float32)
    distance -= np.floor(distance)
    place = (factor // 2 - 1 - phase) % factor
    taps = np.empty(2 * factor, np.float32)
    taps[place], taps[factor + place] = np.float32(1) - distance, distance
    return taps


def _largest_prime(number: int) -> int:
    """The largest prime factor of a number above 1."""
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor:
            divisor += 1
        else:
            number //= divisor
    return number
