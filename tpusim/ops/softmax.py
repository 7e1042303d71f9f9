"""Softmax: `top.Softmax`, `top.LogSoftmax`, `tpu.Softmax`; in INT8 by table along the channels, else in float."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import softmax as kernels
from tpusim_kernels.movement import moved
from tpusim_kernels.prim.floattable import SLOPE_RANGES, activation_table, log_table, power_table
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def, var_operand_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, flag, float_attr, int_attr, ints, ints_attr, op_name, set_op_name
from tpusim.ir.opaque import replaced_by
from tpusim.ir.reading import infer_shapes, reshape_constant
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.ir.upstream import FRAMEWORK, NOTES, defined_attributes, refusal
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import align, ceil_div
from tpusim.ops.activation.lut_bf16 import table_weights
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    FloatMode,
    FloatRule,
    GroupType,
    LoweringContext,
    RangeRule,
    Shape,
    TensorSlice,
    TpuOp,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import UnaryTop, checked_axis, value_dtype, zero_point
from tpusim.ops.framework.logical import EVERY_TYPE
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import LibraryKernel
from tpusim.ops.permute import TopPermute

ENTRIES = 256


class NormalisedExponential(UnaryTop):
    """Softmax or its logarithm along one axis."""

    LOG: ClassVar[bool] = False
    FLOAT: ClassVar[FloatRule] = FloatRule(f8="f32")

    axis = attr_def(IntegerAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, axis: int = -1, name: str) -> SSAValue:
        """A negative axis counts from the end."""
        return builder.build(cls, [x], {"axis": int_attr(checked_axis(axis, shape_of(x)))}, name)

    @override
    def infer(self) -> tuple[Shape, ...]:
        shape, axis = shape_of(self.input), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise ValueError(f"an axis in [0, {len(shape)}) is required, got {axis}")
        return (shape,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """exp(x - maximum) divided by its sum, or the logarithm of that, in f32."""
        return (kernels.softmax_onednn(operands[0], axis=self.axis.value.data, log=self.LOG),)

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """Whether the axis has more elements than half the bytes of a local-memory bank (DN-20)."""
        del wanted
        return shape_of(self.input)[self.axis.value.data] > chip.lmem_bank_bytes // 2

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Softmax in integers along axis 1 of at most four axes, or why that is not possible."""
        x, why = ctx.quant(self.input), self._why_not_int8(ctx)
        if why is not None or x is None:
            return why or "the input is not calibrated"
        table = ctx.weight(op_name(self) + "_table", exponential_table(x.scale))
        return self._build(ctx, [ctx.operand(self.input, "int8", self), table], ctx.quantised_type(self.output))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        if self.needs_f32(ctx.chip, "f32"):
            ctx.decision(self, "DN-20")
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), *self._float_tables(ctx)]
        return self._build(ctx, operands, ctx.float_type(self))

    def _build(self, ctx: LoweringContext, operands: Sequence[SSAValue], element: Attribute) -> SSAValue:
        attributes = {"axis": self.axis, "log": flag(self.LOG), "beta": float_attr(1.0)}
        return ctx.build(TpuSoftmax, operands, attributes, element, shape_of(self.output), op_name(self))

    def _float_tables(self, ctx: LoweringContext) -> list[SSAValue]:
        """`none`, or tables of the exponential and of the reciprocal or logarithm of the sum (numerics.md 11.1)."""
        if not ctx.chip.hardware.float_tables:
            return [ctx.none()]
        name, of_sum = op_name(self), log_table() if self.LOG else power_table(-1.0)
        exponential = table_weights(ctx, name + "_exp", activation_table("EXP"))
        return [*exponential, *table_weights(ctx, name + ("_log" if self.LOG else "_reciprocal"), of_sum)]

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        if self.LOG:
            return "the logarithm of softmax has no integer form (numerics.md 11.1)"
        if self.axis.value.data != 1 or len(shape_of(self.input)) > 4:
            return "integer softmax is along axis 1 of at most 4 axes (numerics.md 11.1)"
        return None if ctx.quant(self.output) is not None else "the output is not calibrated"


