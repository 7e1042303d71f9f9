"""Counts the stage files of ours that TPU-MLIR's `tpuc-opt` reads, and whether what it prints is the same module.

TPUSIM_UPSTREAM=FOLDER python -m benchmarks.conformance.spelling --only 'digits/*' 'conv/bm1684x/*'
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path

import onnx
import tyro
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation

from benchmarks.conformance.ours import NETWORKS, source
from benchmarks.conformance.upstream import Upstream
from tpusim import chips
from tpusim.cli import main as tpusim
from tpusim.errors import ImportModelError, TpusimError
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.upstream import OpEntry, defined_attributes, entry
from tpusim.ops import context

SAID = re.compile(r"^(?!#|module|[}]|\s).*\n", re.MULTILINE)
"""Lines of the tool's libraries, which are no part of the module."""
CHIPS = ("cv181x", "cv183x", "bm1684", "bm1684x", "bm1688")
MODES = ("int8", "f16", "bf16", "f32")


@dataclass
class Spelling:
    """Compile networks, and let `tpuc-opt` read and print every stage file."""

    only: tuple[str, ...] = ("*",)
    """Cells NETWORK/CHIP/MODE that match one of these globs."""
    files: Path | None = None
    """Read the stage files (*.mlir) of this folder and those below it; nothing is compiled."""

    def execute(self) -> None:
        """One line for each file that is refused or changed, then the count."""
        found = Counter[str]()
        for name, path in self._folder(self.files) if self.files else self._compiled():
            verdict = judge(path)
            found[verdict.split(":")[0]] += 1
            if verdict != "same":
                print(f"{name}/{path.name} {verdict}", flush=True)
        print(", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items())) or "no file")

    @staticmethod
    def _folder(folder: Path) -> Iterator[tuple[str, Path]]:
        return ((str(path.parent.relative_to(folder)), path) for path in sorted(folder.rglob("*.mlir")))

    def _compiled(self) -> Iterator[tuple[str, Path]]:
        """(cell, file) of every stage file; a cell that does not compile is named."""
        for network, chip, mode in self._cells():
            with tempfile.TemporaryDirectory() as folder:
                model, out = Path(folder) / f"{network}.onnx", Path(folder) / "out"
                onnx.save(source(network)[0], model)
                words = f"--chip {chip} --mode {mode} --to assign --data random:2 --method max --tune-num 0 --quiet"
                said = StringIO()
                with redirect_stderr(said), redirect_stdout(said):
                    code = tpusim(["run", str(model), *words.split(), "--out", str(out)])
                if code:
                    print(f"{network}/{chip}/{mode} not compiled: {said.getvalue().strip().splitlines()[-1]}")
                yield from ((f"{network}/{chip}/{mode}", path) for path in sorted(out.glob("*.mlir")))

    def _cells(self) -> Iterator[tuple[str, str, str]]:
        for network in NETWORKS:
            for chip in CHIPS:
                for mode in MODES:
                    wanted = any(fnmatch(f"{network}/{chip}/{mode}", pattern) for pattern in self.only)
                    if wanted and mode in chips.load(chip).modes:
                        yield network, chip, mode


def judge(path: Path) -> str:
    """`same`, or why the tool refuses a stage file, or how its output differs."""
    upstream = Upstream.find()
    found = upstream.call(path.parent, "tpuc-opt", path.name)
    if found.returncode:
        return f"refused: {_reason(found.stderr)}"
    found = upstream.call(path.parent, "tpuc-opt", "--mlir-print-debuginfo", path.name)
    if found.returncode:  # with an option the tool reads the weights, too
        return f"weights refused: {_reason(found.stderr)}"
    ctx = context()
    try:
        before = parse_module(path.read_text(encoding="utf-8"), ctx)
        after = parse_module(SAID.sub("", found.stdout), ctx)
    except ImportModelError as error:
        return f"unread: {error}"
    return difference(plain(before), plain(after))


def _reason(said: str) -> str:
    return (said.strip().splitlines() or ["no reason"])[0][:300]


def plain(module: ModuleOp) -> list[str]:
    """The lines of a module without the attributes that no class of ours defines.

    The tool writes the weights to a file that it names itself.
    """
    module.attributes = {k: v for k, v in sorted(module.attributes.items()) if k != "module.weight_file"}
    for op in module.walk():
        if isinstance(op, IRDLOperation) and (known := entry(op.name)):  # others are opaque
            defined, stated = defined_attributes(type(op)), sorted(op.attributes.items())
            op.attributes = {
                k: v for k, v in stated if (k in defined or k not in known.attributes) and not is_default(known, k, v)
            }
        arguments = (a for region in op.regions for block in region.blocks for a in block.args)
        for value in (*op.results, *arguments):
            value.name_hint = None
    return print_module(module).splitlines()


def is_default(known: OpEntry, name: str, value: Attribute) -> bool:
    """Whether an attribute has the value that it has when it is absent."""
    found = known.attributes.get(name)
    return found is not None and found.changes_nothing(value)


def difference(before: list[str], after: list[str]) -> str:
    """The first line that differs."""
    if before == after:
        return "same"
    pairs = ((a, b) for a, b in zip(before, after, strict=False) if a != b)
    a, b = next(pairs, (str(len(before)), str(len(after))))
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"changed: {a[max(at - 80, 0) : at + 60]} -> {b[max(at - 80, 0) : at + 60]}"


if __name__ == "__main__":
    try:
        tyro.cli(Spelling).execute()
    except TpusimError as error:
        raise SystemExit(str(error)) from None
