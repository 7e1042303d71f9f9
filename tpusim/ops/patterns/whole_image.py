"""A convolution whose only window is the whole image becomes a product of images and filters."""

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, flag, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv import TpuConv2D
from tpusim.ops.framework.base import OpT, Shape
from tpusim.ops.framework.families import constant_of
from tpusim.ops.structure import TopWeight, make_weight
from tpusim.ops.view import TpuReshape

SUFFIX = "_conv2matmul"


@dataclass
class WholeImageAsProduct(RewritePattern):
    """Conv2D of one group, without pads, whose kernel has the extents of its image -> Reshape, MatMul, Reshape.

    The input becomes (1, n, c*kh*kw), a row for each batch item, and each filter a row of the right matrix. The product
    takes a relu over.
    """

    weights: WeightStore
    product: OpT
    types: tuple[str, ...]
    """Float types in which the compiler of the chip does so."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The result keeps its name; a product that a view turns into the image is read without the view.

        TPU-MLIR erases a view and a filter that nothing reads any more.
        """
        data = constant_of(op.filter, self.weights) if isinstance(op, TpuConv2D) else None
        if not isinstance(op, TpuConv2D) or data is None or not self._is_whole(op):
            return
        element, name = element_of(op.output), op_name(op)
        batch, inner, count = shape_of(op.input)[0], prod(data.shape[1:]), len(data)
        rows, results = (1, batch, inner), (1, batch, count)
        matrix = make_weight(self.weights, f"{name}_matrix", data.reshape(1, count, inner), element_of(op.filter))
        left = _rows_of(op.input, rows)
        views = [] if left is not None else [_view(op.input, rows, f"{name}_rows")]
        attributes = {key: op.attributes[key] for key in ("do_relu", "relu_limit") if key in op.attributes}
        product = self.product.create(
            operands=[left or views[0].output, matrix.output, op.bias],
            result_types=[TensorType(element, results)],
            attributes=attributes | {"left_transpose": flag(False), "right_transpose": flag(True)},
        )
        set_op_name(product, name + SUFFIX)
        last = _view(product.results[0], shape_of(op.output), name)
        copy_name(last, op)
        unused = [op.filter.owner, *([op.input.owner] if left is not None else [])]
        rewriter.replace(op, [matrix, *views, product, last])
        for maker in unused:
            if isinstance(maker, TopWeight | TpuReshape) and not maker.output.uses:
                rewriter.erase(maker)

    def _is_whole(self, op: TpuConv2D) -> bool:
        """Whether the window is the whole image, in one of the types."""
        x, geometry = shape_of(op.input), op.geometry
        alone = geometry["groups"] == 1 and geometry["dilations"] == (1, 1) and op.inserts is None and not op.packed
        whole = tuple(x[2:]) == ints(op.kernel_shape) and not any(geometry["pads"])
        return alone and whole and str(element_of(op.input)) in self.types and str(element_of(op.output)) in self.types


def _rows_of(value: SSAValue, shape: Shape) -> SSAValue | None:
    """The operand of the view that makes the image, if it has that shape."""
    owner = value.owner
    return owner.input if isinstance(owner, TpuReshape) and shape_of(owner.input) == shape else None


def _view(value: SSAValue, shape: Shape, name: str) -> TpuReshape:
    op = TpuReshape.create(
        operands=[value], result_types=[TensorType(element_of(value), shape)], attributes={"shape": ints_attr(shape)}
    )
    set_op_name(op, name)
    return op
