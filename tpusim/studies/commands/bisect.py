"""`tpusim bisect`: the first op whose error alone is too large, and a small network that shows it."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Judged,
    JudgedOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    folder_of,
    network_of,
    require_count,
    require_engine,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.files import real

if TYPE_CHECKING:
    from tpusim.lowering import LoweringConfig
    from tpusim.running.network import Network as GivenNetwork
    from tpusim.studies.diagnosis import Broken, Reproducer
    from tpusim.studies.diagnosis.losses import Tensors
    from tpusim.verify.compare import Tolerance

BEFORE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of ops before the broken one to include, tried in turn until the op is broken in the small network too: a
range may come from them, or a whole attention block may become one op.
"""


@dataclass
class Bisect(Command):
    """Find the first op that alone breaks the tolerance, and write a small network that shows it.

    Takes a model, a module up to 3_calibrated.mlir, or the folder of a run, and lowers it as `tpusim lower` does. Every
    op gets the float network's operands, rounded once to the type that it reads, and is compared with the float op on
    the same operands, also by channel, because a large channel hides the others. The network around the first op that
    breaks the tolerance on one of the samples is cut out of the ONNX model: op.onnx, inputs.npz, the necessary lines of
    cali_table and qtable, and show.sh, which repeats the comparison.
    """

    says = (
        "`samples`, and the first op that breaks the `tolerance` by itself (`broken`, null if none does), as a tensor "
        "of report.json; what --engine says, else null (`engine`)"
    )

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    judged: Judged = JudgedOptions()
    lowering: Lowering = LoweringOptions()
    samples: int = 4
    """Try every op on the first so many samples; 0: all."""
    tolerance: str | None = None
    """Minimum cosine and euclidean similarity; default: the tolerance of a run in this mode."""
    model: OptionalPath = None
    """The ONNX model to cut; default: the given model, or that of the module's run."""
    engine: str = ""
    """Let an independent tool, one of `tpusim infer --engine`, compute all tensors too, and say if they are the same:
    is it the compiler or the network?"""
    out: OptionalPath = None
    """Folder of the small network; default `bisect` in the module's folder."""

    def execute(self, console: Output) -> bool:
        """Measure and print; True if no op breaks the tolerance."""
        from tpusim.passes import PassManager
        from tpusim.passes.pipelines import converted
        from tpusim.studies.commands.judging import evidence, second_opinion_of
        from tpusim.studies.diagnosis import first_broken, scaled_by

        require_count("--samples", self.samples, "tries all")
        require_engine("--engine", self.engine, "")
        asked = (self.network, self.preprocessing, self.judged, self.lowering)
        given = network_of(self.module, asked, floats=True)
        config, top, tolerance = given.lowering, given.calibrated, self._tolerance(given.lowering)
        known = evidence(given, self.judged.data, self.samples)
        samples = list(known.samples)
        lowered = PassManager(converted(config)).run(top)
        broken = first_broken(top, lowered, samples, tolerance)
        console.result(
            samples=len(samples), tolerance=str(tolerance), broken=None if broken is None else broken.result.to_json()
        )
        count = "1 sample" if len(samples) == 1 else f"{len(samples)} samples"
        self._say(console, f"every op is tried on {count} {known.origin}")
        second_opinion_of(self.engine, lowered, samples, console)
        where = f"on {given.chip.name} in {config.format.name}"
        if broken is None:
            self._say(console, f"no op breaks {tolerance} by itself {where}; `tpusim why` has all of them together")
            self._say(console, "bisect PASSED.")
            return True
        self._say(console, f"{broken.name} is the first that breaks {tolerance} by itself {where}: {_measures(broken)}")
        origin = scaled_by(top, lowered, broken.name)
        if origin != broken.name:
            self._say(console, f"{broken.name} is stored in the scale of {origin}, which reads it")
        self._reproduce(console, given, origin, dict(broken.sample), tolerance)
        self._say(console, "bisect FAILED.")
        return False

    def _say(self, console: Output, text: str) -> None:
        console.tell(text)

    def _tolerance(self, config: "LoweringConfig") -> "Tolerance":
        from tpusim.verify.compare import Tolerance
        from tpusim.verify.tolerances import tpu_vs_top

        if self.tolerance is not None:
            return Tolerance.parse(self.tolerance)
        return tpu_vs_top(config.format.needs)

    def _reproduce(
        self, console: Output, given: "GivenNetwork", name: str, sample: "Tensors", tolerance: "Tolerance"
    ) -> None:
        """Write the small network, and say whether its op is broken like in the large network."""
        from tpusim.running.persistence import model_of

        source = self.model or given.model_path or model_of(folder_of(self.module))
        if source is None:
            if self.out is not None:
                raise ConfigError(f"--out {self.out}: needs --model MODEL.onnx, out of which the network is cut")
            self._say(console, "with --model MODEL.onnx a network of this op alone is written")
            return
        found, shows = self._smallest(source, given, name, sample, tolerance)
        folder = self.out or folder_of(self.module) / "bisect"
        commands = _commands(self._chip(given), given.lowering, found, tolerance)
        found.write(folder, commands, origin=self.module.name)
        self._say(console, f"wrote {folder}: op.onnx, inputs.npz and show.sh, which runs")
        for command in commands:
            self._say(console, f"    {command}")
        if not shows:
            self._say(console, f"WARNING: this network alone is within {tolerance}: cut out it is lowered otherwise")

    def _smallest(
        self, source: Path, given: "GivenNetwork", name: str, sample: "Tensors", tolerance: "Tolerance"
    ) -> "tuple[Reproducer, bool]":
        """The smallest network in which the op is broken too, and whether there is one; otherwise the op alone."""
        from tpusim.lowering.qtable import read_qtable
        from tpusim.studies.diagnosis import Reproducer

        config, top = given.lowering, given.calibrated
        modes = {} if config.qtable is None else read_qtable(config.qtable, config.format)
        tried: list[Reproducer] = []
        for before in BEFORE:
            tried.append(
                Reproducer.of(source, top, name, sample, modes=modes, asymmetric=config.asymmetric, before=before)
            )
            if not tried[-1].compare(config, replace(tolerance, by_channel=True)).passed:
                return tried[-1], True
        return tried[0], False

    def _chip(self, given: "GivenNetwork") -> str:
        """The chip's name or path for a command in another folder."""
        path = Path(self.lowering.chip)
        return str(real(path)) if path.suffix == ".toml" else given.chip.name


