"""The description of an op as text, the same for equal ops of different modules."""

from functools import lru_cache

from xdsl.ir import Attribute, Operation

from tpusim.ir.upstream import FRAMEWORK

Description = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]]


@lru_cache(maxsize=1 << 16)
def text_of(attribute: Attribute) -> str:
    """An attribute or type as it is printed; printed once, for ops of one network have most of theirs in common."""
    return str(attribute)


def described(op: Operation) -> Description:
    """Kind, attributes by name, and the types of operands and results; neither names nor what the operands are."""
    attributes = sorted((k, v) for k, v in {**op.attributes, **op.properties}.items() if k != FRAMEWORK)
    operands, results = (tuple(text_of(value.type) for value in values) for values in (op.operands, op.results))
    return op.name, tuple((name, text_of(value)) for name, value in attributes), operands, results
