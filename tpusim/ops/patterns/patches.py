"""A convolution whose windows tile the image becomes a product of patches and filters: the first layer of a ViT."""

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, flag, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands.window import MOST_STEPS
from tpusim.ops.conv import TopConv
from tpusim.ops.framework.base import OpT, Shape
from tpusim.ops.framework.families import constant_of, relu_attributes, relu_of
from tpusim.ops.permute import TopPermute, permuted
from tpusim.ops.structure import make_weight
from tpusim.ops.view import TopReshape

MOST_CHANNELS, LEAST_PATCH = 3, 14
TO_ROWS = (0, 2, 4, 1, 3, 5)
"""(n, c, rows, kh, columns, kw) to (n, rows, columns, c, kh, kw)."""


@dataclass
class PatchesAsProduct(RewritePattern):
    """Conv of few channels whose large windows tile the image -> Reshape, Permute, Reshape, MatMul, Permute, Reshape.

    Every patch becomes a row. In INT8 all filters then share one scale. Decision: not with pads or a relu, which
    upstream loses.
    """

    weights: WeightStore
    matmul: OpT
    below: int
    """A convolution with so many rows or columns in its window, or more, stays."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The result keeps its name and range; the patches have the input's range, the product the result's."""
        data = constant_of(op.filter, self.weights) if isinstance(op, TopConv) else None
        if not isinstance(op, TopConv) or data is None or not self._splits(op):
            return
        steps = _Steps(op)
        n, channels, height, width = shape_of(op.input)
        kh, kw = ints(op.kernel_shape)
        filters, rows, columns = len(data), height // kh, width // kw
        x = steps.view(op.input, (n, channels, rows, kh, columns, kw), "_0")
        x = steps.permute(x, TO_ROWS, "_2")
        x = steps.view(x, (n, rows * columns, prod(data.shape[1:])), "_3")
        matrix = make_weight(self.weights, f"{op_name(op)}_4", data.reshape(filters, -1))
        steps.ops.append(matrix)
        element = element_of(op.output)
        x = steps.add(
            self.matmul,
            [x, matrix.output, op.bias],
            _product(right_transpose=True),
            (n, rows * columns, filters),
            "_6",
            element,
        )
        x = steps.permute(x, (0, 2, 1), "_7")
        steps.view(x, shape_of(op.output), "")
        copy_name(steps.ops[-1], op)
        rewriter.replace(op, steps.ops)

    def _splits(self, op: TopConv) -> bool:
        """Whether the number of channels and the extents of the window are within the limits of U-27."""
        kernel, channels = ints(op.kernel_shape), shape_of(op.input)[1]
        large = min(kernel) >= LEAST_PATCH and max(kernel) < self.below
        return channels <= MOST_CHANNELS and large and _is_of_patches(op)


@dataclass
class WidePatchesAsProduct(RewritePattern):
    """Conv whose windows, above 15 x 15, tile the image -> Reshape, Permute, Permute, Reshape, MatMul, Permute.

    Decision: not with several groups or a relu, which upstream loses.
    """

    weights: WeightStore
    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The result keeps its name and range; the patches have the input's range, the product the result's."""
        data = constant_of(op.filter, self.weights) if isinstance(op, TopConv) else None
        if not isinstance(op, TopConv) or data is None or not _is_of_patches(op):
            return
        (kh, kw), (n, channels, height, width), filters = ints(op.kernel_shape), shape_of(op.input), len(data)
        if min(kh, kw) <= MOST_STEPS:
            return
        steps, rows, columns = _Steps(op), height // kh, width // kw
        x = steps.view(op.input, (n, channels, rows, kh, columns, kw), "_reshape0")
        x = steps.permute(x, (0, 1, 2, 4, 3, 5), "_permute0")
        x = steps.permute(x, (0, 2, 3, 1, 4, 5), "_permute1")
        x = steps.view(x, (n, rows, columns, channels * kh * kw), "_reshape1")
        matrix = make_weight(self.weights, f"{op_name(op)}_filter", data.reshape(filters, -1).T)
        steps.ops.append(matrix)
        x = steps.add(
            self.matmul, [x, matrix.output, op.bias], _product(right_transpose=False), (n, rows, columns, filters),
            "_matmul", element_of(op.output),
        )  # fmt: skip
        steps.permute(x, (0, 3, 1, 2), "")
        copy_name(steps.ops[-1], op)
        rewriter.replace(op, steps.ops)


def _is_of_patches(op: TopConv) -> bool:
    """Whether the windows tile an image without overlap, in one group and without a relu."""
    x, kernel, geometry = shape_of(op.input), ints(op.kernel_shape), op.geometry
    if len(x) != 4 or relu_of(op) or op.inserts is not None:
        return False
    plain = (geometry["groups"], geometry["dilations"]) == (1, (1, 1))
    apart = geometry["strides"] == kernel and not any(geometry["pads"])
    return plain and apart and x[2] % kernel[0] == 0 and x[3] % kernel[1] == 0


def _product(*, right_transpose: bool) -> dict[str, Attribute]:
    """Attributes of the product; its right matrix has a column for each filter, or a row if transposed."""
    return {"left_transpose": flag(False), "right_transpose": flag(right_transpose), **relu_attributes()}


class _Steps:
    """The ops that replace a convolution, each named after it."""

    def __init__(self, conv: TopConv) -> None:
        self.ops: list[Operation] = []
        self._name = op_name(conv)

    def add(
        self, cls: OpT, operands: list[SSAValue], attributes: dict[str, Attribute], shape: Shape, end: str,
        element: Attribute,
    ) -> SSAValue:  # fmt: skip
        """Append an op and return its result."""
        op = cls.create(operands=operands, result_types=[TensorType(element, shape)], attributes=attributes)
        set_op_name(op, self._name + end)
        self.ops.append(op)
        return op.results[0]

    def view(self, x: SSAValue, shape: Shape, end: str) -> SSAValue:
        """Append a Reshape to these extents."""
        return self.add(TopReshape, [x], {"shape": ints_attr(shape)}, shape, end, element_of(x))

    def permute(self, x: SSAValue, order: Shape, end: str) -> SSAValue:
        """Append a Permute by this order."""
        return self.add(TopPermute, [x], {"order": ints_attr(order)}, permuted(shape_of(x), order), end, element_of(x))
