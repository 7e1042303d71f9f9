"""Printing of the module before and after passes, in MLIR's form."""

from collections.abc import Callable, Collection

from typing_extensions import override

from tpusim.ir.text import print_module
from tpusim.passes.instruments.base import Instrument, Step

ALL = "*"
"""Stands for every pass."""


class PrintIR(Instrument):
    """Prints the module around passes. before, after: names of passes, or ALL.

    changed_only: after a pass only if it changed the module's text. on_failure: also when a pass raises.
    """

    def __init__(
        self, write: Callable[[str], None], *, before: Collection[str] = (), after: Collection[str] = (),
        changed_only: bool = False, on_failure: bool = False,
    ) -> None:  # fmt: skip
        self._write = write
        self._before, self._after = before, after
        self._changed_only, self._on_failure = changed_only, on_failure
        self._texts: list[str] = []

    @override
    def before(self, step: Step) -> None:
        text = print_module(step.model.module) if self._changed_only or _among(step, self._before) else ""
        self._texts.append(text)
        if _among(step, self._before):
            self._show(f"Before {step.name}", text)

    @override
    def after(self, step: Step) -> None:
        earlier = self._texts.pop()
        if not _among(step, self._after):
            return
        text = print_module(step.model.module)
        if not self._changed_only or text != earlier:
            self._show(f"After {step.name}", text)

    @override
    def failed(self, step: Step, error: Exception) -> None:
        if self._texts:
            self._texts.pop()
        if self._on_failure and not step.step.composite:
            self._show(f"After {step.name} Failed", print_module(step.model.module))

    def _show(self, when: str, text: str) -> None:
        self._write(f"// -----// IR Dump {when} //----- //\n{text}")


def _among(step: Step, names: Collection[str]) -> bool:
    """Whether a pass is meant; ALL means the steps of a composite pass instead of it."""
    return step.name in names or (ALL in names and not step.step.composite)