@irdl_op_definition
class TopSoftmax(NormalisedExponential):
    """`top.Softmax`: exp(x - max)/sum along `axis`."""

    name = "top.Softmax"
    SPEC: ClassVar[tuple[str, ...]] = ("11.1",)
    RANGE: ClassVar[RangeRule] = RangeRule(fixed=(0.0, 1.0))

    @override
    def take_form(self) -> str:
        """TPU-MLIR states the logarithm of a softmax as an attribute of it, `log`; here it is another op."""
        why = super().take_form()
        if why or self.attributes.get("log") != flag(True):
            return why
        log = self.attributes.pop("log")
        if refusal(self):
            self.attributes["log"] = log  # verification refuses the op
            return ""
        infer_shapes(self)
        known = {*defined_attributes(TopLogSoftmax), *NOTES, FRAMEWORK}
        kept = {name: value for name, value in self.attributes.items() if name in known}
        replaced_by(self, TopLogSoftmax, {**kept, "axis": int_attr(self.axis.value.data)})
        return ""

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Move a Softmax between two Permutes after both."""
        del weights
        return (TopMoveSoftmaxAfterPermute(),)


@irdl_op_definition
class TopLogSoftmax(NormalisedExponential):
    """`top.LogSoftmax`: log(exp(x - max)/sum) along `axis`; its fixed range is that of the quotient (U-57).

    In files it is `top.Softmax` with `log`, the op that TPU-MLIR has.
    """

    name = "top.LogSoftmax"
    SPEC: ClassVar[tuple[str, ...]] = ("11.1",)
    RANGE: ClassVar[RangeRule] = RangeRule(fixed=(0.0, 1.0))
    LOG: ClassVar[bool] = True
    WRITTEN_AS: ClassVar[tuple[str, Mapping[str, Attribute]] | None] = TopSoftmax.name, {"log": flag(True)}


def exponential_table(scale: float, beta: float = 1.0) -> np.ndarray:
    """(256,) f32: exp(-scale*i*beta) in double, narrowed (numerics.md 11.1)."""
    return np.exp(-scale * np.arange(ENTRIES, dtype=np.float64) * beta).astype(np.float32)


@irdl_op_definition
class TpuSoftmax(TpuOp, LibraryKernel):
    """`tpu.Softmax`: in float (table `none`), on bytes by a table of 256 f32 exponentials, or in BF16 by four tables.

    The four tables: base and slope of the exponential, exponent and mantissa entries of the reciprocal or logarithm.
    """

    name = "tpu.Softmax"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE
    ALONE: ClassVar[str] = "a softmax"

    input = operand_def(TensorType)
    table = operand_def(TensorType | NoneType)
    more_tables = var_operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    log = opt_attr_def(BoolAttr)
    beta = opt_attr_def(FloatAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR states the table of exponentials with the axes of an image."""
        if not is_none(self.table) and not self.more_tables and uniform_of(self.input) is not None:
            reshape_constant(self.table, (ENTRIES,))
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        shape, axis = shape_of(self.input), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise ValueError(f"an axis in [0, {len(shape)}) is required, got {axis}")
        tables = [shape_of(v) for v in (self.table, *self.more_tables) if not is_none(v)]
        wrong = next((s for s in tables if prod(s) != ENTRIES), None)
        if wrong is not None:
            raise ValueError(f"a table of {ENTRIES} entries is required, got {wrong}")
        if len(self.more_tables) not in (0, 3):
            raise ValueError(f"no table, one or four are required, got {1 + len(self.more_tables)}")
        return (shape,)

    @property
    def _options(self) -> tuple[bool, float]:
        """(log, beta) of the kernel and of the macro function."""
        log = self.log is not None and bool(self.log.value.data)
        return log, self.beta.value.data if self.beta is not None else 1.0

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """On bytes: f32 sum in index order, quotient in double narrowed to f32, rounded half away (11.1)."""
        x, table, *more = operands
        axis, output = self.axis.value.data, uniform_of(self.output)
        log, beta = self._options
        if self.is_constant:
            return (moved(lambda m, v: m.full(v.shape, 0.0 if log else 1.0, "float32"), x),)
        if more:
            return (kernels.softmax_tables(x, table, *more, axis=axis, log=log, limit=SLOPE_RANGES["EXP"]),)
        if output is None:
            return (kernels.softmax_float(x, axis=axis, log=log, beta=beta),)
        zero = zero_point(self.output)
        return (kernels.softmax_int(x, table, output.scale.data, zero, axis=axis, out_dtype=value_dtype(self.output)),)

    @property
    def is_constant(self) -> bool:
        """Whether it is a float softmax along one element, which the library writes without reading its operand."""
        return (
            shape_of(self.input)[self.axis.value.data] == 1 and is_none(self.table) and uniform_of(self.output) is None
        )

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local along axis 2 or 3 of 4-D tensors, but not on a chip with batch packing (layer_group.md 2)."""
        rank, axis = len(shape_of(self.input)), self.axis.value.data
        if chip.hardware.batch_packing or chip.is_global(self.name):
            return f"softmax has no local form on {chip.name}"
        if rank != 4 or axis < 2:
            return f"softmax of rank {rank} along axis {axis}; local are axes 2 and 3 of 4-D tensors"
        return None

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """SMALL_C and MM groups take the last axis only."""
        if kind in (GroupType.SMALL_C, GroupType.MM) and self.axis.value.data != 3:
            return f"softmax along axis {self.axis.value.data}; {kind} groups take the last axis only"
        return super().why_not_in(kind, chip)

    @override
    def can_slice_in(self, axis: Axis, kind: GroupType) -> bool:
        """The axes before `axis`; in SMALL_C groups the first two (layer_group.md 4)."""
        end = 2 if kind is GroupType.SMALL_C else self.axis.value.data
        return axis in ("n", "c", "h", "w")[:end]

    @override
    def can_slice(self, axis: Axis) -> bool:
        return self.can_slice_in(axis, GroupType.NORMAL)

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A row of sums, two tables, two f32 copies; one more copy for a logarithm and for padded rows (9.3)."""
        del inputs
        _, c, h, w = output.shape
        last = shape_of(self.output)[3]
        along_h = self.axis.value.data == 2 or w != last  # a SMALL_C group has the last axis along h
        size = 2 if storage_dtype(element_of(self.input)).itemsize == 2 else 4
        vector, rows = chip.eu_elements(storage_dtype(element_of(self.input)).itemsize), ceil_div(c, chip.lanes)
        image = rows * align(h * w, vector)
        extra = int(self._options[0]) + int(not along_h and w % vector != 0)
        sums = rows * align(w if along_h else h, vector) * size
        tables = (align(32, vector) + align(192, vector)) * 4
        return sums + tables + 2 * image * 4 + extra * image * size

    @override
    def emit(self, ctx: EmitContext) -> None:
        """FN softmax_int (input, table), softmax_tables (input, four tables), softmax (input), or a fill."""
        axis, output = self.axis.value.data, uniform_of(self.output)
        if ctx.local and ctx.group_type is GroupType.SMALL_C:
            axis = 2  # the last axis lies along h
        log, beta = self._options
        if self.is_constant and not ctx.local:
            ctx.fill(ctx.output(), 0.0 if log else 1.0, kind="elements")
            return
        function, operands = functions.Softmax(axis, log, beta), 1
        if self.more_tables:
            function, operands = functions.SoftmaxTables(axis, SLOPE_RANGES["EXP"], log), len(self.operands)
        elif output is not None:
            function, operands = functions.SoftmaxInt(axis, output.scale.data, zero_point(self.output)), 2
        ctx.emit(isa.Fn, function=function, inputs=tuple(map(ctx.input, range(operands))), output=ctx.output())


