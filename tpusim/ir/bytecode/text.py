"""Attributes and types that bytecode holds as MLIR text."""

from xdsl.context import Context
from xdsl.ir import Attribute
from xdsl.utils.exceptions import ParseError
from xdsl.utils.mlir_lexer import MLIRTokenKind

from tpusim.ir.attrs import LayerGroupAttr
from tpusim.ir.bytecode.entries import TextParser
from tpusim.ir.splats import Budget
from tpusim.ir.text import ModuleParser

SHOWN = 80
"""Characters of a text that errors quote."""
SHORT_CUTS = {f"#{LayerGroupAttr.name}<": LayerGroupAttr.of_text}
"""Attributes that a module has one of for each op, by the beginning of their text."""


def parser_for(ctx: Context, file: str, budget: Budget | None = None) -> TextParser:
    """What parses the text of attributes and types with the dialects of a context. budget: for their splats."""

    def parse(text: str, is_type: bool) -> Attribute:
        short_cut = SHORT_CUTS.get(text[: text.find("<") + 1])
        found = short_cut(text) if short_cut else None
        return found or _parsed(ctx, text, file, is_type, budget)

    return parse


def _parsed(ctx: Context, text: str, file: str, is_type: bool, budget: Budget | None) -> Attribute:
    try:
        parser = ModuleParser(ctx, text, file, budget)
        found = parser.parse_type() if is_type else _attribute(parser)
    except ParseError as error:
        raise ValueError(f"the text `{text[:SHOWN]}` does not parse: {error.msg}") from error
    if parser._current_token.kind != MLIRTokenKind.EOF:  # pyright: ignore[reportPrivateUsage]
        raise ValueError(f"the text `{text[:SHOWN]}` has more than one attribute or type")
    return found


def _attribute(parser: ModuleParser) -> Attribute:
    return parser.parse_optional_location() or parser.parse_attribute()
