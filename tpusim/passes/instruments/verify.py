"""Verification of the module after every pass that has changed it."""

from collections.abc import Iterator

from typing_extensions import override
from xdsl.dialects.builtin import ModuleOp

from tpusim.ir.text import verify
from tpusim.passes.instruments.base import Instrument, Step


class Verify(Instrument):
    """Raises ImportModelError that names the pass after which the module does not verify."""

    def __init__(self) -> None:
        self._verified: list[tuple[object, ...]] = []

    @override
    def after(self, step: Step) -> None:
        if step.step.reads_only or step.step.composite:
            return
        content = list(_content(step.model.module))
        if content != self._verified:
            verify(step.model.module, f"after {step.name}")
            self._verified = content


def _content(module: ModuleOp) -> Iterator[tuple[object, ...]]:
    """Everything that verification reads: attributes and types are immutable, so equal content has one result."""
    for op in module.walk():
        yield op, *op.operands, *op.properties.items(), *op.attributes.items()
        yield tuple(result.type for result in op.results)
        for region in op.regions:
            for block in region.blocks:
                yield block, *(argument.type for argument in block.args)
