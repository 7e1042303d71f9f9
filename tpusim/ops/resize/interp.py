"""`top.Interp`, `tpu.Interp`: linear interpolation of rows and columns (numerics.md 11.4)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels.resize import interp_linear, interp_on_host
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, StringAttr, TensorType, i8
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import (
    flag,
    float_attr,
    framework_name,
    ints,
    ints_attr,
    op_name,
    set_op_name,
    text,
)
from tpusim.ir.modes import ResizeCoordinates, ResizeCoordinatesAttr, ResizeMode, ResizeModeAttr
from tpusim.ir.reading import is_unranked
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.upstream import OWN, PART_OF, ir_name
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import gmem_strides
from tpusim.isa.region import View
from tpusim.ops.framework.base import Array, Builder, EmitContext, LoweringContext, Shape, ShapedOp, TopOp, TpuOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import is_set
from tpusim.ops.interfaces import GlobalBuffer, QuirkRewrite, Room
from tpusim.ops.patterns.interpolated import COORDINATES, PARTS, TAKEN
from tpusim.ops.resize.nearest import make_nearest, nearest_source

LOG = logging.getLogger(__name__)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
OF_NODE = ("mode", "coord_mode", f"{OWN}stands_for")
"""Attributes of the top op alone."""
INDEX_BYTES = 32
"""Bytes of the library's indices for one place of a result, if a factor is no whole number (U-111)."""
WEIGHT_BYTES, MOST_ROWS = 16, 32768
"""Bytes of the library's weights for one column in addition to two numbers, and the most rows of them (U-111)."""
WHOLE_WITHIN = 1e-9
"""The largest relative distance between a step and the reciprocal of a whole factor."""


def resized_shape(shape: Shape, size: tuple[int, ...]) -> Shape:
    """(n, c, *size). Raises ValueError for another rank."""
    if len(shape) != 4 or len(size) != 2 or min(size) < 1:
        raise ValueError(f"an input (n, c, h, w) and two extents are required, got {shape} and {list(size)}")
    return shape[0], shape[1], size[0], size[1]


class Interpolation(ShapedOp):
    """Linear interpolation to `target_shape` (h, w), in both dialects; scale_h, scale_w: input per output elements."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)

    @property
    def coordinates(self) -> ResizeCoordinates:
        """The coordinates by TPU-MLIR's name."""
        return ResizeCoordinates.ALIGN_CORNERS if is_set(self.align_corners) else ResizeCoordinates.HALF_PIXEL

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[float, float], bool]:
        """The geometry as (size, scales, align_corners)."""
        h, w = ints(self.target_shape)
        return (h, w), (self.scale_h.value.data, self.scale_w.value.data), is_set(self.align_corners)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's n and c, then target_shape."""
        return (resized_shape(shape_of(self.input), ints(self.target_shape)),)