class TopMoveSoftmaxAfterPermute(RewritePattern):
    """Permute (0, 3, 1, 2) -> Softmax along axis 3 -> Permute (0, 3, 2, 1), each used once: Permute -> Softmax.

    The new Softmax is along axis 1.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last Permute; the Softmax takes its name."""
        softmax = made_by(op.input, "top.Softmax") if isinstance(op, TopPermute) else None
        first = made_by(softmax.operands[0], "top.Permute") if isinstance(softmax, TopSoftmax) else None
        if not isinstance(op, TopPermute) or not isinstance(softmax, TopSoftmax) or not isinstance(first, TopPermute):
            return
        orders = ints(first.order), ints(op.order)
        if orders != ((0, 3, 1, 2), (0, 3, 2, 1)) or softmax.axis.value.data != 3:
            return
        kind, order = op.output.type, {"order": ints_attr((0, 2, 1, 3))}
        moved = TopPermute.create(operands=[first.input], result_types=[kind], attributes=order)
        set_op_name(moved, f"{op_name(first)}_r_reordered")
        attributes = {**softmax.attributes, "axis": int_attr(1)}
        last = TopSoftmax.create(operands=[moved.output], result_types=[kind], attributes=attributes)
        copy_name(last, op)
        rewriter.replace(op, [moved, last])
        rewriter.erase(softmax)
        rewriter.erase(first)
