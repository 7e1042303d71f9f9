"""Attention in a lowered module: the Permutes of heads before and after products become part of the products.

TPU-MLIR rewrites it so (U-29). Products read and write heads inside, as (batch, rows, heads, columns). The Permute
after a product moves past the ops up to the next product, which takes it in, or up to a Permute that undoes it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, flag, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype, tensor_of
from tpusim.ir.upstream import ir_name
from tpusim.ir.weights import WeightStore
from tpusim.ops.activation.tpu import TpuActive
from tpusim.ops.add import TpuAdd
from tpusim.ops.cast import TpuCast
from tpusim.ops.const_binary.tpu import TpuAddConst, TpuMulConst
from tpusim.ops.framework.base import OpT, is_none
from tpusim.ops.framework.families import constant_of, is_set, only_user
from tpusim.ops.matmul.product import COLUMNS_FIRST, HEADS, Product
from tpusim.ops.permute import TpuPermute, permuted
from tpusim.ops.relu import TpuRelu
from tpusim.ops.rescale import TpuMulShift, TpuRequantInt
from tpusim.ops.softmax import TpuSoftmax
from tpusim.ops.structure import TopWeight, make_weight

ELEMENTWISE = (TpuCast, TpuMulConst, TpuAddConst, TpuMulShift, TpuRelu, TpuRequantInt, TpuActive)
ALWAYS = (TpuCast, TpuMulConst, TpuMulShift, TpuSoftmax)
"""Ops that the Permute moves past whatever follows: a store may then do its work."""
SUFFIX = "_hdim_is_batch"
"""The end of the name of a tensor whose heads are inside: it differs from the tensor of the network."""
TRANSPOSED = "_trans"
"""The end of the name of a product with a number that is now computed before its operand is transposed."""


@dataclass
class HeadsIntoProduct(RewritePattern):
    """Permute by (0, 2, 1, 3) -> MatMul <- Permute by (0, 2, 1, 3) or (0, 2, 3, 1), used once: heads inside.

    A Permute by (0, 2, 1, 3) after the product restores its result. Not in f32, which has no such form.
    """

    product: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the MatMul."""
        if not isinstance(op, self.product) or not isinstance(op, Product) or not _takes_heads(op):
            return
        left, right = _permute_of(op.input), _permute_of(op.right)
        assert left is not None  # checked by _takes_heads
        assert right is not None
        transposed = is_set(op.right_transpose) != (ints(right.order) == COLUMNS_FIRST)
        op.attributes |= {ir_name(op, "heads_inside"): flag(True), "hdim_is_batch": flag(True)}
        op.attributes["right_transpose"] = flag(transposed)
        op.operands[0], op.operands[1] = left.input, right.input
        rewriter.erase(left)
        rewriter.erase(right)
        _exchange(op, rewriter)


def _move_on(op: Operation, rewriter: PatternRewriter, passes: Callable[[Operation], bool]) -> None:
    """Put the only user of a Permute of heads before it, if it works by rows and `passes`; two Permutes cancel out."""
    if not isinstance(op, TpuPermute) or ints(op.order) != HEADS:
        return
    user = only_user(op.output)
    if isinstance(user, TpuPermute) and ints(user.order) == HEADS:
        _cancel(op, user, rewriter)
    elif user is not None and _by_rows(user, op.output) and passes(user):
        user.operands[list(user.operands).index(op.output)] = op.input
        rewriter.erase(op)
        _exchange(user, rewriter)


@dataclass
class PermuteAfterRows(RewritePattern):
    """Permute by (0, 2, 1, 3) -> op by rows used once: the op, then the Permute, which a product or store may take in.

    The Permute moves past casts, products with one number and softmax in any case, and past other ops only if a product
    or another Permute follows. Two successive Permutes cancel out.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute."""
        _move_on(op, rewriter, lambda user: isinstance(user, ALWAYS) or _ends_inside(user))


