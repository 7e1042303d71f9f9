"""python -m benchmarks.groups: group all networks, then write the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.groups.measure import CHIPS, Gap, Network, Row, networks
from benchmarks.groups.page import groups_page
from benchmarks.groups.results import PAGE, RESULTS, Results, read, write
from tpusim import chips
from tpusim.host.files import replacing
from tpusim.interfaces import rules
from tpusim.ops.interfaces import GroupRules


@dataclass
class Groups:
    """Measure the table of layer groups; rows of networks that are not named are kept."""

    only: tuple[str, ...] = ()
    """Only these networks."""
    models: Path | None = None
    """Folder with NETWORK.onnx as `tpusim zoo` writes them; without it they are built."""
    page_only: bool = False
    """Only write the page from the results."""
    results: Path = RESULTS
    """The results file."""
    page: Path = PAGE
    """The page."""

    def execute(self) -> None:
        """Network by network, the results on disk after each."""
        found = read(self.results)
        for name, batch, on in () if self.page_only else networks():
            if not self.only or name in self.only:
                network = Network.prepare(name, batch, self.models)
                for chip in on:
                    gaps = (
                        tuple(network.gaps(chip))
                        if batch == 1 and rules(chips.load(chip), GroupRules).SEARCH == "2"
                        else ()
                    )
                    found = _with(found, (name, batch, chip), tuple(network.rows(chip)), gaps)
                    print(f"{name} batch {batch} on {chip}", flush=True)
                    write(found, self.results)
        with replacing(self.page) as target:
            target.write_text(groups_page(found), encoding="utf-8")
        print(f"wrote {self.page}: {len(found.rows)} rows")


def _with(found: Results, key: tuple[str, int, str], rows: tuple[Row, ...], gaps: tuple[Gap, ...]) -> Results:
    """The results with these of one network and chip in place of what was there."""
    order = [name for name, _, _ in networks()]
    kept = [r for r in found.rows if (r.network, r.batch, r.chip) != key]
    others = [g for g in found.gaps if key[1] > 1 or (g.network, 1, g.chip) != key]
    return Results(
        tuple(sorted([*kept, *rows], key=lambda r: (r.batch, order.index(r.network), CHIPS.index(r.chip)))),
        tuple(sorted([*others, *gaps], key=lambda g: (order.index(g.network), CHIPS.index(g.chip), g.share))),
        found.through,
    )


if __name__ == "__main__":
    tyro.cli(Groups).execute()
