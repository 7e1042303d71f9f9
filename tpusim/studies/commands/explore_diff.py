"""`tpusim explore diff A B`: comparison of two runs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In
from tpusim.cli.output import Output
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.studies.explore.diff import Part

NAMES = {
    "milliseconds": "ms",
    "cycles": "cycles",
    "load_bytes": "loaded",
    "store_bytes": "stored",
    "commands": "commands",
}


@dataclass
class ExploreDiff(Command):
    """List layer groups of two runs that differ, with their costs: folders of `tpusim run`, or their report.json."""

    says = "`parts` whose groups differ (all with --all), and the `totals` of both"

    before: Annotated[In, tyro.conf.arg(metavar="A")]
    after: Annotated[In, tyro.conf.arg(metavar="B")]
    all: bool = False
    """Also list groups that are cut in the same way."""

    def execute(self, console: Output) -> bool:
        """Print groups that differ, then the sums."""
        from tpusim.studies.explore.diff import TOTALS, parts, read_report

        before, after = read_report(self.before), read_report(self.after)
        found = parts(before, after)
        shown = [part for part in found if part.changed or self.all]
        for side, report in (("A", before), ("B", after)):
            console.print(f"{side}: {report['model']} on {report['chip']} in {report['mode']}", markup=False)
        if shown:
            console.print(_table(shown))
        console.result(
            totals={name: [before["totals"][name], after["totals"][name]] for name in TOTALS},
            parts=[asdict(part) for part in shown],
        )
        same = sum(not part.changed for part in found)
        console.print(f"{same} of {len(found)} parts of the network are cut alike", highlight=False)
        for name in TOTALS:
            line = _line(NAMES[name], before["totals"][name], after["totals"][name])
            console.print(line, highlight=False, markup=False)
        return True


def _table(shown: "Sequence[Part]") -> Table:
    table = Table("Groups").names("A: groups, n×c×d×h×w", "B: groups, n×c×d×h×w")
    table.numbers("cycles A", "cycles B", "change", "bytes A", "bytes B")
    for part in shown:
        cycles = part.sums("cycles")
        moved = [sum(pair) for pair in zip(part.sums("load_bytes"), part.sums("store_bytes"), strict=True)]
        cells = [list(_said(groups)) for groups in (part.before, part.after)]
        figures = f"{cycles[0]:,}", f"{cycles[1]:,}", _change(*cycles), *(f"{count:,}" for count in moved)
        table.row(*cells, *figures)
    return table


def _said(groups: Sequence[dict[str, Any]]) -> Iterator[str]:
    for group in groups:
        names = group["ops"]
        which = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
        yield f"{which} {'global' if group['reason'] else '×'.join(str(group['secs'][axis]) for axis in 'ncdhw')}"


def _line(name: str, before: float, after: float) -> str:
    shown = (f"{v:,.4f}" if isinstance(v, float) else f"{v:,}" for v in (before, after))
    return f"{name}: {' -> '.join(shown)} ({_change(before, after)})"


def _change(before: float, after: float) -> str:
    return f"{after / before - 1:+.1%}" if before else "-"
