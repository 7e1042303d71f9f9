"""Macro command: a function made of SFU and AR sequences."""

from typing import Any, Self, cast

from tpusim.isa.commands.base import Command
from tpusim.isa.decoding import convert, kind_of
from tpusim.isa.functions.base import AnyFunction
from tpusim.isa.region import View
from tpusim.registry import FUNCTIONS


class Fn(Command, frozen=True, tag="fn"):
    """Macro command: a function made of SFU and AR sequences, costed as the sum of its parts (DC-04).

    function: one of `tpusim.isa.functions` with its parameters; it says which operands it takes.
    """

    inputs_ = ("inputs",)

    function: AnyFunction
    inputs: tuple[View, ...]
    output: View

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """As of any command, with the function that its name says."""
        given = fields.get("function")
        if not isinstance(given, dict):
            return super().decoded(fields)  # says what is missing or of a wrong type
        function = cast("dict[str, Any]", given)
        return super().decoded(fields | {"function": convert(function, kind_of(FUNCTIONS, function.get("name")))})
