"""What generic rewritings must not lose: the names of weights and of what a function returns."""

from xdsl.ir import Operation
from xdsl.traits import IsolatedFromAbove, ReturnLike

from tpusim.ir.attrs import op_name


def is_returned_by_name(op: Operation) -> bool:
    """Whether a function returns a result of an op with a name, by which its caller knows the result."""
    return bool(op_name(op)) and any(_leaves(use.operation) for result in op.results for use in result.uses)


def _leaves(op: Operation) -> bool:
    parent = op.parent_op()
    isolated = parent is not None and parent.has_trait(IsolatedFromAbove)
    return isolated and op.has_trait(ReturnLike, value_if_unregistered=False)
