"""Layer normalisation as a group normalisation, a product and a sum."""

from collections.abc import Mapping, Sequence
from math import prod

from typing_extensions import override
from xdsl.ir import Attribute, SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import int_attr, ints_attr, op_name, value_name
from tpusim.ir.types import shape_of
from tpusim.ops.add import TpuAdd
from tpusim.ops.framework.base import LoweringContext, OpT, Shape, is_none
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.groupnorm import TpuGroupNorm
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.layernorm import TopLayerNorm
from tpusim.ops.mul import TpuMul
from tpusim.ops.view import TpuReshape
from tpusim.targets.bm1684.target import TARGET

Step = tuple[OpT, Sequence[SSAValue], Mapping[str, Attribute], Shape, str]
"""An op of a chain: class, operands after the first, attributes, shape of the result, end of its name."""


@TARGET.attach(TopLayerNorm, FloatLowering)
class LayerNormApart(Model[TopLayerNorm], FloatLowering):
    """BM1684 has no tpu.LayerNorm that begins at axis 1, 2 or 3."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.GroupNorm with a group for each normalised part, then Mul and Add; from axis 3 on between Reshapes."""
        op, axis = self.op, self.op.axis.value.data
        if not 1 <= axis <= 3:
            return op.lower_float(ctx)
        shape, name, none = shape_of(op.output), op_name(op), ctx.none()
        groups = prod(shape[1:axis])
        view = (shape[0], groups, 1, *shape[3:]) if axis == 3 else shape
        norm = {"num_groups": int_attr(groups), "eps": op.eps}
        steps: list[Step] = [(TpuGroupNorm, (none, none), norm, view, "_convert_to_group_norm")]
        if view != shape:
            to, back = ({"shape": ints_attr(s)} for s in (view, shape))
            steps = [(TpuReshape, (), to, view, "_reshape_1"), *steps, (TpuReshape, (), back, shape, "_reshape_2")]
        for cls, factor, suffix in ((TpuMul, op.weight, "_mul_weights"), (TpuAdd, op.bias, "_add_bias")):
            if not is_none(factor):
                steps.append((cls, (self._of_full_rank(ctx, factor),), relu_attributes(), shape, suffix))
        value, element = ctx.operand(op.input, ctx.float_mode(op), op), ctx.float_type(op)
        for cls, operands, attributes, made, suffix in steps:
            told = name if suffix == steps[-1][-1] else name + suffix
            value = ctx.build(cls, [value, *operands], attributes, element, made, told)
        return value

    def _of_full_rank(self, ctx: LoweringContext, factor: SSAValue) -> SSAValue:
        """Weight or bias; a constant gets the rank of the input, which the local form requires."""
        data, rank = ctx.array(factor), len(shape_of(self.op.output))
        if data is None:
            return ctx.operand(factor, ctx.float_mode(self.op), self.op)
        full = data.reshape((1,) * (rank - data.ndim) + data.shape)
        return ctx.float_weight(self.op, f"{value_name(factor)}_rank{rank}", full)
