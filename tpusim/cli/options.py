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

Mode = Literal["int8", "f32", "f16", "bf16"]
Opt = Literal["1", "2", "off"]
Shapes = Literal["0", "1"]
Timing = Literal["early", "late", "random"]
In = tyro.conf.Positional[Path]
OptionalPath = Path | None


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


Steps = Annotated[GroupSteps, tyro.conf.arg(name="")]


class Grouping(Protocol):
    """A command with the options of layer groups."""

    layer_group: Opt
    shape_secs_search_strategy: Shapes
    cores: int
    force: OptionalPath
    steps: GroupSteps


def group_config(command: Grouping) -> "LayerGroupConfig":
    """What the options of a command say about layer groups."""
    from tpusim.layer_group import LayerGroupConfig, read_groups

    forced = read_groups(command.force) if command.force else ()
    shapes, cores = command.shape_secs_search_strategy, command.cores
    return LayerGroupConfig(command.layer_group, forced, shapes, cores, **asdict(command.steps))


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
