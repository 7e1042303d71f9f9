"""Linear layers, products of heads, softmax and the layer behind them: one `top.Attention`."""

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
"""Elements of one batch of the input, and of the weights of one head, above which a block stays as it is (U-25)."""
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
    """MatMul of a constant behind the heads of softmax(scale * (q x k^T) + mask) x v -> Attention.

    By U-25 q, k and v are products with constants; what is in between is used once. The scale must be there; a
    mask has one row for all heads and rows of a batch. Decision: not with a relu in any of them, nor where heads are
    parted otherwise than by (0, 2, 1, 3), which upstream does not look at.
    """

    weights: WeightStore
    attention: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the layer behind the heads; the block has its name and range."""
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
        """A plain product of three axes with a constant matrix and no bias but a constant one."""
        if not isinstance(op, TopMatMul) or relu_of(op) or any((*op.transposes, op.has_heads)):
            return False
        biased = isinstance(op.bias.type, NoneType) or constant_of(op.bias, self.weights) is not None
        matrix = constant_of(op.right, self.weights)
        return biased and matrix is not None and matrix.ndim == 2 and len(shape_of(op.input)) == 3

    def _block(self, op: TopMatMul) -> Block | None:
        """What is in front of the last layer, if it is a block of attention."""
        mixed = _plain(_behind_heads(op.input))
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
        """The linear layer of a transposed right operand: by one Permute, or by a second for three axes."""
        permute = _used_once(value, TopPermute)
        if permute is not None and ints(permute.order) == (0, 2, 1):
            return self._split(permute.input, HEADS)
        return self._split(value, COLUMNS_FIRST)

    def _split(self, value: SSAValue, order: tuple[int, ...]) -> TopMatMul | None:
        """The linear layer whose result's heads `value` has in front of the rows: Reshape, Permute, maybe a Reshape."""
        joined = _used_once(value, TopReshape)
        permute = _used_once(value if joined is None else joined.input, TopPermute)
        if permute is None or ints(permute.order) != order or len(shape_of(value)) not in (3, 4):
            return None
        reshape = _used_once(permute.input, TopReshape)
        layer = None if reshape is None else reshape.input.owner
        return layer if isinstance(layer, TopMatMul) and self._is_layer(layer) else None


def _used_once(value: SSAValue, cls: type[Found]) -> Found | None:
    """The op of that class that gives a value which only one op reads."""
    return value.owner if isinstance(value.owner, cls) and only_user(value) is not None else None


def _plain(value: SSAValue | None, *, transposed: bool = False) -> TopMatMul | None:
    """The product of two activations that gives a value, without bias and relu; transposed: the right one may be."""
    op = None if value is None else value.owner
    if not isinstance(op, TopMatMul) or relu_of(op) or op.has_heads or is_set(op.left_transpose):
        return None
    return op if isinstance(op.bias.type, NoneType) and (transposed or not is_set(op.right_transpose)) else None


def _behind_heads(value: SSAValue) -> SSAValue | None:
    """What Permute and Reshape bring from (batch, heads, rows, size) to (batch, rows, heads * size).

    Batch and heads may be one axis before.
    """
    reshape = _used_once(value, TopReshape)
    permute = None if reshape is None else _used_once(reshape.input, TopPermute)
    if permute is None or ints(permute.order) != HEADS:
        return None
    parted = permute.input.owner
    return parted.input if isinstance(parted, TopReshape) and only_user(parted.output) is not None else permute.input


def _masks(add: TopAdd, batch: int) -> bool:
    """Whether an addition's second operand has one row for every batch."""
    if len(add.inputs) != 2 or relu_of(add):
        return False
    shape = shape_of(add.inputs[1])
    return bool(shape) and batch * shape[-1] == prod(shape) and shape[-1] == shape_of(add.output)[-1]


def _heads(block: Block) -> int:
    first, second, *rest = shape_of(block.mixed.output)
    return second if len(rest) == 2 else first // shape_of(block.queries.input)[0]


def _fits(block: Block, op: TopMatMul) -> bool:
    """Whether a block may have these inputs and this size (U-25)."""
    q, k, v = (product.input for product in (block.queries, block.keys, block.values))
    batch = shape_of(q)[0]
    if (q is k and q is not v) or any(shape_of(x)[0] != batch for x in (k, v)) or shape_of(op.input)[0] != batch:
        return False
    weights = [prod(shape_of(p.right)) for p in (block.queries, block.keys, block.values)]
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
    """Erase an op whose results nobody reads, then the ops before it that nobody reads any more."""
    if not isinstance(op, TopOp | TpuOp) or isinstance(op, TopInput) or any(r.first_use for r in op.results):
        return
    sources = {id(v.owner): v.owner for v in op.operands}
    rewriter.erase(op)
    for source in sources.values():
        erase_unused(source, rewriter)
