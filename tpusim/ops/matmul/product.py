"""What matrix products of both dialects share: operands, transposes, shapes (numerics.md 9.2)."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import BoolAttr, FloatAttr, NoneType, TensorType
from xdsl.irdl import operand_def, opt_attr_def, result_def

from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import Array, Shape, ShapedOp, is_none
from tpusim.ops.framework.families import broadcast_shape, is_set
from tpusim.ops.permute import permuted

HEADS = (0, 2, 1, 3)
"""The order of axes that exchanges heads and rows: (B, H, M, N) to (B, M, H, N) and back."""
COLUMNS_FIRST = (0, 2, 3, 1)
"""The order of axes from (B, N, H, K) to (B, H, K, N), the right operand transposed."""


def product_shape(left: Shape, right: Shape, transposes: tuple[bool, bool], bias: Shape | None) -> Shape:
    """(..., M, N) for (..., M, K) x (..., K, N), each transposed on request. Raises ValueError if they do not fit."""
    if len(left) < 2 or len(right) < 2:
        raise ValueError(f"operands of rank 2 or more are required, got {left} and {right}")
    m, k = left[-2:][::-1] if transposes[0] else left[-2:]
    inner, n = right[-2:][::-1] if transposes[1] else right[-2:]
    if k != inner:
        raise ValueError(f"equal inner extents are required, got {left} x {right} (after the transposes)")
    if bias is not None and prod(bias) != n:
        raise ValueError(f"a bias of {n} elements is required, got {bias}")
    return (*broadcast_shape([left[:-2], right[:-2]]), m, n)


class Exchanged(NamedTuple):
    """Which of the three tensors are stored in the order `HEADS`: (B, rows, heads, columns)."""

    left: bool
    right: bool
    output: bool


class Product(ShapedOp):
    """(..., M, K) x (..., K, N) + bias (N,); an operand may be transposed.

    hdim_is_batch: all tensors have four axes. left_transpose, right_transpose and output_transpose then mean that heads
    and rows are exchanged: (B, M, H, K) for (B, H, M, K), (B, K, H, N) for (B, H, K, N), (B, M, H, N) for (B, H, M, N).
    """

    input = operand_def(TensorType)
    right = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    left_transpose = opt_attr_def(BoolAttr)
    right_transpose = opt_attr_def(BoolAttr)
    output_transpose = opt_attr_def(BoolAttr)
    hdim_is_batch = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def transposes(self) -> tuple[bool, bool]:
        """Whether (left, right) have their last two axes exchanged."""
        plain = not self.heads_of_each
        return plain and is_set(self.left_transpose), plain and is_set(self.right_transpose)

    @property
    def exchanged(self) -> Exchanged:
        """Which tensors have heads and rows exchanged."""
        heads = self.heads_of_each
        stated = (self.left_transpose, self.right_transpose, self.output_transpose)
        return Exchanged(*(heads and is_set(attribute) for attribute in stated))

    @property
    def heads_of_each(self) -> bool:
        """Whether the op says of each tensor if its heads and rows are exchanged."""
        return is_set(self.hdim_is_batch)

    @property
    def has_heads(self) -> bool:
        """Whether tensors may have heads and rows exchanged (`hdim_is_batch`)."""
        return is_set(self.hdim_is_batch)

    @property
    def inner(self) -> int:
        """K, the length of the sums."""
        return shape_of(self.input)[-2 if self.transposes[0] else -1]

    def shape_of_product(self, bias: Shape | None) -> Shape:
        """The stored shape of the result. Raises ValueError if the operands do not fit."""
        left, right = shape_of(self.input), shape_of(self.right)
        if is_set(self.output_transpose) and not is_set(self.hdim_is_batch):
            raise ValueError("output_transpose requires hdim_is_batch, which is not set; put a Permute after it")
        if self.has_heads:
            left, right = self._heads(left, right)
        shape = product_shape(left, right, self.transposes, bias)
        return permuted(shape, HEADS) if self.exchanged.output else shape

    def _heads(self, left: Shape, right: Shape) -> tuple[Shape, Shape]:
        """The shapes as (B, H, rows, columns). Raises ValueError without four axes, or if batches or heads differ."""
        if (len(left), len(right)) != (4, 4):
            raise ValueError(f"hdim_is_batch requires operands of four axes, got {left} and {right}")
        left = permuted(left, HEADS) if self.exchanged.left else left
        right = permuted(right, HEADS) if self.exchanged.right else right
        if left[:2] != right[:2]:
            raise ValueError(
                f"hdim_is_batch requires equal batches and heads of both operands, got {left[:2]} and {right[:2]}"
            )
        return left, right

    def factors(self, operands: Sequence[Array]) -> tuple[Array, Array]:
        """Both operands with heads before rows."""
        x, w, *_ = operands
        exchanged = self.exchanged
        return x.transpose(HEADS) if exchanged.left else x, w.transpose(HEADS) if exchanged.right else w

    def stored(self, y: Array) -> Array:
        """The product in the stored order of the result."""
        return y.transpose(HEADS) if self.exchanged.output else y

    def bias_shape(self) -> Shape | None:
        """The shape of the bias; None without a bias."""
        return None if is_none(self.bias) else shape_of(self.bias)
