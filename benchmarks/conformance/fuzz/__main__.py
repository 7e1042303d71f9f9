"""python -m benchmarks.conformance.fuzz: judge cases, list the kinds of differences, make them small, record them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated

import jax
import onnx
import tyro

from benchmarks.accuracy.results import Key
from benchmarks.conformance.fuzz.batch import joined, split
from benchmarks.conformance.fuzz.case import Case, cells, keys
from benchmarks.conformance.fuzz.grammar import random_network
from benchmarks.conformance.fuzz.idioms import ROWS
from benchmarks.conformance.fuzz.judge import Judge, Judged
from benchmarks.conformance.fuzz.minimise import minimise, size
from benchmarks.conformance.fuzz.recording import keep
from benchmarks.conformance.fuzz.store import Store
from benchmarks.conformance.fuzz.summary import Summary, publish
from benchmarks.conformance.fuzz.triage import kinds, refusals, signature
from benchmarks.conformance.upstream import CACHE, Upstream
from tpusim.errors import TpusimError

FOLDER = CACHE.parent / "conformance-fuzz"
IDIOMS = "idioms"


@dataclass
class Run:
    """Judge cases; those that the folder has are read from it."""

    n: int = 20
    """Random networks."""
    seed: int = 1
    """Seed of the random networks."""
    first: int = 0
    """Index of the first random network."""
    idioms: bool = False
    """The rows of the idiom table in place of random networks."""
    rows: tuple[str, ...] = ()
    """Only rows whose name matches one of these globs."""
    forms: int = 1
    """Forms of every row."""
    cells: int = 0
    """Cells of every network, in turn; 0: all."""
    only: tuple[str, ...] = ()
    """Only cells CHIP/MODE that match one of these globs."""
    again: tuple[str, ...] = ()
    """Judge cases that match one of these globs again; the real results are kept."""
    batch: int = 1
    """Cases that are compared as one network: quick, but their groups and clock are not compared."""
    simulated: bool = False
    """Run every cell in the closed simulator, not only those that differ from the interpreter."""
    folder: Path = FOLDER
    """Where results are kept."""

    def execute(self) -> None:
        """Case by case."""
        upstream, store = Upstream.find(self.folder / "real"), Store(self.folder / self._set)
        of = [c for c in cells() if not self.only or any(fnmatchcase("/".join(c), g) for g in self.only)]
        cases: Iterable[Case] = self._cases()
        if self.batch > 1:
            cases = [case for some in batches(cases, self.batch) for case in self._left(some, of, upstream, store)]
        for case in cases:
            judge_case(Judge(case, upstream, self.simulated), store, [*self._keys(case, of)], self.again)
        show(store)

    def _keys(self, case: Case, of: Sequence[tuple[str, str]]) -> Iterator[Key]:
        return keys(case.name, of, self.cells)

    def _left(
        self, cases: Sequence[Case], of: Sequence[tuple[str, str]], upstream: Upstream, store: Store
    ) -> list[Case]:
        """Judge cases as one network and keep the verdicts, or each half of them if that is refused.

        Returns the cases that are refused alone.
        """
        judge, left = Judge(joined(cases), upstream, self.simulated, timed=False), dict[str, Case]()
        for chip, mode in of:
            new = [c for c in cases if store.read(c.name).get(Key(c.name, chip, mode)) is None]
            judged = judge.judge(Key(judge.case.name, chip, mode)) if new else None
            found = {cell.key.network: cell for cell in split(cases, judged)} if judged else {}
            print(f"{judge.case.name}/{chip}/{mode}: {len(found)} of {len(new)} judged", flush=True)
            left |= {c.name: c for c in new if c.name not in found}
            for case in (c for c in new if c.name in found):
                store.write(store.read(case.name).with_cell(found[case.name]), case.proto)
                if found[case.name].findings:
                    print(f"  {case.name}: {told(found[case.name])}", flush=True)
        if len(left) < 2:
            return list(left.values())
        some, half = [*left.values()], len(left) // 2
        return [c for part in (some[:half], some[half:]) for c in self._left(part, of, upstream, store)]

    @property
    def _set(self) -> str:
        return IDIOMS if self.idioms else f"seed{self.seed}"

    def _cases(self) -> Iterator[Case]:
        if self.idioms:
            chosen = [r for r in ROWS if not self.rows or any(fnmatchcase(r.name, g) for g in self.rows)]
            yield from (Case(proto) for row in chosen for _, proto in islice(row.variants(), self.forms))
            return
        for index in range(self.first, self.first + self.n):
            yield Case(random_network(self.seed, index))


@dataclass
class Kinds:
    """List the kinds of differences of a set."""

    of: str = IDIOMS
    """Which set: idioms, or seedN."""
    folder: Path = FOLDER
    """Where results are kept."""

    def execute(self) -> None:
        """Print them."""
        show(Store(self.folder / self.of))


@dataclass
class Minimise:
    """Make the networks of a kind small."""

    kind: str = ""
    """Text that occurs in the kind's line."""
    of: str = IDIOMS
    """Which set: idioms, or seedN."""
    tries: int = 60
    """Networks that are asked about for one kind, at most."""
    into: Path = FOLDER / "small"
    """The folder of the small networks."""
    folder: Path = FOLDER
    """Where results are kept."""

    def execute(self) -> None:
        """The smallest network of each kind is made smaller."""
        upstream, store = Upstream.find(self.folder / "real"), Store(self.folder / self.of)
        self.into.mkdir(parents=True, exist_ok=True)
        for found in kinds([c for record in store.records() for c in record.cells]):
            if self.kind in str(found):
                cell = min(found.cells, key=lambda c: size(store.network(c.key.network)))
                small = smallest(store.network(cell.key.network), cell, upstream, self.tries)
                onnx.save(small, self.into / f"{small.graph.name}.onnx")
                print(f"{found}: {cell.key}: {size(small)}")
                print(onnx.printer.to_text(small))


