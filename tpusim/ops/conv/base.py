"""What `top.Conv` and `top.Deconv` share: operands, attributes, and how they are lowered to their tpu ops."""

from typing import Any, ClassVar

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, NoneType, TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name, value_name
from tpusim.ir.reading import reshape_constant
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import FloatRule, LoweringContext, OpT, Shape, TopOp, is_none
from tpusim.ops.framework.families import relu_limit_of, relu_of
from tpusim.ops.view import as_column


class ConvTop(TopOp):
    """Input (n, ic, axes ...), filter (oc, ic/group, kernel axes ...), bias (oc,) or none."""

    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")
    TPU: ClassVar[tuple[OpT, OpT]]
    """The tpu op of an image, and that of a volume."""
    KEPT: ClassVar[tuple[str, ...]]
    """Attributes that the tpu op takes over as they are."""

    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR may state a window over one axis."""
        if len(filter := shape_of(self.filter)) == 3:  # noqa: PLR2004
            reshape_constant(self.filter, (*filter, 1))
        return as_column(self) or super().take_form()

    @property
    def geometry(self) -> dict[str, Any]:
        """The window as the kernels take it, with dilations and groups."""
        raise NotImplementedError

    @property
    def rectified(self) -> dict[str, Any]:
        """The relu and its limit, as the float kernels take them."""
        return {"do_relu": relu_of(self), "relu_limit": relu_limit_of(self)}

    @property
    def volume(self) -> bool:
        """Whether the convolution is 3-D."""
        return len(ints(self.kernel_shape)) == 3

    def constants(self, ctx: LoweringContext) -> tuple[np.ndarray, np.ndarray | None] | None:
        """(filter, bias or None); None if one of them is computed."""
        w, bias = ctx.array(self.filter), None if is_none(self.bias) else ctx.array(self.bias)
        return None if w is None or (bias is None and not is_none(self.bias)) else (w, bias)

    def integer_operands(
        self, ctx: LoweringContext, filter: np.ndarray, bias: np.ndarray | None, kind: str
    ) -> list[SSAValue]:
        """Input bytes, and filter and bias as weights. kind: "int16" or "int32", the type of the bias."""
        name = value_name(self.filter)
        operands = [ctx.operand(self.input, "int8", self), ctx.weight(name + "_int8", filter)]
        return [*operands, ctx.none() if bias is None else ctx.weight(f"{name}_bias_{kind}", bias)]

    def float_operands(self, ctx: LoweringContext) -> tuple[list[SSAValue], Attribute]:
        """([input, filter, bias], element type of the result), a constant bias in f32 (numerics.md 9.1).

        With a computed filter or bias everything is f32. A chip that computes floats only in BF16 is the exception: it
        uses BF16 always, also for a computed bias.
        """
        constant_bias = is_none(self.bias) or ctx.array(self.bias) is not None
        narrow = self.constants(ctx) is not None or ctx.chip.hardware.bf16_unit
        mode, element = (ctx.float_mode(self), ctx.float_type(self)) if narrow else ("f32", f32)
        bias_mode = "f32" if constant_bias or not ctx.chip.hardware.bf16_unit else mode
        operands = [ctx.operand(self.input, mode, self), ctx.operand(self.filter, mode, self)]
        operands.append(ctx.none() if is_none(self.bias) else ctx.operand(self.bias, bias_mode, self))
        return operands, element

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """In the types of `float_operands`."""
        operands, element = self.float_operands(ctx)
        return self.build_tpu(ctx, operands, element, {"relu_limit": float_attr(relu_limit_of(self))})

    def why_not_integer(self, ctx: LoweringContext) -> str | None:
        """What the op lacks for any integer form; None if nothing is missing."""
        if self.constants(ctx) is None:
            return "the filter is not constant"
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        return None

    def why_no_volume(self, ctx: LoweringContext) -> str | None:
        """Why a 3-D op has no integer form on a chip without such forms (recorded as DN-12); None for an image."""
        if not self.volume:
            return None
        ctx.decision(self, "DN-12")
        return "this chip has no integer form over volumes (numerics.md 9.1)"

    def build_tpu(
        self,
        ctx: LoweringContext,
        operands: list[SSAValue],
        element: Attribute,
        more: dict[str, Attribute],
        name: str = "",
    ) -> SSAValue:
        """The tpu op with this op's geometry and the given operands, type, further attributes and name."""
        attributes = {key: self.attributes[key] for key in self.KEPT if key in self.attributes}
        attributes["dilations"] = ints_attr(self.geometry["dilations"])
        attributes["group"] = int_attr(self.geometry["groups"])
        attributes |= {"do_relu": flag(relu_of(self)), "relu_limit": float_attr(-1.0), **more}
        cls = self.TPU[self.volume]
        return ctx.build(cls, operands, attributes, element, shape_of(self.output), name or op_name(self))


def widened_shape(shape: Shape, inserts: "ArrayAttr[Attribute] | None") -> Shape:
    """(n, c, h, w) with elements inserted between the rows and between the columns. Raises ValueError for others."""
    if inserts is None:
        return shape
    between = ints(inserts)
    if len(shape) != 4 or len(between) != 2 or min(between) < 0:
        raise ValueError(f"an input (n, c, h, w) and two inserts of 0 or more are required, got {shape}, {between}")
    return *shape[:2], *((size - 1) * (more + 1) + 1 for size, more in zip(shape[2:], between, strict=True))
