"""Values of attributes as plain Python values, to compare an attribute with a value that the table writes as text."""

import json
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr, i1
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute
from xdsl.utils.str_enum import StrEnum

Plain = bool | int | float | str | list["Plain"]


def plain(attribute: Attribute) -> Plain:
    """The value of an attribute: a number, a string, the name of an enumeration's case, a list, or its printed text."""
    if isinstance(attribute, ArrayAttr):
        return [plain(item) for item in cast("ArrayAttr[Attribute]", attribute).data]
    if isinstance(attribute, IntegerAttr):
        number = cast("IntegerAttr", attribute)
        return bool(number.value.data) if number.type == i1 else number.value.data
    if isinstance(attribute, FloatAttr):
        return attribute.value.data
    if isinstance(attribute, EnumAttribute):
        return str(cast("EnumAttribute[StrEnum]", attribute).data)
    return attribute.data if isinstance(attribute, StringAttr) else str(attribute)


def read(text: str) -> Plain:
    """The value that the table writes as `false`, `-1.0`, `[1, 1]` or `HalfUp`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
