"""`tpusim explore group`: one layer group cut differently, as a page."""

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
    Preprocessing,
    PreprocessOptions,
    network_of,
)
from tpusim.cli.output import Output

if TYPE_CHECKING:
    from tpusim.studies.explore.whatif import Alternative


@dataclass
class WhatIfCommand(Command):
    """Compile and cost alternatives of one layer group: another end, other sections, another type, in place.

    Writes a page with a slider over them: local memory over time, rows of the pipeline, bytes, cycles of the engines;
    refused alternatives with the rule and the nearest value that works. The other groups do not change.
    """

    says = "the `group` and its `alternatives`, with figures or the rule that refuses them"

    model: NetworkPath
    group: int = -1
    """The number of the layer group, as in the table of `tpusim run`; -1: the longest group."""
    out: Path = Path("what_if.html")
    """The page to write."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()

    def execute(self, console: Output) -> bool:
        """Compute all alternatives and write the page; one line for each."""
        from tpusim.page.whatif import write_what_if
        from tpusim.studies.explore.whatif import what_if

        asked = (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        given = network_of(self.model, asked, assume=True)
        found = what_if(given.tpu, given.config.layer_group, None if self.group == -1 else self.group)
        write_what_if(self.out, found)
        named = ("knob", "value", "shipped", "figures", "why", "change")
        console.result(
            group=found.group, alternatives=[{n: getattr(one, n) for n in named} for one in found.alternatives]
        )
        for line in lines(found.alternatives):
            console.tell(line)
        console.wrote(self.out, f"group {found.group} of {found.model}")
        return True


def lines(alternatives: "Sequence[Alternative]") -> Iterator[str]:
    """The costs of alternatives, then the refused ones; values of one knob refused by one rule share a line."""
    from tpusim.page.whatif import refusals

    for one in alternatives:
        if one.figures:
            yield f"{one.knob} {one.value}".strip() + f": {one.figures['cycles']:,} cycles"
    for knob, values, why, change in refusals(alternatives):
        yield f"{knob} {', '.join(values)}".strip() + f": refused: {'; '.join(filter(None, (why, change)))}"
