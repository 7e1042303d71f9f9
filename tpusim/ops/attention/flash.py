"""`tpu.FAttention`: attention of all heads in 16 bits as one op, and the pattern that forms it (numerics.md 11.6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from msgspec.structs import replace
from tpusim_kernels.attention import flash_attention, flash_attention_by_blocks
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, NoneType, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, flag, int_attr, ints
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.steps import array
from tpusim.kernel_library.attention import block_sizes
from tpusim.ops.add import TpuAdd
from tpusim.ops.const_binary.tpu import TpuMulConst
from tpusim.ops.framework.base import Array, EmitContext, OpT, Shape, is_none
from tpusim.ops.framework.families import is_set, only_user, relu_of
from tpusim.ops.framework.macro import MacroTpu
from tpusim.ops.interfaces import Arithmetic, ChipInference, FusingRewrites, Macs, TwoArithmetics
from tpusim.ops.matmul.product import COLUMNS_FIRST, HEADS
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.patterns.attention import erase_unused
from tpusim.ops.permute import TpuPermute
from tpusim.ops.softmax import TpuSoftmax
from tpusim.ops.structure import make_none
from tpusim.ops.tile import TpuTile
from tpusim.ops.view import TpuReshape

LARGEST_HEAD, FEWEST_KEYS = 128, 4
"""Most elements of a head, and fewest keys, of a block that becomes one op (U-26)."""


@irdl_op_definition
class TpuFAttention(MacroTpu, TwoArithmetics, ChipInference, FusingRewrites, Macs):
    """`tpu.FAttention`: softmax(scale * q x k^T + mask) x v in f16 or bf16, rounded step by step (numerics.md 11.6).

    queries (B, mq, q_head, dim), keys and values (B, mk, kv_head, dim), mask (1, 1, mq, mk) or none; the result is
    (B, mq, q_head*dim), with keep_dims (B, mq, q_head, dim). key_block: keys that the chip takes at a time in high
    precision; without it the arithmetic is the interpreter's.
    """

    name = "tpu.FAttention"

    queries = operand_def(TensorType)
    keys = operand_def(TensorType)
    values = operand_def(TensorType)
    mask = operand_def(TensorType | NoneType)
    buffer = operand_def(NoneType)
    output = result_def(TensorType)
    scale = attr_def(FloatAttr)
    batch = attr_def(IntegerAttr)
    q_head = attr_def(IntegerAttr)
    kv_head = attr_def(IntegerAttr)
    dim = attr_def(IntegerAttr)
    mq = attr_def(IntegerAttr)
    mk = attr_def(IntegerAttr)
    keep_dims = attr_def(BoolAttr)
    arithmetic = opt_attr_def(StringAttr)
    key_block = opt_attr_def(IntegerAttr)

    @classmethod
    @override
    def fusing_patterns(cls, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The pattern that forms the op, on chips that have the op, perhaps only for shared heads of keys."""
        forms = chip.forms
        able = forms.flash_attention or forms.grouped_attention
        return (ProductsAsFlashAttention(cls, only_grouped=not forms.flash_attention),) if able else ()

    @override
    def choose_arithmetic(self, chip: ChipSpec, arithmetic: Arithmetic, *, high_precision: bool) -> None:
        """The chip's arithmetic with high precision only; what the chip computes without it is not known (11.6)."""
        if arithmetic == "chip" and high_precision:
            rows, keys, heads, size, queries = (
                number.value.data for number in (self.mq, self.mk, self.kv_head, self.dim, self.q_head)
            )
            sizes = block_sizes(rows, keys, heads, size, chip, queries // heads, high_precision=True)
            self.key_block = int_attr(sizes[1])
        else:
            super().choose_arithmetic(chip, "interpreter", high_precision=high_precision)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """By the attributes. Raises ValueError for operands of other shapes."""
        batch, heads, others, size, rows, columns = (
            a.value.data for a in (self.batch, self.q_head, self.kv_head, self.dim, self.mq, self.mk)
        )
        wanted = [(batch, rows, heads, size), (batch, columns, others, size), (batch, columns, others, size)]
        given = [shape_of(x) for x in (self.queries, self.keys, self.values)]
        if given != wanted or heads % others:
            raise ValueError(f"queries, keys and values {wanted} are required, got {given}")
        if not is_none(self.mask) and shape_of(self.mask) != (1, 1, rows, columns):
            raise ValueError(f"a mask (1, 1, {rows}, {columns}) is required, got {shape_of(self.mask)}")
        return ((batch, rows, heads, size) if is_set(self.keep_dims) else (batch, rows, heads * size),)

    @override
    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """In f32; each step, or with high precision only some steps, is rounded to the type of the result."""
        narrow, scale = storage_dtype(element_of(self.output)).name, self.scale.value.data
        if self.key_block is None:
            y = flash_attention(*operands[:4], scale=scale, narrow=narrow)
        else:
            block, depth = self.key_block.value.data, self._depth(chip)
            y = flash_attention_by_blocks(*operands[:4], scale=scale, narrow=narrow, key_block=block, depth=depth)
        return (y.reshape(shape_of(self.output)),)

    def _depth(self, chip: ChipSpec) -> int:
        """How many products the chip's array adds up at once."""
        return array(chip, storage_dtype(element_of(self.output)).itemsize, self.dim.value.data).depth

    @override
    def macs(self) -> int:
        return self.function().multiplications([shape_of(self.queries), shape_of(self.keys)])

    @override
    def function(self) -> functions.FlashAttention:
        """The whole block of attention as one function."""
        return functions.FlashAttention(self.scale.value.data, mask=not is_none(self.mask))

    @override
    def emit(self, ctx: EmitContext) -> None:
        inputs = tuple(ctx.input(i) for i, value in enumerate(self.operands) if not is_none(value))
        function = self.function()
        if self.key_block is not None:
            function = replace(function, key_block=self.key_block.value.data, depth=self._depth(ctx.chip))
        ctx.emit(isa.Fn, function=function, inputs=inputs, output=ctx.output())


class Parts(NamedTuple):
    """The ops around the product of queries and keys that become one op together with it."""

    queries: TpuPermute
    keys: SSAValue
    values: SSAValue
    scaled: TpuMulConst
    masked: TpuAdd | None
    joined: TpuReshape


@dataclass
class ProductsAsFlashAttention(RewritePattern):
    """Permute, MatMul, MulConst, an optional Add of a mask, Softmax, MatMul, Permute, Reshape in 16 bits -> FAttention.

    The MulConst is required, and so are four keys or more and heads of at most 128 elements (U-26). Decision: all
    batches and heads must share one mask, because upstream's interpreter reads no other.
    """

    attention: OpT
    only_grouped: bool

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the product of queries and keys; the new op takes the name of the Reshape."""
        parts = _parts(op) if isinstance(op, TpuMatMul) else None
        if parts is None:
            return
        q, k = shape_of(parts.queries.input), shape_of(parts.keys)
        if self.only_grouped and q[2] == k[2]:
            return
        shape = shape_of(parts.joined.output)
        if k != shape_of(parts.values) or q[3] > LARGEST_HEAD or k[1] < FEWEST_KEYS:
            return
        none = make_none()
        mask = none.output if parts.masked is None else parts.masked.inputs[1]
        numbers = {"batch": q[0], "q_head": q[2], "kv_head": k[2], "dim": q[3], "mq": q[1], "mk": k[1]}
        made = self.attention.create(
            operands=[parts.queries.input, parts.keys, parts.values, mask, none.output],
            result_types=[parts.joined.output.type],
            attributes={
                "scale": parts.scaled.const_val,
                **{name: int_attr(number) for name, number in numbers.items()},
                "keep_dims": flag(len(shape) == len(q)),
            },
        )
        copy_name(made, parts.joined)
        inside = parts.joined.input.owner
        rewriter.replace(parts.joined, [none, made], [made.results[0]])
        erase_unused(inside, rewriter)


def _parts(op: TpuMatMul) -> Parts | None:
    """The ops around a product of queries and keys; None if one is missing or has another user."""
    if storage_dtype(element_of(op.output)).itemsize != 2 or not _is_plain(op):
        return None
    transposed = is_set(op.right_transpose)
    queries, keys = _heads_of(op.input, HEADS), _shared_heads(op.right, HEADS if transposed else COLUMNS_FIRST)
    scaled = only_user(op.output)
    if queries is None or keys is None or not isinstance(scaled, TpuMulConst) or relu_of(scaled):
        return None
    masked = only_user(scaled.output)
    softmax = masked
    if isinstance(masked, TpuAdd):
        if not _masks(masked, scaled.output):
            return None
        softmax = only_user(masked.output)
    mixed = only_user(softmax.output) if isinstance(softmax, TpuSoftmax) and _is_last(softmax) else None
    if not isinstance(softmax, TpuSoftmax) or not isinstance(mixed, TpuMatMul) or mixed.input is not softmax.output:
        return None
    values = _shared_heads(mixed.right, HEADS) if _is_plain(mixed) and not is_set(mixed.right_transpose) else None
    joined = _joined(mixed)
    if values is None or joined is None:
        return None
    return Parts(queries, keys, values, scaled, masked if isinstance(masked, TpuAdd) else None, joined)


def _is_plain(op: TpuMatMul) -> bool:
    return is_none(op.bias) and not relu_of(op) and not op.has_heads and not is_set(op.left_transpose)


def _heads_of(value: SSAValue, order: tuple[int, ...]) -> TpuPermute | None:
    """The Permute of this order that gives a value with one user."""
    op = value.owner
    if not isinstance(op, TpuPermute) or ints(op.order) != order or only_user(value) is None:
        return None
    return op


def _shared_heads(value: SSAValue, order: tuple[int, ...]) -> SSAValue | None:
    """The tensor (B, rows, heads, size) of which a value has each head one or several times, in this order of axes.

    Heads are repeated after the Permute of heads or before it, as exporters expand them.
    """
    permute = _heads_of(value, order)
    if permute is not None:
        return _unrepeated(permute.input, 2) or permute.input
    heads = _unrepeated(value, 1) if order == HEADS else None
    permute = None if heads is None else _heads_of(heads, HEADS)
    return None if permute is None else permute.input


def _unrepeated(value: SSAValue, axis: int) -> SSAValue | None:
    """The tensor whose elements along an axis a Tile between two Reshapes repeats one by one; None if none does."""
    joined = value.owner
    tile = joined.input.owner if isinstance(joined, TpuReshape) and only_user(value) is not None else joined
    if not isinstance(tile, TpuTile) or only_user(tile.output) is None:
        return None
    times, source = ints(tile.tile), tile.input
    split = source.owner
    if isinstance(split, TpuReshape) and only_user(source) is not None:
        source = split.input
    shape = shape_of(source)
    if len(shape) != 4 or not _repeats(times, shape_of(tile.input), shape, axis):  # noqa: PLR2004
        return None
    wide = (*shape[:axis], shape[axis] * prod(times), *shape[axis + 1 :])
    return source if shape_of(value) == wide else None


def _repeats(times: tuple[int, ...], tiled: Shape, shape: Shape, axis: int) -> bool:
    """Whether a Tile repeats each entry of `axis` on a new axis after it, or the only entry of the axis."""
    if tiled == (*shape[: axis + 1], 1, *shape[axis + 1 :]):
        return all(n == 1 for i, n in enumerate(times) if i != axis + 1)
    return tiled == shape and shape[axis] == 1 and all(n == 1 for i, n in enumerate(times) if i != axis)


def _masks(add: TpuAdd, scaled: SSAValue) -> bool:
    """Whether the second operand of an addition is one mask for all batches and heads."""
    first, *others = add.inputs
    shape = shape_of(scaled)
    return (
        first is scaled and not relu_of(add) and shape[0] == 1 and [shape_of(v) for v in others] == [(1, 1, *shape[2:])]
    )


def _is_last(op: TpuSoftmax) -> bool:
    plain = not is_set(op.log) and (op.beta is None or op.beta.value.data == 1.0)
    return plain and op.axis.value.data == len(shape_of(op.input)) - 1


def _joined(op: TpuMatMul) -> TpuReshape | None:
    """The Reshape after the Permute that moves the heads after the rows."""
    permute = only_user(op.output)
    if not isinstance(permute, TpuPermute) or ints(permute.order) != HEADS:
        return None
    reshape = only_user(permute.output)
    return reshape if isinstance(reshape, TpuReshape) else None
