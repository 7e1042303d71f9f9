"""`tpu.MatMul`: exact integer or float products, their slices, and MM2 commands (numerics.md 9.2)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, cast

import numpy as np
from tpusim_kernels import matmul as kernels
from tpusim_kernels.prim.narrow import Narrow, narrow
from typing_extensions import override
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    Signedness,
    StringAttr,
    TensorType,
)
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, var_operand_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, int_attr, ints, op_name, value_name
from tpusim.ir.modes import RequantModeAttr
from tpusim.ir.packing import PACKED_BITS
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.layout import product_bytes
from tpusim.isa.multiplications import of_product
from tpusim.isa.region import View
from tpusim.isa.steps import array
from tpusim.ops.framework.accumulator import exact_sums, limits_of_sums
from tpusim.ops.framework.base import (
    Array,
    Axis,
    EmitContext,
    GroupType,
    ReorderContext,
    Shape,
    TensorSlice,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.framework.families import (
    broadcast_shape,
    emit_limit,
    is_set,
    limited,
    part_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.framework.logical import EVERY_TYPE, WHOLE
from tpusim.ops.framework.views import turned
from tpusim.ops.interfaces import (
    Accumulates,
    Arithmetic,
    ChipInference,
    KernelConstants,
    LoweredRewrites,
    Macs,
    OperandSlices,
    Reorder,
    TwoArithmetics,
)
from tpusim.ops.matmul.product import HEADS, Exchanged, Product
from tpusim.ops.patterns.lowered_heads import (
    HeadsIntoProduct,
    PermuteAddWeightReorderPattern,
    PermuteAfterRows,
    PermuteMulconstSwap,
)
from tpusim.ops.patterns.whole_image import WholeImageAsProduct
from tpusim.ops.structure import TopWeight
from tpusim.ops.view import chip_of_module


@irdl_op_definition
class TpuMatMul(
    Product, TpuOp, ChipInference, TwoArithmetics, LoweredRewrites, KernelConstants, Accumulates, Macs, OperandSlices,
    Reorder,
):  # fmt: skip
    """`tpu.MatMul`: integers sat(RSR(relu(acc + bias)*m, r) + z), or floats; weights stay (K, N) in global memory.

    quant_mode QDM: the requant of numerics.md 5.2; with several constant matrices each has a multiplier, a shift and a
    row of biases. fuse_rq: a multiplier per column and one shift; after weight-reorder the multipliers are the operand
    `multi`, N int32 (numerics.md 5.1). heads_inside: in all three tensors the heads are between rows and columns,
    (B, M, H, K) x (B, K, H, N) -> (B, M, H, N); a transposed right operand is (B, N, H, K).
    """

    name = "tpu.MatMul"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multipliers", "rshifts"), ("fuse_rq", "rshifts"))
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    input = operand_def(TensorType)  # repeated, because xDSL puts the operands of a subclass first
    right = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    multi = var_operand_def(TensorType)
    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)
    quant_mode = opt_attr_def(RequantModeAttr)
    fuse_rq = opt_attr_def(BoolAttr)
    heads_inside = opt_attr_def(BoolAttr)
    weight_bits = opt_attr_def(IntegerAttr)
    arithmetic = opt_attr_def(StringAttr)
    UNLESS_STATED: ClassVar[Arithmetic] = "interpreter"
    """Modes of 16 bits have the interpreter's products (DN-24)."""

    def _depth(self, chip: ChipSpec) -> int:
        """How many products of 16-bit floats the chip's array adds up at once; 0: the interpreter's sums."""
        return 0 if self.as_interpreter else array(chip, 2, self.inner).depth

    def rounds_twice(self, chip: ChipSpec) -> bool:
        """Whether the product of 16-bit floats is rounded before the bias is added."""
        return chip.bias_after_product and not self.as_interpreter

    @override
    def take_form(self) -> str:
        """In TPU-MLIR's modules `hdim_is_batch` means `heads_inside`, but on chips that say so of each tensor."""
        chip = chip_of_module(self)
        if is_set(self.hdim_is_batch) and chip is not None and not chip.hardware.heads_of_each_tensor:
            self.heads_inside = flag(True)
        return super().take_form()

    @property
    @override
    def heads_of_each(self) -> bool:
        return is_set(self.hdim_is_batch) and not is_set(self.heads_inside)

    @property
    @override
    def has_heads(self) -> bool:
        """Also if heads are inside all tensors (`heads_inside`)."""
        return is_set(self.heads_inside) or super().has_heads

    @property
    @override
    def exchanged(self) -> Exchanged:
        return Exchanged(True, True, True) if is_set(self.heads_inside) else super().exchanged

    @property
    def qdm(self) -> bool:
        """Whether the requant is that of numerics.md 5.2 (`quant_mode` QDM)."""
        return self.quant_mode is not None and self.quant_mode.data == "QDM"

    @property
    def matrices(self) -> Shape:
        """The batch axes of the right operand if each of its matrices has another requant; else ()."""
        several = self.qdm and self.multipliers is not None and len(ints(self.multipliers)) > 1
        return shape_of(self.right)[:-2] if several else ()

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift); None in float. The multiplier is 1 if each column has one."""
        if self.rshifts is None:
            return None
        if is_set(self.fuse_rq) or self.multipliers is None:
            return 1, ints(self.rshifts)[0]
        return ints(self.multipliers)[0], ints(self.rshifts)[0]

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(..., M, N). Raises ValueError for operands that do not fit, or if neither has all matrices of the result."""
        bias = self.bias_shape()
        if bias is not None and self.matrices:
            if bias[:-1] != (prod(self.matrices),):
                raise ValueError(f"a bias row for each of {prod(self.matrices)} right matrices is required, got {bias}")
            bias = bias[-1:]
        shape = self.shape_of_product(bias)
        if not self.has_heads:
            self._require_one_batch()
        return (shape,)

    def _require_one_batch(self) -> None:
        """Raises ValueError if both operands broadcast; the lowering repeats one of them."""
        batches = [shape_of(v)[:-2] for v in (self.input, self.right)]
        if prod(broadcast_shape(batches)) != max(map(prod, batches)):
            raise ValueError(f"one operand with all matrices is required, got batches {batches}; put a tpu.Tile before")

    @override
    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """As `inference`, or with the sums of the chip's array and two roundings."""
        if self.as_interpreter:
            return self.inference(operands)
        b, (x, w), (left, right) = operands[2], self.factors(operands), self.transposes
        y = kernels.matmul_chip(
            x, w, None if b is None else b.reshape(-1), left_transpose=left, right_transpose=right,
            do_relu=relu_of(self), narrow=value_dtype(self.output), depth=self._depth(chip),
            twice=self.rounds_twice(chip),
        )  # fmt: skip
        return (limited(self.stored(y), self),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers: exact product, bias, relu, requant (numerics.md 9.2)."""
        b, multi, (x, w) = operands[2], operands[3:], self.factors(operands)
        relu, (left, right) = relu_of(self), self.transposes
        if self.scaling is None:
            bias = None if b is None else b.reshape(-1)
            y = kernels.matmul_float(x, w, bias, left_transpose=left, right_transpose=right, do_relu=relu)
            return (limited(self.stored(y), self),)
        m: Array
        m, r = self.scaling
        if is_set(self.fuse_rq):
            m = multi[0].reshape(-1) if multi else np.array(ints(self.attributes["multipliers"]), np.int64)
        if self.matrices:
            rows = (*self.matrices, 1, 1)
            m, r = (
                np.array(ints(a), np.int64).reshape(rows) for a in (self.multipliers, self.rshifts) if a is not None
            )
            b = None if b is None else b.reshape(*self.matrices, 1, -1)
        elif b is not None and not isinstance(b, Narrow):
            b = b.reshape(-1)
        y = kernels.matmul_int(
            x, w, self.for_kernel(2, b), m, r, zero_point(self.output), left_transpose=left, right_transpose=right,
            do_relu=relu, out_dtype=value_dtype(self.output), requant="qdm" if self.qdm else "multiply_shift",
        )  # fmt: skip
        return (self.stored(y),)

    @override
    def limits_of_sums(self, constants: Sequence[np.ndarray | None]) -> tuple[int, int]:
        """Over the inner axis; a computed right operand may have any integer of its type."""
        _, right, bias, *_ = constants
        if self.scaling is None:
            return 0, 0
        stored = storage_dtype(element_of(self.right))
        axis, ends = -1 if self.transposes[1] else -2, np.iinfo(stored)
        if right is None or right.ndim < 2:  # noqa: PLR2004
            right, axis = np.repeat([[ends.min, ends.max]], self.inner, axis=0).astype(stored), 0
            bias = None if bias is None else bias.reshape(-1, 1)
        elif bias is not None:
            bias = bias.reshape(*self.matrices, -1)
        return limits_of_sums(right, (axis,), bias, storage_dtype(element_of(self.input)))

    @override
    def sums(self, operands: Sequence[Array]) -> np.ndarray:
        """In the layout of the result, with the bias along the columns."""
        (x, w), b, (left, right) = self.factors(operands), operands[2], self.transposes
        found = exact_sums(
            lambda w: kernels.matmul_accumulate(x, w, left_transpose=left, right_transpose=right), np.asarray(w)
        )
        if b is not None:
            found = found + np.asarray(b, np.int64).reshape(*self.matrices, *(1,) * bool(self.matrices), -1)
        return np.asarray(self.stored(found))

    @override
    def for_kernel(self, index: int, constant: Any) -> Any:
        """A constant or absent bias with the multiplier in the int32 form of the kernel; others unchanged."""
        fixed = constant is None or isinstance(constant, np.ndarray)
        if index != 2 or not fixed or self.scaling is None or self.qdm or is_set(self.fuse_rq):  # noqa: PLR2004
            return cast("Any", constant)
        m, r = (np.array([one]) for one in self.scaling)
        found = narrow(m, r, cast("Any", constant), zero_point(self.output), value_dtype(self.output))
        return cast("Any", constant) if found is None else found

    @override
    def macs(self) -> int:
        return of_product(prod(shape_of(self.output)), self.inner)

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Products absorb Permutes of heads before and after them; convolutions of a whole image become products."""
        types = chip.forms.whole_image_products
        rows = PermuteAfterRows(), PermuteMulconstSwap(cls), PermuteAddWeightReorderPattern(weights)
        heads = HeadsIntoProduct(cls), *rows
        return *heads, *[WholeImageAsProduct(weights, cls, types)] * bool(types)

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """A constant matrix (K, N) after an operand of three axes becomes (1, K, N), so that the product can be local.

        The bias of a product that may be local gets the rank of the left operand, with its elements along the columns.
        """
        self.attributes["left_reuse"] = int_attr(int(not self.input.has_one_use()))
        rank = len(shape_of(self.input))
        self._pack_weights(ctx)
        matrix = ctx.array(self.right) if rank == 3 and len(shape_of(self.right)) == 2 else None
        if matrix is not None and not ctx.chip.is_global(self.name):
            element = element_of(self.right)
            self.operands[1] = ctx.weight(f"{value_name(self.right)}_rank3", matrix[np.newaxis], element)
        if is_set(self.fuse_rq) and self.multipliers is not None:
            m = np.array(ints(self.multipliers), np.int32)
            row = (1,) * (rank - 1) + (m.size,)
            self.operands = [*self.operands[:3], ctx.weight(f"{op_name(self)}_multi", m.reshape(row))]
            del self.attributes["multipliers"]
        data = None if is_none(self.bias) else ctx.array(self.bias)
        if data is not None and rank > 2 and not ctx.chip.is_global(self.name):
            shape = (1,) * (rank - 1) + (data.size,)
            self.operands[2] = ctx.weight(f"{value_name(self.bias)}_rank{rank}", data.reshape(shape))

    def _pack_weights(self, ctx: ReorderContext) -> None:
        """Let two weights of 4 bits share a byte; without a bias there are zeros (U-115)."""
        matrix, bits = ctx.array(self.right), self.weight_bits.value.data if self.weight_bits else 8
        if self.scaling is not None and bits == PACKED_BITS and matrix is not None:
            element = IntegerType(PACKED_BITS, Signedness.SIGNED)
            self.operands[1] = ctx.weight(f"{value_name(self.right)}_packed", matrix, element)
            if is_none(self.bias):
                zeros = np.zeros(shape_of(self.output)[-1], np.int32)
                self.operands[2] = ctx.weight(f"{op_name(self)}_bias_merge_izp", zeros)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local: 3-D x 3-D; 4-D x 4-D with heads inside; 4-D with dim1 < dim2, or 5-D with dim1 < dim3, x 2-D.

        Products in f32 are global (layer_group.md 2).
        """
        left, right = shape_of(self.input), shape_of(self.right)
        if chip.is_global(self.name):
            return f"a matrix product has no local form on {chip.name}"
        if value_dtype(self.input) == "float32":
            return "matrix product in float"
        if self.heads_of_each:
            return f"matrix product {left} x {right} with heads and rows exchanged"
        ranks = len(left), len(right)
        few_channels = ranks in ((4, 2), (5, 2)) and left[1] < left[len(left) - 2]
        if ranks != (3, 3) and not few_channels and not self.has_heads:
            kind = "2-D" if ranks == (2, 2) else "batched"
            return f"{kind} matrix product {left} x {right}; local are 3-D x 3-D, and 4-D or 5-D of few channels x 2-D"
        if isinstance(self.input.owner, TopWeight):
            return "the left operand is constant"
        if not is_none(self.bias) and (not isinstance(self.bias.owner, TopWeight) or len(shape_of(self.bias)) == 1):
            return "the bias is not constant"
        return None

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """NORMAL, 3D: 3-D x 3-D, heads inside. MM: not both transposed. SMALL_C: one right matrix, left not transposed.

        Decision: SMALL_C merges batch and rows of the left operand; that requires one right matrix for all rows.
        """
        left, right = self.transposes
        if kind is GroupType.SMALL_C:
            if left or self.has_heads or prod(shape_of(self.right)[:-2]) > 1:
                return f"SMALL_C groups multiply rows by one matrix, got {shape_of(self.right)}"
        elif len(shape_of(self.input)) > 3 and not self.has_heads:
            return f"a product of rank {len(shape_of(self.input))} runs in SMALL_C groups only"
        if kind is GroupType.MM and left and right:
            return "both operands are transposed"
        return super().why_not_in(kind, chip)

    @override
    def can_slice_in(self, axis: Axis, kind: GroupType) -> bool:
        """Along the batch; along rows in MM and SMALL_C groups; along heads that are inside (layer_group.md 4).

        Decision: not along the rows of a transposed left operand, which are stored as its columns.
        """
        if axis == "c":
            return kind in (GroupType.MM, GroupType.SMALL_C) and not self.transposes[0]
        return axis == "n" or (axis == "h" and self.has_heads)

    @override
    def can_slice(self, axis: Axis) -> bool:
        """As in a NORMAL group."""
        return self.can_slice_in(axis, GroupType.NORMAL)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """Batches and heads are cut like the result, also the rows of the left operand; all else is whole (7.1)."""
        if axis == "n" or (axis == "h" and self.has_heads) or (axis == "c" and operand == 0 and not self.transposes[0]):
            return window
        return WHOLE

    @override
    def splits_weight(self, operand: int) -> bool:
        """The right operand, if it has several matrices (layer_group.md 7.5)."""
        return operand == 1 and prod(shape_of(self.right)[:-2]) > 1

    @override
    def holds_operand(self, operand: int) -> bool:
        """The right operand (layer_group.md 7.1)."""
        return operand == 1

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: int32 results of one matrix, for many tiles only of one row of lanes (layer_group.md 9.3)."""
        del inputs
        if self.scaling is None:
            return 0
        _, rows, *extents = output.shape
        return product_bytes(rows, extents[self.has_heads], chip)  # of one head

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One MM2 with bias, relu and requant; exchanged heads and rows are read and written by strides.

        In local memory each head has one MM2.
        """
        if ctx.local and self.has_heads:
            start, heads = ctx.output_slice().h
            for head in range(heads):
                window = (start + head, 1)
                self._emit_product(ctx, ctx.input(0, h=window), ctx.input(1, h=window), _head(ctx, head))
        else:
            views = zip((ctx.input(0), ctx.input(1), ctx.output()), self.exchanged, strict=True)
            self._emit_product(ctx, *(turned(view, HEADS) if exchanged else view for view, exchanged in views))
        emit_limit(ctx, self)

    def _emit_product(self, ctx: EmitContext, x: View, w: View, y: View) -> None:
        left, right = self.transposes
        requant, several = None, tuple[isa.Requant, ...]()
        multipliers = ctx.input(3) if self.multi else None
        if is_set(self.fuse_rq) and self.scaling is not None:
            requant = isa.Requant(1, self.scaling[1], zero_point(self.output))
        elif self.scaling is not None and self.multipliers is not None and self.rshifts is not None:
            mode, zero = "qdm" if self.qdm else "shift", zero_point(self.output)
            pairs = zip(ints(self.multipliers), ints(self.rshifts), strict=True)
            several = tuple(isa.Requant(m, r, zero, mode=mode) for m, r in pairs)
            requant, several = (several[0], ()) if len(several) == 1 else (None, several)
        ctx.emit(
            isa.MatMul, left=x, right=w, bias=None if is_none(self.bias) else ctx.input(2), output=y,
            left_transpose=left, right_transpose=right, requant=requant, requants=several, relu=relu_of(self),
            multipliers=multipliers, depth=self._depth(ctx.chip),
            bias_after=self.rounds_twice(ctx.chip),
        )  # fmt: skip


def _head(ctx: EmitContext, head: int) -> View:
    """The part of the result slice that belongs to one head."""
    whole = ctx.output()
    n, c, _, w = whole.shape
    return part_of(whole, 2, head, (n, c, 1, w), ctx.chip)
