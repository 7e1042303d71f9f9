"""python -m benchmarks.conformance: compare what is missing, then write the page."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import tyro

from benchmarks.accuracy.results import Key
from benchmarks.conformance import recorded
from benchmarks.conformance.clock import known_rows
from benchmarks.conformance.explained import reason
from benchmarks.conformance.measure import keys, measure, regrouped, retimed
from benchmarks.conformance.ours import Network
from benchmarks.conformance.page import conformance_page, verdict
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.results import PAGE, RESULTS, Cell, Results, read, write
from benchmarks.conformance.upstream import Upstream
from tpusim.errors import TpusimError
from tpusim.host.files import replacing


@dataclass
class Conformance:
    """Compare with the real compiler; its earlier output is read from the cache, not computed again."""

    only: tuple[str, ...] = ()
    """Only cells NETWORK/CHIP/MODE that match one of these globs, e.g. 'conv/*/int8*'."""
    missing: bool = False
    """Only cells that results.json does not have."""
    show: bool = False
    """Print every kept difference of each cell."""
    page_only: bool = False
    """Only write the page from the results."""
    groups_only: bool = False
    """Only update groups and cycles: of small networks from recorded data, of others from clock.json. The real compiler
    is not needed.
    """
    results: Path = RESULTS
    """The results file."""
    page: Path = PAGE
    """The page."""

    def execute(self) -> None:
        """Network by network, the results on disk after every cell."""
        found = read(self.results)
        if self.groups_only:
            found = self._regroup(found)
        elif not self.page_only:
            found = self._compare(found, Upstream.find())
        with replacing(self.page) as target:
            target.write_text(conformance_page(found), encoding="utf-8")
        print(f"wrote {self.page}: {len(found.cells)} cells")

    def _compare(self, found: Results, upstream: Upstream) -> Results:
        wanted = [k for k in keys() if k.matches(self.only) and not (self.missing and found.get(k))]
        begin, done = time.perf_counter(), 0
        for name, group in groupby(wanted, key=lambda k: k.network):
            network = Network.prepare(name)
            for key in group:
                found = found.with_cell(measure(network, key, upstream))
                write(found, self.results)
                done += 1
                self._say(found, key, f"{done}/{len(wanted)}", time.perf_counter() - begin)
        return found

    def _regroup(self, found: Results) -> Results:
        for row in known_rows():
            cell = found.get(Key(row.network, row.chip, row.mode))
            if cell is not None and cell.key.matches(self.only):
                found = found.with_cell(retimed(cell, row))
        for name in recorded.networks():
            replay = Replay(name)
            for cell in (c for c in found.cells if c.key.network == name and c.key.matches(self.only)):
                found = found.with_cell(regrouped(cell, replay))
            write(found, self.results)
        return found

    def _say(self, found: Results, key: Key, count: str, seconds: float) -> None:
        cell = found.get(key)
        if cell is not None:
            print(f"{count} {key}: {verdict(cell)} [{seconds:.0f} s]", flush=True)
            if self.show:
                print(*_details(cell), sep="\n", flush=True)


def _details(cell: Cell) -> list[str]:
    return [
        f"    {name}: {'(inherited) ' * d.inherited}{d} {reason(cell.key, name, d) or ''}"
        for name, part in cell.parts.items()
        for d in part.differences
    ]


def main() -> int:
    """The command."""
    command = tyro.cli(Conformance, prog="python -m benchmarks.conformance")
    try:
        command.execute()
    except TpusimError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
