"""What `top.Conv` and `top.Deconv` share: operands, attributes, and the operands of their tpu ops."""

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, NoneType, TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import ints, value_name
from tpusim.ops.framework.base import LoweringContext, Shape, TopOp, is_none


class ConvTop(TopOp):
    """Input (n, ic, axes ...), filter (oc, ic/group, kernel axes ...), bias (oc,) or none."""

    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def volume(self) -> bool:
        """Whether the kernel has three axes, so that the convolution is 3-D."""
        return len(ints(self.kernel_shape)) == 3

    def constants(self, ctx: LoweringContext) -> tuple[np.ndarray, np.ndarray | None] | None:
        """(filter, bias or None); None if either is computed."""
        w, bias = ctx.array(self.filter), None if is_none(self.bias) else ctx.array(self.bias)
        return None if w is None or (bias is None and not is_none(self.bias)) else (w, bias)

    def integer_operands(
        self, ctx: LoweringContext, filter: np.ndarray, bias: np.ndarray | None, kind: str
    ) -> list[SSAValue]:
        """Input bytes, and filter and bias as weights; kind: "int16" or "int32", the type of the bias."""
        name = value_name(self.filter)
        operands = [ctx.operand(self.input, "int8", self), ctx.weight(name + "_int8", filter)]
        return [*operands, ctx.none() if bias is None else ctx.weight(f"{name}_bias_{kind}", bias)]

    def float_operands(self, ctx: LoweringContext) -> tuple[list[SSAValue], Attribute]:
        """(input, filter, bias; element type of the result), the bias in f32 (numerics.md 9.1).

        All in f32 if the filter is computed, but on a chip whose only float is BF16: that computes in it whatever the
        filter is, with a computed bias in BF16.
        """
        constant_bias = is_none(self.bias) or ctx.array(self.bias) is not None
        own = self.constants(ctx) is not None or ctx.chip.bf16_unit
        mode, element = (ctx.float_mode(self), ctx.float_type(self)) if own else ("f32", f32)
        bias_mode = "f32" if constant_bias or not ctx.chip.bf16_unit else mode
        operands = [ctx.operand(self.input, mode, self), ctx.operand(self.filter, mode, self)]
        operands.append(ctx.none() if is_none(self.bias) else ctx.operand(self.bias, bias_mode, self))
        return operands, element


def spread_shape(shape: Shape, inserts: "ArrayAttr[Attribute] | None") -> Shape:
    """(n, c, h, w) with elements inserted between the rows and between the columns. Raises ValueError for others."""
    if inserts is None:
        return shape
    between = ints(inserts)
    if len(shape) != 4 or len(between) != 2 or min(between) < 0:
        raise ValueError(f"an input (n, c, h, w) and two inserts of 0 or more are required, got {shape}, {between}")
    return *shape[:2], *((size - 1) * (more + 1) + 1 for size, more in zip(shape[2:], between, strict=True))
