"""What several subcommands share: types of options, layer-group options, modules from and to files."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from tpusim import strategies
from tpusim.errors import ConfigError
from tpusim.ir.formats import ModeName, number_format

if TYPE_CHECKING:
    from tpusim.frontend import Cut
    from tpusim.images import Preprocess
    from tpusim.ir.module import Model
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.lowering import LoweringConfig
    from tpusim.simulator import SimulatorOptions
    from tpusim.workers import Workers

if TYPE_CHECKING:
    Opt = str
else:  # so that --help names plug-ins too
    Opt = Literal[strategies.names()]
Shapes = Literal["0", "1"]
Method = Literal["kl", "max", "percentile9999", "mse", "aciq_gauss", "aciq_laplace"]
FrameFormat = Literal[
    "", "RGB_PLANAR", "RGB_PACKED", "BGR_PLANAR", "BGR_PACKED", "GRAYSCALE", "YUV420_PLANAR", "YUV_NV12", "YUV_NV21"
]
Timing = Literal["early", "late", "random"]
In = tyro.conf.Positional[Path]
OptionalPath = Path | None
KeepWords = Annotated[tuple[str, ...], tyro.conf.arg(metavar="{all,outputs,none,NAME}...")]
"""Of `--keep` (`tpusim.verify.kept`)."""


def picture_of(plot: OptionalPath, kinds: Sequence[str] = (".svg",)) -> OptionalPath:
    """Where `--plot` draws, if anywhere. Raises ConfigError for a name that ends in no kind of picture."""
    if plot is not None and plot.suffix not in kinds:
        raise ConfigError(f"--plot {plot}: a name that ends in {' or '.join(kinds)} is required")
    return plot


def require_count(flag: str, value: int, zero: str) -> None:
    """Raise ConfigError unless an option is 0 or more; `zero` says what 0 does."""
    if value < 0:
        raise ConfigError(f"{flag} {value}: 0 or more is required; 0 {zero}")


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
    """Which part of an ONNX model, of which extents."""

    input_shapes: tuple[str, ...] = ()
    """Static input shapes, NAME=1x3x224x224 each."""
    input_values: tuple[str, ...] = ()
    """Inputs that always have the same value, NAME=16000 or NAME=1,2,3 each; they become constants of the network."""
    inputs: tuple[str, ...] = ()
    """Tensors, by ONNX name, at which the network begins; what makes them is left out."""
    outputs: tuple[str, ...] = ()
    """Tensors, by ONNX name, at which the network ends; what only others need is left out."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by input. Raises ConfigError."""
        return parse_shapes(self.input_shapes)

    def cut(self) -> "Cut":
        """Where the network is cut out."""
        from tpusim.frontend import Cut

        return Cut(self.inputs, self.outputs, parse_values(self.input_values))

    def given(self) -> list[str]:
        """The options that were given, spelled as on the command line."""
        return [f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name)]


