"""Files of the module around passes: text, and pictures of its ops."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from typing_extensions import override

from tpusim.host.files import replacing
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.passes.instruments.base import Instrument, Step
from tpusim.passes.instruments.pictures import dot, svg

When = Literal["before", "after", "change"]


def mlir(model: Model) -> str:
    """The module as text."""
    return print_module(model.module)


FORMS: dict[str, Callable[[Model], str]] = {"mlir": mlir, "dot": dot, "svg": svg}
"""What a file is, by its suffix."""


class Dump(Instrument):
    """Writes files named by number and pass into a folder. change: after a pass, only if it changed the text.

    forms: of FORMS. The text names the weights of the module as they were read; they are not written.
    """

    def __init__(self, folder: Path, when: Collection[When], forms: Collection[str] = ("mlir",)) -> None:
        self._folder, self._when, self._forms = folder, when, forms
        self._number = 0
        self._texts: list[str] = []

    @override
    def before(self, step: Step) -> None:
        if step.step.composite:
            return
        self._number += 1
        self._texts.append(print_module(step.model.module) if "change" in self._when else "")
        if "before" in self._when:
            self._write(step, "before")

    @override
    def after(self, step: Step) -> None:
        if step.step.composite:
            return
        earlier = self._texts.pop()
        changed = "change" in self._when and print_module(step.model.module) != earlier
        if changed or "after" in self._when:
            self._write(step, "after")

    @override
    def failed(self, step: Step, error: Exception) -> None:
        if not step.step.composite and self._texts:
            self._texts.pop()

    def _write(self, step: Step, when: str) -> None:
        for form in self._forms:
            with replacing(self._folder / f"{self._number:02}_{when}_{step.name}.{form}") as path:
                path.write_text(FORMS[form](step.model), encoding="utf-8")
