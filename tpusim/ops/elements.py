"""Elements at computed positions: `top.GatherElements`, `top.ScatterElements`, `top.TopK` (numerics.md 9.0, 12).

Upstream's TopK gives values and indices; this one gives the indices, whose values are a GatherElements.
"""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tpusim_kernels import indexing as kernels
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import LayerGroupAttr, flag, int_attr, text
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT, Shape
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu


def checked_axis(axis: int, shape: Shape) -> int:
    """The axis counted from the start. Raises ValueError for one outside."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"an axis in [{-len(shape)}, {len(shape)}) is required, got {axis}")
    return axis % len(shape)


def _require_inside(x: Shape, indices: Shape, axis: int) -> None:
    fits = len(x) == len(indices) and all(n <= m or a == axis for a, (n, m) in enumerate(zip(indices, x, strict=True)))
    if not fits:
        wanted = f"indices of rank {len(x)}, not longer than {x} beside axis {axis}"
        raise ValueError(f"{wanted}, are required, got {indices}")


def _axis(op: Operation) -> int:
    axis = op.attributes["axis"]
    assert isinstance(axis, IntegerAttr)
    return axis.value.data


# ------------------------------------------------------------------------------------------------------- GatherElements


def _gathered(op: Operation) -> tuple[Shape, ...]:
    _require_inside(shape_of(op.operands[0]), shape_of(op.operands[1]), _axis(op))
    return (shape_of(op.operands[1]),)


@irdl_op_definition
class TpuGatherElements(MacroTpu):
    """`tpu.GatherElements`: elements copied as they are."""

    name = "tpu.GatherElements"

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the extents of the indices."""
        return _gathered(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Values as they are, only moved: exact in every type."""
        return (kernels.gather_elements(operands[0], operands[1], axis=_axis(self)),)

    def function(self) -> functions.Function:
        """GatherElements: one element of the operand for each index."""
        return functions.GatherElements(_axis(self))


@irdl_op_definition
class TopGatherElements(MacroTop):
    """`top.GatherElements`: an element of `input` per index, along `axis`."""

    name = "top.GatherElements"
    TPU: ClassVar[OpT] = TpuGatherElements
    INDICES: ClassVar[tuple[int, ...]] = (1,)

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, indices: SSAValue, *, axis: int = 0, name: str) -> SSAValue:
        """axis: a negative one counts from the end, as negative indices do."""
        return builder.build(cls, [x, indices], {"axis": int_attr(checked_axis(axis, shape_of(x)))}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the extents of the indices."""
        return _gathered(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Values as they are, only moved: exact in every type."""
        return (kernels.gather_elements(operands[0], operands[1], axis=_axis(self)),)


# ------------------------------------------------------------------------------------------------------ ScatterElements


def _scattered(op: Operation) -> tuple[Shape, ...]:
    x, indices, updates = (shape_of(v) for v in op.operands)
    _require_inside(x, indices, _axis(op))
    if updates != indices:
        raise ValueError(f"updates of the indices' shape {indices} are required, got {updates}")
    return (x,)


@irdl_op_definition
class TpuScatterElements(MacroTpu):
    """`tpu.ScatterElements`: the operand with updates in it."""

    name = "tpu.ScatterElements"

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    reduction = attr_def(StringAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's extents."""
        return _scattered(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute the function of the top op, with its kernel."""
        return (kernels.scatter_elements(*operands, axis=_axis(self), reduction=self.reduction.data),)

    def function(self) -> functions.Function:
        """ScatterElements: one update for each index, with its reduction."""
        return functions.ScatterElements(_axis(self), self.reduction.data)  # type: ignore[arg-type]


@irdl_op_definition
class TopScatterElements(MacroTop):
    """`top.ScatterElements`: `input` with `updates` at `indices` along `axis`, in its place or combined with it."""

    name = "top.ScatterElements"
    TPU: ClassVar[OpT] = TpuScatterElements
    INDICES: ClassVar[tuple[int, ...]] = (1,)

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    reduction = attr_def(StringAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, indices: SSAValue, updates: SSAValue, *, axis: int = 0,
        reduction: str = "none", name: str,
    ) -> SSAValue:  # fmt: skip
        """reduction: none, add, mul, max or min."""
        if reduction not in kernels.REDUCTIONS:
            raise ValueError(f"a reduction of {', '.join(kernels.REDUCTIONS)} is required, got {reduction!r}")
        attributes = {"axis": int_attr(checked_axis(axis, shape_of(x))), "reduction": text(reduction)}
        return builder.build(cls, [x, indices, updates], attributes, name)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's extents."""
        return _scattered(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact without a reduction."""
        return (kernels.scatter_elements(*operands, axis=_axis(self), reduction=self.reduction.data),)


# ----------------------------------------------------------------------------------------------------------------- TopK


def _chosen(op: Operation) -> tuple[Shape, ...]:
    shape, axis, k = shape_of(op.operands[0]), _axis(op), op.attributes["K"]
    assert isinstance(k, IntegerAttr)
    if not 1 <= k.value.data <= shape[axis]:
        raise ValueError(f"K in 1 to {shape[axis]} is required, got {k.value.data}")
    return ((*shape[:axis], k.value.data, *shape[axis + 1 :]),)


@irdl_op_definition
class TpuTopK(MacroTpu):
    """`tpu.TopK`: the largest values, and their places in i32."""

    name = "tpu.TopK"

    input = operand_def(TensorType)
    indices = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    K = attr_def(IntegerAttr)
    largest = attr_def(BoolAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The extents of the operand, with K along the axis."""
        return _chosen(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Values as they are, only moved: exact in every type."""
        largest = bool(self.largest.value.data)
        return (kernels.top_k(operands[0], axis=_axis(self), k=self.K.value.data, largest=largest),)

    def function(self) -> functions.Function:
        """The k largest or smallest along the axis."""
        return functions.TopK(_axis(self), self.K.value.data, bool(self.largest.value.data))


@irdl_op_definition
class TopTopK(MacroTop):
    """`top.TopK`: places of the K largest (smallest) elements along `axis` in order, as f32."""

    name = "top.TopK"
    TPU: ClassVar[OpT] = TpuTopK
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    HOLDS: ClassVar[Holds] = "index"

    input = operand_def(TensorType)
    indices = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    K = attr_def(IntegerAttr)
    largest = attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, k: int, axis: int = -1, largest: bool = True, name: str
    ) -> SSAValue:
        """k: how many; of equal elements the first comes first."""
        axis = checked_axis(axis, shape_of(x))
        return builder.build(cls, [x], {"axis": int_attr(axis), "K": int_attr(k), "largest": flag(largest)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The extents of the operand, with K along the axis."""
        return _chosen(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Places as f32, exact up to 2^24."""
        largest = bool(self.largest.value.data)
        found = kernels.top_k(operands[0], axis=_axis(self), k=self.K.value.data, largest=largest)
        return (found.astype("float32"),)

    def flops(self) -> int:
        """One per element read (DN-27)."""
        return prod(shape_of(self.input))
