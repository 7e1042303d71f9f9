"""The addresses of results and work areas of groups in local memory, on both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from benchmarks.conformance.compare import Pairs
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.text import Op, read
from benchmarks.conformance.timing import stem
from benchmarks.conformance.upstream import Files
from tpusim.ir.attrs import op_name
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import group_info

_FIELD = re.compile(r"(out_addr|buffer_addr|buffer_size) = (\d+)")


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """Bytes from the start of a lane. result: of an op's result; work: of its work area, None without one."""

    result: int
    work: int | None = None


def their_addresses(files: Files) -> dict[str, Placed]:
    """The ops of upstream's groups, by their names; all slices of one op have the address of the first."""
    found = dict[str, Placed]()
    for op in read(files.text("final.mlir")):
        if "ginfo" in op.attributes and op.kind not in ("tpu.Load", "tpu.Store"):
            found.setdefault(op.name, _placed(op))
    return found


def _placed(op: Op) -> Placed:
    fields = {name: int(number) for name, number in _FIELD.findall(op.attributes["ginfo"])}
    return Placed(fields["out_addr"], fields["buffer_addr"] if fields["buffer_size"] else None)


def our_addresses(compiled: Compiled) -> dict[str, Placed]:
    """The ops of our groups, by their names."""
    placed = ((op, group_info(op)) for op in compiled.grouped().module.walk() if isinstance(op, TpuOp))
    return {
        op_name(op): Placed(info.out_addr, info.buffer_addr if info.buffer_size else None)
        for op, info in placed
        if info is not None
    }


def same_addresses(ours: Mapping[str, Placed], theirs: Mapping[str, Placed], pairs: Pairs) -> tuple[int, int]:
    """(number of results and work areas at the same address, number of those that both sides have in groups)."""
    here = {stem(name, {a.name: a.name for a, _ in pairs}): placed for name, placed in ours.items()}
    there = {stem(name, {b.name: a.name for a, b in pairs}): placed for name, placed in theirs.items()}
    found = [*chain.from_iterable(_same(here[name], there[name]) for name in here.keys() & there.keys())]
    return sum(found), len(found)


def _same(one: Placed, other: Placed) -> Iterator[bool]:
    yield one.result == other.result
    if one.work is not None and other.work is not None:
        yield one.work == other.work
