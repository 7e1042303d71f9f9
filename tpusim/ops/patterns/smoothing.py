"""Factors that move between ops of a transformer: SmoothQuant, and the correction of softmax.

SmoothQuant divides a tensor with unequal channels by a factor per channel, and multiplies the matrices that read it.
Both are those of `run_calibration.py --sq` and `--smc` (U-68). Factors are measured (tpusim.calibration.smooth).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tpusim.ir.attrs import float_attr, framework_name, ints, op_name, set_op_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of, tensor
from tpusim.ops.framework.base import TopOp, is_none
from tpusim.ops.framework.families import constant_of
from tpusim.ops.layernorm import TopLayerNorm
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.mul import TopMul
from tpusim.ops.softmax import TopSoftmax
from tpusim.ops.structure import make_weight

Array = np.ndarray
KEEPS_CHANNELS = ("top.Slice", "top.Squeeze", "top.Reshape", "top.Reduce")
"""Ops that may keep the last axis."""
MOVES = ("top.Reshape", "top.Permute")
"""Ops between the products of an attention."""


@dataclass(frozen=True)
class Smoothing:
    """A tensor that can be divided by a factor per channel. op makes it; readers are the products that read it."""

    op: TopOp
    readers: tuple[TopMatMul, ...]

    def matrices(self, model: Model) -> list[Array]:
        """The matrix (K, N) of each reader."""
        return [_constant(reader.operands[1], model) for reader in self.readers]

    def apply(self, model: Model, factor: Array) -> None:
        """Divide the constants of `op` by the factor and multiply the rows of the readers' matrices, in float32.

        The tensors between them differ from the framework's, so they lose the framework's names.
        """
        for changed in self._up_to_readers():
            set_op_name(changed, op_name(changed))
        for place in (1, 2):
            if place < len(self.op.operands) and not is_none(self.op.operands[place]):
                _put(model, self.op, place, _constant(self.op.operands[place], model) / factor)
        for reader in self.readers:
            _put(model, reader, 1, _constant(reader.operands[1], model) * factor.reshape(-1, 1))

    def _up_to_readers(self) -> list[Operation]:
        """The op, and the ops between it and the readers."""
        found: list[Operation] = [self.op]
        for op in found:
            found += [
                use.operation for use in op.results[0].uses
                if use.operation not in self.readers and use.operation not in found
            ]  # fmt: skip
        return [op for op in found if op.results]


def _constant(value: SSAValue, model: Model) -> Array:
    found = constant_of(value, model.weights)
    assert found is not None  # `smoothings` takes constants only
    return found


def _put(model: Model, op: Operation, place: int, array: Array) -> None:
    """Give this op alone another constant as operand."""
    name = op_name(op.operands[place].owner)  # type: ignore[arg-type]
    weight = make_weight(model.weights, f"{name}_smooth", array.astype(np.float32))
    Rewriter().insert_op(weight, InsertPoint.before(op))
    op.operands[place] = weight.output


def split_norms(model: Model) -> int:
    """Insert a Mul by ones between a LayerNorm that an Add reads too and its products.

    The channels can then be divided for the products alone. Returns the number of Muls.
    """
    count = 0
    for op in [op for op in model.ops if isinstance(op, TopLayerNorm)]:
        readers = users(op)
        if {reader.name for reader in readers} != {"top.Add", "top.MatMul"} or is_none(op.weight):
            continue
        ones = np.ones(shape_of(op.weight), np.float32)
        products = [reader for reader in readers if isinstance(reader, TopMatMul) and reader.operands[0] == op.output]
        _multiply(model, op, ones, f"Mul_after_{op_name(op)}", f"{op_name(op)}_scaled_weight", products)
        count += 1
    return count


def _multiply(
    model: Model, op: TopOp, factor: Array, name: str, weight_name: str, readers: Sequence[Operation]
) -> TopMul:
    """Insert a Mul of a result by a constant before the given readers."""
    value = op.results[0]
    weight = make_weight(model.weights, weight_name, factor.astype(np.float32))
    product = TopMul.create(operands=[value, weight.output], result_types=[tensor(shape_of(value))])
    set_op_name(product, name)
    Rewriter().insert_op([weight, product], InsertPoint.after(op))
    for reader in readers:
        for place, operand in enumerate(reader.operands):
            if operand == value:
                reader.operands[place] = product.output
    return product


def users(op: Operation) -> list[Operation]:
    """The readers of a result. Ops that keep its last axis are passed, and a Concat if all its operands are."""
    found: list[Operation] = []
    passed: list[Operation] = []
    joins: list[Operation] = []
    waiting = [use.operation for use in op.results[0].uses]
    while waiting or (join := next((j for j in joins if _joins(j, passed)), None)) is not None:
        if not waiting:
            joins.remove(join)  # type: ignore[possibly-undefined] # the loop goes on only with one
            waiting.append(join)  # type: ignore[possibly-undefined]
            passed.append(join)  # type: ignore[possibly-undefined]
        reader = waiting.pop()
        if reader.name == "top.Concat" and reader not in passed:
            joins += [reader] * (reader not in joins)
        elif reader in passed and reader.name == "top.Concat" or _keeps_channels(reader):
            passed.append(reader)
            waiting += [use.operation for use in reader.results[0].uses if use.operation not in passed]
        elif reader not in found:
            found.append(reader)
    return found + joins


def _keeps_channels(op: Operation) -> bool:
    if op.name == "top.Permute":
        order = ints(op.attributes["order"])
        return len(order) == order[-1] + 1
    return op.name in KEEPS_CHANNELS and shape_of(op.operands[0])[-1:] == shape_of(op.results[0])[-1:]


def _joins(op: Operation, passed: Sequence[Operation]) -> bool:
    same = shape_of(op.operands[0])[-1] == shape_of(op.results[0])[-1]
    return same and all(value.owner in passed for value in op.operands)


def smoothings(model: Model) -> list[Smoothing]:
    """All tensors to smooth: LayerNorms and Muls by a constant row that only products read, values of attentions."""
    found = (_smoothing(op, model) for op in model.ops if isinstance(op, TopOp))
    return [one for one in found if one is not None]


def _smoothing(op: TopOp, model: Model) -> Smoothing | None:
    """The smoothing of one op; None if it has none, or if an operand that must change is not constant."""
    if isinstance(op, TopMatMul):
        reader = _output_projection(op)
        readers: list[Operation] = [] if reader is None else [reader]
    elif isinstance(op, TopLayerNorm) or (isinstance(op, TopMul) and _row(op, model)):
        readers = users(op)
    else:
        return None
    products = tuple(reader for reader in readers if isinstance(reader, TopMatMul) and _has_matrix(reader, op, model))
    constant = constant_of(op.operands[1], model.weights)
    if not products or len(products) != len(readers) or constant is None:
        return None
    return Smoothing(op, products)


def _row(op: TopMul, model: Model) -> bool:
    factor = constant_of(op.operands[1], model.weights) if len(op.operands) == 2 else None
    return factor is not None and factor.shape[-1:] == shape_of(op.results[0])[-1:]


def _has_matrix(reader: TopMatMul, op: TopOp, model: Model) -> bool:
    """Whether the reader's matrix is a constant (K, N), not transposed, with K the channels of the tensor."""
    matrix = constant_of(reader.operands[1], model.weights)
    channels = shape_of(op.results[0])[-1]
    return matrix is not None and matrix.ndim == 2 and len(matrix) == channels and not any(reader.transposes)