Network = Annotated[NetworkOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class PreprocessOptions:
    """How inputs are made of image files, as TPU-MLIR does it: y = (x - mean) * scale; kept in the module."""

    mean: str = "0,0,0"
    """Per channel, in the order of --pixel-format; taken away first."""
    scale: str = "1,1,1"
    """Per channel; multiplied with what is left."""
    pixel_format: Literal["bgr", "rgb", "gray", "rgba", "gbrg", "grbg", "bggr", "rggb"] = "bgr"
    """Order of the channels that the network wants."""
    channel_format: Literal["nchw", "nhwc"] = "nchw"
    """Order of the axes that the network wants."""
    resize_dims: str = ""
    """HEIGHT,WIDTH after resizing, of which the middle is taken; default: the network's image."""
    keep_aspect_ratio: bool = False
    """Keep the ratio of width and height; without it images are stretched."""
    keep_ratio_mode: Literal["letterbox", "short_side_scale"] = "letterbox"
    """With --keep-aspect-ratio: the whole image on a ground, or its middle."""
    pad_value: int = 0
    """Of the ground of a letterbox, 0 to 255."""
    pad_type: Literal["center", "normal"] = "center"
    """Where the image is on it: in the middle, or top left."""
    preprocess_list: str = ""
    """Which inputs are images, numbers from 1 as in 1,3; default: all."""

    def preprocess(self) -> "Preprocess | None":
        """What the options say; None if none is given. Raises ConfigError."""
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

    def which(self) -> tuple[int, ...]:
        """Numbers of the inputs that are images; (): all. Raises ConfigError."""
        return tuple(int(v) for v in _numbers("preprocess_list", self.preprocess_list))


def _numbers(name: str, listed: str) -> tuple[float, ...]:
    """`1,2,3` -> (1.0, 2.0, 3.0), whole ones where no others are possible. Raises ConfigError."""
    kind = float if name in ("mean", "scale") else int
    try:
        return tuple(kind(part) for part in listed.split(",") if listed)
    except ValueError as error:
        wanted = "numbers" if kind is float else "whole numbers"
        raise ConfigError(f"--{name.replace('_', '-')} {listed}: {wanted} with commas between are required") from error


Preprocessing = Annotated[PreprocessOptions, tyro.conf.arg(name="")]


def beside(path: Path, name: str, out: OptionalPath) -> Path:
    """The output file: as asked, or the usual artefact name beside the input."""
    return out or path.parent / name


@dataclass(frozen=True)
class GroupSteps:
    """What is done to layer groups once they are chosen; see docs/layer_group.md."""

    timestep_moves: bool = True
    """Move loads to earlier rows and stores to later ones where the DMA is slower than the ops beside it."""
    in_place: bool = True
    """Let results take the bytes of operands that die there."""
    group_overlap: bool = True
    """Load a group's first step beside the last ops of the group before, store its last beside the first ops after."""
    timestep_combine: bool = True
    """Make one row of two, and exchange a load and a store, where that is quicker (groups of up to 100 ops)."""
    wide_rows: bool = False
    """Make one row of several beside a transfer that takes longer than the ops of one (TPU-MLIR has no such rows)."""


def steps_given(steps: GroupSteps) -> list[str]:
    """The options of a command that differ from what is done to layer groups anyway."""
    usual = asdict(GroupSteps())
    found = {name: value for name, value in asdict(steps).items() if value != usual[name]}
    return [f"--{'' if value else 'no-'}{name.replace('_', '-')}" for name, value in found.items()]


Steps = Annotated[GroupSteps, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class GroupingOptions:
    """How ops are divided into layer groups; see docs/layer_group.md."""

    layer_group: Opt = "2"
    """1: group greedily from the tail; 2: minimise the estimated time; off: every op alone; best: what is quickest on
    the clock of these, with wide rows, sections searched, in place, joined and cut finer (many times as long).
    Installed plug-ins (`tpusim.strategies`) stand here by their names."""
    shape_secs_search_strategy: Shapes = "0"
    """With --layer-group 2, 0: the first sections that fit; 1: search for better ones where the groups are cut."""
    cores: int = 1
    """How many cores of the chip share the steps of every group (bm1688 has 2, bm1690 has 8)."""
    force: OptionalPath = None
    """File (TOML, or JSON by its name) of pinned groups; the rest is searched. TPU-MLIR's layer_group_cache.json and
    layer_group_config.json too."""
    steps: Steps = GroupSteps()

    def config(self) -> "LayerGroupConfig":
        """What the options say about layer groups. Raises ConfigError for one without effect."""
        from tpusim.layer_group import LayerGroupConfig, read_forced
        from tpusim.layer_group.files import Forced

        forced = read_forced(self.force) if self.force else Forced(())
        shapes = "1" if forced.better_shapes else self.shape_secs_search_strategy
        if shapes != "0" and self.layer_group != "2":
            raise ConfigError(
                f"--shape-secs-search-strategy {shapes}: needs --layer-group 2, got --layer-group {self.layer_group}"
            )
        return LayerGroupConfig(self.layer_group, forced.groups, shapes, self.cores, **asdict(self.steps))

    def given(self) -> list[str]:
        """The options that are not as usual."""
        usual, names = GroupingOptions(), [f.name for f in fields(self) if f.name != "steps"]
        found = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) != getattr(usual, name)]
        return found + steps_given(self.steps)


