"""`tpusim explore group`: one layer group cut differently, as a page."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

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


@dataclass
class WhatIfCommand:
    """Alternatives of one layer group, each compiled and costed: another end, other sections, another type, in place.

    Writes a page with a slider over them: local memory over time, rows of the pipeline, bytes, cycles of the engines;
    refused ones with the rule and the nearest value that works. The other groups stay as they are.
    """

    model: NetworkPath
    group: int = -1
    """The number of the layer group, as in the table of `tpusim run`; -1: the group that takes longest."""
    out: Path = Path("what_if.html")
    """The page to write."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()

    def execute(self, console: Console) -> bool:
        """Compute all alternatives and write the page; one line for each."""
        from tpusim.explore.whatif import what_if
        from tpusim.page.whatif import write_what_if

        asked = (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping)
        given = network_of(self.model, asked, assume=True)
        found = what_if(given.tpu, given.config.layer_group, None if self.group == -1 else self.group)
        write_what_if(self.out, found)
        for one in found.alternatives:
            cost = f"{one.figures['cycles']:,} cycles" if one.figures else f"refused: {one.why}; {one.change}"
            console.print(
                f"{one.knob} {one.value}".strip() + f": {cost}", markup=False, highlight=False, soft_wrap=True
            )
        console.print(f"wrote {self.out}: group {found.group} of {found.model}", markup=False, highlight=False)
        return True
