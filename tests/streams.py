"""Hand-built programs for the tests of the ISA and the machine."""

from collections import Counter
from typing import Any

import numpy as np
from msgspec import structs

from tpusim import chips
from tpusim.isa.commands import Command, GlobalKernel, SendMessage, WaitMessage
from tpusim.isa.region import View, dtype_of
from tpusim.isa.stream import FORMAT_VERSION, CoefficientEntry, GroupEntry, Header, Program, TensorEntry
from tpusim.simulator.multiplications import multiplications

COEFF = 0x1_0000_0000
"""Start of the coefficient region of every hand-built program."""
NEURON = 0x2_0000_0000
"""Start of the neuron region."""


def lmem(address: int, shape: tuple[int, ...], dtype: str = "i8", layout: str = "aligned", **more: Any) -> View:
    return View("lmem", address, shape, dtype, layout, **more)  # type: ignore[arg-type]


def gmem(address: int, shape: tuple[int, ...], dtype: str = "i8", layout: str = "dense", **more: Any) -> View:
    return View("gmem", address, shape, dtype, layout, **more)  # type: ignore[arg-type]


def neuron(offset: int, shape: tuple[int, ...], dtype: str = "i8", **more: Any) -> View:
    return gmem(NEURON + offset, shape, dtype, **more)


class Builder:
    """Numbers commands per engine of a core and collects tensors and coefficients."""

    def __init__(self, chip: str = "bm1684x", neuron_bytes: int = 1 << 16):
        self.chip = chips.load(chip)
        self.neuron_bytes = neuron_bytes
        self.commands: list[Any] = []
        self.tensors: list[TensorEntry] = []
        self.coefficients = np.zeros(0, np.uint8)
        self.constants: list[CoefficientEntry] = []
        self.counts: Counter[tuple[int, str]] = Counter()

    def tensor(self, name: str, view: View, role: str = "interior", **more: Any) -> View:
        self.tensors.append(TensorEntry(name, view, role, **more))  # type: ignore[arg-type]
        return view

    def coefficient(self, array: np.ndarray, name: str = "") -> View:
        """Append a dense tensor to the coefficient region."""
        address = COEFF + self.coefficients.size
        if name:
            self.constants.append(CoefficientEntry(name, address, array.nbytes))
        self.coefficients = np.concatenate([self.coefficients, np.frombuffer(array.tobytes(), np.uint8)])
        return gmem(address, array.shape, dtype_of(array.dtype))

    def add(self, kind: type[Command], /, dep: int | None = None, **fields: Any) -> Command:
        """Append a command; without `dep` it waits for everything issued before it."""
        core, other = fields.get("core", 0), "gdma" if kind.engine == "tiu" else "tiu"
        self.counts[core, kind.engine] += 1
        fields = {"op": "op", "group": 0, **fields}
        if kind is GlobalKernel:
            moved = [sum(view.nbytes for view in views) for views in (fields["body"].reads(), fields["body"].writes())]
            fields = {"load_bytes": moved[0], "store_bytes": moved[1], **fields}
        dep = self.counts[core, other] if dep is None else dep
        command = kind(id=self.counts[core, kind.engine], dep=dep, **fields)
        self.commands.append(command)
        return command

    def barrier(self, message: int, cores: int = 2) -> None:
        """All cores wait for each other; what follows depends on what is before."""
        for kind in (SendMessage, WaitMessage):
            for core in range(cores):
                self.add(kind, core=core, message=message, count=cores)

    def program(self, **header: Any) -> Program:
        fields: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "tpusim": "test",
            "chip": self.chip.name,
            "model": "hand",
            "mode": "int8",
            "coeff_address": COEFF,
            "coeff_bytes": self.coefficients.size,
            "neuron_address": NEURON,
            "neuron_bytes": self.neuron_bytes,
            "macs": 0,
            "checksums": {},
        }
        commands: tuple[Command, ...] = tuple(self.commands)
        groups = tuple(self._group(number) for number in range(max((c.group for c in commands), default=0) + 1))
        tables = tuple(self.tensors), groups, commands, self.coefficients
        program = Program(Header(**{**fields, **header}), *tables, constants=tuple(self.constants))
        macs = header.get("macs", multiplications(program)[0])
        return structs.replace(program, header=structs.replace(program.header, macs=macs))

    def _group(self, number: int) -> GroupEntry:
        """What the commands of a group say of it."""
        own = [c for c in self.commands if c.group == number and c.step and c.engine == "tiu"]
        secs = {"n": 1, "c": 1, "d": 1, "h": max(1, len({c.step for c in own})), "w": 1}
        return GroupEntry(number, tuple(dict.fromkeys(c.op for c in own)), secs, self.chip.lmem_bytes)
