"""What tpusim needs of xDSL that is not public: pyproject.toml's upper bound is there for these names alone.

A release that renames one fails here with its name, not somewhere in a parser.
"""

from __future__ import annotations

import ast
from pathlib import Path

from xdsl.parser import Parser
from xdsl.utils.mlir_lexer import MLIRLexer

from tpusim.ir import text
from tpusim.ir.text import context

PACKAGE = Path(text.__file__).parent.parent
PRIVATE = {
    "_unescaped_characters_regex": "strings that are not closed cost no exponential time",
    "_parser_state": "takes that lexer",
    "_current_token": "what comes next",
    "_consume_token": "goes on by a token",
    "_resume_from": "goes to another place: to an alias that is defined later, after a list of integers",
    "_parse_alias_def": "location aliases may be defined after their uses, as MLIR prints them",
    "_parse_location": "the same; fused locations with metadata",
    "_parse_optional_array_attr": "lists of integers in one go: nearly all of a lowered module's text",
    "_register_ssa_definition": "names of values, which name ops",
    "_get_op_by_name": "classes of ops of dialects that are loaded when a file names them; opaque ops of TPU-MLIR",
    "_parse_dialect_type_or_attribute_body": "quant types that are kept and not computed with",
    "_parse_dense_literal_type": "literals of equal elements, which take no memory for each",
    "_parse_external_resources": "resources of other tools, which are passed over",
}
"""Name -> what for."""


def used(source: str, known: set[str]) -> set[str]:
    """Names of attributes, methods and class variables of a source that are among the known ones."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.Name(id=name):
                names.add(name)
            case _:
                pass
    return names & known


def test_private_names_of_xdsl_are_these():
    names = {name for one in (Parser(context(), ""), MLIRLexer) for name in dir(one)}
    known = {name for name in names if name.startswith("_") and not name.startswith("__")}
    assert used((PACKAGE / "ir" / "text.py").read_text(), known) == set(PRIVATE)
    others = {path.name: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "text.py"}
    assert not [name for name, source in others.items() if "xdsl.parser" in source and used(source, known)]
