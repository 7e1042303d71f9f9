"""Options shared by several subcommands: how a network is given, and how it is compiled."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import tyro

from tpusim.cli.given import flags, given, plain, usual, values
from tpusim.cli.output import Output
from tpusim.errors import ConfigError, meant
from tpusim.ir.formats import number_format
from tpusim.registry import ENGINES, FORMATS, STRATEGIES

if TYPE_CHECKING:
    from tpusim.calibration.stage import CalibrationConfig
    from tpusim.frontend import Cut
    from tpusim.host.workers import Workers
    from tpusim.images import Preprocess
    from tpusim.ir.module import Model
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.lowering import LoweringConfig
    from tpusim.running.artefacts import Observer, RunConfig
    from tpusim.running.network import Network as NetworkGiven
    from tpusim.simulator import SimulatorOptions

if TYPE_CHECKING:
    Opt = str
    Mode = str
else:  # so that --help names plug-ins too
    Opt, Mode = Literal[STRATEGIES.names()], Literal[FORMATS.names()]
Arithmetic = Literal["chip", "interpreter"]
Shapes = Literal["0", "1"]
Addresses = Literal["basic", "io_alone"]
Method = Literal["kl", "max", "percentile9999", "mse", "aciq_gauss", "aciq_laplace"]
FrameFormat = Literal[
    "", "RGB_PLANAR", "RGB_PACKED", "BGR_PLANAR", "BGR_PACKED", "GRAYSCALE", "YUV420_PLANAR", "YUV_NV12", "YUV_NV21"
]
Timing = Literal["early", "late", "random"]
In = tyro.conf.Positional[Path]
NetworkPath = Annotated[In, tyro.conf.arg(metavar="NETWORK")]
"""A model (.onnx, .tflite), a module of any stage (.mlir), or the folder of a run; read by `network_of`."""
OptionalPath = Path | None
KeepWords = Annotated[tuple[str, ...], tyro.conf.arg(metavar="{all,outputs,none,NAME}...")]
"""Of `--keep` (`tpusim.verify.kept`)."""


def picture_of(plot: OptionalPath, kinds: Sequence[str] = (".svg",)) -> OptionalPath:
    """The file of `--plot`, if given. Raises ConfigError for a suffix that is no kind of picture."""
    if plot is not None and plot.suffix not in kinds:
        raise ConfigError(f"--plot {plot}: a name that ends in {' or '.join(kinds)} is required")
    return plot


def require_count(flag: str, value: int, zero: str) -> None:
    """Raise ConfigError unless an option is 0 or more; `zero` says what 0 does."""
    if value < 0:
        raise ConfigError(f"{flag} {value}: 0 or more is required; 0 {zero}")


def require_engine(flag: str, name: str, *known: str) -> None:
    """Raise ConfigError unless an option names an engine, or is one of the other known words."""
    names = *known, *ENGINES
    if name not in names:
        wanted = ", ".join(filter(None, names))
        raise ConfigError(f"{flag}: one of {wanted} is required, got '{name}'{meant(name, names)}")


def require_ulps(ulps: int | None, check: OptionalPath) -> None:
    """Raise ConfigError unless --ulps is a number that --check uses."""
    if ulps is None:
        return
    require_count("--ulps", ulps, "lets no float differ")
    if check is None:
        raise ConfigError(f"--ulps {ulps}: needs --check REF.npz, which says what to compare with")


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`NAME=1x3x224x224` -> {"NAME": (1, 3, 224, 224)}. Raises ConfigError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        parts = dims.replace(",", "x").strip("[]").split("x")
        if not equals or not name or not all(p.strip().isdigit() for p in parts):
            raise ConfigError(f"--input-shapes {text}: NAME=1x3x224x224 is required")
        shapes[name] = tuple(int(p) for p in parts)
    return shapes


def parse_values(texts: tuple[str, ...]) -> dict[str, list[float]]:
    """`NAME=16000` or `NAME=1,2.5,true` -> {"NAME": [1, 2.5, True]}. Raises ConfigError."""
    values: dict[str, list[float]] = {}
    for text in texts:
        name, _, listed = text.rpartition("=")
        try:
            values[name] = [_number(word.strip()) for word in listed.strip("[]").split(",")]
        except ValueError as error:
            raise ConfigError(f"--input-values {text}: NAME=16000 or NAME=1,2,3 is required") from error
        if not name:
            raise ConfigError(f"--input-values {text}: NAME=16000 or NAME=1,2,3 is required")
    return values


def _number(word: str) -> float:
    """A whole number, which int64 inputs need exactly, a bool, or a float. Raises ValueError."""
    named = {"true": True, "false": False}
    if word.lower() in named:
        return named[word.lower()]
    try:
        return int(word)
    except ValueError:
        return float(word)


@dataclass(frozen=True)
class NetworkOptions:
    """The part of an ONNX model, and its input shapes."""

    input_shapes: tuple[str, ...] = ()
    """Static input shapes, NAME=1x3x224x224 each."""
    input_values: tuple[str, ...] = ()
    """Inputs with a fixed value, NAME=16000 or NAME=1,2,3 each; they become constants of the network."""
    inputs: tuple[str, ...] = ()
    """Tensors, by ONNX name, that become the network's inputs; the nodes before them are left out."""
    outputs: tuple[str, ...] = ()
    """Tensors, by ONNX name, that become the network's outputs; nodes that only others need are left out."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by input. Raises ConfigError."""
        return parse_shapes(self.input_shapes)

    def cut(self) -> "Cut":
        """The cut of the network."""
        from tpusim.frontend import Cut

        return Cut(self.inputs, self.outputs, parse_values(self.input_values))

    def given(self) -> list[str]:
        """The options that were given, spelled as on the command line."""
        return flags(name for name, value in values(self).items() if value)

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with the options that were given."""
        from tpusim.frontend import Cut

        mine, was = self.cut(), base.cut
        cut = Cut(mine.inputs or was.inputs, mine.outputs or was.outputs, mine.values or was.values)
        return replace(base, input_shapes=self.shapes() or base.input_shapes, cut=cut)


Network = Annotated[NetworkOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class PreprocessOptions:
    """Preprocessing of image files as in TPU-MLIR: y = (x - mean) * scale; stored in the module."""

    mean: str = "0,0,0"
    """Subtracted first; per channel, in the order of --pixel-format."""
    scale: str = "1,1,1"
    """Multiplied after the subtraction; per channel."""
    pixel_format: Literal["bgr", "rgb", "gray", "rgba", "gbrg", "grbg", "bggr", "rggb"] = "bgr"
    """Order of the channels of the network's input."""
    channel_format: Literal["nchw", "nhwc"] = "nchw"
    """Order of the axes of the network's input."""
    resize_dims: str = ""
    """HEIGHT,WIDTH after resizing, before cropping to the middle; default: the size of the network's input."""
    keep_aspect_ratio: bool = False
    """Keep the ratio of width and height; otherwise images are stretched."""
    keep_ratio_mode: Literal["letterbox", "short_side_scale"] = "letterbox"
    """With --keep-aspect-ratio: pad the whole image, or crop it to its middle."""
    pad_value: int = 0
    """Value of the padding of a letterbox, 0 to 255."""
    pad_type: Literal["center", "normal"] = "center"
    """Place of the image in a letterbox: in the middle, or top left."""
    preprocess_list: str = ""
    """Numbers of the inputs that are images, from 1, as in 1,3; default: all."""

    def preprocess(self) -> "Preprocess | None":
        """The preprocessing of the options; None if none is given. Raises ConfigError."""
        from tpusim.images import Preprocess

        if self == PreprocessOptions():
            return None
        if not self.keep_aspect_ratio:
            usual = PreprocessOptions()
            for name in ("keep_ratio_mode", "pad_value", "pad_type"):
                if getattr(self, name) != getattr(usual, name):
                    raise ConfigError(f"--{name.replace('_', '-')}: needs --keep-aspect-ratio")
        mean, scale, dims = (_numbers(name, getattr(self, name)) for name in ("mean", "scale", "resize_dims"))
        return Preprocess(
            mean, scale, self.pixel_format, self.channel_format, tuple(int(v) for v in dims),
            self.keep_aspect_ratio, self.keep_ratio_mode, self.pad_value, self.pad_type,
        )  # fmt: skip

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with this preprocessing, if there is one."""
        found = self.preprocess()
        return base if found is None else replace(base, preprocess=found, preprocess_list=self.which())

    def which(self) -> tuple[int, ...]:
        """Numbers of the inputs that are images; (): all. Raises ConfigError."""
        return tuple(int(v) for v in _numbers("preprocess_list", self.preprocess_list))


def _numbers(name: str, listed: str) -> tuple[float, ...]:
    """`1,2,3` -> (1.0, 2.0, 3.0), or integers for options that need them. Raises ConfigError."""
    kind = float if name in ("mean", "scale") else int
    try:
        return tuple(kind(part) for part in listed.split(",") if listed)
    except ValueError as error:
        wanted = "numbers" if kind is float else "whole numbers"
        raise ConfigError(f"--{name.replace('_', '-')} {listed}: {wanted} with commas between are required") from error


Preprocessing = Annotated[PreprocessOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class MeasuringOptions:
    """The samples of calibration."""

    data: str = usual("random:8")
    """Calibration samples: npz keyed by input name, a folder of npz, npy or images, a .txt list of them, or
    random:N[:SEED]."""
    samples: int = usual(0)
    """Number of samples to use; 0: all."""
    tune_num: int = usual(5)
    """Number of samples that tune thresholds, for the methods that upstream tunes; 0: no tuning."""

    def config(self) -> "CalibrationConfig":
        """The configuration of calibration. Raises ConfigError for a number below 0."""
        from tpusim.running.artefacts import RunConfig

        return self.over(RunConfig(Path())).calibration

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with the options that were given. Raises ConfigError for a number below 0."""
        require_count("--samples", self.samples, "uses all")
        require_count("--tune-num", self.tune_num, "tunes nothing")
        asked, names = given(self), {"method": "method", "samples": "max_samples", "tune_num": "tune_samples"}
        changed = {field: asked[name] for name, field in names.items() if name in asked}
        found = {name: asked[name] for name in ("data", "table") if name in asked}
        return replace(base, calibration=replace(base.calibration, **changed), **found)


