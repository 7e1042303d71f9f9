"""LSTM and GRU: whole sequences as one op, in float on every chip (numerics.md 11.7, 12).

A node of which several outputs are read is as many ops with the same operands (DN-35).
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from tpusim_kernels import recurrent as kernels
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, NoneType, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, int_attr, op_name, text, value_name
from tpusim.ir.types import element_of, shape_of, storage_dtype, storage_element
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    LoweringContext,
    OpT,
    ReorderContext,
    Shape,
    TopOp,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import is_set
from tpusim.ops.framework.macro import MacroTpu
from tpusim.ops.framework.one_result import OneResult
from tpusim.ops.interfaces import GlobalBuffer, Macs, Reorder, Room

CHIP_ORDER: dict[str, tuple[int, ...]] = {"LSTM": (0, 2, 1, 3), "GRU": (1, 0, 2)}
"""The gates in the order in which the weights of a chip have them: i, f, o, g and r, z, h."""


Made: TypeAlias = Callable[[LoweringContext], Sequence[SSAValue]]
"""Builds the operands of a lowered op."""


class Recurrent(OneResult):
    """A sequence (T, N, I), forwards, and if `bidirectional` also backwards; in the order of the node.

    Its results are Y (T, D, N, H), every step's, and the states after the last step (D, N, H). whole: the name that
    TPU-MLIR's op has. filter (D, G*H, I), recurrence (D, G*H, H), bias (D, 2*G*H), initial states (D, N, H).
    """

    KIND: ClassVar[functions.Cell]
    FIRST: ClassVar[int] = 4
    """The operand number of the first initial state."""
    output = result_def(TensorType)
    hidden_size = attr_def(IntegerAttr)
    bidirectional = attr_def(BoolAttr)
    batch_first = attr_def(BoolAttr)
    whole = attr_def(StringAttr)

    @property
    def rows(self) -> SSAValue:
        """The sequence that the layer reads, (T, N, I)."""
        return self.operands[0]

    @property
    def hidden(self) -> int:
        """The elements of a state."""
        return self.hidden_size.value.data

    @property
    def gates(self) -> int:
        """The number of gates of the cell."""
        return len(CHIP_ORDER[self.KIND])

    @property
    def ways(self) -> int:
        """The number of directions."""
        return 1 + is_set(self.bidirectional)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(steps, batch, elements of a row of the input)."""
        steps, batch, width = shape_of(self.rows)
        return steps, batch, width

    @override
    def infer(self) -> tuple[Shape, ...]:
        """Raises ValueError for operands that do not fit, and for attributes that no chip's kernel has."""
        x, which = shape_of(self.rows), self.result.data
        if len(x) != 3 or 0 in x or is_set(self.batch_first):
            raise ValueError(f"a sequence of three axes, steps first, is required, got {x}")
        self.check_result()
        for number, wanted in self.constant_shapes().items():
            value = self.operands[number]
            if not is_none(value) and shape_of(value) != wanted:
                raise ValueError(f"operand {number} of shape {wanted} is required, got {shape_of(value)}")
        steps, batch, _ = self.sizes
        state = (self.ways, batch, self.hidden)
        return ((steps, *state) if which == self.OUTPUTS[0] else state,)

    def constant_shapes(self) -> dict[int, Shape]:
        """Operand number -> required shape."""
        _, batch, width = self.sizes
        rows, state = self.gates * self.hidden, (self.ways, batch, self.hidden)
        states = range(self.FIRST, self.FIRST + len(self.OUTPUTS) - 1)
        matrices = {1: (self.ways, rows, width), 2: (self.ways, rows, self.hidden), 3: (self.ways, 2 * rows)}
        return matrices | dict.fromkeys(states, state)