@dataclass
class PermuteAddWeightReorderPattern(RewritePattern):
    """Permute by (0, 2, 1, 3) -> Add of a constant of four axes, both used once: the Permute last, the constant turned.

    So the causal mask of attention does not keep heads and rows apart.
    """

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute."""
        user = only_user(op.output) if isinstance(op, TpuPermute) and ints(op.order) == HEADS else None
        if not isinstance(user, TpuAdd) or len(user.inputs) != 2 or only_user(user.output) is None:
            return
        constant = constant_of(user.inputs[1], self.weights)
        if constant is None or constant.ndim != len(HEADS) or user.inputs[0] is not op.results[0]:
            return
        name, element = f"{op_name(user)}_transposed_add_weight", element_of(user.inputs[1])
        turned = make_weight(self.weights, name, constant.transpose(HEADS), element)
        rewriter.insert(turned, InsertPoint.before(user))
        old = user.inputs[1].owner
        user.operands[0], user.operands[1] = op.operands[0], turned.output
        rewriter.erase(op)
        if isinstance(old, TopWeight) and old.output.first_use is None:
            rewriter.erase(old)
        _exchange(user, rewriter, HEADS, f"_{TRANSPOSED}")


@dataclass
class PermuteAfterUser(RewritePattern):
    """Permute by (0, 2, 1, 3) -> op by elements or rows, both used once: the op, then the Permute, whatever follows.

    Two successive Permutes cancel out.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute."""
        kinds = (*ELEMENTWISE, TpuSoftmax)
        _move_on(op, rewriter, lambda user: isinstance(user, kinds) and only_user(user.results[0]) is not None)


@dataclass
class PermuteMulconstSwap(RewritePattern):
    """Permute by (0, 2, 3, 1) -> product with a number, used once -> MatMul of a left Permute: the product first.

    The MatMul can then take the Permute in. Attention that multiplies queries and keys each by the root of its factor
    has such products.
    """

    product: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute."""
        if not isinstance(op, TpuPermute) or ints(op.order) != COLUMNS_FIRST:
            return
        user = only_user(op.output)
        matmul = only_user(user.results[0]) if isinstance(user, TpuMulConst | TpuMulShift) else None
        if user is None or not isinstance(matmul, self.product) or not isinstance(matmul, Product):
            return
        if isinstance(matmul.input.owner, TpuPermute):
            user.operands[0] = op.input
            rewriter.erase(op)
            _exchange(user, rewriter, COLUMNS_FIRST, TRANSPOSED)


def _takes_heads(op: Product) -> bool:
    """Whether both operands come from Permutes of heads that only this product reads; not in f32."""
    left, right = _permute_of(op.input), _permute_of(op.right)
    if left is None or right is None or op.has_heads or is_set(op.left_transpose) or ints(left.order) != HEADS:
        return False
    small = storage_dtype(element_of(op.input)).itemsize < 4
    return small and shape_of(op.input)[:2] == shape_of(op.right)[:2]


def _permute_of(value: SSAValue) -> TpuPermute | None:
    """The Permute of heads that only one op reads."""
    op = value.owner
    if not isinstance(op, TpuPermute) or ints(op.order) not in (HEADS, COLUMNS_FIRST):
        return None
    return op if only_user(value) is not None else None


def _by_rows(op: Operation, value: SSAValue) -> bool:
    """Whether an op computes every row or element of its result from that of `value` and constants alone."""
    if isinstance(op, TpuAdd):
        return len(op.operands) == 2 and _mask_of(op, value) is not None
    if isinstance(op, TpuSoftmax) and op.axis.value.data != len(HEADS) - 1:
        return False
    others = [v for v in op.operands if v is not value]
    constant = all(is_none(v) or isinstance(v.owner, TopWeight) for v in others)
    return isinstance(op, (*ELEMENTWISE, TpuSoftmax)) and constant


def _mask_of(op: Operation, value: SSAValue) -> SSAValue | None:
    """The other operand of a sum, if it is the same for all heads and rows."""
    other = next((v for v in op.operands if v is not value), None)
    if other is None or not is_tensor(other) or len(shape_of(other)) != len(HEADS):
        return None
    return other if shape_of(other)[1:3] == (1, 1) else None


def _ends_inside(op: Operation) -> bool:
    """Whether ops by rows lead from `op` to a Permute that undoes the first, or to the left operand of a product."""
    value = op.results[0]
    user = only_user(value)
    if isinstance(user, TpuPermute):
        return ints(user.order) == HEADS
    if isinstance(user, Product):
        right = _permute_of(user.right)
        return user.input is value and right is not None and not user.has_heads and not is_set(user.left_transpose)
    return user is not None and _by_rows(user, value) and _ends_inside(user)


def _cancel(first: TpuPermute, second: TpuPermute, rewriter: PatternRewriter) -> None:
    """Replace two Permutes that undo each other by the operand of the first, which takes the name of the second."""
    source = first.input.owner
    if isinstance(source, Operation) and only_user(first.input) is not None:
        copy_name(source, second)
    rewriter.replace(second, [], [first.input])
    rewriter.erase(first)


def _exchange(op: Operation, rewriter: PatternRewriter, order: tuple[int, ...] = HEADS, suffix: str = SUFFIX) -> None:
    """Let an op compute before a Permute by `order`, which follows it and takes its name; suffix: ends its new name."""
    old = tensor_of(op.results[0])
    moved = TpuPermute.create(
        operands=[op.results[0]], result_types=[old], attributes={"order": ints_attr(order)}
    )  # fmt: skip
    copy_name(moved, op)
    set_op_name(op, op_name(op) + suffix)
    before = tuple(order.index(axis) for axis in range(len(order)))
    exchanged = TensorType(element_of(op.results[0]), permuted(shape_of(op.results[0]), before))
    value = rewriter.replace_value_with_new_type(op.results[0], exchanged)
    rewriter.insert(moved, InsertPoint.after(op))
    value.replace_uses_with_if(moved.output, lambda use: use.operation is not moved)
    rewriter.notify_op_modified(op)
