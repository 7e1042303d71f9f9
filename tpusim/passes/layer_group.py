"""Layer grouping as a pass."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.module import Model, State
from tpusim.layer_group import ForcedGroup, LayerGroupConfig, read_forced
from tpusim.layer_group.files import Forced
from tpusim.passes.base import Codec, Pass
from tpusim.passes.context import PassContext
from tpusim.passes.grouping import divide


def read_pins(text: str) -> Forced:
    """What a file says of groups, or the groups that `write_pins` wrote."""
    if not text.startswith("["):
        return read_forced(Path(text)) if text else Forced(())
    try:
        return Forced(msgspec.json.decode(text, type=tuple[ForcedGroup, ...]))
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"layer-group: force: a file or a JSON array of groups is required: {error}") from error


def write_pins(groups: tuple[ForcedGroup, ...]) -> str:
    """The groups as JSON."""
    return msgspec.json.encode(groups).decode()


@dataclass(frozen=True)
class LayerGroup(LayerGroupConfig, Pass):
    """Divide a module into layer groups; the options are those of the layer-group stage."""

    name = "layer-group"
    requires = frozenset({State.REORDERED})
    produces = State.GROUPED
    codecs = {"force": Codec(read_pins, write_pins)}

    def __post_init__(self) -> None:
        """Take a file's groups, and its wish for better sections, for the options that they stand for."""
        if isinstance(self.force, Forced):
            if self.force.better_shapes:
                object.__setattr__(self, "shape_secs_search_strategy", "1")
            object.__setattr__(self, "force", self.force.groups)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return divide(model, self, ctx.costs)