class TopRecurrent(Recurrent, TopOp):
    """A recurrent op of a network."""

    SPEC: ClassVar[tuple[str, ...]] = ("11.7", "12.1")
    MULTIPLY_ADDS: ClassVar[int] = 1
    """How TPU-MLIR counts the products of the op's gates."""
    TPU: ClassVar[OpT]
    MORE: ClassVar[dict[str, Attribute]] = {}
    """Attributes that have one value in every op of the kind."""

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, operands: Sequence[SSAValue | None], *, hidden: int, bidirectional: bool,
        result: str, whole: str, name: str,
    ) -> SSAValue:  # fmt: skip
        """operands: filter, recurrence, bias, initial states; None for absent ones. result: an output of the node."""
        absent, wanted = builder.none(), len(cls.get_irdl_definition().operands) - 1
        given = [absent if value is None else value for value in operands]
        attributes: dict[str, Attribute] = {
            "hidden_size": int_attr(hidden), "bidirectional": flag(bidirectional), "batch_first": flag(False),
            "result": text(result), "whole": text(whole), **cls.MORE,
        }  # fmt: skip
        return builder.build(cls, [x, *given, *[absent] * (wanted - len(given))], attributes, name)

    @override
    def flops(self) -> int:
        """The operations of the node (DN-27), for its first op."""
        steps, batch, width = self.sizes
        gates = self.gates * self.hidden * (width + self.hidden)
        return 2 * self.MULTIPLY_ADDS * gates * steps * batch * self.ways * self.is_first

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """One tpu op; all ops of a node have the same operands."""
        operands, attributes = self.shared_operands(ctx, self.tpu_operands), dict(self.attributes)
        return ctx.build(self.TPU, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def shared_operands(self, ctx: LoweringContext, made: Made) -> Sequence[SSAValue]:
        """The operands of the node's op that is lowered already, else those that `made` gives."""
        for other in self.same_node():
            stored = ctx.stored(other.output)
            if stored is not None and isinstance(stored.owner, self.TPU):
                return tuple(stored.owner.operands)
        return made(ctx)

    def name_of_products(self) -> str:
        """The name of the products of all rows, on a chip that computes them first."""
        return f"{self.whole.data}_fc"

    def tpu_operands(self, ctx: LoweringContext) -> list[SSAValue]:
        """Input, constants and initial states in the op's float type; no buffer and no tables."""
        mode, reader = ctx.float_mode(self), self.whole.data
        found = [ctx.none() if is_none(v) else ctx.operand(v, mode, self, reader) for v in self.operands]
        return found + [ctx.none()] * (len(self.TPU.get_irdl_definition().operands) - len(found))


class TpuRecurrent(Recurrent, MacroTpu, Reorder, Macs, GlobalBuffer):
    """A recurrent op of a chip, a kernel of the library.

    filter and recurrence are (D, (I + H)*G, H) together after weight-reorder: for every element of a row and then of
    the state, G*H weights; in a GRU G matrices of H weights for every element of a row, then of the state. On a chip
    with BF16 tables the input is the products of the rows, (T, N, D*G*H), and the filter is absent.
    """

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    TABLES: ClassVar[int]
    """The operand number of the first of four tables."""

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """Five states of one direction."""
        del chip
        return Room((5, self.sizes[1], self.hidden), storage_element(element_of(self.rows)))

    @property
    def by_tables(self) -> bool:
        """Whether the gates are read from tables."""
        return not is_none(self.operands[self.TABLES])

    @property
    def is_packed(self) -> bool:
        """Whether the constants have the chip's layout."""
        return is_none(self.operands[2])

    @override
    def constant_shapes(self) -> dict[int, Shape]:
        found, (_, _, width), rows = super().constant_shapes(), self.sizes, self.gates * self.hidden
        if self.by_tables:
            if width != self.ways * rows:
                raise ValueError(f"{self.ways * rows} products for each row are required, got {width}")
            return found | {3: (self.ways, rows)}
        return found | {1: (self.ways, (width + self.hidden) * self.gates, self.hidden)} if self.is_packed else found

    def node_constants(self, operands: Sequence[Array]) -> tuple[Array, Array, Array | None]:
        """Filter, recurrence and bias in the order of the node."""
        w, r, b = operands[1:4]
        if not self.is_packed:
            return w, r, b
        _, _, width = self.sizes
        order = np.argsort(CHIP_ORDER[self.KIND])
        if b is not None:
            b = b.reshape(self.ways, 2, self.gates, self.hidden)[:, :, order].reshape(self.ways, -1)
        at = width * self.gates
        return self._unpacked(w[:, :at], order), self._unpacked(w[:, at:], order), b

    def _packed(self, matrices: np.ndarray, order: Sequence[int]) -> np.ndarray:
        """Matrices (D, G*H, I) in the chip's layout, (D, G*I, H)."""
        gates = matrices.reshape(self.ways, self.gates, self.hidden, -1)[:, order]
        turned = (0, 1, 3, 2) if self.KIND in functions.MATRIX_PER_GATE else (0, 3, 1, 2)
        return gates.transpose(turned).reshape(self.ways, -1, self.hidden)

    def _unpacked(self, packed: Array, order: np.ndarray) -> Array:
        """The matrices (D, G*H, I) of the chip's layout."""
        gates = (self.gates, -1) if self.KIND in functions.MATRIX_PER_GATE else (-1, self.gates)
        turned = (0, 1, 3, 2) if self.KIND in functions.MATRIX_PER_GATE else (0, 2, 3, 1)
        found = packed.reshape(self.ways, *gates, self.hidden).transpose(turned)[:, order]
        return found.reshape(self.ways, self.gates * self.hidden, -1)

    @override
    def macs(self) -> int:
        return self.function().multiplications([shape_of(v) for v in self._read()])

    def _read(self) -> list[SSAValue]:
        return [value for value in self.operands if not is_none(value)]

    @override
    def function(self) -> functions.Recurrent:
        """The whole sequence as one function."""
        states = self.operands[self.FIRST : self.FIRST + len(self.OUTPUTS) - 1]
        return functions.Recurrent(
            cell=self.KIND, hidden=self.hidden, bidirectional=self.ways > 1, result=self.result.data,
            biased=not is_none(self.operands[3]), states=tuple(not is_none(v) for v in states), tables=self.by_tables,
            outputs=tuple(op.result.data for op in self.same_node()), first=self.is_first,
        )  # fmt: skip

    @override
    def emit(self, ctx: EmitContext) -> None:
        inputs = tuple(ctx.input(i) for i, value in enumerate(self.operands) if not is_none(value))
        size = storage_dtype(element_of(self.output)).itemsize
        function = self.function().with_moves(shape_of(self.rows), size, ctx.chip)
        ctx.emit(isa.Fn, function=function, inputs=inputs, output=ctx.output())

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Put the constants of all ops of the node into the chip's layout; absent initial states become zeros."""
        if self.is_packed or self.by_tables:
            return
        new = list(self.operands)
        w, r, b = (ctx.array(value) for value in self.operands[1:4])
        assert w is not None and r is not None  # the import takes constant matrices only
        order, name = list(CHIP_ORDER[self.KIND]), self.whole.data
        packed = np.concatenate([self._packed(w, order), self._packed(r, order)], axis=1)
        new[1] = ctx.weight(f"{name}_reordered_filter", np.ascontiguousarray(packed), element_of(new[1]))
        new[2] = ctx.none()
        if b is not None:
            gates = b.reshape(self.ways, 2, self.gates, self.hidden)[:, :, order].reshape(b.shape)
            new[3] = ctx.weight(f"{name}_reordered_bias", np.ascontiguousarray(gates), element_of(new[3]))
        zeros = np.zeros((self.ways, self.sizes[1], self.hidden), w.dtype)
        for number, word in zip(range(self.FIRST, self.FIRST + len(self.OUTPUTS) - 1), "hc", strict=False):
            if is_none(new[number]):
                new[number] = ctx.weight(f"{name}_initial_{word}", zeros, element_of(new[1]))
        for op in list(self.same_node()):
            op.operands = new


# ---------------------------------------------------------------------------------------------------------------- LSTM


class LSTM(Recurrent):
    """i, o, f = sigmoid(x W^T + h R^T + b), g = tanh(likewise); c' = f*c + i*g; h' = o*tanh(c')."""

    KIND: ClassVar[functions.Cell] = "LSTM"
    OUTPUTS: ClassVar[tuple[str, ...]] = ("Y", "Y_h", "Y_c")


@irdl_op_definition
class TpuLSTM(LSTM, TpuRecurrent):
    """`tpu.LSTM`: in f32 with one rounding of the result, or with every step rounded to BF16 by tables (11.7)."""

    name = "tpu.LSTM"
    TABLES: ClassVar[int] = 8

    input = operand_def(TensorType)
    filter = operand_def(TensorType | NoneType)
    recurrence = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    initial_h = operand_def(TensorType | NoneType)
    initial_c = operand_def(TensorType | NoneType)
    cont = operand_def(NoneType)
    buffer = operand_def(NoneType)
    sigmoid_table = operand_def(TensorType | NoneType)
    sigmoid_slope_table = operand_def(TensorType | NoneType)
    tanh_table = operand_def(TensorType | NoneType)
    tanh_slope_table = operand_def(TensorType | NoneType)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, states = operands[0], operands[4:6]
        if self.by_tables:
            return self.chosen(kernels.lstm_tables(x, *operands[2:4], *states, *operands[8:]))
        return self.chosen(kernels.lstm_float(x, *self.node_constants(operands), *states))


@irdl_op_definition
class TopLSTM(LSTM, TopRecurrent):
    """`top.LSTM`: an LSTM with the default activations, in f32."""

    name = "top.LSTM"
    TPU: ClassVar[OpT] = TpuLSTM
    MULTIPLY_ADDS: ClassVar[int] = 2
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="bf16", f16="f32")

    input = operand_def(TensorType)
    filter = operand_def(TensorType | NoneType)
    recurrence = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    initial_h = operand_def(TensorType | NoneType)
    initial_c = operand_def(TensorType | NoneType)
    cont = operand_def(NoneType)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return self.chosen(kernels.lstm_float(*operands[:6]))


