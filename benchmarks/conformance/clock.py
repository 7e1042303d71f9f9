"""python -m benchmarks.conformance.clock: our clock compared with upstream's profile; writes docs/clock.md.

The small networks need only recorded files; for others earlier results with the real tools are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import ceil
from pathlib import Path
from statistics import median
from typing import Literal, get_args

import msgspec
import tyro

from benchmarks.accuracy.results import Key
from benchmarks.conformance import recorded
from benchmarks.conformance.addresses import Placed, our_addresses, same_addresses, their_addresses
from benchmarks.conformance.compare import Pairs
from benchmarks.conformance.layers import Layer, our_layers, paired, their_layers
from benchmarks.conformance.ours import Compiled, Network
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.results import Clock
from benchmarks.conformance.text import Op, read
from benchmarks.conformance.timing import (
    Group,
    matching_groups,
    our_clock,
    our_groups,
    recorded_clock,
    their_clock,
    their_groups,
)
from benchmarks.conformance.transfers import LOAD, STORE, Transfer, our_transfers, their_transfers, transfer_ratios
from benchmarks.conformance.upstream import Upstream
from tests.upstream import networks as small
from tpusim.errors import TpusimError
from tpusim.host.files import replacing

CHIPS = ("bm1684x", "bm1688")
"""The chips whose compiler writes a profile."""
FOLDER = recorded.FOLDER.parent
LAYERS, TRANSFERS, ADDRESSES = (FOLDER / f"{part}.json" for part in ("layers", "transfers", "addresses"))
RESULTS, BEFORE = (Path(__file__).parent / name for name in ("clock.json", "before.json"))
PAGE = Path(__file__).parents[2] / "docs" / "clock.md"
Mode = Literal["int8", "int8-asym", "f16", "bf16", "f32"]
MODES: tuple[Mode, ...] = get_args(Mode)
INT8: Mode = "int8"
OTHERS = MODES[1:]
SMALL = "small"
NEAR = 0.15
"""A layer counts as near if its cycles differ by at most this share from upstream's."""
HEAD = """# The clock compared with the real compiler's profile

`python -m benchmarks.conformance.clock` compiles networks and compares cycles, bytes and groups with the profile that
TPU-MLIR 1.30.2 writes about its commands (`compiler_profile_*.txt`); do not edit this page. Small networks:
`tests/upstream/networks.py`. Cycles and bytes are tpusim : real. **groups**: how many of the real groups and global
layers tpusim has with the same ops and sections. A group of one op in tpusim is the tiled form of a real global layer.
Ops that only one side has after rewriting are not compared. **layers**: median of cycles tpusim / real over layers
(both engines), and how many are within 15 %.
"""
TRANSFERS_HEAD = """## The model of the memory

The distance of our cycles from the real ones for single transfers, paired by direction and bytes in order of time.
`tpusim chips show` prints a bound of the last column as `calibration.transfers`.
"""
NETWORKS_HEAD = "## Networks in INT8\n"
OTHERS_HEAD = """## Networks in other modes

Cycles tpusim / real, then bytes loaded and stored tpusim / real, then groups as above.
"""


ADDRESSES_HEAD = """## Local memory

Results and work areas of ops that both sides have in groups: how many have the real address, in INT8.
"""
BEFORE_HEAD = """## Before and now

In INT8, the first comparison of a network, before the clock and the groups followed the real ones, and the present one:
cycles, and bytes loaded and stored, tpusim / real, then groups as above.
"""


class Before(msgspec.Struct, frozen=True, array_like=True):
    """The first result of a network on a chip. moved: bytes loaded and stored; groups: the number of equal groups."""

    cycles: int
    moved: int
    groups: int


class Profile(msgspec.Struct, frozen=True):
    """Upstream's profile of one network on one chip, and the addresses of tensors in its groups."""

    layers: dict[str, Layer]
    transfers: list[Transfer]
    addresses: dict[str, Placed]


