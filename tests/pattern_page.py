"""docs/patterns.md: every rewrite pattern and pass, each with its example of `tests/filecheck`.

`python -m pattern_page docs/patterns.md` (`make patterns`) writes it; a test holds it current. The patterns are those
that ops and targets register; nothing else lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xdsl.pattern_rewriter import RewritePattern

from tpusim import chips
from tpusim.interfaces import ask_class
from tpusim.ir.pdl import DataPattern
from tpusim.ir.pdl.picture import picture
from tpusim.ir.weights import WeightStore
from tpusim.ops import Top, Tpu
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.interfaces import ChipRewrites, FusingRewrites, LoweredRewrites
from tpusim.registry import PASSES, PATTERNS

EXAMPLES = Path(__file__).with_name("filecheck")
CANONICALIZE, TOP, FUSE, TPU = "canonicalize", "processor-top-optimize", "fuse-tpu-ops", "processor-tpu-optimize"
HEAD = """# Patterns and passes

`make patterns` writes this page; do not edit it. It lists the passes of the compiler and the rewrite patterns that each
applies. An example is a file that the tests run: the module before the pass, and `CHECK` lines of the module after it,
in the notation of LLVM's FileCheck. Its first line is the command; a line `// WEIGHT name = 1 2 3` gives the data of a
constant, repeated until the tensor is full. `python tests/filecheck_examples.py FILE` prints the module after the pass.

Patterns that are [data](generic_passes.md#patterns-as-data) are drawn before their examples: the ops that they match,
with the conditions, and after the arrow what becomes of the last op. Functions in lower case are of Python.
"""


@dataclass(frozen=True)
class Registered:
    """A pattern: the pass that applies it, the ops that bring it, the chips that have it (empty: every chip)."""

    pattern: type[RewritePattern]
    step: str
    ops: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    request: str = ""

    @property
    def example(self) -> tuple[str, str]:
        """Folder and name of its example."""
        return self.step, self.pattern.__name__


def registered() -> list[Registered]:
    """All patterns, by pass and name."""
    brought: dict[tuple[str, type[RewritePattern]], tuple[set[str], set[str]]] = {}
    for step, patterns, op, chip in _brought():
        for pattern in patterns:
            ops, of_chips = brought.setdefault((step, type(pattern)), (set(), set()))
            ops.add(op)
            of_chips.add(chip)
    found = [
        Registered(pattern, step, tuple(sorted(ops)), tuple(sorted(of_chips - {""})))
        for (step, pattern), (ops, of_chips) in brought.items()
    ]
    asked: dict[str, RewritePattern] = {name: make(WeightStore()) for name, make in PATTERNS.shipped().items()}
    found += [Registered(type(pattern), CANONICALIZE, request=name) for name, pattern in asked.items()]
    return sorted(found, key=lambda row: row.example)


def _brought() -> Iterator[tuple[str, Iterable[RewritePattern], str, str]]:
    """(pass, patterns, op, chip) of every answer of an op or of a target's model of it."""
    weights = WeightStore()
    top = [op for op in Top.operations if issubclass(op, TopOp)]
    for op in top:
        yield CANONICALIZE, op.canonicalization_patterns(weights), op.name, ""
    for name in chips.names():
        chip = chips.load(name)
        for op in (*top, *(op for op in Tpu.operations if issubclass(op, TpuOp))):
            if (before := ask_class(op, ChipRewrites, chip)) is not None:
                yield TOP, before.chip_patterns(weights, chip), op.name, name
            if (after := ask_class(op, FusingRewrites, chip)) is not None:
                yield FUSE, after.fusing_patterns(chip), op.name, name
            if (lowered := ask_class(op, LoweredRewrites, chip)) is not None:
                yield TPU, lowered.lowered_patterns(weights, chip), op.name, name


def subject(path: Path) -> tuple[str, str]:
    """(pass, pattern) that an example is of, or (pass, pass): `PATTERN[-CASE].mlir` or `PASS[-CASE].mlir`."""
    step = path.parent.name
    return step, step if path.stem == step or path.stem.startswith(f"{step}-") else path.stem.partition("-")[0]


def examples() -> dict[tuple[str, str], list[Path]]:
    """All example files by what they are of."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(EXAMPLES.glob("*/*.mlir")):
        found.setdefault(subject(path), []).append(path)
    return found


def page() -> str:
    """The page as Markdown."""
    rows, files = registered(), examples()
    return "\n".join([HEAD, *(part for step in sorted(PASSES.shipped()) for part in _section(step, rows, files))])


def _section(step: str, rows: list[Registered], files: dict[tuple[str, str], list[Path]]) -> Iterator[str]:
    mine = [row for row in rows if row.step == step]
    yield f"## {step}\n\n{_sentence(PASSES.get(step))}\n"
    yield from _examples(files.get((step, step), []))
    if mine:
        yield "| pattern | of | what becomes what |\n|---|---|---|"
        yield from map(_row, mine)
        yield ""
    for row in mine:
        yield f"### {row.pattern.__name__}\n"
        if issubclass(row.pattern, DataPattern):
            yield f"```text\n{picture(row.pattern())}\n```\n"
        yield from _examples(files.get(row.example, []))


def _sentence(described: type) -> str:
    """The first line of its documentation."""
    return (described.__doc__ or "").strip().partition("\n")[0]


def _row(row: Registered) -> str:
    name = row.pattern.__name__
    of = f"`--also {row.request}`" if row.request else ", ".join(f"`{op}`" for op in row.ops)
    on = f" on {', '.join(row.chips)}" if row.chips and set(row.chips) != set(chips.names()) else ""
    return f"| [{name}](#{name.lower()}) | {of}{on} | {_escaped(_sentence(row.pattern))} |"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("<", r"\<").replace("*", r"\*")


def _examples(paths: list[Path]) -> Iterator[str]:
    """The files, which mkdocs puts in place of the line that names them."""
    for path in paths:
        yield f'```mlir\n--8<-- "{path.relative_to(EXAMPLES.parents[1]).as_posix()}"\n```\n'


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(
            f"the file to write is required, as in `... -m pattern_page docs/patterns.md`; got {sys.argv[1:]}"
        )
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
