"""The results of a set: one folder, one file per case, written atomically, so that a run that was killed continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import onnx

from benchmarks.accuracy.results import Key
from benchmarks.conformance.fuzz.judge import Judged
from tpusim.host.files import replacing


class Record(msgspec.Struct, frozen=True):
    """The judged cells of one case."""

    name: str
    cells: tuple[Judged, ...] = ()

    def get(self, key: Key) -> Judged | None:
        """A cell; None if it was not judged."""
        return next((c for c in self.cells if c.key == key), None)

    def with_cell(self, cell: Judged) -> Record:
        """The record with one more cell, or with the cell anew."""
        others = [c for c in self.cells if c.key != cell.key]
        return Record(self.name, tuple(sorted((*others, cell), key=lambda c: c.key)))


class Store:
    """The folder of a set; NAME.json has the results of a case and NAME.onnx its network if anything differs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Record:
        """The results of a case so far; none for a new one."""
        path = self.folder / f"{name}.json"
        return msgspec.json.decode(path.read_bytes(), type=Record) if path.exists() else Record(name)

    def write(self, record: Record, proto: onnx.ModelProto) -> None:
        """Replace the results of a case."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(c.findings or c.there for c in record.cells):
            with replacing(self.folder / f"{record.name}.onnx") as target:
                target.write_bytes(proto.SerializeToString())
        with replacing(self.folder / f"{record.name}.json") as target:
            target.write_bytes(msgspec.json.encode(record))

    def records(self) -> Iterator[Record]:
        """All cases, by name."""
        for path in sorted(self.folder.glob("*.json")):
            yield msgspec.json.decode(path.read_bytes(), type=Record)

    def network(self, name: str) -> onnx.ModelProto:
        """The network of a case that differs."""
        return onnx.load(self.folder / f"{name}.onnx")
