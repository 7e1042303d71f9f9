"""A block of attention, from its linear layers to the layer of its result, becomes one `top.Attention`."""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeVar

from tpusim_kernels.prim.scale import symmetric_scale
from xdsl.dialects.builtin import ArrayAttr, NoneType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, floats_attr, int_attr, ints, op_name, text
from tpusim.ir.types import calibrated_range, shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import TopAdd
from tpusim.ops.const_binary import TopMulConst
from tpusim.ops.framework.base import OpT, TopOp, TpuOp
from tpusim.ops.framework.families import constant_of, is_set, only_user, relu_of
from tpusim.ops.matmul.product import COLUMNS_FIRST, HEADS
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.permute import TopPermute
from tpusim.ops.softmax import TopSoftmax
from tpusim.ops.structure import TopInput, make_none
from tpusim.ops.view import TopReshape

MOST_ROWS, MOST_WEIGHTS = 2048 * 320 * 4, 1024 * 128 * 4
"""Limits of a block (U-25): elements of one batch item of its input, and elements of the weights of one head."""
Found = TypeVar("Found", bound=Operation)


class Block(NamedTuple):
    """The ops of a block, from its linear layers to the product with the values."""

    queries: TopMatMul
    keys: TopMatMul
    values: TopMatMul
    scores: TopMatMul
    scaled: TopMulConst
    masked: TopAdd | None
    softmax: TopSoftmax
    mixed: TopMatMul


