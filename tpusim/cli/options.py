"""What several subcommands share: types of options, layer-group options, modules from and to files."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import tyro
from rich.console import Console

from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.lowering import LoweringConfig
    from tpusim.simulator import SimulatorOptions

Mode = Literal["int8", "f32", "f16", "bf16"]
Opt = Literal["1", "2", "off"]
Shapes = Literal["0", "1"]
Timing = Literal["early", "late", "random"]
In = tyro.conf.Positional[Path]
OptionalPath = Path | None
ULPS = 256
"""How far floats may differ from a reference unless a command is told otherwise."""


def require_count(flag: str, value: int, zero: str) -> None:
    """Raise ConfigError unless an option is 0 or more; `zero` says what 0 does."""
    if value < 0:
        raise ConfigError(f"{flag} {value}: 0 or more is required; 0 {zero}")


def require_ulps(ulps: int, check: OptionalPath) -> None:
    """Raise ConfigError unless --ulps is a number that --check uses."""
    require_count("--ulps", ulps, "lets no float differ")
    if ulps != ULPS and check is None:
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


def beside(path: Path, name: str, out: OptionalPath) -> Path:
    """The output file: as asked, or the usual artefact name beside the input."""
    return out or path.parent / name


@dataclass(frozen=True)
class GroupSteps:
    """What is done to layer groups once they are chosen; see docs/layer_group.md."""

    timestep_moves: bool = True
    """Move loads to earlier rows and stores to later ones where the DMA is slower than the ops beside it."""
    in_place: bool = False
    """Let results take the bytes of operands that die there, where a group would not fit otherwise."""
    group_overlap: bool = True
    """Load a group's first step beside the last ops of the group before, store its last beside the first ops after."""
    timestep_combine: bool = True
    """Make one row of two, and exchange a load and a store, where that is quicker (groups of up to 100 ops)."""


def steps_given(steps: GroupSteps) -> list[str]:
    """The options of a command that differ from what is done to layer groups anyway."""
    usual = asdict(GroupSteps())
    found = {name: value for name, value in asdict(steps).items() if value != usual[name]}
    return [f"--{'' if value else 'no-'}{name.replace('_', '-')}" for name, value in found.items()]


Steps = Annotated[GroupSteps, tyro.conf.arg(name="")]


class Grouping(Protocol):
    """A command with the options of layer groups."""

    layer_group: Opt
    shape_secs_search_strategy: Shapes
    cores: int
    force: OptionalPath
    steps: GroupSteps


def group_config(command: Grouping) -> "LayerGroupConfig":
    """What the options of a command say about layer groups. Raises ConfigError for one without effect."""
    from tpusim.layer_group import LayerGroupConfig, read_groups

    shapes, cores = command.shape_secs_search_strategy, command.cores
    if shapes != "0" and command.layer_group != "2":
        raise ConfigError(
            f"--shape-secs-search-strategy {shapes}: needs --layer-group 2, got --layer-group {command.layer_group}"
        )
    forced = read_groups(command.force) if command.force else ()
    return LayerGroupConfig(command.layer_group, forced, shapes, cores, **asdict(command.steps))


class Quantising(Protocol):
    """A command with the options of lowering."""

    chip: str
    mode: Mode
    asymmetric: bool
    qtable: str | None
    quirks_off: tuple[str, ...]
    matmul_perchannel: bool


def lowering_config(command: Quantising) -> "LoweringConfig":
    """What the options of a command say about lowering. Raises ConfigError for one without effect."""
    from tpusim.lowering import LoweringConfig

    integers = {"--asymmetric": command.asymmetric, "--matmul-perchannel": command.matmul_perchannel}
    for flag, given in integers.items():
        if given and command.mode != "int8" and command.qtable is None:
            raise ConfigError(f"{flag}: needs --mode int8, or a --qtable with INT8 ops; got --mode {command.mode}")
    return LoweringConfig(
        command.chip,
        command.mode,
        command.asymmetric,
        command.qtable,
        command.quirks_off,
        command.matmul_perchannel,
    )


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
    """Where errors go."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)
