"""How many multiply-accumulates a program's commands stand for, to be compared with its header."""

from collections import Counter
from dataclasses import dataclass, field
from math import prod

from tpusim.isa.commands import Command, Conv, Source
from tpusim.isa.stream import Location, Program
from tpusim.simulator.placement import Index, slices

_VOLUME = 5
"""Axes of a volume in the network."""


def multiplications(program: Program) -> tuple[int, int | None]:
    """(least, most) that the network may have, by `tpusim.isa.multiplications`.

    Both are the exact number if the tables state the result's size of every op in a group, and the input's size of
    every transposed convolution; otherwise the most is None. Compiled programs state both.
    """
    counts = _Counts(program)
    for command in program.commands:
        counts.add(command)
    return counts.total()


@dataclass
class _Sum:
    """An op in a group: for a convolution the numbers that its commands state, for other ops the sum of their work.

    A depthwise convolution counts as another op, because its accumulated taps are separate products (codegen.md DC-09).
    """

    asked: list[int] = field(default_factory=list[int])
    done: int = 0


class _Counts:
    """The counts of single commands, and of the ops of groups, whose slices may compute elements repeatedly."""

    def __init__(self, program: Program) -> None:
        self._entries = {entry.name: entry for entry in program.tensors}
        self._inputs: dict[Source, Index] = {who: pieces[0].whole for who, pieces in slices(program).items()}
        self._results: dict[str, Location] = {location.tensor: location for location in program.locations}
        self._computed: Counter[str] = Counter()
        for location in program.locations:
            self._computed[location.tensor] += location.view.elements
        self._ops: dict[str, _Sum] = {}
        self._single, self._unsure, self._unknown = 0, 0, False

    def add(self, command: Command) -> None:
        """Count the products of one command."""
        body = command.computed
        done = body.multiplications(body.writes()[0].elements if body.writes() else 0, _elements(body))
        if not done:
            return
        inputs = self._all_inputs(command, body)
        if inputs is None:
            self._unknown = True
        elif not command.in_group:
            self._single += body.multiplications(body.writes()[0].elements, inputs)
        elif command.op in self._results:
            self._add_to_op(self._ops.setdefault(command.op, _Sum()), self._results[command.op], body, inputs, done)
        else:
            self._unsure += done

    def _add_to_op(self, op: _Sum, result: Location, body: Command, inputs: int, done: int) -> None:
        volume = len(result.shape) == _VOLUME
        if isinstance(body, Conv) and body.accumulate and not volume and op.asked:  # further taps (codegen.md DC-09)
            op.asked[-1] += body.multiplications(prod(result.shape), inputs)
        elif isinstance(body, Conv) or body.transposed:
            depth = body.depths if isinstance(body, Conv) and volume else 1
            op.asked.append(body.multiplications(prod(result.shape), inputs, depth))
        else:
            op.done += done

    def _all_inputs(self, command: Command, body: Command) -> int | None:
        """Elements of the whole input of a transposed convolution; 0 for other commands. None: not stated."""
        if not body.transposed:
            return 0
        source = next(iter(command.sources), Source(""))
        if body is not command:
            entry = self._entries.get(source.name)
            return None if entry is None else prod(entry.shape or entry.view.shape)
        whole = self._inputs.get(source)
        if whole is None:
            return None
        return prod(whole) if command.in_group else prod(body.reads()[0].shape[:2]) * prod(whole[2:])

    def total(self) -> tuple[int, int | None]:
        """(least, most) of all commands."""
        least = most = self._single
        for name, op in self._ops.items():
            known = op.done * prod(self._results[name].shape) // self._computed[name]
            least += min(op.asked, default=0) + known
            most += max(op.asked, default=0) + known
        return least, None if self._unknown else most + self._unsure


def _elements(body: Command) -> int:
    return body.reads()[0].elements if body.transposed else 0
