"""`tpusim bench`: latency and throughput beside ONNX Runtime."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, Lowering, LoweringOptions, OptionalPath, parse_shapes
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.tables import Table

if TYPE_CHECKING:
    from tpusim.bench import Row


@dataclass
class Bench(Command):
    """Measure a network flat and on the machine beside ONNX Runtime F32 and INT8, in turns in one process.

    Preparing is reading, compiling and the first run, in CPU seconds; kernels kept from an earlier run make it short.
    """

    says = "what was measured on, and `rows`, a contestant each"

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    lowering: Lowering = LoweringOptions()
    batch: int = 1
    """How often the model's own batch is in a run; the flat network takes all in one call, the others one by one."""
    rounds: int = 7
    """How many times each one runs."""
    input_shapes: tuple[str, ...] = ()
    """Static input shapes, NAME=1x3x224x224 each."""
    out: OptionalPath = None
    """Write the figures here too, as JSON."""

    def execute(self, console: Output) -> bool:
        """Measure the network and print the table."""
        from tpusim.artefacts import RunConfig
        from tpusim.bench import contestants, measure
        from tpusim.calibration.samples import load_samples
        from tpusim.calibration.stage import CalibrationConfig
        from tpusim.frontend import import_onnx
        from tpusim.inference import input_specs

        for flag, value in (("--batch", self.batch), ("--rounds", self.rounds)):
            if value < 1:
                raise ConfigError(f"{flag} {value}: 1 or more is required")
        shapes = parse_shapes(self.input_shapes)
        config = RunConfig(
            self.model, lowering=self.lowering.config(), calibration=CalibrationConfig("max"), input_shapes=shapes
        )
        specs = input_specs(import_onnx(self.model, input_shapes=shapes))
        samples = [dict(sample) for sample in load_samples(f"random:{self.batch}", specs)]
        batch = next(iter(specs.values()))[0][0] if all(shape for shape, _ in specs.values()) else 1
        rows = measure(contestants(config, samples), self.batch * batch, self.rounds)
        console.result(**_content(rows, self))
        console.print(_table(rows, f"{self.model.name}, {self.batch * batch} images in a run"))
        for row in rows:
            if row.error:
                console.tell(f"{row.name}: {row.error}")
        if self.out is not None:
            _write(self.out, _content(rows, self))
            console.wrote(self.out)
        return True


def _table(rows: "list[Row]", title: str) -> Table:
    table = Table(title).words("")
    table.numbers("ms", "fastest", "slowest", "CPU ms", "images/s", "x first", "prepare CPU s", "peak MiB")
    for row in rows:
        if not row.error:
            times = (row.milliseconds, row.fastest, row.slowest, row.cpu_milliseconds, row.images_per_second)
            more = (f"{row.ratio:.2f}", f"{row.prepare_seconds:.1f}", f"{row.peak_mib:,.0f}")
            table.row(row.name, *(f"{t:,.1f}" for t in times), *more)
    return table


def _content(rows: "list[Row]", asked: Bench) -> dict[str, Any]:
    from tpusim.bench.about import about

    return {**about(), "model": asked.model.name, "chip": asked.lowering.chip, "mode": asked.lowering.mode,
               "batch": asked.batch, "rounds": asked.rounds, "rows": [asdict(row) for row in rows]}  # fmt: skip


def _write(path: Path, content: dict[str, Any]) -> None:
    from tpusim.ir.files import replacing

    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
