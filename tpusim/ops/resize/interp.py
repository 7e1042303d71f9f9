"""`top.Interp`, `tpu.Interp`: interpolation of rows and columns, linear or nearest (numerics.md 11.4)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels.resize import interp_linear, interp_nearest, interp_on_host, nearest_index
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, StringAttr, TensorType, i8
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.interfaces import rules
from tpusim.ir.attrs import (
    copy_name,
    flag,
    float_attr,
    framework_name,
    int_attr,
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
from tpusim.ops.framework.families import built_in_integers, is_set
from tpusim.ops.interfaces import FloatRules, GlobalBuffer, QuirkRewrite, Room
from tpusim.ops.patterns.interpolated import COORDINATES, NEAREST, PARTS, SAME, TAKEN, nearest_coordinates
from tpusim.ops.resize.nearest import interp_step, make_nearest, nearest_source, whole_factor
from tpusim.ops.resize.upsample import TopUpsample

LOG = logging.getLogger(__name__)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
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
    """Interpolation to `target_shape` (h, w), in both dialects; scale_h, scale_w: input per output elements.

    align_corners: in mode linear the coordinates are o*scale; in mode nearest they are rounded, otherwise truncated.
    """

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)

    @property
    def is_nearest(self) -> bool:
        """Whether the elements are copies."""
        raise NotImplementedError

    @property
    def coordinates(self) -> ResizeCoordinates:
        """The coordinates of a linear interpolation by TPU-MLIR's name."""
        return ResizeCoordinates.ALIGN_CORNERS if is_set(self.align_corners) else ResizeCoordinates.HALF_PIXEL

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[float, float], bool]:
        """The geometry as (size, scales, align_corners)."""
        h, w = ints(self.target_shape)
        return (h, w), (self.scale_h.value.data, self.scale_w.value.data), is_set(self.align_corners)

    def sources(self) -> list[np.ndarray]:
        """In mode nearest the index along h and w that each place copies."""
        size, scales, align = self.geometry
        axes = zip(shape_of(self.input)[2:], size, scales, strict=True)
        return [nearest_index(before, after, scale, rounded=align) for before, after, scale in axes]

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's n and c, then target_shape."""
        return (resized_shape(shape_of(self.input), ints(self.target_shape)),)


