"""What a wrong element is instead, in words.

The wrong element is looked up among all tensors of the module, for several seeds, so that no other element has
its number by chance. If it is none of them, the first elements that the command reads are looked up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpusim.field import Elements
from tpusim.isa.commands import Command
from tpusim.isa.region import View, is_packed
from tpusim.isa.stream import Program
from tpusim.simulator.checked import Mismatch
from tpusim.simulator.field import FieldMachine

_AXES = {4: "nchw", 5: "ncdhw"}


@dataclass(frozen=True)
class Evidence:
    """One seed: the elements of the module's tensors, the memory after the wrong command, and what was wrong."""

    tensors: Mapping[str, Elements]
    memory: FieldMachine
    wrong: Mismatch | None


def explained(wrong: Mismatch, evidence: Sequence[Evidence], program: Program) -> str:
    """What stands in the place of the expected element, and what the command reads."""
    same = [e for e in evidence if e.wrong is not None and (e.wrong.index, e.wrong.where) == (wrong.index, wrong.where)]
    tensors = [e.tensors for e in same]
    place = located(tensors, [int(e.wrong.found) for e in same if e.wrong is not None])
    command = program.commands[wrong.index]
    if place:
        return f"the element found is {place}"
    read = [f"{name} begins with {what}" for name, view in _operands(command) if (what := _first(view, same, program))]
    return f"it computes another expression; {', '.join(read)}" if read else "it computes another expression"


def located(tensors: Sequence[Mapping[str, Elements]], values: Sequence[int]) -> str:
    """The tensor and index that have these elements in every seed, empty if none has."""
    if len(values) < 2:  # noqa: PLR2004  one number may be anywhere
        return ""
    for name, first in tensors[0].items():
        others = [found[name].reshape(-1) for found in tensors[1:]]
        for at in np.flatnonzero(first.reshape(-1) == values[0]):
            if all(int(other[at]) == value for other, value in zip(others, values[1:], strict=True)):
                return f"{indexed(first.shape, int(at))} of '{name}'"
    return ""


def indexed(shape: tuple[int, ...], flat: int) -> str:
    """The index of an element by axis."""
    names = _AXES.get(len(shape)) or [f"axis{i}" for i in range(len(shape))]
    return ", ".join(f"{name}={int(i)}" for name, i in zip(names, np.unravel_index(flat, shape), strict=True))


def _operands(command: Command) -> list[tuple[str, View]]:
    body = command.computed
    written = {view.address for view in body.writes()}
    return [(name, view) for name, view in body.operands() if name in body.inputs_ and view.address not in written]


def _first(view: View, evidence: Sequence[Evidence], program: Program) -> str:
    """What the first element of a view is."""
    if is_packed(view.dtype) or not view.elements:
        return ""
    values = [int(e.memory.read(view).reshape(-1)[0]) for e in evidence]
    return located([e.tensors for e in evidence], values) or _constant(view, evidence, program)


def _constant(view: View, evidence: Sequence[Evidence], program: Program) -> str:
    """The constant, and its byte, from which the first byte of a view comes; empty if it comes from none."""
    same = np.ones(program.coefficients.size, np.bool_)
    for e in evidence:
        same &= e.memory.numbers_of_constants() == int(e.memory.raw(view).reshape(-1)[0])
    places = np.flatnonzero(same) + program.header.coeff_address
    for entry in program.constants:
        inside = places[(places >= entry.address) & (places < entry.address + entry.size)]
        if len(inside) and len(evidence) > 1:
            return f"byte {int(inside[0]) - entry.address} of constant '{entry.name}'"
    return ""
