"""Measures one cell: both compilers, then every part of the comparison."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from benchmarks.conformance.clock import Row
from benchmarks.conformance.compare import (
    all_stored,
    compare_alone,
    compare_lowering,
    compare_tensors,
    compare_top,
    constants,
    told_by_chip,
    unrounded,
)
from benchmarks.conformance.ours import NETWORKS, Compiled, Network
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.results import Cell, Part, simulated
from benchmarks.conformance.text import read
from benchmarks.conformance.timing import compare_groups, our_clock, recorded_clock, their_clock, their_groups
from benchmarks.conformance.upstream import Files, Upstream
from tpusim import chips
from tpusim.errors import TpusimError
from tpusim.fidelity.support import MODES

CHIPS = ("bm1684x", "bm1688", "bm1684", "cv183x", "cv181x")


def cells() -> Iterator[tuple[str, str]]:
    """Every (chip, mode) that the chip has, mode by mode."""
    for mode in MODES:
        for chip in CHIPS:
            spec, settings = chips.load(chip), config(chip, mode)
            if settings.mode in spec.modes and (spec.hardware.asymmetric or not settings.asymmetric):
                yield chip, mode


def keys() -> Iterator[Key]:
    """Every cell, network by network."""
    return (Key(network, chip, mode) for network in NETWORKS for chip, mode in cells())


def measure(network: Network, key: Key, upstream: Upstream) -> Cell:
    """One cell. A refusal of either side is part of it."""
    top = upstream.transform(network.proto, network.sample)
    if top.failure:
        return Cell(key, upstream.version, refused={"there": last_line(top.failure)})
    files = upstream.deploy(top, network.share_table(top), network.sample, key.chip, key.mode, simulated=simulated(key))
    parts = {"top": compare_top(network.top(), read(top.text("m.mlir")))}
    refused = {"there": last_line(files.failure)} if files.failure else {}
    try:
        compiled = Compiled.of(network, key.chip, key.mode)
    except TpusimError as error:
        return Cell(key, upstream.version, parts, refused={**refused, "here": last_line(str(error))})
    return compared(key, upstream.version, parts, refused, compiled, files)


def compared(
    key: Key,
    version: str,
    parts: dict[str, Part],
    refused: dict[str, str],
    compiled: Compiled,
    files: Files,
    *,
    timed: bool = True,
) -> Cell:
    """The parts of a cell that both sides compile, after the given ones; timed: groups and clock too."""
    ours, theirs = compiled.ops(), read(files.text("tpu.mlir"))
    pairs = pair(computing(ours), computing(theirs))
    parts["lowering"] = compare_lowering(
        ours, theirs, compiled.tpu.weights, constants(theirs, files.arrays("weights.npz"))
    )
    tensors, dumped, chip = compiled.tensors(), files.arrays("tensors.npz"), files.arrays("chip.npz")
    known, unlike = all_stored(theirs, dumped), disagreeing(dumped, chip)
    told = told_by_chip(theirs, all_stored(theirs, {n: chip[n] for n in unlike}))
    parts["tensors"] = compare_tensors(pairs, tensors, known, told)
    parts["ops"] = parts["tensors"]
    if parts["tensors"].differences:
        operands = known | unrounded(theirs, dumped)
        alone = compiled.alone({a.name: operands[b.name] for a, b in pairs if b.name in operands})
        parts["ops"] = compare_alone(pairs, alone, known, told)
    if chip:
        parts["outputs"] = compare_tensors(pairs, tensors, all_stored(theirs, chip), skip=unlike)
    here = there = None
    if not timed:
        return Cell(key, version, parts, unlike, refused)
    try:
        parts["groups"], here, there = (
            compare_groups(compiled, their_groups(files), pairs),
            our_clock(compiled),
            their_clock(files),
        )
    except TpusimError as error:
        refused = {**refused, "here": last_line(str(error))}
    return Cell(key, version, parts, unlike, refused, here, there)


def regrouped(cell: Cell, replay: Replay) -> Cell:
    """The cell of a small network with groups and clock compared again with recorded data; unchanged without any."""
    key, there = f"{cell.key.chip}/{cell.key.mode}", replay.data.content.cells.get(f"{cell.key.chip}/{cell.key.mode}")
    if there is None or "groups" not in cell.parts:
        return cell
    compiled = Compiled(replay.lowered(key), {}, cell.key.chip)
    found = compare_groups(compiled, recorded_clock(there)[0], pair(computing(compiled.ops()), computing(there.ops)))
    return replace(cell, parts={**cell.parts, "groups": found}, here=our_clock(compiled), there=cell.there)


def retimed(cell: Cell, row: Row) -> Cell:
    """The cell with the groups and clock of the clock's page, which is measured more often."""
    if "groups" not in cell.parts:
        return cell
    compared = row.there.groups + row.there.global_layers
    found = Part(compared, row.same_groups, compared - row.same_groups)
    return replace(cell, parts={**cell.parts, "groups": found}, here=row.here, there=row.there)


def disagreeing(interpreter: dict[str, np.ndarray], simulator: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Outputs in which upstream's interpreter and closed simulator have other values."""
    both = [n for n in simulator if n in interpreter and interpreter[n].size == simulator[n].size]
    return tuple(n for n in both if not np.array_equal(interpreter[n].ravel(), simulator[n].ravel(), equal_nan=True))


def last_line(text: str) -> str:
    """The most informative line of a message: the last that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
