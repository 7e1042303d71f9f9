"""Compares a cell with recorded data instead of the real tools: what tests/test_upstream.py runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from benchmarks.conformance import recorded
from benchmarks.conformance.compare import Pairs, compare_alone, compare_lowering
from benchmarks.conformance.explained import reason
from benchmarks.conformance.ours import Shared, alone
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.results import Difference, Part
from benchmarks.conformance.text import Op, read
from tests.upstream import networks as small
from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import CalibrationTable
from tpusim.canonicalize import canonicalize
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.lowering import lower
from tpusim.verify.npz import write_atomically

DIFFERING = recorded.FOLDER.parent / "differing.json"


@dataclass
class Replay:
    """A network of ours beside its recorded file."""

    name: str

    @cached_property
    def data(self) -> recorded.Recorded:
        """The recorded file. Raises TpusimError if it was made from another network than `small.build` gives."""
        found, now = recorded.read(self.name), small.fingerprint(small.build(self.name))
        if found.content.fingerprint != now:
            raise TpusimError(
                f"tests/upstream/data/{self.name}.npz: the data of network {now:#x} is required, got "
                f"{found.content.fingerprint:#x}; record it again (make upstream-data)"
            )
        return found

    @cached_property
    def canonical(self) -> Model:
        """Our canonical module."""
        return canonicalize(import_onnx(small.build(self.name), name=self.name))[0]

    @cached_property
    def table(self) -> CalibrationTable:
        """The recorded table by our names."""
        content = self.data.content
        return Shared(content.table, content.own, content.top).by_our_names(_ops(self.canonical))

    def lowered(self, cell: str) -> Model:
        """Our lowered module of a cell CHIP/MODE."""
        settings = config(*cell.split("/"))
        if settings.mode != "int8":
            return lower(self.canonical, settings)[0]
        return lower(apply_table(self.canonical, self.table, asymmetric=settings.asymmetric), settings)[0]

    def constants(self, cell: str, tpu: Model) -> Part:
        """Lowering: types, scales, multipliers, shifts, constants."""
        theirs = self.data.content.cells[cell]
        ours = {name: array for name, array in tpu.weights.items() if recorded.is_kept(array)}
        return compare_lowering(_ops(tpu), theirs.ops, ours, self.data.arrays(theirs.constants))

    def tensors(self, cell: str, tpu: Model) -> Part:
        """Every tensor, each op on the recorded operands."""
        theirs, pairs = self.data.arrays(self.data.content.cells[cell].tensors), self._pairs(cell, tpu)
        known = {a.name: theirs[b.name] for a, b in pairs if b.name in theirs}
        return compare_alone(pairs, alone(tpu, self.data.arrays(self.data.content.inputs), known), theirs)

    def told(self, key: Key) -> dict[str, str]:
        """The first difference of every part of a cell that differs, by NETWORK/CHIP/MODE/PART."""
        cell = f"{key.chip}/{key.mode}"
        try:
            found = {part: first_difference(key, part, found) for part, found in self.parts(cell)}
        except TpusimError as error:
            found = {"lowering": f"refused: {error}", "tensors": f"refused: {error}"}
        return {f"{key}/{part}": why for part, why in found.items() if why}

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


def first_difference(key: Key, part: str, found: Part) -> str:
    """The first difference of a part and its reason, "" if there is none."""
    if not found.differing:
        return ""
    first: Difference = found.differences[0]
    return f"{first}: {reason(key, part, first) or 'unexplained'}"


def write_differing(names: Sequence[str] = (), cells: Sequence[str] = ()) -> None:
    """Write which recorded cells differ, part by part; those of other networks or cells than asked for are kept."""
    known: dict[str, str] = json.loads(DIFFERING.read_text(encoding="utf-8")) if DIFFERING.exists() else {}
    for name in names or recorded.networks():
        replay, differing = Replay(name), 0
        for cell in replay.data.content.cells:
            key = Key(name, *cell.split("/"))
            if key.matches(cells):
                told = replay.told(key)
                known = {k: why for k, why in known.items() if k.rpartition("/")[0] != str(key)} | told
                differing += len(told)
        print(f"{name}: {differing} parts of cells differ", flush=True)
        text = json.dumps(dict(sorted(known.items())), indent=0).encode() + b"\n"
        write_atomically(DIFFERING, lambda file, text=text: file.write(text))
    print(f"wrote {DIFFERING.name}: {len(known)} parts of cells differ")
