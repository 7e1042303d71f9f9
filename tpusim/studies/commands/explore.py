"""`tpusim explore`: the cost of networks on other chips, in other precisions, cut differently."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Network,
    NetworkOptions,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    WorkerOptions,
    Working,
    picture_of,
    require_count,
)
from tpusim.cli.output import Output
from tpusim.errors import CapacityError, ConfigError, option
from tpusim.host.tables import Table
from tpusim.registry import STRATEGIES

if TYPE_CHECKING:
    from tpusim.studies.explore import Bound, Row, Space

GROUPED_BY = (
    f"How ops are grouped, one or more of {', '.join(STRATEGIES)}, and files of groups that `tpusim group --force` "
    "takes, as 1,best,mine.toml; see `tpusim group`."
)


@dataclass
class Explore(Command):
    """Compile models for chips, modes, strategies and changed figures of chips, and compare the costs.

    Every point of the product is a row; a point that cannot be compiled is a row with its error. Points are computed
    once: an exploration that is started again in the same folder continues.
    """

    says = (
        "`rows`, a point each, as results.json; with --best-under the `best` of every model and batch; with "
        "--through-upstream the `recommended` rows"
    )

    models: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="NETWORK...")]
    """Models (.onnx, .tflite), modules up to 3_calibrated.mlir, or folders of runs."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    chips: str = "bm1684x"
    """Chips and TOML files of chips, as CHIP,CHIP."""
    modes: str = "int8"
    """Number formats, as int8,f16."""
    strategies: Annotated[str, tyro.conf.arg(help=GROUPED_BY)] = "2"
    batches: str = ""
    """Batches, as 1,4; default: the batch of the model."""
    cores: str = "1"
    """How many cores share the steps of every group, as 1,2."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Figures of the chips, FIELD=VALUE,VALUE as in lmem_bytes=131072,262144; once for each field."""
    asymmetric: bool = False
    """Quantise INT8 with zero points."""
    verify: bool = False
    """Also measure the similarity of the flat network's results to those before quantisation, on the first 8 samples
    together."""
    through_upstream: str = ""
    """Also let TPU-MLIR's code generator make a bmodel of every point, and compare its profile and its simulator's
    results with the clock, with flat inference and with TPU-MLIR's compiler: the folder of a Python environment with
    TPU-MLIR, or auto for the one that TPUSIM_UPSTREAM names. The bmodels are in the folder upstream of --out."""
    front: str = "ms,bytes,lmem"
    """Measures of the Pareto front, of ms, cycles, bytes, lmem, weights, neurons, groups, energy, cos, euc and real
    (cycles in the profile of --through-upstream)."""
    best_under: str = ""
    """Name the fastest point within bounds, as ms=5,cos=0.99; status 1 if a model has none."""
    rows: int = 40
    """Print the fastest so many rows; 0: all. The files have all."""
    plot: OptionalPath = None
    """Draw the first measure of --front over the second, with the front of these two, into this file (png or svg)."""
    plot_over: str = ""
    """With --plot: draw milliseconds, the least of all strategies and cores, over this field of --set instead."""
    out: Path = Path("explore")
    """Folder of the results and of computed points."""
    working: Working = WorkerOptions()

    def execute(self, console: Output) -> bool:
        """Compute missing points, write and print; False if no point of a model is within --best-under.

        Raises CapacityError, when all is written, if points are missing because memory was short.
        """
        from tpusim.studies.explore import explore, parse_bounds, parse_measures, require_energies
        from tpusim.studies.explore.results import NO_PARQUET, has_parquet

        require_count("--rows", self.rows, "prints all")
        measured = {"verified": self.verify, "through": bool(self.through_upstream)}
        measures = parse_measures(self.front, **measured)
        bounds = parse_bounds(self.best_under, **measured) if self.best_under else ()
        self._require_over()
        picture, space = self._picture(), self.space()
        require_energies("--best-under", [bound.measure for bound in bounds], space)
        with console.doing("points") as bar:
            found = explore(space, self.out, measures=measures, workers=self.working.workers(), progress=bar.progress)
        console.result(rows=msgspec.to_builtins(found.rows))
        through = self._through(console, found.rows) if self.through_upstream else ()
        for line in (*_lines(found.rows, self.rows), *through):
            console.tell(line) if isinstance(line, str) else console.print(line)
        if picture is not None:
            from tpusim.studies.commands.explore_plot import draw

            draw(found.rows, picture, measures, self.plot_over.removeprefix("chip."))
        console.note(f"{found.computed} of {len(found.rows)} points computed")
        for path in (*found.files, *([picture] if picture else [])):
            console.wrote(path)
        if not has_parquet():
            console.note(NO_PARQUET)
        met = not bounds or _show_best(console, found.rows, bounds)
        if found.short:
            raise CapacityError(
                f"{len(found.short)} of {len(found.rows)} points found too little memory on this computer; repeat the "
                f"command with more memory free, or give smaller {option('batches')}: it computes only what is missing"
            )
        return met

    def space(self) -> "Space":
        """The space of the options. Raises ConfigError."""
        from tpusim.running.artefacts import RunConfig
        from tpusim.studies.explore import Space, parse_setting

        config = RunConfig(Path())
        for group in (self.network, self.preprocessing, self.calibration):
            config = group.over(config)
        settings = [parse_setting(text) for text in self.set]
        if len(dict(settings)) < len(settings):
            raise ConfigError(f"--set {' '.join(self.set)}: a field is given twice; give all its values in one --set")
        return Space(
            self.models,
            _split(self.chips),
            _split(self.modes),
            _split(self.strategies),
            _numbers("--batches", self.batches) or (0,),
            _numbers("--cores", self.cores),
            dict(settings),
            config.data,
            config.calibration,
            self.asymmetric,
            self.verify,
            config.table,
            config.input_shapes,
            config.cut,
            config.preprocess,
            config.preprocess_list,
            self.through_upstream,
        )

    @staticmethod
    def _through(console: Output, rows: Sequence["Row"]) -> Iterator[Table | str]:
        """The rows on TPU-MLIR's tools, and the recommended ones."""
        from tpusim.studies.commands.explore_through import lines
        from tpusim.studies.explore import recommended

        found = recommended(rows)
        console.result(recommended=msgspec.to_builtins([row for row in found.values() if row is not None]))
        return lines(rows, found)

    def _picture(self) -> OptionalPath:
        """The file of --plot. Raises ConfigError without matplotlib, before anything is computed."""
        from tpusim.studies.commands.explore_plot import KINDS, figure_class

        if self.plot is not None:
            figure_class()
        return picture_of(self.plot, KINDS)

    def _require_over(self) -> None:
        """Raise ConfigError unless --plot-over is a field of numbers that --set varies, and something is drawn."""
        from tpusim.studies.explore import parse_setting

        over, varied = self.plot_over.removeprefix("chip."), dict(parse_setting(text) for text in self.set)
        if not over:
            return
        if self.plot is None:
            raise ConfigError(f"--plot-over {over}: --plot FILE is required, where it is drawn")
        if any(isinstance(value, str | bool) for value in varied.get(over, ("",))):
            raise ConfigError(
                f"--plot-over {over}: a field of numbers that --set varies is required, as in --set {over}=1,2"
            )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _split(text))
    except ValueError:
        raise ConfigError(f"{flag} {text}: numbers are required, as 1,4") from None