class Row(msgspec.Struct, frozen=True):
    """One network on one chip in one mode.

    layers, loads, stores: ratios of cycles, ours over theirs; transfers: the number of their loads and stores;
    addresses: the number of results and work areas of groups at the same address, and of all that both sides have.
    """

    network: str
    chip: str
    here: Clock
    there: Clock
    same_groups: int
    layers: tuple[float, ...]
    loads: tuple[float, ...] = ()
    stores: tuple[float, ...] = ()
    transfers: tuple[int, int] = (0, 0)
    mode: str = INT8
    addresses: tuple[int, int] = (0, 0)

    @property
    def bytes_ratio(self) -> float:
        """Bytes loaded and stored, ours over theirs."""
        return self.here.moved / self.there.moved

    @property
    def ratio(self) -> float:
        """Cycles, ours over theirs."""
        return self.here.cycles / self.there.cycles

    @property
    def near(self) -> int:
        """The number of near layers."""
        return sum(abs(r - 1) <= NEAR for r in self.layers)


def recorded_profiles() -> dict[str, Profile]:
    """Upstream's profiles of the small networks by NETWORK/CHIP/MODE."""
    layers = msgspec.json.decode(LAYERS.read_bytes(), type=dict[str, dict[str, Layer]])
    transfers = msgspec.json.decode(TRANSFERS.read_bytes(), type=dict[str, list[Transfer]])
    addresses = msgspec.json.decode(ADDRESSES.read_bytes(), type=dict[str, dict[str, Placed]])
    return {key: Profile(found, transfers[key], addresses[key]) for key, found in layers.items()}


def recorded_row(replay: Replay, chip: str, profile: Profile) -> Row | None:
    """A small network compared with recorded data; None if upstream refused it."""
    cell = replay.data.content.cells.get(f"{chip}/{INT8}")
    groups, there = recorded_clock(cell) if cell is not None else ([], None)
    if cell is None or there is None:
        return None
    compiled = Compiled(replay.lowered(f"{chip}/int8"), {}, chip)
    return _row(Key(replay.name, chip, INT8), compiled, computing(cell.ops), there, groups, profile)


def measured_row(network: Network, key: Key, upstream: Upstream) -> Row | None:
    """Any network compared with the real tools; None if they refuse it."""
    top = upstream.transform(network.proto, network.sample)
    table = network.share_table(top)
    files = upstream.deploy(top, table, network.sample, key.chip, key.mode, simulated=False)
    there = their_clock(files)
    if there is None:
        return None
    compiled, ops = Compiled.of(network, key.chip, key.mode), computing(read(files.text("tpu.mlir")))
    profile = Profile(their_layers(files), their_transfers(files), their_addresses(files))
    return _row(key, compiled, ops, there, their_groups(files), profile)


def _row(key: Key, compiled: Compiled, theirs: list[Op], there: Clock, groups: list[Group], profile: Profile) -> Row:
    pairs: Pairs = pair(computing(compiled.ops()), theirs)
    both = paired(our_layers(compiled), profile.layers, pairs).values()
    same = sum(matching_groups(our_groups(compiled), groups, pairs))
    ratios = tuple(round(a.cycles / b.cycles, 3) for a, b in both if b.cycles)
    loads, stores = transfer_ratios(our_transfers(compiled), profile.transfers)
    ways = [transfer.direction for transfer in profile.transfers]
    moves = ways.count(LOAD), ways.count(STORE)
    lie = same_addresses(our_addresses(compiled), profile.addresses, pairs)
    return Row(key.network, key.chip, our_clock(compiled), there, same, ratios, loads, stores, moves, key.mode, lie)


