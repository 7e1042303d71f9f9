"""What the flat kernels give for the machine's own inputs: the reference behind "bit-exact" after a float op.

Float ops are computed by two independent implementations that may differ in the last place, and a later cast may turn
that into one integer step. So a tensor with a float op upstream is compared with the flat kernel on the tensors the
machine itself stored (architecture section 5).
"""

from collections.abc import Mapping

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.inference.executor import Environment, run_block
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.ops.base import Array, TpuOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight, TpuGroup, TpuYield, Transfer


def float_upstream(model: Model) -> set[str]:
    """Names of tensors that a float computation (float in and float out) takes part in."""
    tainted: dict[SSAValue, bool] = {}
    names: set[str] = set()

    def visit(op: Operation) -> None:
        if isinstance(op, TpuGroup):
            for inner in op.body.block.ops:
                visit(inner)
            last = op.body.block.last_op
            assert isinstance(last, TpuYield)
            tainted.update((r, tainted[v]) for r, v in zip(op.results, last.operands, strict=True))
            return
        inherited = any(tainted.get(v, False) for v in op.operands)
        for result in op.results:
            tainted[result] = inherited or (isinstance(op, TpuOp) and _computes_float(op))
            if tainted[result] and isinstance(op, TpuOp):
                names.add(value_name(result))

    for op in model.ops:
        visit(op)
    return names


def _computes_float(op: TpuOp) -> bool:
    """Whether the op takes and gives floats and is not a pure view."""
    values = [v for v in (*op.operands, *op.results) if is_tensor(v) and not isinstance(v.owner, TopWeight)]
    return not op.in_place() and all(uniform_of(v) is None for v in values)


def replay(model: Model, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For every group and global layer: the flat result on the machine's stored inputs, by tensor name.

    Args: model: the addressed module the program was made from; stored: the machine's tensors, inputs included.
    """
    found: dict[str, np.ndarray] = {}
    constants: Environment = {}
    in_place: dict[SSAValue, Array] = {}
    for op in model.ops:
        if isinstance(op, TopWeight | TopNone):
            run_block([op], constants, model.weights)
        elif isinstance(op, TpuGroup | TpuOp):
            environment = dict(constants)
            environment.update((v, _stored(v, stored, in_place)) for v in op.operands if v not in constants)
            run_block([op], environment, model.weights)
            for result in op.results:
                found[tensor_name(result)] = np.asarray(environment[result])
                if isinstance(op, TpuOp) and op.in_place():
                    in_place[result] = environment[result]
    return found


def _stored(value: SSAValue, stored: Mapping[str, np.ndarray], in_place: Mapping[SSAValue, Array]) -> Array:
    return in_place[value] if value in in_place else stored[tensor_name(value)]


def tensor_name(value: SSAValue) -> str:
    """The name of the tensor a value stands for; a group's result is named by the op that makes it."""
    owner = value.owner
    if isinstance(owner, TpuGroup):
        last = owner.body.block.last_op
        assert isinstance(last, TpuYield)
        return tensor_name(last.operands[value.index])  # type: ignore[attr-defined]
    if isinstance(owner, Transfer) and not isinstance(owner, TopInput):
        return tensor_name(owner.input)
    return value_name(value)