def _output_projection(values: TopMatMul) -> TopMatMul | None:
    """The output projection of the attention whose values this product makes; the views around it must mirror."""
    before, attention = _to_product(values)
    after, projection = ([], None) if attention is None else _to_product(attention)
    if projection is None or len(before) != len(after) or not after:
        return None
    if shape_of(values.results[0]) != shape_of(after[-1].results[0]):
        return None
    mirrored = all(
        first.name == second.name and shape_of(second.operands[0]) == shape_of(first.results[0])
        for first, second in zip(before, reversed(after), strict=True)
    )
    return projection if mirrored else None


def _to_product(op: Operation) -> tuple[list[Operation], TopMatMul | None]:
    """(the views after an op, the product that reads the last of them); each tensor must have one reader."""
    views: list[Operation] = []
    while True:
        readers = [use.operation for use in op.results[0].uses]
        if len(readers) != 1:
            return views, None
        op = readers[0]
        if isinstance(op, TopMatMul):
            return views, op
        if op.name not in MOVES:
            return views, None
        views.append(op)


# ------------------------------------------------------------------------------------------------------------- softmax


def attentions(model: Model) -> Iterator[tuple[TopSoftmax, TopMatMul]]:
    """(softmax, product): softmaxes of 3 or 4 axes that only one product reads, on its left, with a computed right."""
    for op in model.ops:
        readers = [use.operation for use in op.results[0].uses] if isinstance(op, TopSoftmax) else []
        reader = readers[0] if len(readers) == 1 else None
        if not isinstance(op, TopSoftmax) or not isinstance(reader, TopMatMul):
            continue
        constant = constant_of(reader.operands[1], model.weights) is not None
        if reader.operands[0] == op.output and not constant and len(shape_of(op.output)) in (3, 4):
            yield op, reader


def divide_softmax(model: Model, softmax: TopSoftmax, product: TopMatMul, largest: Array) -> None:
    """Divide a softmax by the mean of its largest values, by head, and multiply the product that reads it.

    The quotient's threshold is fixed at 1.
    """
    name = op_name(softmax)
    inverse = _multiply(
        model, softmax, np.float32(1) / largest, f"{name}_Smc_Inv_Mul", f"{name}_Smc_Inv_Weight", [product]
    )
    inverse.fixed_threshold = float_attr(1.0)
    result = product.results[0]
    readers = list(dict.fromkeys(use.operation for use in result.uses))
    whole = _multiply(model, product, largest, f"{op_name(product)}_Smc_Mul", f"{name}_Smc_Weight", readers)
    set_op_name(whole, op_name(whole), framework_name(product))
    set_op_name(product, op_name(product))
