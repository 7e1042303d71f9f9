"""The flat kernels' results on the machine's tensors: the reference of "bit-exact" after a float op.

Float ops are computed by two independent implementations that may differ in the last place, and a later cast may turn
that into one integer step. So a tensor that depends on a float op is compared with the result of its op's flat kernel
on the operands that the machine had (architecture section 5).
"""

from collections.abc import Iterator, Mapping

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.inference.executor import Environment, Steps
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TopNone, TopWeight


def float_upstream(model: Model) -> set[str]:
    """Names of tensors of a lowered module (no groups yet) that depend on a float computation."""
    tainted: set[SSAValue] = set()
    for op in _computing(model):
        if _computes_float(op) or any(v in tainted for v in op.operands):
            tainted.update(op.results)
    return {value_name(value) for value in tainted}


def _computing(model: Model) -> Iterator[TpuOp]:
    return (op for op in model.ops if isinstance(op, TpuOp))


def _computes_float(op: TpuOp) -> bool:
    """Whether the op has float operands and results and is not a pure view."""
    values = [v for v in (*op.operands, *op.results) if is_tensor(v) and not isinstance(v.owner, TopWeight)]
    return not is_in_place(op) and all(uniform_of(v) is None for v in values)


def replay(model: Model, machine: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For every tensor with a float op upstream: the flat result of its op on the machine's tensors.

    Args: model: the lowered module (state TPU_LOWERED); machine: every tensor of the machine by name, inputs included.
    A tensor whose op has an operand that the machine did not store is left out, except views, which are recomputed.
    """
    wanted = float_upstream(model)
    steps, values = Steps.of(model), Environment()
    found: dict[str, np.ndarray] = {}
    for op in model.ops:
        if isinstance(op, TopWeight | TopNone):
            steps.step(op, values)
        elif not isinstance(op, TpuOp):
            _adopt(op, values, machine)
        elif op_name(op) in wanted and all(v in values for v in op.operands):
            environment = {v: values[v] for v in op.operands}
            steps.step(op, environment)
            found[op_name(op)] = np.asarray(environment[op.results[0]])
            values[op.results[0]] = machine.get(op_name(op), found[op_name(op)])
        else:
            _adopt(op, values, machine)
    return found


def _adopt(op: Operation, values: Environment, machine: Mapping[str, np.ndarray]) -> None:
    """Use the machine's tensor as the op's result, if the machine stored it."""
    for result in op.results:
        if op_name(op) in machine:
            values[result] = machine[op_name(op)]
