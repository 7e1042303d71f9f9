"""Bounds of regions, attributes and types in one another: parser, printer and passes call themselves for each level.

What several attributes share counts wherever it is named: some hundred bytes may stand for more than fits on a disk.
"""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, ParametrizedAttribute

DEEPEST = 64
"""Brackets in brackets of a text. Modules of networks have 20."""
LEVELS = DEEPEST + 8
"""Attributes in attributes and regions, of what such a text stands for; the type in 1 : i8 is one without a bracket."""
MOST = 1 << 27
"""Attributes of a module after shared ones are written out; of bytecode, bytes beyond those of the file."""


class Extent(NamedTuple):
    """levels: attributes in one another; size: attributes, or bytes of encodings, with all that they name."""

    levels: int
    size: int


def extent(value: Attribute, known: Mapping[int, Extent]) -> Extent:
    """The extent of an attribute. known: of those with which it shares parts, by identity."""
    found = known.get(id(value))
    if found is not None:
        return found
    inner = [extent(part, known) for part in parts(value)]
    return Extent(1 + max((one.levels for one in inner), default=0), 1 + sum(one.size for one in inner))


def parts(value: Attribute) -> Iterable[Attribute]:
    """The attributes that an attribute names directly."""
    if isinstance(value, ArrayAttr):
        return cast("Any", value).data
    if isinstance(value, DictionaryAttr):
        return value.data.values()
    return value.parameters if isinstance(value, ParametrizedAttribute) else ()
