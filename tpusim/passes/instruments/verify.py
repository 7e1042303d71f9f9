"""Verification of the module after every pass."""

from typing_extensions import override

from tpusim.ir.text import verify
from tpusim.passes.instruments.base import Instrument, Step


class Verify(Instrument):
    """Raises ImportModelError that names the pass after which the module does not verify."""

    @override
    def after(self, step: Step) -> None:
        if not (step.step.reads_only or step.step.composite):
            verify(step.model.module, f"after {step.name}")
