"""Judges one cell of a case: the real table is applied here, both compile and run, and each stage is compared."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from benchmarks.conformance.compare import compare_top
from benchmarks.conformance.fuzz.case import Case
from benchmarks.conformance.measure import compared, last_line
from benchmarks.conformance.ours import Compiled, Network
from benchmarks.conformance.pairing import kind
from benchmarks.conformance.results import Cell, Difference
from benchmarks.conformance.text import Op, read
from benchmarks.conformance.upstream import Files, Upstream, takes_table
from tpusim.calibration.stage import apply_table, entries_of
from tpusim.calibration.table import parse_table
from tpusim.errors import TpusimError
from tpusim.ir.attrs import op_name
from tpusim.ops.framework.base import TopOp

STAGES = ("import", "table", "compile", "lowering", "ops", "tensors", "outputs", "groups", "cycles", "bytes")
"""The stages of a cell, in the order in which a difference of one may explain those of later ones."""
VALUES = STAGES[:7]
LARGEST = 1e300
"""The distance of a number from an infinity or NaN, which JSON cannot write."""
CYCLES, BYTES = 0.10, 0.02
"""How far the clock may be off: shares of the real number."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference. op: kind of our op, or theirs if we have none; tensor: its name."""

    stage: str
    op: str
    what: str
    tensor: str = ""
    share: float = 0.0
    largest: float = 0.0


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cell with all its findings, the earliest stage first. there: why the real tool refused it."""

    key: Key
    findings: tuple[Finding, ...] = ()
    there: str = ""
    disagreeing: tuple[str, ...] = ()
    """Outputs for which the real interpreter and the closed simulator differ."""
    groups: tuple[int, int] = (0, 0)
    """(equal, compared)."""
    cycles: tuple[int, int] = (0, 0)
    """(here, there); 0 where the real compiler writes no profile."""
    bytes: tuple[int, int] = (0, 0)
    timed: bool = True
    """Whether groups and clock were compared; not if the case was one of a batch."""

    @property
    def equal(self) -> bool:
        """Whether constants, integer tensors and outputs are equal, and the real table was accepted."""
        return not any(f.stage in VALUES for f in self.findings)

    @property
    def first(self) -> Finding | None:
        """The finding that the cell is sorted by."""
        return next(iter(self.findings), None)


@dataclass
class Judge:
    """One case with what its cells have in common."""

    case: Case
    upstream: Upstream
    simulated: bool = False
    """Whether the closed simulator always runs; else only where our tensors differ from the interpreter's."""
    timed: bool = True
    """Whether groups and clock are compared."""
    _compiled: dict[Key, Compiled] = field(default_factory=dict[Key, Compiled])

    @cached_property
    def top(self) -> Files:
        """The real canonical module."""
        return self.upstream.transform(self.case.proto, self.case.samples[0], floats=False)

    @cached_property
    def table(self) -> Files:
        """The real calibration table."""
        return self.upstream.calibrate(self.top, self.case.samples)

    @cached_property
    def network(self) -> Network:
        """Our canonical module. Raises TpusimError if tpusim refuses the network."""
        return Network.of(self.case.name, self.case.proto, self.case.samples)

    def judge(self, key: Key) -> Judged:
        """One cell."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._judged(key)

    def _judged(self, key: Key) -> Judged:
        if self.top.failure:
            return Judged(key, there=f"import: {cause(self.top, 'transform.log')}")
        quantised = takes_table(config(key.chip, key.mode).format)
        if quantised and self.table.failure:
            return Judged(key, there=f"calibration: {cause(self.table)}")
        table = self.table.text("cali_table") if quantised else ""
        found = self._with(key, table, simulated=self.simulated)
        if self.simulated or found.there or not any(f.stage in VALUES for f in found.findings):
            return found
        return self._with(key, table, simulated=True)

    def _with(self, key: Key, table: str, *, simulated: bool) -> Judged:
        files = self.upstream.deploy(self.top, table, self.case.samples[0], key.chip, key.mode, simulated=simulated)
        if not files.text("tpu.mlir") or not files.arrays("tensors.npz"):
            return Judged(key, there=f"lowering: {cause(files)}")
        try:
            return self._compared(key, table, files)
        except TpusimError as error:
            return Judged(key, (Finding("compile", "", f"refused: {last_line(str(error))}"),), cause(files))

    def _compared(self, key: Key, table: str, files: Files) -> Judged:
        try:
            network = self.network
        except TpusimError as error:
            return Judged(key, (Finding("import", "", f"refused: {last_line(str(error))}"),))
        found = list(self._refused_table(table))
        parts = {"top": compare_top(network.top(), read(self.top.text("m.mlir")))}
        if key not in self._compiled:
            self._compiled = {key: Compiled.of(network, key.chip, key.mode)}
        compiled = self._compiled[key]
        refused = {"there": f"compile: {cause(files)}"} if files.failure else {}
        cell = compared(key, self.upstream.version, parts, refused, compiled, files, timed=self.timed)
        found += _of_cell(cell, compiled.ops(), read(files.text("tpu.mlir")))
        return _judged(cell, found)

    def _refused_table(self, table: str) -> tuple[Finding, ...]:
        return self._of_table if table else ()

    @cached_property
    def _of_table(self) -> tuple[Finding, ...]:
        """Whether the real table fits our module; otherwise lines that we measured are added."""
        text, model = self.table.text("cali_table"), self.network.canonical
        table = parse_table(text)
        ops = [op for op in model.ops if isinstance(op, TopOp)]
        known = entries_of(ops, table)
        found = tuple(Finding("table", op.name, "no line", op_name(op)) for op in ops if op not in known)
        if not found:
            try:
                apply_table(model, table)
            except TpusimError as error:
                found = (Finding("table", "", last_line(str(error))),)
        self.network.take_table(text, self.top, complete=not found)
        return found


_TELLING = re.compile(r"UNREACHABLE|Assertion|LLVM ERROR|[Nn]ot support|Error:|error:|Segmentation")
_FOLDERS = re.compile(r"(?:/[\w.+-]+)+/+(?=[\w.+-]+)")
_SAYS_NOTHING = re.compile(r"File \"|_os_system|\[!Error\]|^\s*raise |--mlir-?print|Program arguments")


def cause(files: Files, log: str = "deploy.log") -> str:
    """The line of a failure that tells most, with the line before it; "" without a failure."""
    if not files.failure:
        return ""
    text = files.text(log) + "\n" + files.failure.replace("\\n", "\n")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _SAYS_NOTHING.search(line)]
    told = [number for number, line in enumerate(lines) if _TELLING.search(line)]
    number = told[-1] if told else len(lines) - 1
    return without_folders(" ".join(line[-160:] for line in lines[max(number - 1, 0) : number + 1]))


def without_folders(text: str) -> str:
    """A message with the names of files alone: folders say where a tool was built and installed, not what is wrong."""
    return _FOLDERS.sub("", text)


def _judged(cell: Cell, found: Sequence[Finding]) -> Judged:
    groups, here, there = cell.parts.get("groups"), cell.here, cell.there
    clocks = here is not None and there is not None
    return Judged(
        cell.key,
        tuple(sorted(found, key=lambda f: STAGES.index(f.stage))),
        cell.refused.get("there", ""),
        cell.disagreeing,
        (groups.equal, groups.compared) if groups else (0, 0),
        (here.cycles, there.cycles) if clocks else (0, 0),
        (here.moved, there.moved) if clocks else (0, 0),
    )


def _of_cell(cell: Cell, ours: Sequence[Op], theirs: Sequence[Op]) -> Iterator[Finding]:
    kinds = {op.name: kind(op) for op in (*theirs, *ours) if op.names}
    if "here" in cell.refused:
        yield Finding("compile", "", f"refused: {cell.refused['here']}")
    for stage in ("lowering", "ops", "tensors", "outputs"):
        part = cell.parts.get(stage)
        for d in part.differences if part else ():
            if not d.tolerated and not d.inherited:
                yield Finding(stage, kinds.get(d.tensor, ""), d.what, d.tensor, d.share, min(d.largest, LARGEST))
    groups = cell.parts.get("groups")
    if groups is not None and groups.differences and not cell.refused:
        yield _of_groups(groups.differences[0], kinds)
    yield from _of_clock(cell)


def _of_groups(first: Difference, kinds: dict[str, str]) -> Finding:
    return Finding("groups", kinds.get(first.tensor, ""), first.what, first.tensor)


def _of_clock(cell: Cell) -> Iterator[Finding]:
    here, there = cell.here, cell.there
    if here is None or there is None or cell.refused:
        return
    for stage, mine, other, limit in (
        ("cycles", here.cycles, there.cycles, CYCLES),
        ("bytes", here.moved, there.moved, BYTES),
    ):
        off = abs(mine - other) / max(other, 1)
        if off > limit:
            yield Finding(stage, "", f"{mine:,} here, {other:,} there", share=off)
