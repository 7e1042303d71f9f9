"""Which op a name in a table means. Tables name tensors by U-16; this is where the spelling may differ."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import TypeVar

from xdsl.ir import Operation

from tpusim.ir.attrs import framework_name, op_name

OpT = TypeVar("OpT", bound=Operation)


def names_in(ops: Iterable[OpT], known: Collection[str]) -> dict[OpT, str]:
    """The name in `known` that means each op; an op that none means is left out.

    That is the op's name (`y_Relu`), else its ONNX tensor (`y`), else the only name that is its ONNX tensor with
    another op type (`y_Clip`); each unless it is the name of another op.
    """
    ops, known = list(ops), set(known)
    free = known - {op_name(op) for op in ops}
    typed: dict[str, list[str]] = defaultdict(list)
    for name in free:
        tensor, _, kind = name.rpartition("_")
        if kind[:1].isupper() and kind.isalnum():
            typed[tensor].append(name)
    shared = Counter(framework_name(op) for op in ops)
    found: dict[OpT, str] = {}
    for op in ops:
        tensor = framework_name(op)
        if op_name(op) in known:
            found[op] = op_name(op)
        elif shared[tensor] == 1 and tensor in free:
            found[op] = tensor
        elif shared[tensor] == 1 and len(typed[tensor]) == 1:
            found[op] = typed[tensor][0]
    return found
