"""Stages are chained by pipelines of passes only: nothing else calls one stage after another.

A stage is known by the functions that do its work. Only the passes call several of them, and tests of one stage call
that stage alone. So a new step, an instrument or an option reaches every tool and test by one edit of a pipeline.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAGES = {
    "canonicalize": {"canonicalize"},
    "calibration": {"calibrate", "completed_table"},
    "calibration's table": {"apply_table"},
    "calibration's factors": {"rewritten"},
    "frames": {"fuse_preprocess"},
    "lowering": {"Conversion"},
    "chip_optimize": {"optimize_for_chip"},
    "reorder": {"reorder_weights"},
    "layer_group": {"group_layers", "divide"},
    "memory": {"assign_addresses"},
    "codegen": {"generate"},
}
"""Step of the artefact chain -> the functions and classes that do it."""
OF = {name: stage for stage, names in STAGES.items() for name in names}
NAMED = re.compile(rf"\b({'|'.join(OF)})\b")
ROOMS = tuple(
    f"tpusim.{room}"
    for room in ("canonicalize", "calibration", "lowering", "layer_group", "memory", "codegen", "passes.grouping")
)
MAY = "tpusim/passes/"


def names_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """How the functions of stages are called in a file, as in "stage.calibrate" -> the stage."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tpusim"):
            for alias in node.names:
                called = alias.asname or alias.name
                if node.module.startswith(ROOMS) and alias.name in OF:
                    yield called, OF[alias.name]
                elif f"{node.module}.{alias.name}".startswith(ROOMS):
                    yield from ((f"{called}.{name}", stage) for name, stage in OF.items())
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(ROOMS):
                    yield from ((f"{alias.asname or alias.name}.{name}", stage) for name, stage in OF.items())


def functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The outermost functions and methods, and each statement of the file that is neither."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.ClassDef) else (node,)


def chains(path: str, text: str) -> list[str]:
    """Functions of a file that call functions of two or more stages."""
    if path.startswith(MAY) or len({OF[name] for name in NAMED.findall(text)}) < 2:
        return []
    tree = ast.parse(text)
    known = dict(names_of(tree))
    found: list[str] = []
    for node in functions(tree):
        called = {ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
        stages = {known[name] for name in called & known.keys()}
        if len(stages) > 1:
            name = getattr(node, "name", "its statements")
            found.append(f"{path}: {name} calls {', '.join(sorted(stages))} one after another")
    return found


def files(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_only_passes_chain_stages():
    """Product, benchmarks, examples and tests run pipelines."""
    everything = dict(files("tpusim", "benchmarks", "examples", "tests"))
    assert len(everything) > 500
    assert [line for path, text in everything.items() for line in chains(path, text)] == []


def test_every_stage_is_known_by_names_that_exist():
    """Names that a stage no longer has would let chains pass."""
    rooms = [text for path, text in files("tpusim") if path.replace("/", ".").startswith(ROOMS)]
    assert set(OF) <= {name for text in rooms for name in re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)}


IMPORTS = "from tpusim.canonicalize import canonicalize\nfrom tpusim.calibration.stage import calibrate as measure\n"
PLANTED = (
    f"{IMPORTS}def f(m, s):\n    return measure(canonicalize(m)[0], s)\n",
    f"{IMPORTS}class C:\n    def f(self, m, s):\n        top, _ = canonicalize(m)\n        return measure(top, s)\n",
    f"{IMPORTS}def f(m, s):\n    top = lambda: canonicalize(m)[0]\n    return [measure(top(), s) for _ in s]\n",
    f"{IMPORTS}TABLE = measure(canonicalize(M)[0], S)\n",
    "def f(m):\n    from tpusim.codegen import generate\n    from tpusim.memory import assign_addresses\n"
    "    return generate(assign_addresses(m))\n",
    "from tpusim import codegen, memory\ndef f(m):\n    return codegen.generate(memory.assign_addresses(m))\n",
    "import tpusim.codegen as c\nimport tpusim.memory\ndef f(m):\n"
    "    return c.generate(tpusim.memory.assign_addresses(m))\n",
)
ALONE = (
    f"{IMPORTS}def f(m):\n    return canonicalize(m)\ndef g(m, s):\n    return measure(m, s)\n",
    f"{IMPORTS}def f(m, s):\n    return measure(m, s), measure(m, s[1:])\n",
    "def f(calibrate, generate):\n    return generate(calibrate())\n",
)


@pytest.mark.parametrize("text", PLANTED)
def test_checker_sees_a_chain(text: str):
    assert len(chains("tests/planted.py", text)) == 1
    assert chains("tpusim/passes/planted.py", text) == []


@pytest.mark.parametrize("text", ALONE)
def test_checker_passes_one_stage(text: str):
    assert chains("tests/planted.py", text) == []