def _commands(chip: str, asked: "LoweringConfig", found: "Reproducer", tolerance: "Tolerance") -> list[str]:
    """The commands of show.sh, to be run in the folder of the small network."""
    words = ["--chip", chip, "--mode", str(asked.mode)]
    words += ["--asymmetric"] * asked.asymmetric + ["--matmul-perchannel"] * asked.matmul_perchannel
    words += ["--high-precision"] * asked.high_precision
    words += ["--arithmetic", asked.arithmetic] if asked.arithmetic != "chip" else []
    words += ["--q-symmetric"] * asked.q_symmetric
    words += [] if asked.q_group_size is None else ["--q-group-size", str(asked.q_group_size)]
    words += ["--quirks-off", *asked.quirks_off] if asked.quirks_off else []
    words += ["--qtable", "qtable"] if found.modes else []
    words += ["--table", "cali_table"] if found.table is not None else []
    run = ["tpusim", "run", "op.onnx", *words, "--data", "inputs.npz", "--out", "out", "--to", "infer"]
    limits = f"{tolerance.cosine!r},{tolerance.euclidean!r}"
    files = ("out/tpu_outputs.npz", "out/top_outputs.npz")
    check = ["tpusim", "compare", *files, "--tolerance", limits, "--by-channel"]
    return [shlex.join(run), shlex.join(check)]


def _measures(broken: "Broken") -> str:
    """How far the result is off, by each measure, and on how many samples."""
    result = broken.result
    measured = f"cosine {result.cosine:.4f}, euclidean {result.euclidean:.4f}, SQNR {result.sqnr_db:.1f} dB"
    measured += f"; {result.note}" if result.note else ""
    return measured if broken.samples == 1 else f"{measured}; broken on {broken.broken} of {broken.samples} samples"