def _lines(rows: Sequence["Row"], most: int) -> Iterator[Table | str]:
    """The fastest rows of every model and batch, the number of omitted rows, then the errors."""
    from tpusim.studies.explore import comparable

    good = [row for row in rows if not row.error]
    found = list(comparable(good, range(len(good))))
    for (model, batch), numbers in found:
        ranked = sorted((good[i] for i in numbers), key=lambda row: (row.milliseconds or 0.0, row.moved_bytes or 0))
        shown = ranked[: most or None]
        yield _table(f"{model}{f', batch {batch}' if batch else ''}: the quickest first, * on the front", shown)
        if len(shown) < len(ranked):
            yield f"... and {len(ranked) - len(shown)} more: --rows 0"
    yield from _remarks("note", [(row.note, row) for row in rows if row.note], most)
    yield from _remarks("not possible", [(row.error, row) for row in rows if row.error], most)


def _remarks(head: str, remarks: Sequence[tuple[str, "Row"]], most: int) -> Iterator[str]:
    """Remarks about rows; equal remarks are printed once."""
    found: dict[str, list[Row]] = {}
    for text, row in remarks:
        found.setdefault(text, []).append(row)
    for text, same in list(found.items())[: most or None]:
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        yield f"{head}: {_name(same[0])}{more}: {text}"
    if most and len(found) > most:
        yield f"... and {len(found) - most} others: --rows 0"


