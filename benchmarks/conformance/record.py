"""python -m benchmarks.conformance.record: write the real tools' results for our small networks to tests/upstream.

The list of cells that differ (tests/upstream/differing.json) is made from the recorded files alone, with
`--differing-only` also without the environment. After a difference is mended, write it again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tyro

from benchmarks.accuracy.results import Key
from benchmarks.conformance.compare import all_stored, constants, unrounded
from benchmarks.conformance.measure import disagreeing, keys
from benchmarks.conformance.ours import Network
from benchmarks.conformance.pairing import computing
from benchmarks.conformance.recorded import Array, Bytes, Cell, Content, is_kept, write
from benchmarks.conformance.replay import write_differing
from benchmarks.conformance.text import Op, read
from benchmarks.conformance.timing import their_clock, their_groups
from benchmarks.conformance.upstream import Files, Upstream
from tests.upstream import networks as small
from tpusim.errors import TpusimError

RECORDED = ("*/*/int8",)
"""Cells that are recorded: INT8 on every chip, the other modes once per way of computing them."""
KEPT = ("multiplier", "multipliers", "rshift", "rshifts", "multiplier_neg", "rshift_neg", "quant_param", "cpu_op_name")
"""Attributes that are recorded."""


@dataclass
class Record:
    """Write the recorded files again."""

    only: tuple[str, ...] = ()
    """Only these networks."""
    differing_only: bool = False
    """Only list the cells in which tpusim differs from the existing files."""

    cells: tuple[str, ...] = RECORDED
    """Globs NETWORK/CHIP/MODE of the cells that are recorded."""
    data_only: bool = False
    """Only write the files."""

    def execute(self) -> None:
        """Network by network."""
        upstream = None if self.differing_only else Upstream.find()
        for name in self.only or tuple(small.NETWORKS):
            if upstream is not None:
                print(f"{name}: {_record(name, upstream, self.cells):,} bytes", flush=True)
        if not self.data_only:
            write_differing(self.only, self.cells if self.differing_only else ())


def _record(name: str, upstream: Upstream, wanted: Sequence[str]) -> int:
    """One network; returns the size of its file."""
    network = Network.prepare(name)
    top = upstream.transform(network.proto, network.sample)
    if top.failure:
        raise TpusimError(f"network '{name}': upstream's import is required to work, got {top.failure}")
    table = network.share_table(top)
    return record(network, top, table, upstream, [k for k in keys() if k.network == name and k.matches(wanted)])


def record(network: Network, top: Files, table: str, upstream: Upstream, wanted: Sequence[Key]) -> int:
    """Write the file of a network with these cells and this table; returns its size."""
    name, data, cells = network.name, Bytes(), dict[str, Cell]()
    for key in wanted:
        files = upstream.deploy(top, table, network.sample, key.chip, key.mode)
        if files.text("tpu.mlir") and files.arrays("tensors.npz"):
            cells[f"{key.chip}/{key.mode}"] = _cell(files, data)
    own = network.shared.own if network.shared else ""
    content = Content(
        upstream.version, small.fingerprint(network.proto), table, own,
        _ops(read(top.text("m.mlir"))), {n: data.add(a) for n, a in network.sample.items()}, cells,
    )  # fmt: skip
    return write(name, content, data)


def _cell(files: Files, data: Bytes) -> Cell:
    ops = read(files.text("tpu.mlir"))
    dumped, chip = files.arrays("tensors.npz"), files.arrays("chip.npz")
    unlike, clock = disagreeing(dumped, chip), their_clock(files)
    tensors = {n: a for n, a in all_stored(ops, dumped).items() if n not in _derived(ops, dumped)}
    held = {n: a for n, a in constants(ops, files.arrays("weights.npz")).items() if is_kept(a)}
    chip_only = {n: a for n, a in all_stored(ops, chip).items() if n in unlike}
    return Cell(
        _ops(ops), {n: data.add(a) for n, a in held.items()},
        {n: data.add(a) for n, a in tensors.items()}, {n: data.add(a) for n, a in chip_only.items()},
        tuple(n for n in chip if n not in unlike), tuple((g.ops, g.sections) for g in their_groups(files)),
        None if clock is None else clock.cycles, clock.load_bytes if clock else 0, clock.store_bytes if clock else 0,
        {n: data.add(a) for n, a in unrounded(ops, dumped).items()},
    )  # fmt: skip


def _derived(ops: Sequence[Op], dumped: Mapping[str, Array]) -> set[str]:
    """Casts to f32 that repeat what the dump of their quantised operand says already (it is dequantised)."""
    casts = [op for op in ops if op.kind == "tpu.Cast" and op.types[0].storage == "f32" and op.operands[0] in dumped]
    return {op.name for op in casts if np.array_equal(dumped.get(op.name, np.zeros(0)), dumped[op.operands[0]])}


def _ops(ops: list[Op]) -> tuple[Op, ...]:
    """The ops with the attributes that are compared."""
    return tuple(
        Op(op.kind, op.names, op.operands, {k: v for k, v in op.attributes.items() if k in KEPT}, op.types)
        for op in computing(ops)
    )


def main() -> int:
    """The command."""
    command = tyro.cli(Record, prog="python -m benchmarks.conformance.record")
    try:
        command.execute()
    except TpusimError as error:
        print(f"record: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
