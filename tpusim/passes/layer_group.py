"""Layer grouping as a pass, and its steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
from typing_extensions import override

from tpusim import chips
from tpusim.errors import ConfigError
from tpusim.ir.module import Model, State
from tpusim.layer_group import (
    ON_THE_CLOCK,
    ForcedGroup,
    LayerGroupConfig,
    Refinements,
    SearchOptions,
    choose_cores,
    combine_timesteps,
    merge_moves,
    overlap_groups,
    read_forced,
    require_strategy,
    search_groups,
)
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
class _Search(SearchOptions, Pass):
    """A pass with the options of the search."""

    requires = frozenset({State.REORDERED})
    produces = State.GROUPED
    ON_THE_CLOCK: ClassVar[bool] = False
    """Whether it may compile every candidate."""
    codecs = {"force": Codec(read_pins, write_pins)}

    def __post_init__(self) -> None:
        """Take a file's groups, and its wish for better sections, for the options that they stand for."""
        if isinstance(self.force, Forced):
            if self.force.better_shapes:
                object.__setattr__(self, "shape_secs_search_strategy", "1")
            object.__setattr__(self, "force", self.force.groups)

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_strategy(self, clock=self.ON_THE_CLOCK)
        self.require_count("cores", 1)


@dataclass(frozen=True)
class SearchGroups(_Search):
    """Decide which runs of ops are layer groups, with their sections, rows and local addresses; the rest is global.

    timestep_moves, in_place: as in `layer-group`, for the candidates of the search. On several cores the groups are
    those for all of them (`choose-cores`).
    """

    name = "search-groups"
    timestep_moves: bool = True
    in_place: bool = True

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return search_groups(model, LayerGroupConfig(**vars(self)), ctx.costs)


@dataclass(frozen=True)
class _Refinement(Pass):
    """A pass over a module in groups. everywhere: as in the search."""

    requires = frozenset({State.GROUPED})
    everywhere: bool = False


@dataclass(frozen=True)
class CombineTimesteps(_Refinement):
    """Refine the rows of every group: transfers change rows, and rows merge; the options are those of `layer-group`."""

    name = "combine-timesteps"
    timestep_moves: bool = True
    in_place: bool = True
    timestep_combine: bool = True
    wide_rows: bool = False

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        steps = {name: value for name, value in vars(self).items() if name != "everywhere"}
        combine_timesteps(model, Refinements(**steps), everywhere=self.everywhere)
        return model


@dataclass(frozen=True)
class OverlapGroups(_Refinement):
    """Let first loads of a group run during the previous group, and last stores during the next one."""

    name = "overlap-groups"

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        overlap_groups(model, everywhere=self.everywhere)
        return model


@dataclass(frozen=True)
class ChooseCores(_Refinement):
    """Let one core run all groups where several would gain nothing."""

    name = "choose-cores"

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        choose_cores(model, everywhere=self.everywhere)
        return model


@dataclass(frozen=True)
class MergeMoves(Pass):
    """Let transfers of groups also do the work of adjacent ops that only move data."""

    name = "merge-moves"
    requires = frozenset({State.GROUPED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        merge_moves(model, chips.of(model))
        return model


@dataclass(frozen=True)
class LayerGroup(Refinements, _Search):
    """Divide a module into layer groups, in steps; the options are those of the layer-group stage.

    With opt "best" it has no steps, because that compiles every candidate to the end.
    """

    name = "layer-group"
    ON_THE_CLOCK = True

    @property
    @override
    def composite(self) -> bool:
        return self.opt != ON_THE_CLOCK

    @property
    def steps(self) -> tuple[Pass, ...]:
        """The passes that these options mean."""
        combines, meet = self.timestep_combine or self.wide_rows, self.cores > 1
        return (
            SearchGroups.from_config(self),
            *([CombineTimesteps.from_config(self)] if combines else []),
            *([OverlapGroups.from_config(self)] if self.group_overlap and not meet else []),
            *([ChooseCores.from_config(self)] if meet else []),
            MergeMoves(),
        )

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        if not self.composite:
            return divide(model, LayerGroupConfig(**vars(self)))
        ctx.run(self.steps, model.module)
        return ctx.model(model.module)
