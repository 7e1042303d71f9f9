"""Compares a cell with recorded data instead of the real tools: what tests/test_upstream.py runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from benchmarks.conformance import recorded
from benchmarks.conformance.compare import Pairs, compare_alone, compare_lowering, told_by_chip
from benchmarks.conformance.explained import reason
from benchmarks.conformance.ours import Shared, alone
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.results import Difference, Part
from benchmarks.conformance.text import Op, read
from tests.upstream import networks as small
from tpusim.calibration.table import CalibrationTable
from tpusim.canonicalize import canonicalize
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.host.files import replacing
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.passes import PassContext, PassManager
from tpusim.passes.lowering import ConvertTopToTpu
from tpusim.passes.pipelines import integers

DIFFERING = recorded.FOLDER.parent / "differing.json"
PARTS = ("lowering", "tensors")
REASONED = {"lowering": "lowering", "tensors": "ops"}
"""Part of a recorded cell -> the part of the comparison with its reasons."""


@cache
def _data(name: str) -> recorded.Recorded:
    found, now = recorded.read(name), small.fingerprint(small.build(name))
    if found.content.fingerprint != now:
        raise TpusimError(
            f"tests/upstream/data/{name}.npz: the data of network {now:#x} is required, got "
            f"{found.content.fingerprint:#x}; record it again (make upstream-data)"
        )
    return found


@cache
def _canonical(name: str) -> Model:
    return canonicalize(import_onnx(small.build(name), name=name))[0]


@cache
def _table(name: str) -> CalibrationTable:
    content = _data(name).content
    return Shared(content.table, content.own, content.top).by_our_names(_ops(_canonical(name)))


@dataclass
class Replay:
    """One of our networks with its recorded file; a process reads, imports and canonicalizes each network once."""

    name: str

    @property
    def data(self) -> recorded.Recorded:
        """The recorded file. Raises TpusimError if it was made from another network than `small.build` gives."""
        return _data(self.name)

    @property
    def canonical(self) -> Model:
        """Our canonical module."""
        return _canonical(self.name)

    @property
    def table(self) -> CalibrationTable:
        """The recorded table by our names."""
        return _table(self.name)

    def lowered(self, cell: str) -> Model:
        """Our lowered module of a cell CHIP/MODE."""
        settings = config(*cell.split("/"))
        if not settings.format.calibrated:
            return PassManager(ConvertTopToTpu.from_config(settings)).run(self.canonical)
        return PassManager(integers(settings)).run(self.canonical, PassContext(table=self.table))

    def constants(self, cell: str, tpu: Model) -> Part:
        """Lowering: types, scales, multipliers, shifts, constants."""
        theirs = self.data.content.cells[cell]
        ours = {name: array for name, array in tpu.weights.items() if recorded.is_kept(array)}
        return compare_lowering(_ops(tpu), theirs.ops, ours, self.data.arrays(theirs.constants))

    def tensors(self, cell: str, tpu: Model) -> Part:
        """Every tensor, each op on the recorded operands."""
        given, pairs = self.data.content.cells[cell], self._pairs(cell, tpu)
        theirs, chip = self.data.arrays(given.tensors), told_by_chip(given.ops, self.data.arrays(given.outputs))
        operands = theirs | self.data.arrays(given.unrounded)
        known = {a.name: operands[b.name] for a, b in pairs if b.name in operands}
        return compare_alone(pairs, alone(tpu, self.data.arrays(self.data.content.inputs), known), theirs, chip)

    def firsts(self, key: Key) -> dict[str, Difference]:
        """The first difference of every part of a cell that differs, by NETWORK/CHIP/MODE/PART."""
        try:
            parts = dict(self.parts(f"{key.chip}/{key.mode}"))
        except TpusimError as error:
            return {f"{key}/{part}": Difference("", f"refused: {error}") for part in PARTS}
        return {f"{key}/{part}": found.differences[0] for part, found in parts.items() if found.differing}

    def _pairs(self, cell: str, tpu: Model) -> Pairs:
        return pair(_ops(tpu), self.data.content.cells[cell].ops)

    def parts(self, cell: str, *, execute: bool = True) -> Iterator[tuple[str, Part]]:
        """Both parts of a cell; without `execute` the first."""
        tpu = self.lowered(cell)
        yield "lowering", self.constants(cell, tpu)
        if execute:
            yield "tensors", self.tensors(cell, tpu)


def _ops(model: Model) -> list[Op]:
    return computing(read(print_module(model.module)))


def known_differences() -> dict[str, Difference]:
    """The first difference of every part of a recorded cell that is known to differ, by NETWORK/CHIP/MODE/PART."""
    if not DIFFERING.exists():
        return {}
    return msgspec.json.decode(DIFFERING.read_bytes(), type=dict[str, Difference])


def told(which: str, first: Difference) -> str:
    """A known difference of NETWORK/CHIP/MODE/PART and its reason."""
    cell, _, part = which.rpartition("/")
    return f"{first}: {reason(Key(*cell.split('/')), REASONED[part], first) or 'unexplained'}"


def write_differing(names: Sequence[str] = (), cells: Sequence[str] = ()) -> None:
    """Write which recorded cells differ, part by part; those of other networks or cells than asked for are kept."""
    known = known_differences()
    for name in names or recorded.networks():
        replay, differing = Replay(name), 0
        for cell in replay.data.content.cells:
            key = Key(name, *cell.split("/"))
            if key.matches(cells):
                found = replay.firsts(key)
                known = {k: d for k, d in known.items() if k.rpartition("/")[0] != str(key)} | found
                differing += len(found)
        print(f"{name}: {differing} parts of cells differ", flush=True)
        _write(known)
    print(f"wrote {DIFFERING.name}: {len(known)} parts of cells differ")


def _write(known: Mapping[str, Difference]) -> None:
    """One line per part of a cell."""
    lines = [f"{json.dumps(k)}: {msgspec.json.encode(d).decode()}" for k, d in sorted(known.items())]
    with replacing(DIFFERING) as target:
        target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