@dataclass
class Publish:
    """Put the rates of a set at the head of docs/conformance.md, which make conformance writes."""

    of: str = IDIOMS
    """Which set: idioms, or seedN."""
    folder: Path = FOLDER
    """Where results are kept."""

    def execute(self) -> None:
        """Write the summary."""
        judged = [c for record in Store(self.folder / self.of).records() for c in record.cells]
        publish(Summary.of(self.of, judged))


@dataclass
class Keep:
    """Record a network with what the real tool gives for it as data of tests/test_upstream.py."""

    network: tyro.conf.Positional[Path]
    """The ONNX file."""
    name: str = ""
    """The name of the recorded network; that of the file if empty."""
    cells: tuple[str, ...] = ()
    """Cells CHIP/MODE in addition to bm1684x/int8."""
    folder: Path = FOLDER
    """Where results are kept."""

    def execute(self) -> None:
        """Record it."""
        name = self.name or self.network.stem
        size = keep(onnx.load(self.network), name, self.cells, Upstream.find(self.folder / "real"))
        print(f"{name}: {size:,} bytes")


def smallest(proto: onnx.ModelProto, cell: Judged, upstream: Upstream, tries: int) -> onnx.ModelProto:
    """The smallest network with the first finding of a cell."""
    assert cell.first is not None
    wanted = signature(cell.first)

    def holds(candidate: onnx.ModelProto) -> bool:
        judged = Judge(Case(candidate), upstream).judge(cell.key)
        return any(signature(f) == wanted for f in judged.findings)

    return minimise(proto, holds, tries)


def batches(cases: Iterable[Case], size: int) -> Iterator[tuple[Case, ...]]:
    """Tuples of at most `size` cases of one opset."""
    for _, same in groupby(cases, key=lambda c: c.proto.opset_import[0].version):
        while taken := tuple(islice(same, size)):
            yield taken


def judge_case(judge: Judge, store: Store, wanted: Sequence[Key], again: tuple[str, ...] = ()) -> None:
    """Judge the cells of a case that the store lacks."""
    case, begin = judge.case, time.perf_counter()
    record = store.read(case.name)
    anew = any(fnmatchcase(case.name, glob) for glob in again)
    for key in wanted:
        if anew or record.get(key) is None:
            cell = judge.judge(key)
            record = record.with_cell(cell)
            store.write(record, case.proto)
            print(f"{key}: {told(cell)} [{time.perf_counter() - begin:.0f} s]", flush=True)


def told(cell: Judged) -> str:
    """A cell in a line."""
    first, refused = cell.first, f"; refused there: {cell.there}" if cell.there else ""
    return (f"{first.stage} {first.op} `{first.tensor}`: {first.what}" if first else "equal") + refused


def show(store: Store) -> None:
    """Print the kinds of a folder."""
    judged = [c for record in store.records() for c in record.cells]
    ran = [c for c in judged if not c.there]
    print(f"{len(judged)} cells, {len(ran)} compiled there, {sum(c.equal for c in ran)} of those equal in values")
    for found in kinds(judged):
        print(
            f"{len(found.networks):4} networks {len(found.cells):4} cells  {found}  [{', '.join(found.networks[:4])}]"
        )
    for why, count in refusals(judged).items():
        print(f"{count:4} refused there: {why}")


def keep_kernels() -> None:
    """Keep what JAX compiles: random networks have new shapes all the time, but a run that is repeated has not."""
    jax.config.update("jax_compilation_cache_dir", str(FOLDER / "kernels"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def main() -> int:
    """The command."""
    commands = Annotated[Run, tyro.conf.subcommand("run")] | Annotated[Kinds, tyro.conf.subcommand("kinds")]
    commands |= Annotated[Minimise, tyro.conf.subcommand("minimise")]
    commands |= Annotated[Publish, tyro.conf.subcommand("publish")]
    commands |= Annotated[Keep, tyro.conf.subcommand("keep")]
    command = tyro.cli(commands, prog="python -m benchmarks.conformance.fuzz")
    keep_kernels()
    try:
        command.execute()
    except TpusimError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