Grouping = Annotated[GroupingOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class LoweringOptions:
    """What is compiled for, and how it is quantised."""

    chip: str = "bm1684x"
    """Chip to compile for: bm1684, bm1684x, bm1688, bm1690, cv180x, cv181x, cv182x, cv183x or cv186x (`tpusim chips`
    shows them), or a TOML file, which may extend a chip."""
    mode: ModeName = "int8"
    """Number format."""
    asymmetric: bool = False
    """Quantise with zero points."""
    qtable: str | None = None
    """Quantisation table: a file of `name MODE` lines, or name:MODE,name:MODE."""
    quirks_off: tuple[str, ...] = ()
    """Quirks of TPU-MLIR not to reproduce, by name (uint8_filter_zp_zero ...)."""
    matmul_perchannel: bool = False
    """Quantise the constant matrix of an INT8 MatMul by columns (BM1684X, BM1688, CV186X)."""

    fuse_preprocess: bool = False
    """Inputs that are images take the bytes of a camera; mean, scale, channels and cropping are ops of the module."""
    customization_format: FrameFormat = ""
    """With --fuse-preprocess: how the bytes lie; default: by the pixel format of the preprocessing. YUV: on CV18xx."""
    aligned_input: bool = False
    """With --fuse-preprocess on CV18xx: rows and planes of frames begin at the multiples of its video subsystem."""
    quant_input: bool = False
    """Inputs are the stored integers: no cast from f32 in the module."""
    quant_output: bool = False
    """Results are the stored numbers: no cast to f32 in the module."""

    def config(self) -> "LoweringConfig":
        """What the options say about lowering. Raises ConfigError for one without effect."""
        from tpusim.lowering import LoweringConfig

        integers = {"--asymmetric": self.asymmetric, "--matmul-perchannel": self.matmul_perchannel}
        for flag, given in integers.items():
            if given and not number_format(self.mode).calibrated and self.qtable is None:
                raise ConfigError(f"{flag}: needs --mode int8, or a --qtable with INT8 ops; got --mode {self.mode}")
        return LoweringConfig(**{f.name: getattr(self, f.name) for f in fields(self)})

    def of_floats(self) -> "LoweringConfig":
        """As `config`, for a command that compares floats. Raises ConfigError for other inputs and results."""
        flags = ("fuse_preprocess", "quant_input", "quant_output")
        if asked := [f"--{flag.replace('_', '-')}" for flag in flags if getattr(self, flag)]:
            raise ConfigError(f"{', '.join(asked)}: inputs and results of floats are required here; leave it out")
        return self.config()

    def lowered(self, path: Path) -> "Model":
        """A lowered module as it is in its file, or an ONNX model lowered by these options with assumed ranges.

        Raises ConfigError for options beside a module, which is lowered already.
        """
        from tpusim.prospect.fit import assumed

        if path.suffix != ".mlir":
            return assumed(path, self.config())
        if given := [f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name) != f.default]:
            raise ConfigError(f"{', '.join(given)}: {path} is lowered already; leave it out, or give the ONNX model")
        return load(path)


Lowering = Annotated[LoweringOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class WorkerOptions:
    """Who measures and evaluates samples; the results are the same whoever does."""

    jobs: int = 1
    """How many processes of this machine share the samples of calibration and evaluation."""
    executor: str = ""
    """A cluster that shares them instead: dask://HOST:PORT (its scheduler) or ray://HOST:PORT."""
    share: OptionalPath = None
    """With --executor: a folder that all its workers see, for the modules they load; default: the temporary one."""

    def workers(self) -> "Workers | None":
        """Who the options name, None for this process alone. Raises ConfigError."""
        from tpusim.workers import workers_of

        if self.jobs < 1:
            raise ConfigError(f"--jobs {self.jobs}: 1 or more is required")
        return workers_of(self.jobs, self.executor, self.share)


Working = Annotated[WorkerOptions, tyro.conf.arg(name="")]


def simulator_options(dma: Timing, seed: int, *, sanitize: bool = True) -> "SimulatorOptions":
    """What the options of a command say about the machine. Raises ConfigError for one without effect."""
    from tpusim.simulator import SimulatorOptions

    require_count("--seed", seed, "is the first order")
    if seed and dma != "random":
        raise ConfigError(f"--seed {seed}: needs --dma random, got --dma {dma}")
    return SimulatorOptions(dma=dma, seed=seed, sanitize=sanitize)


def load(path: Path) -> "Model":
    """The module of a `.mlir` file."""
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    return load_model(path, context())


def save(console: Console, model: "Model", path: Path) -> bool:
    """Write a module and its weights beside it, say so; True."""
    from tpusim.ir.module import save_model

    save_model(model, path, weight_file=f"{path.stem}_weights.npz")
    console.print(f"wrote {path}", highlight=False)
    return True


def stderr_console() -> Console:
    """The console on stderr, where errors go."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)
