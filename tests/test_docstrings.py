"""Docstrings of both packages are sentences: `f32.` alone tells a reader nothing."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEAST_WORDS = 4


def fragments(source: str) -> list[str]:
    """Names of modules, classes and functions whose whole docstring has fewer words than a sentence."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [(node, ast.get_docstring(node)) for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    short = [node for node, said in nodes if said is not None and len(said.split()) < LEAST_WORDS]
    return [getattr(node, "name", "module") for node in short]


def test_no_docstring_is_a_fragment():
    sources = {path: path.read_text("utf-8") for tree in ("tpusim", "kernels") for path in (ROOT / tree).rglob("*.py")}
    assert len(sources) > 300
    assert {str(path.relative_to(ROOT)): found for path, text in sources.items() if (found := fragments(text))} == {}


def test_a_fragment_is_found():
    assert fragments('"""One."""\nclass A:\n    """In f32."""\n    def b(self):\n        """What b does here."""') == [
        "module",
        "A",
    ]