def _name(row: "Row") -> str:
    settings = f" {row.settings}" if row.settings else ""
    batch = f", batch {row.batch}" if row.batch else ""
    cores = f", {row.cores} cores" if row.cores > 1 else ""
    return f"{row.model} on {row.chip}{settings} in {row.mode}, strategy {row.strategy}{batch}{cores}"


def _table(title: str, rows: Sequence["Row"]) -> Table:
    """One line per row; settings and cores have columns only if they are used."""
    table = Table(title)
    names = [name for name in ("settings", "cores") if any(getattr(row, name) not in ("", 1) for row in rows)]
    table.words("").names("chip", *names[: "settings" in names]).words("mode").names("strategy")
    powered = any(row.energy_uj is not None for row in rows)
    verified = any(row.cosine is not None for row in rows)
    table.numbers(*(["cores"] if "cores" in names else []), "ms", "moved KiB", "LMEM KiB", "weights KiB")
    table.numbers("groups + global", "x least", *(["uJ"] if powered else []), *(["cosine"] if verified else []))
    for row in rows:
        cells = [
            "*" if row.front else "", row.chip, *([row.settings] if "settings" in names else []), row.mode,
            row.strategy, *([str(row.cores)] if "cores" in names else []), f"{row.milliseconds or 0:.4f}",
            _kib(row.moved_bytes), _kib(row.lmem_bytes), _kib(row.weight_bytes),
            f"{row.groups} + {row.global_layers}", _ratios(row),
            *([_energy(row.energy_uj)] if powered else []), *([_similarity(row.cosine)] if verified else []),
        ]  # fmt: skip
        table.row(*cells)
    return table


def _ratios(row: "Row") -> str:
    """Bytes and cycles divided by their lower bounds."""
    pairs = (row.moved_bytes, row.least_bytes), (row.cycles, row.least_cycles)
    return ", ".join(f"{value / least:.2f}" if value and least else "-" for value, least in pairs)


def _energy(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _similarity(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _kib(count: int | None) -> str:
    return f"{(count or 0) / 1024:,.1f}"


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _show_best(console: Output, rows: Sequence["Row"], bounds: "Sequence[Bound]") -> bool:
    """Name the best of every model and batch; False if one has none."""
    from tpusim.studies.explore import MEASURES, best_under

    wanted = ",".join(f"{bound.measure}={bound.limit:g}" for bound in bounds)
    found = best_under(rows, bounds)
    console.result(best=msgspec.to_builtins(list(found.values())))
    for (model, batch), row in found.items():
        if row is None:
            console.tell(f"no point under {wanted}: {model}{f', batch {batch}' if batch else ''}")
            continue
        names = dict.fromkeys(("ms", "bytes", "lmem", *(bound.measure for bound in bounds)))
        figures = ", ".join(f"{name} {_figure(getattr(row, MEASURES[name]))}" for name in names)
        console.tell(f"best under {wanted}: {_name(row)}: {figures}")
    return None not in found.values()