def known_rows() -> list[Row]:
    """The results so far."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Row]) if RESULTS.exists() else []


def clock_page(rows: list[Row]) -> str:
    """The page as Markdown."""
    int8 = [row for row in rows if row.mode == INT8]
    lines = ["| network | chip | cycles | | loaded | stored | groups | layers | near |", "|" + " --- |" * 9]
    lines += [_line(row) for row in int8]
    measured = [TRANSFERS_HEAD, _transfers(int8), ADDRESSES_HEAD, _addresses(int8)]
    parts = [HEAD, _summary(rows), *measured, NETWORKS_HEAD, *lines, "", OTHERS_HEAD, *_others(rows), ""]
    parts += [BEFORE_HEAD, *_before(int8)]
    return "\n".join(parts) + "\n"


def _summary(rows: list[Row]) -> str:
    """Medians over the networks of each chip in each mode."""
    lines = [
        "| chip | mode | networks | cycles: median distance | within 10 % | layers near | groups | bytes within 2 % |"
    ]
    lines.append("|" + " --- |" * 8)
    for chip, mode in product(CHIPS, MODES):
        found = [row for row in rows if (row.chip, row.mode) == (chip, mode)]
        ratios = [abs(row.ratio - 1) for row in found]
        if not found:
            continue
        there = sum(row.there.groups + row.there.global_layers for row in found)
        moved = sum(abs(row.bytes_ratio - 1) <= 0.02 for row in found)  # noqa: PLR2004  the share in the heading
        layers = sum(len(row.layers) for row in found)
        lines.append(
            f"| {chip} | {mode} | {len(found)} | {median(ratios):.1%} | {sum(r <= 0.1 for r in ratios)} | "  # noqa: PLR2004
            f"{sum(row.near for row in found)} of {layers} | {sum(row.same_groups for row in found)} of {there} | "
            f"{moved} |"
        )
    return "\n".join(lines) + "\n"


def _others(rows: list[Row]) -> Iterator[str]:
    """A line for each network on each chip, a column for each mode."""
    cells = dict[tuple[str, str], dict[str, Row]]()
    for row in rows:
        if row.mode != INT8:
            cells.setdefault((row.network, row.chip), {})[row.mode] = row
    yield "| network | chip | " + " | ".join(OTHERS) + " |"
    yield "|" + " --- |" * (len(OTHERS) + 2)
    for (network, chip), found in cells.items():
        yield f"| {network} | {chip} | " + " | ".join(_brief(found[m]) if m in found else "-" for m in OTHERS) + " |"


def _before(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each network on each chip of which it is known what was found first."""
    known = msgspec.json.decode(BEFORE.read_bytes(), type=dict[str, Before])
    yield "| network | chip | cycles before | now | bytes before | now | groups before | now | of |"
    yield "|" + " --- |" * 9
    for row in rows:
        if first := known.get(f"{row.network}/{row.chip}"):
            cycles, moved = first.cycles / row.there.cycles, first.moved / row.there.moved
            yield (
                f"| {row.network} | {row.chip} | {cycles:.2f} | {row.ratio:.2f} | {moved:.2f} | {row.bytes_ratio:.2f} "
                f"| {first.groups} | {row.same_groups} | {row.there.groups + row.there.global_layers} |"
            )


def _brief(row: Row) -> str:
    there = row.there.groups + row.there.global_layers
    return f"{row.ratio:.2f}, {row.bytes_ratio:.2f}, {row.same_groups} of {there}"


def _transfers(rows: list[Row]) -> str:
    """How far single transfers are, by chip and direction."""
    lines = ["| chip | direction | on both sides | median distance | nine in ten within |", "|" + " --- |" * 5]
    for chip in CHIPS:
        for way, name in enumerate(("load", "store")):
            distances, there = transfer_distances([row for row in rows if row.chip == chip], way)
            if distances:
                within = distances[ceil(0.9 * len(distances)) - 1]
                lines.append(
                    f"| {chip} | {name} | {len(distances):,} of {there:,} | {median(distances):.1%} | {within:.1%} |"
                )
    return "\n".join(lines) + "\n"


def _addresses(rows: list[Row]) -> str:
    """How many results and work areas lie at the real address, by chip."""
    lines = ["| chip | networks | at the real address | |", "|" + " --- |" * 4]
    for chip in CHIPS:
        found = [row.addresses for row in rows if row.chip == chip and row.addresses[1]]
        if found:
            same, count = (sum(numbers) for numbers in zip(*found, strict=True))
            lines.append(f"| {chip} | {len(found)} | {same:,} of {count:,} | {same / count:.0%} |")
    return "\n".join(lines) + "\n"


