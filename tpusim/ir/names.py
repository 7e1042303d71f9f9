"""Names of ops in tables, and names as attributes.

Tables name tensors by U-16; `names_in` is where the spelling may differ. A name is a location (U-96), which many tools
print only on request; as the attribute `tpusim.name` they keep it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable
from typing import TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, FusedLoc, ModuleOp, NoneAttr, StringAttr
from xdsl.ir import Attribute, Operation

from tpusim.ir.attrs import framework_name, name_location, name_place, op_name, text, texts_attr, value_name

OpT = TypeVar("OpT", bound=Operation)


def unique_name(name: str, taken: Container[str]) -> str:
    """`name`, or `name_1`, `name_2` ... if that is taken."""
    unique, count = name, 0
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    return unique


def tell_apart(ops: Iterable[Operation], named: Container[Operation]) -> None:
    """Rename ops that have the name of another op, except those in `named`, whose names users know."""
    ops = list(ops)
    taken, everywhere = {op_name(op) for op in ops if op in named}, {op_name(op) for op in ops}
    for op in ops:
        if op not in named:
            name = op_name(op)
            if name in taken:
                name = unique_name(name, everywhere)
                op.location = name_location(name)
                everywhere.add(name)
            taken.add(name)


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


NAME = "tpusim.name"
"""The attribute: the name of an op, or a list of the names of its results."""


def names_to_attributes(module: ModuleOp) -> None:
    """State the name of every op as an attribute too."""
    for op in module.walk():
        if name := op_name(op):
            several = [value_name(result) for result in op.results] if len(op.results) > 1 else []
            op.attributes[NAME] = texts_attr(several) if len(set(several)) > 1 else text(name)


def names_from_attributes(module: ModuleOp) -> None:
    """Name every op that states its name as an attribute, which is removed; its location stays as a place."""
    for op in module.walk():
        stated = op.attributes.pop(NAME, None)
        if isinstance(stated, StringAttr) and op_name(op) != stated.data:
            name_place(op, stated.data)
        elif isinstance(stated, ArrayAttr):
            names = cast("ArrayAttr[Attribute]", stated).data
            op.location = FusedLoc(tuple(name_location(n.data) for n in names if isinstance(n, StringAttr)), NoneAttr())