Measuring = Annotated[MeasuringOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class CalibrationOptions(MeasuringOptions):
    """The source of thresholds; a network that already has thresholds keeps them."""

    method: Method = usual("kl")
    """Method for thresholds, as upstream's --cali_method."""
    table: OptionalPath = None
    """Use this calibration table instead of measuring."""


Calibration = Annotated[CalibrationOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class JudgedOptions:
    """Samples to judge a network by, and the source of thresholds if it has none."""

    data: str | None = None
    """Samples: npz keyed by input name, a folder of npz, npy or images, a .txt list of them, or random:N[:SEED]; a
    network without thresholds is also calibrated with them. Default: those of the run's calibration, or else inputs.npz
    in the folder; for a model alone random:8."""
    method: Method = usual("kl")
    """Method for missing thresholds, as upstream's --cali_method."""
    tune_num: int = usual(5)
    """Number of samples that tune thresholds; 0: no tuning."""
    table: OptionalPath = None
    """Use this calibration table instead of measuring."""

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with the options that were given."""
        data = CalibrationOptions().data if self.data is None else self.data
        return CalibrationOptions(data, tune_num=self.tune_num, method=self.method, table=self.table).over(base)


Judged = Annotated[JudgedOptions, tyro.conf.arg(name="")]


def output_file(path: Path, name: str, out: OptionalPath) -> Path:
    """The output file: the given one, or the default name next to the input, or in it if it is a folder."""
    return out or folder_of(path) / name


def folder_of(path: Path) -> Path:
    """The default folder for files of a network."""
    return path if path.is_dir() else path.parent


@dataclass(frozen=True)
class GroupSteps:
    """Steps on layer groups after they are chosen; see docs/layer_group.md."""

    timestep_moves: bool = True
    """Move loads to earlier rows and stores to later rows if the DMA takes longer than the ops of a row."""
    in_place: bool = True
    """Let results take the bytes of operands that are not read later."""
    group_overlap: bool = True
    """Load a group's first step during the last ops of the previous group, store its last during the next group's
    first.
    """
    timestep_combine: bool = True
    """Merge neighbouring rows, and exchange a load and a store, by TPU-MLIR's rules (groups of up to 100 ops)."""
    wide_rows: bool = False
    """Merge rows during a transfer that takes longer than the ops of one row (TPU-MLIR has no such rows)."""


def steps_given(steps: GroupSteps) -> list[str]:
    """The options of a command that differ from the default steps."""
    base = asdict(GroupSteps())
    found = {name: value for name, value in asdict(steps).items() if value != base[name]}
    return [f"--{'' if value else 'no-'}{name.replace('_', '-')}" for name, value in found.items()]


Steps = Annotated[GroupSteps, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class GroupingOptions:
    """The division of ops into layer groups; see docs/layer_group.md."""

    layer_group: Opt = usual("2")
    """1: group greedily from the end; 2: minimise the estimated time; off: every op alone; best: the fastest on the
    clock of these, with wide rows, searched sections, in place, joined and cut finer (takes many times as long).
    Installed plug-ins (the entry points `tpusim.strategies`) are also listed by name.
    """
    shape_secs_search_strategy: Shapes = usual("0")
    """With --layer-group 2: 0 takes the first sections that fit; 1 searches for faster ones in the chosen groups."""
    cores: int = usual(1)
    """How many cores of the chip share the steps of every group (bm1688 has 2, bm1690 has 8)."""
    force: OptionalPath = None
    """File (TOML, or JSON by its name) of pinned groups; the rest is searched. TPU-MLIR's layer_group_cache.json and
    layer_group_config.json too."""
    addr_mode: Addresses = usual("basic")
    """Where inputs and results lie in global memory; io_alone: each in bytes that nothing else uses, so that runs of
    several programs can share them (`tpusim link`)."""
    steps: Steps = GroupSteps()

    def config(self) -> "LayerGroupConfig":
        """The configuration of layer groups. Raises ConfigError for an option without effect."""
        from tpusim.layer_group import LayerGroupConfig, read_forced
        from tpusim.layer_group.files import Forced

        forced = read_forced(self.force) if self.force else Forced(())
        shapes = "1" if forced.better_shapes else self.shape_secs_search_strategy
        if shapes != "0" and self.layer_group != "2":
            raise ConfigError(
                f"--shape-secs-search-strategy {shapes}: needs --layer-group 2, got --layer-group {self.layer_group}"
            )
        opt, cores = plain(self.layer_group), plain(self.cores)
        return LayerGroupConfig(opt, forced.groups, plain(shapes), cores, **asdict(self.steps))

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with these groups, if any option of them was given."""
        asked = {name for name in given(self) if name not in ("steps", "addr_mode")} or steps_given(self.steps)
        base = replace(base, layer_group=self.config()) if asked else base
        return replace(base, addr_mode=plain(self.addr_mode)) if "addr_mode" in given(self) else base

    def given(self) -> list[str]:
        """The options that were given."""
        found = flags(name for name in given(self) if name != "steps")
        return found + steps_given(self.steps)


Grouping = Annotated[GroupingOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class LoweringOptions:
    """The target chip and the quantisation."""

    chip: str = usual("bm1684x")
    """Chip to compile for: bm1684, bm1684x, bm1688, bm1690, cv180x, cv181x, cv182x, cv183x or cv186x (`tpusim chips`
    shows them), or a TOML file, which may extend a chip."""
    mode: Mode = usual("int8")
    """Number format."""
    asymmetric: bool = usual(False)
    """Quantise with zero points."""
    qtable: str | None = None
    """Quantisation table: a file of `name MODE` lines, or name:MODE,name:MODE."""
    quirks_off: tuple[str, ...] = usual(())
    """Quirks of TPU-MLIR not to reproduce, by name (uint8_filter_zp_zero ...; an unknown name lists them all)."""
    matmul_perchannel: bool = usual(False)
    """Quantise the constant matrix of an INT8 MatMul by columns (BM1684X, BM1688, CV186X)."""
    q_group_size: int | None = None
    """With w4f16, w4bf16, w8f16 or w8bf16: how many weights share a scale, 0: a row; default 64."""
    q_symmetric: bool = usual(False)
    """With such a mode: the zero point of every group is the middle of the codes."""
    arithmetic: Arithmetic = usual("chip")
    """How ops in 16 bits round where TPU-MLIR's interpreter and the chip differ."""
    high_precision: bool = usual(False)
    """Attention in one op keeps scores, sums and results in f32."""

    fuse_preprocess: bool = usual(False)
    """Image inputs are camera bytes; mean, scale, order of channels and cropping are ops of the module."""
    customization_format: FrameFormat = usual("")
    """With --fuse-preprocess: the layout of bytes; default: by the preprocessing's pixel format. YUV only on CV18xx."""
    aligned_input: bool = usual(False)
    """With --fuse-preprocess on CV18xx: rows and planes of frames have the alignment of its video subsystem."""
    quant_input: bool = usual(False)
    """Inputs are the stored integers: no cast from f32 in the module."""
    quant_output: bool = usual(False)
    """Results are the stored numbers: no cast to f32 in the module."""

    def config(self) -> "LoweringConfig":
        """The configuration of lowering. Raises ConfigError for an option without effect."""
        from tpusim.lowering import LoweringConfig

        return _with_effect(LoweringConfig(**values(self)))

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration with the options that were given. Raises ConfigError for one without effect."""
        return replace(base, lowering=_with_effect(replace(base.lowering, **given(self))))


def _with_effect(config: "LoweringConfig") -> "LoweringConfig":
    """The given configuration. Raises ConfigError for an option of other modes."""
    integers = {"--asymmetric": config.asymmetric, "--matmul-perchannel": config.matmul_perchannel}
    for flag, asked in integers.items():
        if asked and not number_format(config.mode).calibrated and config.qtable is None:
            raise ConfigError(f"{flag}: needs --mode int8, or a --qtable with INT8 ops; got --mode {config.mode}")
    grouped = config.q_group_size is not None or config.q_symmetric
    if grouped and config.qtable is None and number_format(config.mode).family != "weight_only":
        flag = "--q-symmetric" if config.q_group_size is None else f"--q-group-size {config.q_group_size}"
        able = ", ".join(name for name in FORMATS if number_format(name).family == "weight_only")
        raise ConfigError(f"{flag}: needs a --mode of weights in groups, one of {able}; got --mode {config.mode}")
    return config


Lowering = Annotated[LoweringOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class WorkerOptions:
    """The workers that measure and evaluate samples; the results do not depend on them."""

    jobs: int = 1
    """Number of processes on this machine that share the samples of calibration and evaluation."""
    executor: str = ""
    """A cluster instead of processes: dask://HOST:PORT (its scheduler) or ray://HOST:PORT."""
    share: OptionalPath = None
    """With --executor: a folder that all workers can read, for modules; default: the temporary folder."""

    def workers(self) -> "Workers | None":
        """The workers of the options; None for this process alone. Raises ConfigError."""
        from tpusim.host.workers import workers_of

        if self.jobs < 1:
            raise ConfigError(f"--jobs {self.jobs}: 1 or more is required")
        return workers_of(self.jobs, self.executor, self.share)


Working = Annotated[WorkerOptions, tyro.conf.arg(name="")]


def simulator_options(dma: Timing, seed: int, *, sanitize: bool = True) -> "SimulatorOptions":
    """The options of the machine. Raises ConfigError for an option without effect."""
    from tpusim.simulator import SimulatorOptions

    require_count("--seed", seed, "is the first order")
    if seed and dma != "random":
        raise ConfigError(f"--seed {seed}: needs --dma random, got --dma {dma}")
    return SimulatorOptions(dma=dma, seed=seed, sanitize=sanitize)


class Options(Protocol):
    """A group of options that changes the configuration of a network's compilation."""

    def over(self, base: "RunConfig") -> "RunConfig":
        """The configuration, overridden by the given options."""
        ...


def network_of(
    path: Path, options: "Sequence[Options]", *, assume: bool = False, floats: bool = False,
    observer: "Observer | None" = None,
) -> "NetworkGiven":  # fmt: skip
    """The network of a path, in any form, with the options of a command.

    assume: assume missing ranges if no samples are given. floats: the command compares floats, so inputs and results
    must be floats. Raises ConfigError for options that come too late to have an effect.
    """
    from tpusim.running.network import open_network

    def configure(base: "RunConfig") -> "RunConfig":
        for group in options:
            base = group.over(base)
        return base

    judged = any(isinstance(group, JudgedOptions) for group in options)
    network = open_network(path, configure, assume=assume, judged=judged, observer=observer)
    if floats:
        require_floats(network.lowering)
    return network


def config_of(path: Path, options: "Sequence[Options]") -> "RunConfig":
    """The configuration of `tpusim run`: the given options, and the model or the configuration of a folder's run."""
    from tpusim.running.artefacts import RunConfig
    from tpusim.running.asked import run_here

    base = run_here(path) if path.is_dir() else RunConfig(path)
    if base is None:
        raise ConfigError(f"{path}: a model, a module or the folder of a run is required, got a folder of no run")
    for group in options:
        base = group.over(base)
    return base


def lowered_of(folder: Path) -> Path:
    """The lowered module of a run's folder. Raises ConfigError if there is none."""
    from tpusim.running.asked import run_here

    path = folder / "4_tpu.mlir"
    if run_here(folder) is None or not path.is_file():
        raise ConfigError(f"{folder}: the folder of a run is required, with the 4_tpu.mlir that it made")
    return path


def compiled_of(path: Path, options: "Sequence[Options]", net: str | None = None) -> "NetworkGiven":
    """The network of a program or of a run's folder; a network in any other form is compiled first.

    net: which one of a program of several.
    """
    from tpusim import chips
    from tpusim.ir.content import is_program
    from tpusim.isa.nets import load_net
    from tpusim.isa.stream import load as load_program
    from tpusim.running.network import open_net

    if not is_program(path):
        if net is not None:
            raise ConfigError(f"--net {net}: needs a program of several nets, as `tpusim link` writes, got {path}")
        return network_of(path, options)
    lowering = next(group for group in options if isinstance(group, LoweringOptions))
    others = {name: value for name, value in given(lowering).items() if name != "chip"}
    useless = flags(others) + [flag for group in options for flag in _given_of(group) if group is not lowering]
    if useless:
        raise ConfigError(f"{', '.join(useless)}: {path} is compiled already; leave it out, or give the network")
    if "chip" in given(lowering):  # an unknown chip is reported before a chip that differs from the program's
        asked = chips.load(lowering.chip).name
        load_program(path, asked) if net is None else load_net(path, net, asked)
    return network_of(path, ()) if net is None else open_net(path, net)


def _given_of(group: object) -> list[str]:
    return group.given() if isinstance(group, NetworkOptions | GroupingOptions) else flags(_different(group))


def _different(group: Any) -> list[str]:
    usual_ones = type(group)()
    return [name for name, value in values(group).items() if value != getattr(usual_ones, name)]


def require_floats(config: "LoweringConfig") -> None:
    """Raise ConfigError unless inputs and results are floats."""
    asked = [name for name in ("fuse_preprocess", "quant_input", "quant_output") if getattr(config, name)]
    if asked:
        raise ConfigError(f"{', '.join(flags(asked))}: inputs and results of floats are required here; leave it out")


def load(path: Path) -> "Model":
    """The module of a `.mlir` file."""
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    return load_model(path, context())


def save(console: Output, model: "Model", path: Path) -> bool:
    """Write a module and its weights into the same folder, and print their names; True."""
    from tpusim.ir.module import save_model

    save_model(model, path, weight_file=f"{path.stem}_weights.npz")
    console.wrote(path)
    return True