def transfer_distances(rows: Iterable[Row], way: int) -> tuple[list[float], int]:
    """Relative distances of single loads or stores in rising order, and how many upstream has."""
    found = list(rows)
    return sorted(abs(r - 1) for row in found for r in (row.loads, row.stores)[way]), sum(
        r.transfers[way] for r in found
    )


def _line(row: Row) -> str:
    here, there = row.here, row.there
    return (
        f"| {row.network} | {row.chip} | {here.cycles:,} : {there.cycles:,} | {row.ratio:.2f} | "
        f"{here.load_bytes:,} : {there.load_bytes:,} | {here.store_bytes:,} : {there.store_bytes:,} | "
        f"{row.same_groups} of {there.groups + there.global_layers} | {median(row.layers):.2f} | "
        f"{row.near} of {len(row.layers)} |"
    )


@dataclass
class ClockPage:
    """Compare the clock with recorded profiles, or with the real tools (TPUSIM_UPSTREAM)."""

    only: tuple[str, ...] = ()
    """Only cells NETWORK/CHIP/MODE that match one of these globs."""
    networks: tuple[str, ...] = ()
    """Compare these networks with the real tools (TPUSIM_UPSTREAM), not recorded profiles; "small": all with a file."""
    modes: tuple[Mode, ...] = (INT8,)
    """The modes of these networks; recorded are profiles in INT8."""
    record: bool = False
    """Record upstream's layers, transfers and addresses of the small networks (TPUSIM_UPSTREAM)."""

    def execute(self) -> None:
        """Row by row, then the page."""
        upstream = Upstream.find() if self.record or self.networks else None
        if self.record and upstream is not None:
            _record(upstream)
        rows = {(row.network, row.chip, row.mode): row for row in known_rows()}
        for row in chain(self._recorded(), self._measured(upstream) if upstream else ()):
            rows[row.network, row.chip, row.mode] = row
            print(_line(row), flush=True)
        order = [*small.NETWORKS]
        found = sorted(rows.values(), key=lambda r: (r.network not in order, *_place(r, order)))
        with replacing(RESULTS) as target:
            target.write_bytes(b"[\n" + b",\n".join(msgspec.json.encode(row) for row in found) + b"\n]\n")
        with replacing(PAGE) as target:
            target.write_text(clock_page(found), encoding="utf-8")
        print(_summary(found))

    def _recorded(self) -> Iterator[Row]:
        profiles = recorded_profiles()
        for name in recorded.networks():
            for chip in CHIPS:
                key = Key(name, chip, INT8)
                profile = profiles.get(str(key)) if key.matches(self.only) else None
                if profile and (row := recorded_row(Replay(name), chip, profile)):
                    yield row

    def _measured(self, upstream: Upstream) -> Iterator[Row]:
        names = (each for n in self.networks for each in (recorded.networks() if n == SMALL else (n,)))
        for network in map(Network.prepare, names):
            for key in (Key(network.name, *place) for place in product(CHIPS, self.modes)):
                if key.matches(self.only) and (row := measured_row(network, key, upstream)) is not None:
                    yield row


def _place(row: Row, order: list[str]) -> tuple[int, str, str, int]:
    return (order.index(row.network) if row.network in order else 0), row.network, row.chip, MODES.index(row.mode)


def _record(upstream: Upstream) -> None:
    found = dict[str, Profile]()
    for name in recorded.networks():
        network = Network.prepare(name)
        top = upstream.transform(network.proto, network.sample)
        table = network.share_table(top)
        for chip in CHIPS:
            files = upstream.deploy(top, table, network.sample, chip, "int8")
            if files.text("profile.txt"):
                key = f"{name}/{chip}/int8"
                found[key] = Profile(their_layers(files), their_transfers(files), their_addresses(files))
    for path, part in ((LAYERS, "layers"), (TRANSFERS, "transfers"), (ADDRESSES, "addresses")):
        lines = [f'"{key}":{msgspec.json.encode(getattr(profile, part)).decode()}' for key, profile in found.items()]
        with replacing(path) as target:
            target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> int:
    """The command."""
    command = tyro.cli(ClockPage, prog="python -m benchmarks.conformance.clock")
    try:
        command.execute()
    except TpusimError as error:
        print(f"clock: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