@irdl_op_definition
class TopInterp(Interpolation, TopOp):
    """`top.Interp`: resizing by linear interpolation."""

    name = "top.Interp"
    SPEC: ClassVar[tuple[str, ...]] = ("11.4", "12.1")

    mode = attr_def(StringAttr)
    coord_mode = attr_def(StringAttr)
    stands_for = opt_attr_def(StringAttr)
    """Mode and coordinates of the node if they are others (U-109)."""

    @property
    def is_asymmetric(self) -> bool:
        """Whether the coordinates of the node are asymmetric, which a host follows."""
        return self.stands_for is not None and self.stands_for.data.endswith("asymmetric")

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Nodes of other modes that are interpolated linearly (U-109)."""
        del weights
        return (PartsToInterp(cls),)

    @override
    def derived(self, name: str) -> Attribute | None:
        """The mode and the coordinates, as strings."""
        return {"mode": text(ResizeMode.LINEAR), "coord_mode": text(self.coordinates)}.get(name)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, size: Sequence[int], scales: Sequence[float] | None = None,
        mode: str = "nearest", coord_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor", name: str,
    ) -> SSAValue:  # fmt: skip
        """A resize to `size`, the extents of all axes: nearest as Upsample or Gathers, linear as Interp along h and w.

        scales: output per input elements, if they are not the quotients of the extents. coord_mode: one of COORDINATES;
        nearest_mode: one of NEAREST.
        """
        shape = shape_of(x)
        scales = [o / i for i, o in zip(shape, size, strict=True)] if scales is None else scales
        if coord_mode not in COORDINATES or nearest_mode not in NEAREST:
            raise ValueError(f"coordinates {', '.join(COORDINATES)} are required, got {coord_mode}, {nearest_mode}")
        axes = list(zip(shape, size, scales, strict=True))
        if mode == "nearest":
            return make_nearest(
                builder, x, [nearest_source(i, o, s, coord_mode, nearest_mode) for i, o, s in axes], name
            )
        if mode != "linear" or len(shape) != 4 or tuple(size[:2]) != shape[:2]:
            raise ValueError(f"mode nearest, or linear along the last two of four axes is required, got {mode}")
        if coord_mode == "asymmetric":
            raise ValueError("linear with asymmetric coordinates is not supported; export with half_pixel")
        steps = [_step(*axis, coord_mode) for axis in axes[2:]]
        attributes = {
            "target_shape": ints_attr(size[2:]), "scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1]),
            "align_corners": flag(coord_mode == "align_corners"),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    def whole_factors(self) -> tuple[int, int] | None:
        """Output per input elements along h and w; None if one is not a whole number."""
        (fh, fw), (h, w) = (round(1 / s) if s else 0 for s in self.geometry[1]), shape_of(self.input)[2:]
        exact = all(abs(f * s - 1) < WHOLE_WITHIN for f, s in zip((fh, fw), self.geometry[1], strict=True))
        return (fh, fw) if exact and (h * fh, w * fw) == self.geometry[0] else None

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        size, scales, align = self.geometry
        return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return "interpolation has no integer form (numerics.md 11.4, 12.1)"

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Interp (numerics.md 11.4, 12)."""
        operand, attributes = (
            ctx.operand(self.input, ctx.float_mode(self), self),
            {key: value for key, value in self.attributes.items() if key not in OF_NODE},
        )
        if not self.geometry[2]:
            steps = self._steps(ctx)
            attributes |= {"scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1])}
        if self.stands_for is not None:
            ctx.decision(self, Quirk.RESIZE_MODES.decision)
        # the host interpolates in f32 (DN-22)
        if ctx.chip.is_on_host(self.name):
            attributes["on_host"] = flag(True)
            attributes |= {"asymmetric": flag(True)} if self.is_asymmetric else {}
        return ctx.build(TpuInterp, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _steps(self, ctx: LoweringContext) -> list[float]:
        """Input per output elements in f32; by U-05 quotients of the sizes, even if the model states scales."""
        sizes = zip(shape_of(self.input)[2:], shape_of(self.output)[2:], strict=True)
        theirs = np.array([np.float32(before) / np.float32(after) for before, after in sizes])
        return ctx.quirked(self, Quirk.RESIZE_STEPS_OF_SIZES, theirs, np.array(self.geometry[1], np.float32)).tolist()


@irdl_op_definition
class TpuInterp(Interpolation, TpuOp, GlobalBuffer):
    """`tpu.Interp`: linear interpolation in float.

    on_host: by the algorithm of the host's processor; asymmetric: with coordinates o * scale there.
    """

    name = "tpu.Interp"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    mode = attr_def(ResizeModeAttr)
    coord_mode = attr_def(ResizeCoordinatesAttr)
    on_host = opt_attr_def(BoolAttr)
    asymmetric = opt_attr_def(BoolAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR states output per input elements, which it steps by in align_corners only, and no extents (U-05)."""
        if ir_name(self, "target_shape") in self.attributes or is_unranked(self.output):
            return super().take_form()
        if self.mode.data != "linear" or self.coord_mode.data == "asymmetric":
            return f"{self.mode.data} interpolation with {self.coord_mode.data} coordinates is not computed"
        after, align = shape_of(self.output)[2:], self.coord_mode.data == "align_corners"
        sizes = list(zip(shape_of(self.input)[2:], after, strict=True))
        quotients = [float(np.float32(size_in) / np.float32(size_out)) for size_in, size_out in sizes]
        steps = [_step(*axis, 1.0, "align_corners") for axis in sizes] if align else quotients
        self.target_shape, self.align_corners = ints_attr(after), flag(align)
        self.scale_h, self.scale_w = map(float_attr, steps)
        return super().take_form()

    @override
    def derived(self, name: str) -> Attribute | None:
        """The mode and the coordinates."""
        values = {"mode": ResizeModeAttr(ResizeMode.LINEAR), "coord_mode": ResizeCoordinatesAttr(self.coordinates)}
        return values.get(name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        size, scales, align = self.geometry
        if not is_set(self.on_host):
            return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)
        asymmetric = is_set(self.asymmetric)
        return (interp_on_host(operands[0], size=size, scales=scales, align_corners=align, asymmetric=asymmetric),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "interpolation runs in global memory"

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """Indices of 8 numbers for every place; by whole factors, weights of as many rows as the library's area has."""
        _, _, height, width = shape_of(self.input)
        rows, columns = shape_of(self.output)[2:]
        if rows % height or columns % width:
            return Room((rows * columns * INDEX_BYTES,), i8, {"ppl_flag": flag(True)})
        row_bytes = (WEIGHT_BYTES + 2 * storage_dtype(element_of(self.output)).itemsize) * columns
        within = min(chip.resize_area_bytes // row_bytes, MOST_ROWS)
        return Room((within * row_bytes,), i8) if within else None

    @override
    def emit(self, ctx: EmitContext) -> None:
        """FN interp, which reads only the rows and columns that it needs (numerics.md 11.4)."""
        _, (scale_h, scale_w), align = self.geometry
        function = functions.Interp(scale_h, scale_w, align, is_set(self.on_host), is_set(self.asymmetric))
        source = _needed(ctx.input(0), shape_of(self.output)[2:], function)
        ctx.emit(isa.Fn, function=function, inputs=(source,), output=ctx.output())


def _needed(source: View, size: tuple[int, ...], function: functions.Interp) -> View:
    """The operand up to the last row and column that a result of this size (h, w) needs."""
    if function.host or function.whole_factors() or source.interleave > 1:
        return source
    axes = zip(source.shape[2:], size, (function.scale_h, function.scale_w), strict=True)
    rows, columns = (_reach(*axis, function.align_corners) for axis in axes)
    if (rows, columns) == source.shape[2:]:
        return source
    return msgspec.structs.replace(
        source, shape=(*source.shape[:2], rows, columns), layout="strided", strides=gmem_strides(source)
    )


def _reach(length: int, count: int, scale: float, align: bool) -> int:
    """The number of leading elements of an axis that `count` output places need, in f32."""
    half, place = np.float32(0.5), np.float32(count - 1)
    source = place * np.float32(scale) if align else (place + half) * np.float32(scale) - half
    return min(length, int(np.ceil(max(source, np.float32(0)))) + 1)


def _step(size_in: int, size_out: int, scale: float, coordinates: str) -> float:
    """Input per output elements of a linear interpolation along one axis."""
    if coordinates == "align_corners":
        return (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
    if size_out == 1 and coordinates == "pytorch_half_pixel":
        return 1.0  # so that the only element is that at place 0
    return 1.0 / scale


# ------------------------------------------------------------------------------------------------------------ rewrites


@dataclass
class PartsToInterp(QuirkRewrite):
    """The products with constants that a Resize became, cubic or of other coordinates -> linear Interp (U-109)."""

    QUIRK: ClassVar[Quirk] = Quirk.RESIZE_MODES
    interp: type[TopInterp]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last part; the Interp is called like the node."""
        mark = _mark_of(op)
        readers = [use.operation for use in op.results[0].uses] if mark.startswith(f"{PARTS} ") else []
        if not readers or any(_mark_of(reader) == mark for reader in readers):
            return
        modes, _, tensor = mark.partition(":")
        _, mode, coordinates, ending = modes.split(" ")
        source = op.results[0]
        while isinstance(source.owner, Operation) and _mark_of(source.owner) == mark:
            source = source.owner.operands[0]
        taken = TAKEN.get(coordinates, coordinates)
        axes = list(zip(shape_of(source), shape_of(op.results[0]), strict=True))[2:]
        steps = [_step(before, after, after / before, taken) for before, after in axes]
        attributes = {
            "target_shape": ints_attr([after for _, after in axes]), "scale_h": float_attr(steps[0]),
            "scale_w": float_attr(steps[1]), "align_corners": flag(taken == "align_corners"),
            "stands_for": StringAttr(f"{mode} {coordinates}"),
        }  # fmt: skip
        new = self.interp.create(operands=[source], result_types=[op.results[0].type], attributes=attributes)
        given = framework_name(op)
        given = tensor if given.startswith(f"{tensor}_part") else given
        set_op_name(new, given + ending, given if ending else "")
        rewriter.replace(op, new)
        LOG.warning(
            "%s '%s' is linear with %s here (%s), not %s with %s; write what is meant, or keep it by quirks_off=%s",
            new.name, op_name(new), taken, self.QUIRK.rule.number, mode, coordinates, self.QUIRK,
        )  # fmt: skip


def _mark_of(op: Operation) -> str:
    mark = op.attributes.get(PART_OF)
    return mark.data if isinstance(mark, StringAttr) else ""
