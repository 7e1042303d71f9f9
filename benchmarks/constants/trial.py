"""The models with another value in the place of a fitted constant."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec.structs import replace

import tpusim
from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.compat import Fitted
from tpusim.isa import functions as fn

ROOT = Path(tpusim.__file__).parent


@dataclass(frozen=True)
class Home:
    """Where a variable stands: its module, its name, and the key where it is a table."""

    module: ModuleType
    name: str
    key: int | None = None

    @property
    def value(self) -> Any:
        """The value that is used."""
        found = getattr(self.module, self.name)
        return found if self.key is None else found[self.key]

    @contextmanager
    def having(self, value: Any) -> Iterator[None]:
        """With another value, until the end of the block, in the modules that import the variable too."""
        kept = getattr(self.module, self.name)
        modules = [self.module, *(m for m in _product_modules() if vars(m).get(self.name) is kept)]
        changed = value if self.key is None else {**kept, self.key: value}
        for module in modules:
            setattr(module, self.name, changed)
        try:
            yield
        finally:
            for module in modules:
                setattr(module, self.name, kept)


def _product_modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("tpusim.") and module is not None]


@dataclass(frozen=True)
class StepsOf:
    """The arithmetic steps of a macro function; `least`: one whose parameters add no steps."""

    least: fn.Function

    @property
    def name(self) -> str:
        """As the row has it."""
        return f"{type(self.least).__name__}.made_of"

    @property
    def value(self) -> Any:
        """The value that is used."""
        return self.least.made_of(1).arithmetic

    @contextmanager
    def having(self, value: Any) -> Iterator[None]:
        """With another value for all functions of the class, until the end of the block."""
        kind, used = type(self.least), self.value
        kept = kind.made_of

        def made_of(self: fn.Function, operands: int) -> Any:
            steps = kept(self, operands)
            return steps._replace(arithmetic=steps.arithmetic + value - used)

        kind.made_of = made_of
        try:
            yield
        finally:
            kind.made_of = kept


_STEPS = {each.name: each for each in (StepsOf(fn.Lrn(0, 1.0, 1.0, 1.0)), StepsOf(fn.LayerNorm(3, 1e-5, True, True)))}


def home(row: Fitted) -> Home | StepsOf:
    """Where the value of a row stands: a function's steps, or the variable whose text cites the row.

    Raises LookupError if no text does.
    """
    if row.name in _STEPS:
        return _STEPS[row.name]
    name, _, key = row.name.partition("[")
    for path, cited, names in _citations():
        if row.number in cited and name in names:
            module = ".".join(("tpusim", *path.relative_to(ROOT).with_suffix("").parts))
            return Home(import_module(module.removesuffix(".__init__")), name, int(key[:-1]) if key else None)
    raise LookupError(f"{row.number}: an assignment to {name} with a text that cites it is required, got none")


@cache
def _citations() -> tuple[tuple[Path, str, frozenset[str]], ...]:
    """(file, text, names) of every assignment that is followed by a text which cites a fitted constant."""
    found: list[tuple[Path, str, frozenset[str]]] = []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "F-" not in text:
            continue
        body = ast.parse(text).body
        for statement, note in zip(body, body[1:], strict=False):
            if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant) and "F-" in str(note.value.value):
                names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                found.append((path, str(note.value.value), frozenset(names)))
    return tuple(found)


def used(row: Fitted) -> dict[str, Any]:
    """The value that is used, by chip where it is a field of a chip's file, else by ""."""
    return {chip: field(chips.load(chip), row.name) for chip in row.chips} or {"": home(row).value}


def field(chip: ChipSpec, name: str) -> Any:
    """A field of a chip, or a field of one (`bandwidth.s2l`)."""
    found: Any = chip
    for part in name.split("."):
        found = getattr(found, part)
    return found


def changed(chip: str, name: str, value: Any) -> ChipSpec:
    """A chip with another value of a field. It has another name too, which no cache of a model has met."""
    spec, (outer, _, inner) = chips.load(chip), name.partition(".")
    value = replace(getattr(spec, outer), **{inner: value}) if inner else value
    return replace(spec, name=f"{chip} {name}={value}", **{outer: value})


def renamed(chip: str, value: Any) -> ChipSpec:
    """A chip for a model with another value of a variable, under a name that no cache has met."""
    return replace(chips.load(chip), name=f"{chip} {value}")