@dataclass
class ProductsAsAttention(RewritePattern):
    """MatMul by a constant of the joined heads of softmax(scale * (q x k^T) + mask) x v -> Attention.

    By U-25 q, k and v are products with constants, and every tensor in between has one user. The scale is required.
    A mask has one row for each batch item, the same for all heads and rows. Decision: the block stays if one of its ops
    has a relu or if a Permute of heads has another order than (0, 2, 1, 3); upstream checks neither.
    """

    weights: WeightStore
    attention: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last layer; the new op takes its name and range."""
        if not isinstance(op, TopMatMul) or only_user(op.output) is None or not self._is_layer(op):
            return
        block = self._block(op)
        if block is None or not _fits(block, op):
            return
        products = (block.queries, block.keys, block.values)
        absent = make_none()
        mask = absent.output if block.masked is None else block.masked.inputs[1]
        layers = [value for product in (*products, op) for value in (product.right, product.bias)]
        attributes: dict[str, Attribute] = {
            "head": int_attr(_heads(block)), "scale": block.scaled.const_val,
            "read_by": ArrayAttr([text(op_name(product)) for product in products]),
        }  # fmt: skip
        if (scales := _scales(block)) is not None:
            attributes["scale_param"] = floats_attr(scales)
        made = self.attention.create(
            operands=[*(product.input for product in products), *layers, mask], result_types=[op.output.type],
            attributes=attributes,
        )  # fmt: skip
        copy_name(made, op)
        inside = op.input.owner
        rewriter.replace(op, [absent, made] if block.masked is None else [made], [made.results[0]])
        erase_unused(inside, rewriter)

    def _is_layer(self, op: Operation) -> bool:
        """Whether an op is a plain product of rank 3 with a constant matrix; its bias, if any, is constant too."""
        if not isinstance(op, TopMatMul) or relu_of(op) or any((*op.transposes, op.has_heads)):
            return False
        biased = isinstance(op.bias.type, NoneType) or constant_of(op.bias, self.weights) is not None
        matrix = constant_of(op.right, self.weights)
        return biased and matrix is not None and matrix.ndim == 2 and len(shape_of(op.input)) == 3

    def _block(self, op: TopMatMul) -> Block | None:
        """The ops before the last layer, if they are a block of attention."""
        mixed = _plain(_before_heads(op.input))
        softmax = None if mixed is None else _used_once(mixed.input, TopSoftmax)
        if mixed is None or softmax is None or softmax.axis.value.data != len(shape_of(softmax.input)) - 1:
            return None
        masked = softmax.input.owner if isinstance(softmax.input.owner, TopAdd) else None
        if masked is not None and not _masks(masked, shape_of(op.input)[0]):
            return None
        scaled = _used_once(softmax.input if masked is None else masked.inputs[0], TopMulConst)
        scores = None if scaled is None or relu_of(scaled) else _plain(scaled.input, transposed=True)
        if scaled is None or scores is None:
            return None
        transposed = is_set(scores.right_transpose)
        keys = self._split(scores.right, HEADS) if transposed else self._turned(scores.right)
        queries, values = self._split(scores.input, HEADS), self._split(mixed.right, HEADS)
        if queries is None or keys is None or values is None:
            return None
        return Block(queries, keys, values, scores, scaled, masked, softmax, mixed)

    def _turned(self, value: SSAValue) -> TopMatMul | None:
        """The linear layer of a transposed right operand: one Permute does both, or a second one transposes."""
        permute = _used_once(value, TopPermute)
        if permute is not None and ints(permute.order) == (0, 2, 1):
            return self._split(permute.input, HEADS)
        return self._split(value, COLUMNS_FIRST)

    def _split(self, value: SSAValue, order: tuple[int, ...]) -> TopMatMul | None:
        """The linear layer whose result becomes `value` by Reshape, Permute by `order` and perhaps another Reshape."""
        joined = _used_once(value, TopReshape)
        permute = _used_once(value if joined is None else joined.input, TopPermute)
        if permute is None or ints(permute.order) != order or len(shape_of(value)) not in (3, 4):
            return None
        reshape = _used_once(permute.input, TopReshape)
        layer = None if reshape is None else reshape.input.owner
        return layer if isinstance(layer, TopMatMul) and self._is_layer(layer) else None


def _used_once(value: SSAValue, cls: type[Found]) -> Found | None:
    """The op of that class that makes a value, if only one op reads the value."""
    return value.owner if isinstance(value.owner, cls) and only_user(value) is not None else None


def _plain(value: SSAValue | None, *, transposed: bool = False) -> TopMatMul | None:
    """The product without bias and relu that makes a value; transposed: its right operand may be transposed."""
    op = None if value is None else value.owner
    if not isinstance(op, TopMatMul) or relu_of(op) or op.has_heads or is_set(op.left_transpose):
        return None
    return op if isinstance(op.bias.type, NoneType) and (transposed or not is_set(op.right_transpose)) else None


def _before_heads(value: SSAValue) -> SSAValue | None:
    """The tensor (batch, heads, rows, size) that Permute and Reshape turn into `value` (batch, rows, heads * size).

    Batch and heads may be one axis of that tensor.
    """
    reshape = _used_once(value, TopReshape)
    permute = None if reshape is None else _used_once(reshape.input, TopPermute)
    if permute is None or ints(permute.order) != HEADS:
        return None
    parted = permute.input.owner
    return parted.input if isinstance(parted, TopReshape) and only_user(parted.output) is not None else permute.input


def _masks(add: TopAdd, batch: int) -> bool:
    """Whether the second operand of an addition has exactly one row for each batch item."""
    if len(add.inputs) != 2 or relu_of(add):
        return False
    shape = shape_of(add.inputs[1])
    return bool(shape) and batch * shape[-1] == prod(shape) and shape[-1] == shape_of(add.output)[-1]


def _heads(block: Block) -> int:
    first, second, *rest = shape_of(block.mixed.output)
    return second if len(rest) == 2 else first // shape_of(block.queries.input)[0]


def _fits(block: Block, op: TopMatMul) -> bool:
    """Whether the inputs and the size of a block are within the limits of U-25.

    Decision: heads that share keys or values stay in parts. TPU-MLIR gives each head a part of their columns.
    """
    q, k, v = (product.input for product in (block.queries, block.keys, block.values))
    batch = shape_of(q)[0]
    if (q is k and q is not v) or any(shape_of(x)[0] != batch for x in (k, v)) or shape_of(op.input)[0] != batch:
        return False
    products = (block.queries, block.keys, block.values)
    if len({shape_of(p.right)[1] for p in products}) > 1:
        return False
    weights = [prod(shape_of(p.right)) for p in products]
    few = prod(shape_of(q)) // batch <= MOST_ROWS
    return few and (2 * weights[0] + weights[1] + weights[2]) // _heads(block) <= MOST_WEIGHTS


def _scales(block: Block) -> tuple[float, ...] | None:
    """Symmetric scales of queries, keys, values, scores, scaled scores, weights and mixed values, as calibrated."""
    ops = (block.queries, block.keys, block.values, block.scores, block.scaled, block.softmax, block.mixed)
    ranges = [calibrated_range(op.output) for op in ops]
    if any(r is None or r == (0.0, 0.0) for r in ranges):
        return None
    return tuple(symmetric_scale(*r)[0] for r in ranges if r is not None)


def erase_unused(op: object, rewriter: PatternRewriter) -> None:
    """Erase an op if no op reads its results, then the ops before it that lost their last user."""
    if not isinstance(op, TopOp | TpuOp) or isinstance(op, TopInput) or any(r.first_use for r in op.results):
        return
    sources = {id(v.owner): v.owner for v in op.operands}
    rewriter.erase(op)
    for source in sources.values():
        erase_unused(source, rewriter)