@irdl_op_definition
class TopInterp(Interpolation, TopOp):
    """`top.Interp`: resizing by interpolation; in mode nearest as TPU-MLIR computes it (U-109)."""

    name = "top.Interp"
    SPEC: ClassVar[tuple[str, ...]] = ("11.4", "12.1")

    mode = attr_def(StringAttr)
    coord_mode = attr_def(StringAttr)
    stands_for = opt_attr_def(StringAttr)
    """Mode and coordinates of the node if they are others (U-109)."""

    @property
    @override
    def is_nearest(self) -> bool:
        return self.mode.data == ResizeMode.NEAREST

    @property
    def is_asymmetric(self) -> bool:
        """Whether a host computes with asymmetric coordinates; in mode nearest also for pytorch_half_pixel."""
        if self.is_nearest:
            return self.coord_mode.data in (ResizeCoordinates.ASYMMETRIC, ResizeCoordinates.PYTORCH_HALF_PIXEL)
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
        nearest_mode: one of ROUNDINGS.
        """
        shape = shape_of(x)
        scales = [o / i for i, o in zip(shape, size, strict=True)] if scales is None else scales
        if coord_mode not in COORDINATES or nearest_mode not in ROUNDINGS:
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
        if self.is_nearest:
            return (interp_nearest(operands[0], *self.sources()),)
        return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """A host copies bytes, or numbers of the chip's float type (U-109)."""
        if self.is_nearest and ctx.chip.is_on_host(self.name):
            in_float = ctx.asks_for_float(self) or not ctx.format(self).calibrated
            lowered = None if in_float else self._bytes_on_host(ctx)
            return self._floats_on_host(ctx) if lowered is None else lowered
        return super().lower(ctx)

    def _bytes_on_host(self, ctx: LoweringContext) -> SSAValue | None:
        """The bytes of the operand, whatever their scale; None without scales."""
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return None
        ctx.decision(self, Quirk.RESIZE_MODES.decision)
        operand = ctx.operand(self.input, "int8", self)
        return built_in_integers(self, ctx, TpuInterp, [operand], self._lowered_attributes(ctx))

    def _floats_on_host(self, ctx: LoweringContext) -> SSAValue:
        ctx.decision(self, Quirk.RESIZE_MODES.decision)
        operand = ctx.operand(self.input, rules(ctx.chip, FloatRules).FALLBACK, self)
        attributes, type = self._lowered_attributes(ctx), element_of(operand)
        return ctx.build(TpuInterp, [operand], attributes, type, shape_of(self.output), op_name(self))

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return "interpolation has no integer form (numerics.md 11.4, 12.1)"

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Interp (numerics.md 11.4, 12)."""
        # the host interpolates in f32 (DN-22)
        operand, attributes = ctx.operand(self.input, ctx.float_mode(self), self), self._lowered_attributes(ctx)
        if self.stands_for is not None or self.is_nearest:
            ctx.decision(self, Quirk.RESIZE_MODES.decision)
        return ctx.build(TpuInterp, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lowered_attributes(self, ctx: LoweringContext) -> dict[str, Attribute]:
        """The attributes of the tpu op."""
        attributes = {key: value for key, value in self.attributes.items() if key not in OF_NODE}
        if self.is_nearest:
            where = ResizeCoordinatesAttr(ResizeCoordinates(self.coord_mode.data))
            attributes |= {"mode": ResizeModeAttr(ResizeMode.NEAREST), "coord_mode": where}
        elif not self.geometry[2]:
            steps = self._steps(ctx)
            attributes |= {"scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1])}
        if ctx.chip.is_on_host(self.name):
            attributes["on_host"] = flag(True)
            attributes |= {"asymmetric": flag(True)} if self.is_asymmetric else {}
        return attributes

    def _steps(self, ctx: LoweringContext) -> list[float]:
        """Input per output elements in f32; by U-05 quotients of the sizes, even if the model states scales."""
        sizes = zip(shape_of(self.input)[2:], shape_of(self.output)[2:], strict=True)
        theirs = np.array([np.float32(before) / np.float32(after) for before, after in sizes])
        return ctx.quirked(self, Quirk.RESIZE_STEPS_OF_SIZES, theirs, np.array(self.geometry[1], np.float32)).tolist()


@irdl_op_definition
class TpuInterp(Interpolation, TpuOp, GlobalBuffer):
    """`tpu.Interp`: linear interpolation in float, or copies of the nearest elements.

    on_host: by the algorithm of the host's processor; asymmetric: with coordinates o * scale there.
    """

    name = "tpu.Interp"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    mode = attr_def(ResizeModeAttr)
    coord_mode = attr_def(ResizeCoordinatesAttr)
    on_host = opt_attr_def(BoolAttr)
    asymmetric = opt_attr_def(BoolAttr)

    @property
    @override
    def is_nearest(self) -> bool:
        return self.mode.data == ResizeMode.NEAREST

    @override
    def take_form(self) -> str:
        """TPU-MLIR states output per input elements, which it steps by in align_corners only, and no extents (U-05)."""
        if ir_name(self, "target_shape") in self.attributes or is_unranked(self.output):
            return super().take_form()
        asymmetric = self.coord_mode.data == "asymmetric"
        if self.mode.data == "linear" and asymmetric:
            return f"{self.mode.data} interpolation with {self.coord_mode.data} coordinates is not computed"
        after = shape_of(self.output)[2:]
        align = not asymmetric if self.is_nearest else self.coord_mode.data == "align_corners"
        sizes = list(zip(shape_of(self.input)[2:], after, strict=True))
        quotients = [float(np.float32(size_in) / np.float32(size_out)) for size_in, size_out in sizes]
        steps = [interp_step(*axis, align=True) for axis in sizes] if align else quotients
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
        if self.is_nearest:
            return (interp_nearest(operands[0], *self.sources()),)
        if not is_set(self.on_host):
            return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)
        asymmetric = is_set(self.asymmetric)
        return (interp_on_host(operands[0], size=size, scales=scales, align_corners=align, asymmetric=asymmetric),)

    @override
    def sources(self) -> list[np.ndarray]:
        """As the chip copies, or the host."""
        if not is_set(self.on_host):
            return super().sources()
        axes, rounded = zip(shape_of(self.input)[2:], self.geometry[0], strict=True), not is_set(self.asymmetric)
        return [nearest_index(i, o, i / o, rounded=rounded, on_host=True) for i, o in axes]

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """A host copies bytes."""
        return ((),) if self.is_nearest and is_set(self.on_host) else ()

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
        host, asymmetric = is_set(self.on_host), is_set(self.asymmetric)
        function = functions.Interp(scale_h, scale_w, align, host, asymmetric, self.is_nearest)
        source = _needed(ctx.input(0), shape_of(self.output)[2:], function)
        ctx.emit(isa.Fn, function=function, inputs=(source,), output=ctx.output())


def _needed(source: View, size: tuple[int, ...], function: functions.Interp) -> View:
    """The operand up to the last row and column that a result of this size (h, w) needs."""
    if function.host or function.nearest or function.whole_factors() or source.interleave > 1:
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
        return interp_step(size_in, size_out, align=True)
    if size_out == 1 and coordinates == "pytorch_half_pixel":
        return 1.0  # so that the only element is that at place 0
    return 1.0 / scale


# ------------------------------------------------------------------------------------------------------------ rewrites


@dataclass
class PartsToInterp(QuirkRewrite):
    """What a Resize became, cubic, nearest or of other coordinates -> Interp or Upsample of TPU-MLIR (U-109)."""

    QUIRK: ClassVar[Quirk] = Quirk.RESIZE_MODES
    interp: type[TopInterp]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last part; the new op is called like the node."""
        mark = _mark_of(op)
        readers = [use.operation for use in op.results[0].uses] if mark.startswith(f"{PARTS} ") else []
        if not readers or any(_mark_of(reader) == mark for reader in readers):
            return
        modes, _, tensor = mark.partition(":")
        _, mode, coordinates, ending = modes.split(" ")
        source = op.results[0]
        while isinstance(source.owner, Operation) and _mark_of(source.owner) == mark:
            source = source.owner.operands[0]
        new = self._new(source, op.results[0], mode, coordinates)
        given = framework_name(op)
        if ending or given.startswith(f"{tensor}_part"):
            given = tensor if given.startswith(f"{tensor}_part") else given
            set_op_name(new, given + ending, given if ending else "")
        else:
            copy_name(new, op)
        rewriter.replace(op, new)
        if mode != SAME:
            LOG.warning(
                "%s '%s' is %s here (%s), not %s with %s; write what is meant, or keep it by quirks_off=%s",
                new.name, op_name(new), _told(new), self.QUIRK.rule.number, mode, coordinates, self.QUIRK,
            )  # fmt: skip

    def _new(self, source: SSAValue, result: SSAValue, mode: str, coordinates: str) -> TopInterp | TopUpsample:
        """The op of TPU-MLIR; in mode nearest an Upsample if one whole factor enlarges both axes."""
        nearest = mode in (NEAREST, SAME)
        before, after = shape_of(source)[2:], shape_of(result)[2:]
        if nearest and (factor := whole_factor(before, after)) is not None:
            factors = {"scale_h": int_attr(factor), "scale_w": int_attr(factor)}
            return TopUpsample.create(operands=[source], result_types=[result.type], attributes=factors)
        taken = nearest_coordinates(coordinates) if nearest else TAKEN.get(coordinates, coordinates)
        align = taken != "asymmetric" if nearest else taken == "align_corners"
        steps = [
            interp_step(i, o, align=align) if nearest else _step(i, o, o / i, taken)
            for i, o in zip(before, after, strict=True)
        ]
        attributes = {
            "target_shape": ints_attr(after), "scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1]),
            "align_corners": flag(align),
        }  # fmt: skip
        more = {"mode": text(ResizeMode.NEAREST), "coord_mode": text(taken)}
        attributes |= more if nearest else {"stands_for": StringAttr(f"{mode} {coordinates}")}
        return self.interp.create(operands=[source], result_types=[result.type], attributes=attributes)


def _told(new: TopInterp | TopUpsample) -> str:
    """What an op computes, for a warning."""
    if isinstance(new, TopUpsample):
        return f"{new.factors[0]} copies of every element along each axis"
    if not new.is_nearest:
        return f"linear with {new.coord_mode.data}"
    place = "round(o*(in-1)/(out-1))" if is_set(new.align_corners) else "floor(o*in/out)"
    return f"the element at {place}"


def _mark_of(op: Operation) -> str:
    mark = op.attributes.get(PART_OF)
    return mark.data if isinstance(mark, StringAttr) else ""
