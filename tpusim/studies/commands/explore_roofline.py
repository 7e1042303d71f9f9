"""`tpusim explore roofline`: the bound of every op and layer group, and cycles with changed figures of the chip."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    network_of,
    picture_of,
    require_count,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.simulator import Place
    from tpusim.studies.explore.roofline import Found, Regrouped

LEAST = 0.01
"""A change of at least this share of the cycles counts."""


@dataclass
class ExploreRoofline(Command):
    """Show what bounds every op and layer group, and its cycles if a figure of the chip were changed.

    Missing ranges are assumed, unless --data or --table is given. Twice the bandwidth and twice the lanes are computed
    for the same commands; for twice the local memory and another cut the network is grouped again.
    """

    says = "all figures, as --out writes them"

    model: NetworkPath
    ops: int = 12
    """Print the so many longest ops; 0: all. The file has all."""
    best: bool = False
    """Also group by strategy best, which takes many times as long."""
    plot: OptionalPath = None
    """Draw the ops and groups under the roofs of the chip into this SVG file."""
    out: OptionalPath = None
    """Write all figures to this file, as JSON."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()

    def execute(self, console: Output) -> bool:
        """Compile, compute the times, print, and write the requested files."""
        from tpusim.studies.explore.roofline import under_roofs
        from tpusim.verify.npz import write_atomically

        require_count("--ops", self.ops, "prints all")
        if self.best and self.grouping.layer_group == "best":
            raise ConfigError("--best: --layer-group best cuts the network so already; leave one out")
        picture = picture_of(self.plot)
        asked = (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        given = network_of(self.model, asked, assume=True)
        with console.doing("compile") as status:
            found = under_roofs(given.tpu, given.config.layer_group, best=self.best, progress=status.update)
        console.result(**found.to_json())
        for part in lines(found, self.ops):
            console.print(part, highlight=False, markup=False)
        if picture is not None:
            _draw(found, picture)
        if self.out is not None:
            content = (json.dumps(found.to_json(), indent=1) + "\n").encode()
            write_atomically(self.out, lambda file: file.write(content))
        written = [str(path) for path in (picture, self.out) if path is not None]
        if written:
            console.print(f"wrote {', '.join(written)}", highlight=False, markup=False)
        return True


def _draw(found: "Found", path: Path) -> None:
    """The picture of the page as a file. Raises ConfigError where no op multiplies and moves anything."""
    from tpusim.page.roofs import roofs
    from tpusim.page.svg import write_svg

    picture = roofs(found.roofs.to_json())
    if picture is None:
        raise ConfigError(
            f"--plot {path}: an op that multiplies and moves bytes is required, but {found.model} has none"
        )
    title = f"{found.model} on {found.chip.name} in {found.mode}"
    write_svg(path, picture, [title, "small dots are ops, large ones layer groups; colours say what bounds them"])


def lines(found: "Found", most: int) -> Iterator[Table | str]:
    """The network, its groups, its longest ops, and the changes if it is grouped again."""
    roofs = found.roofs
    yield (
        f"{found.model} on {found.chip.name} in {found.mode}: {roofs.cycles:,} cycles; roofs {roofs.peak_macs:,} MAC "
        f"and {roofs.load_rate:.1f} loaded bytes per cycle"
    )
    for name, cycles in (*roofs.changed.items(), *((one.name, one.cycles) for one in found.regrouped)):
        yield f"  {name}: {cycles:,} cycles ({_change(roofs.cycles, cycles)})"
    yield _table("Groups and global layers", roofs.groups, roofs.cycles)
    ranked = sorted(roofs.ops, key=lambda place: -place.cycles)[: most or None]
    yield _table(
        f"Ops, {len(ranked)} of {len(roofs.ops)}, by the engine that works longer for them", ranked, roofs.cycles
    )
    for one in found.regrouped:
        yield from _regrouped(one)


def _table(title: str, places: Sequence["Place"], whole: int) -> Table:
    """One line for each: its cycles, its limit, and the cycles saved by each change."""
    from tpusim.page.roofs import LIMITS

    table = Table(title)
    names = list(dict.fromkeys(name for place in places for name in place.changed))
    grouped = any(place.ops > 1 for place in places)
    table.names("first op" if grouped else "op").numbers(*(["ops"] if grouped else []), "cycles", "share", "MAC/byte")
    table.words("bound by").numbers(*names)
    for place in places:
        share = f"{place.cycles / whole:.1%}" if whole else "-"
        changed = (_change(place.cycles, place.changed[name]) for name in names)
        cells = (
            place.name,
            *([str(place.ops)] if grouped else []),
            f"{place.cycles:,}",
            share,
            f"{place.intensity:,.1f}",
        )
        table.row(*cells, LIMITS[place.limit], *changed)
    return table


def _regrouped(one: "Regrouped") -> Iterator[Table | str]:
    """The parts whose time changes, the largest change first."""
    found = [(part, part.sums("cycles")) for part in one.parts]
    changed = [item for item in found if abs(item[1][1] - item[1][0]) >= LEAST * max(item[1][0], 1)]
    if not changed:
        yield f"{one.name}: no part of the network takes another time"
        return
    table = Table(f"{one.name}: parts that take another time").names("part, from its first op on")
    table.numbers("groups", "then", "cycles", "then", "change")
    for part, (before, after) in sorted(changed, key=lambda item: item[1][1] - item[1][0]):
        first = next(group["ops"][0] for group in (*part.before, *part.after))
        counts = str(len(part.before)), str(len(part.after))
        table.row(first, *counts, f"{before:,}", f"{after:,}", _change(before, after))
    yield table


def _change(before: int, after: int) -> str:
    return f"{after / before - 1:+.1%}" if before else "-"
