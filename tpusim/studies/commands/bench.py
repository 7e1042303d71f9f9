"""`tpusim bench`: latency and throughput compared with ONNX Runtime."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.command import Command
from tpusim.cli.given import given as named
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    network_of,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.running.network import Network as GivenNetwork
    from tpusim.studies.bench import Measurement


@dataclass
class Bench(Command):
    """Measure a network flat and on the machine, in turns with ONNX Runtime F32 and INT8 in one process.

    Preparing is reading, compiling and the first run, in CPU seconds; kernels kept from an earlier run make it short.
    """

    says = "what was measured on, and `rows`, a contestant each"

    model: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    batch: int = 1
    """Batch of a run, in units of the model's batch; the flat network computes it in one call, others one by one."""
    rounds: int = 7
    """How many times each of them runs."""
    out: OptionalPath = None
    """Also write the figures to this file, as JSON."""

    def execute(self, console: Output) -> bool:
        """Measure the network and print the table."""
        from tpusim.calibration.samples import load_samples
        from tpusim.inference import input_specs
        from tpusim.studies.bench import contestants, measure

        for flag, value in (("--batch", self.batch), ("--rounds", self.rounds)):
            if value < 1:
                raise ConfigError(f"{flag} {value}: 1 or more is required")
        asked = (self.network, self.preprocessing, self.calibration, self.lowering)
        given = network_of(self.model, asked)
        specs = input_specs(given.floats)
        source = self.calibration.data if "data" in named(self.calibration) else f"random:{self.batch}"
        samples = [dict(sample) for sample in load_samples(source, specs, self.batch)]
        batch = next(iter(specs.values()))[0][0] if all(shape for shape, _ in specs.values()) else 1
        rows = measure(contestants(given, samples), self.batch * batch, self.rounds)
        content = _content(rows, self, given)
        console.result(**content)
        console.print(_table(rows, f"{self.model.name}, {self.batch * batch} images in a run"))
        for row in rows:
            if row.error:
                console.tell(f"{row.name}: {row.error}")
        if self.out is not None:
            _write(self.out, content)
            console.wrote(self.out)
        return True


def _table(rows: "list[Measurement]", title: str) -> Table:
    table = Table(title).words("")
    table.numbers("ms", "fastest", "slowest", "CPU ms", "images/s", "x first", "prepare CPU s", "peak MiB")
    for row in rows:
        if not row.error:
            times = (row.milliseconds, row.fastest, row.slowest, row.cpu_milliseconds, row.images_per_second)
            more = (f"{row.ratio:.2f}", f"{row.prepare_seconds:.1f}", f"{row.peak_mib:,.0f}")
            table.row(row.name, *(f"{t:,.1f}" for t in times), *more)
    return table


def _content(rows: "list[Measurement]", asked: Bench, given: "GivenNetwork") -> dict[str, Any]:
    from tpusim.studies.bench.about import about

    return {**about(), "model": asked.model.name, "chip": given.chip.name, "mode": str(given.lowering.mode),
            "batch": asked.batch, "rounds": asked.rounds, "rows": [asdict(row) for row in rows]}  # fmt: skip


def _write(path: Path, content: dict[str, Any]) -> None:
    from tpusim.host.files import replacing

    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
