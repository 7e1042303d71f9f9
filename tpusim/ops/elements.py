"""Elements at computed positions: `top.GatherElements`, `top.ScatterElements`, `top.TopK` (numerics.md 9.0, 12).

A TopK of which both results are read is two ops with the same operand (DN-35).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar

from tpusim_kernels import indexing as kernels
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, int_attr, text
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.upstream import OWN
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT, Shape, ShapedOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import checked_axis
from tpusim.ops.framework.macro import MacroTop, MacroTpu
from tpusim.ops.framework.one_result import OneResult
from tpusim.ops.interfaces import GlobalBuffer, PartlyGenerated, Room


def _require_inside(x: Shape, indices: Shape, axis: int) -> None:
    fits = len(x) == len(indices) and all(n <= m or a == axis for a, (n, m) in enumerate(zip(indices, x, strict=True)))
    if not fits:
        wanted = f"indices of rank {len(x)}, no longer than {x} outside axis {axis}"
        raise ValueError(f"{wanted}, are required, got {indices}")


def _lacks_places(x: Shape, indices: Shape, axis: int) -> str | None:
    """Why the library needs places that are computed before; without them it counts rows of the last axis."""
    last = len(x) - 1
    if axis == last and indices[:last] == x[:last]:
        return None
    wanted = f"the last axis and indices {(*x[:last], 'any')} are required"
    return f"{wanted}, got axis {axis} and {indices}; the constant indices_coeff that other forms need is not written"


class AtIndices(ShapedOp):
    """Elements of `input` at `indices` along `axis`."""

    REPEATED: ClassVar[tuple[str, ...]] = ("indices_coeff",)

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = attr_def(IntegerAttr)


class TpuAtIndices(AtIndices, MacroTpu, GlobalBuffer, PartlyGenerated):
    """Such an op of a chip: a kernel of the library, which needs places in global memory."""

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """As large as the indices."""
        del chip
        return Room(shape_of(self.indices), element_of(self.indices))

    @override
    def why_not_generated(self) -> str | None:
        return _lacks_places(shape_of(self.input), shape_of(self.indices), self.axis.value.data)


# ------------------------------------------------------------------------------------------------------- GatherElements


class GatherElements(AtIndices):
    """One element of `input` for each index, along `axis`."""

    output = result_def(TensorType)

    @override
    def infer(self) -> tuple[Shape, ...]:
        _require_inside(shape_of(self.input), shape_of(self.indices), self.axis.value.data)
        return (shape_of(self.indices),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.gather_elements(operands[0], operands[1], axis=self.axis.value.data),)


@irdl_op_definition
class TpuGatherElements(GatherElements, TpuAtIndices):
    """`tpu.GatherElements`: elements copied as they are."""

    name = "tpu.GatherElements"

    @override
    def function(self) -> functions.Function:
        return functions.GatherElements(self.axis.value.data)


@irdl_op_definition
class TopGatherElements(GatherElements, MacroTop):
    """`top.GatherElements`: one element of `input` for each index, along `axis`."""

    name = "top.GatherElements"
    TPU: ClassVar[OpT] = TpuGatherElements
    INDICES: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, indices: SSAValue, *, axis: int = 0, name: str) -> SSAValue:
        """A negative axis, like a negative index, counts from the end."""
        return builder.build(cls, [x, indices], {"axis": int_attr(checked_axis(axis, shape_of(x)))}, name)


# ------------------------------------------------------------------------------------------------------ ScatterElements


class ScatterElements(AtIndices):
    """`input` with `updates` at `indices` along `axis`; an update replaces the element or is combined with it."""

    updates = operand_def(TensorType)
    output = result_def(TensorType)
    reduction = attr_def(IntegerAttr | StringAttr)
    CODES: ClassVar[Mapping[str, tuple[str, ...]]] = {"reduction": ("none", "add")}

    @override
    def infer(self) -> tuple[Shape, ...]:
        if (word := self.word("reduction")) not in kernels.REDUCTIONS:
            raise ValueError(f"a reduction of {', '.join(kernels.REDUCTIONS)} is required, got {word!r}")
        x, indices, updates = (shape_of(v) for v in self.operands)
        _require_inside(x, indices, self.axis.value.data)
        if updates != indices:
            raise ValueError(f"updates of the indices' shape {indices} are required, got {updates}")
        return (x,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.scatter_elements(*operands, axis=self.axis.value.data, reduction=self.word("reduction")),)


@irdl_op_definition
class TpuScatterElements(ScatterElements, TpuAtIndices):
    """`tpu.ScatterElements`: the operand with updates in it."""

    name = "tpu.ScatterElements"

    @override
    def function(self) -> functions.Function:
        return functions.ScatterElements(self.axis.value.data, self.word("reduction"))  # type: ignore[arg-type]


@irdl_op_definition
class TopScatterElements(ScatterElements, MacroTop):
    """`top.ScatterElements`: `input` with `updates` at `indices` along `axis`."""

    name = "top.ScatterElements"
    TPU: ClassVar[OpT] = TpuScatterElements
    INDICES: ClassVar[tuple[int, ...]] = (1,)

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


# ----------------------------------------------------------------------------------------------------------------- TopK


class TopK(OneResult):
    """The K largest or smallest elements along `axis` in order: their values, or their positions."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("values", "indices")
    STATED: ClassVar[Mapping[str, Attribute]] = {OWN + "result": text("indices")}
    """Files of earlier releases have positions only."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    K = attr_def(IntegerAttr)
    largest = attr_def(BoolAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        self.check_result()
        shape, axis, k = shape_of(self.input), self.axis.value.data, self.K.value.data
        if not 1 <= k <= shape[axis]:
            raise ValueError(f"K in 1 to {shape[axis]} is required, got {k}")
        return ((*shape[:axis], k, *shape[axis + 1 :]),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,), axis, largest = operands, self.axis.value.data, bool(self.largest.value.data)
        places = kernels.top_k(x, axis=axis, k=self.K.value.data, largest=largest)
        return self.chosen((kernels.gather_elements(x, places, axis=axis), places))


@irdl_op_definition
class TpuTopK(TopK, MacroTpu):
    """`tpu.TopK`: the K largest or smallest elements as they are, or their positions in i32."""

    name = "tpu.TopK"

    @override
    def function(self) -> functions.Function:
        return functions.TopK(
            self.axis.value.data, self.K.value.data, bool(self.largest.value.data),
            result=self.result.data, first=self.is_first,  # type: ignore[arg-type]
        )  # fmt: skip


@irdl_op_definition
class TopTopK(TopK, MacroTop):
    """`top.TopK`: the K largest or smallest elements along `axis`, or their positions, as f32, exact up to 2^24."""

    name = "top.TopK"
    TPU: ClassVar[OpT] = TpuTopK
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, k: int, axis: int = -1, largest: bool = True, result: str, name: str
    ) -> SSAValue:
        """k: number of elements; of equal ones the first comes first. result: values or indices."""
        attributes = {
            "axis": int_attr(checked_axis(axis, shape_of(x))), "K": int_attr(k), "largest": flag(largest),
            "result": text(result),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    @override
    def result_holds(self) -> Holds:
        return "index" if self.result.data == "indices" else "real"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (super().inference(operands)[0].astype("float32"),)

    @override
    def flops(self) -> int:
        """One per element read (DN-27), for the first op of the node."""
        return prod(shape_of(self.input)) * self.is_first
