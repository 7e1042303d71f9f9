"""python -m benchmarks.accuracy: measure what is missing, then write the page."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import tyro

from benchmarks.accuracy.measure import Network, keys, measure
from benchmarks.accuracy.page import accuracy_page
from benchmarks.accuracy.results import PAGE, RESULTS, Key, Results, read, write
from tpusim.errors import TpusimError
from tpusim.host.files import replacing


@dataclass
class Accuracy:
    """Measure the accuracy table; cells in results.json are kept."""

    only: tuple[str, ...] = ()
    """Only cells NETWORK/CHIP/MODE that match one of these globs, e.g. 'squeezenet/*/int8*'."""
    local: tuple[str, ...] = ()
    """Run the local-memory machine too in cells that match one of these globs (minutes for large networks)."""
    again: bool = False
    """Measure cells again that are in results.json."""
    page_only: bool = False
    """Only write the page from the results."""
    results: Path = RESULTS
    """The results file."""
    page: Path = PAGE
    """The page."""

    def execute(self) -> None:
        """Network by network, the results on disk after every cell."""
        found = read(self.results)
        wanted = [] if self.page_only else [k for k in keys() if k.matches(self.only) and self._due(k, found)]
        begin, done = time.perf_counter(), 0
        for name, group in groupby(wanted, key=lambda k: k.network):
            network = Network.prepare(name)
            for key in group:
                found = self._cell(network, key, found)
                write(found, self.results)
                done += 1
                print(f"{done}/{len(wanted)} {key}: {_said(found, key)} [{time.perf_counter() - begin:.0f} s]")
        with replacing(self.page) as target:
            target.write_text(accuracy_page(found), encoding="utf-8")
        print(f"wrote {self.page}: {len(found.cells)} cells")

    def _wants_local(self, key: Key) -> bool:
        return bool(self.local) and key.matches(self.local)

    def _due(self, key: Key, found: Results) -> bool:
        cell = found.get(key)
        known = cell is not None or str(key) in found.failed
        return self.again or not known or (cell is not None and cell.local is None and self._wants_local(key))

    def _cell(self, network: Network, key: Key, found: Results) -> Results:
        known = found.get(key)
        local = self._wants_local(key) or (known is not None and known.local is not None)
        try:
            return found.with_cell(measure(network, key, local=local))
        except TpusimError as error:
            return found.with_failure(key, str(error))


def _said(found: Results, key: Key) -> str:
    cell = found.get(key)
    if cell is None:
        return found.failed[str(key)]
    machine = "" if cell.local is None else f", machine {'passed' if cell.local.passed else 'FAILED'}"
    return f"cosine {cell.cosine}, euclidean {cell.euclidean}{machine}, {cell.seconds} s"


def main() -> int:
    """The command."""
    command = tyro.cli(Accuracy, prog="python -m benchmarks.accuracy")
    try:
        command.execute()
    except TpusimError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