# ----------------------------------------------------------------------------------------------------------------- GRU


class GRU(Recurrent):
    """z, r = sigmoid(x W^T + h R^T + b), g = tanh(x W^T + b_w + r*(h R^T + b_r)); h' = (1 - z)*g + z*h."""

    KIND: ClassVar[functions.Cell] = "GRU"
    OUTPUTS: ClassVar[tuple[str, ...]] = ("Y", "Y_h")

    linear_before_reset = attr_def(BoolAttr)


@irdl_op_definition
class TpuGRU(GRU, TpuRecurrent):
    """`tpu.GRU`: in f32 with one rounding of the result, or with every step rounded to BF16 by tables (11.7)."""

    name = "tpu.GRU"
    TABLES: ClassVar[int] = 6

    input = operand_def(TensorType)
    filter = operand_def(TensorType | NoneType)
    recurrence = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    initial_h = operand_def(TensorType | NoneType)
    buffer = operand_def(NoneType)
    sigmoid_table = operand_def(TensorType | NoneType)
    sigmoid_slope_table = operand_def(TensorType | NoneType)
    tanh_table = operand_def(TensorType | NoneType)
    tanh_slope_table = operand_def(TensorType | NoneType)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, state = operands[0], operands[4]
        if self.by_tables:
            return self.chosen(kernels.gru_tables(x, operands[2], operands[3], state, *operands[6:]))
        return self.chosen(kernels.gru_float(x, *self.node_constants(operands), state))


@irdl_op_definition
class TopGRU(GRU, TopRecurrent):
    """`top.GRU`: a GRU with linear_before_reset and the default activations, in f32."""

    name = "top.GRU"
    TPU: ClassVar[OpT] = TpuGRU
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    MORE: ClassVar[dict[str, Attribute]] = {"linear_before_reset": flag(True)}

    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    recurrence = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    initial_h = operand_def(TensorType | NoneType)

    @override
    def name_of_products(self) -> str:
        return f"{value_name(self.rows)}_FC"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return self.chosen(kernels.gru_float(*operands))
