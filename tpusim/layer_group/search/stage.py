"""Group search: which runs of ops become groups, by strategy (layer_group.md 12)."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from msgspec.structs import replace

from tpusim import chips
from tpusim.chips import ChipSpec, require_cores
from tpusim.errors import ConfigError, UnsupportedError, meant, option
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name, text
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.ir.upstream import GLOBAL_REASON
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.files import ForcedGroup, dissolved, merge_moves, write_group
from tpusim.layer_group.planning import Decided, explained
from tpusim.layer_group.refinement import Refinements, Refiner, arranged
from tpusim.layer_group.search.dynamic import dynamic
from tpusim.layer_group.search.greedy import alone, greedy
from tpusim.layer_group.search.multicore import for_cores
from tpusim.layer_group.search.pins import pinned
from tpusim.layer_group.search.plugged import plugged
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import GroupRules, SliceTables
from tpusim.ops.structure import TopWeight
from tpusim.registry import STRATEGIES
from tpusim.schedule import Costs, GroupSchedule, Memo


@dataclass(frozen=True)
class SearchOptions:
    """How the search divides a module into groups.

    opt: "2" minimises the estimated time by dynamic programming; "1" groups greedily from the tail, and replaces "2"
    on a chip whose `GroupRules.SEARCH` says so (DL-08); "off" makes each op a group; "best" needs the clock, which
    this stage cannot use (`tpusim.passes.grouping.divide`). Other names are those of plug-ins
    (`tpusim.registry.STRATEGIES`).
    force: pinned groups; the other ops are searched.
    shape_secs_search_strategy: with "2", the sections of a group are "0" the first that fit, "1" searched for the least
    time where the program cuts (layer_group.md 10.2).
    everywhere: on every chip "2" is dynamic programming with the clock's rates, whatever its
    `GroupRules.SEARCH` and `search_gbs` say.
    cores: number of the chip's cores that share the steps of every group.
    """

    opt: str = "2"
    force: tuple[ForcedGroup, ...] = ()
    shape_secs_search_strategy: Literal["0", "1"] = "0"
    cores: int = 1
    everywhere: bool = False


@dataclass(frozen=True)
class LayerGroupConfig(Refinements, SearchOptions):
    """Options of the layer-group stage: of the search, and of the refinements after it."""


def every_op_alone(ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> list[Decided]:
    """A group for every op alone."""
    return _for_cores([alone(op, chip, memo) for op in ops], chip, cores)


def from_the_tail(ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> list[Decided]:
    """Greedy groups as for one core, then sections for several cores."""
    return _for_cores(greedy(ops, chip, memo), chip, cores)


def _for_cores(found: list[Decided], chip: ChipSpec, cores: int) -> list[Decided]:
    model = CostModel(chip, cores)
    return [for_cores(item, model) if isinstance(item, GroupSchedule) else item for item in found]


BARRIER_CYCLES = 4
"""The time of the barriers before and after a group: each is a send and a wait."""


class Strategy(Protocol):
    """A strategy decides which runs of ops become groups; a plug-in may provide one."""

    def __call__(self, ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> list[Decided]:
        """The groups and global layers of a run of local ops, in order, for some cores of the chip.

        A group is the result of `plan` for consecutive ops, a global layer an op with the reason; `alone` decides for
        one op. `CostModel` gives the cost of groups. memo: passed on to `plan`, so that nothing is computed twice.
        """
        ...


ON_THE_CLOCK = "best"
"""The strategy that needs the clock, which this stage cannot use: `tpusim.passes.grouping.divide`."""


def searched(opt: str, chip: ChipSpec) -> str:
    """The strategy that `opt` means on a chip: "2" is "1" if `GroupRules.SEARCH` says so (DL-08)."""
    return "1" if opt == "2" and rules(chip, GroupRules).SEARCH != "2" else opt


def require_strategy(config: SearchOptions, *, clock: bool = False) -> None:
    """Load the strategy that the options choose. clock: whether `ON_THE_CLOCK` may be chosen.

    Raises UnsupportedError for an unknown value, ConfigError for a plug-in that cannot be used.
    """
    known = [name for name in STRATEGIES if clock or name != ON_THE_CLOCK]
    for name, value, able in (
        ("layer_group", config.opt, known),
        ("shape_secs_search_strategy", config.shape_secs_search_strategy, ("0", "1")),
    ):
        if value not in able:
            raise UnsupportedError(f"{option(name, value)}: expected one of {', '.join(able)}{meant(value, able)}")
    strategy = STRATEGIES.get(config.opt)
    if not callable(strategy):
        raise ConfigError(
            f"strategy '{config.opt}': a callable of ops, chip, cores and memo is required, got "
            f"{type(strategy).__name__}"
        )


def _strategy(config: LayerGroupConfig, chip: ChipSpec) -> Strategy:
    """The strategy that the options choose. Raises as `require_strategy`."""
    require_strategy(config)
    if config.opt in STRATEGIES.plugins:
        return partial(plugged, config.opt, STRATEGIES.get(config.opt))
    opt = config.opt if config.everywhere else searched(config.opt, chip)
    if opt != "2":
        return STRATEGIES.get(opt)
    return partial(dynamic, better_shapes=config.shape_secs_search_strategy == "1")


def _decided(model: Model, chip: ChipSpec, config: LayerGroupConfig, strategy: Strategy, memo: Memo) -> list[Decided]:
    """Groups and global layers in program order; a pinned group may need results in place to fit."""
    pins = pinned(model, chip, config.force, config.cores, Memo(in_place=config.in_place, arrange=memo.arrange))
    decided: list[Decided] = []
    for ops, why in list(base_groups(model, chip)):
        if why is not None:
            decided.append((ops[0], why))
            continue
        for part in pins.parts(ops):
            decided.extend(strategy(part, chip, config.cores, memo) if isinstance(part, list) else [part])
    return decided


def _searched(
    model: Model, chip: ChipSpec, config: LayerGroupConfig, refiner: Refiner, costs: Costs | None
) -> list[Decided]:
    """The groups of the search for these options. refiner: its costs arrange the transfers of candidates."""
    moves = config.timestep_moves and chip.engines_overlap
    arrange = partial(arranged, model=refiner.model) if moves else None
    memo = Memo(in_place=config.in_place and rules(chip, GroupRules).RESULTS_IN_PLACE, costs=costs, arrange=arrange)
    return _decided(model, chip, config, _strategy(config, chip), memo)


def _shares_well(decided: Sequence[Decided], chip: ChipSpec, cores: int) -> bool:
    """Whether the groups take less time on several cores, including barriers around each group, than on one core."""
    if cores == 1:
        return False
    one, several = CostModel(replace(chip, search_gbs=0.0)), CostModel(chip, cores)
    groups = sum(isinstance(item, GroupSchedule) for item in decided)
    barriers = groups * BARRIER_CYCLES * 1000 / chip.tiu_mhz
    return several.total_ns(decided) + barriers < one.total_ns(decided)


def group_layers(model: Model, config: LayerGroupConfig, costs: Costs | None = None) -> Model:
    """A copy of the module with its layer groups; for one core if several would gain nothing.

    costs: of groups in other modules of the same chip and config; the costs of this module's groups are added.
    Raises UnsupportedError for an unknown strategy, ConfigError for more cores than the chip has, ConfigError or
    CapacityError for a pinned group that is illegal.
    """
    model.require_state("TPU_REORDERED", stage="layer-group")
    work = model.clone()
    chip = chip_of_search(work, everywhere=config.everywhere)
    require_cores(chip, config.cores)
    refiner = Refiner(chip, config, config.cores)
    decided = refiner.refined(_searched(work, chip, config, refiner, costs))
    cores = config.cores if _shares_well(decided, chip, config.cores) else 1
    work = _divided(work, decided, chip, cores)
    merge_moves(work, chip)
    verify(work.module, "after layer-group")
    return work


def chip_of_search(model: Model, *, everywhere: bool) -> ChipSpec:
    """The chip of a module as the search sees it (`LayerGroupConfig.everywhere`)."""
    chip = chips.of(model)
    return replace(chip, search_gbs=0.0) if everywhere else chip


def search_groups(model: Model, config: LayerGroupConfig, costs: Costs | None = None) -> Model:
    """The module, which changes, with the groups of the search before any refinement. Raises as `group_layers`."""
    chip = chip_of_search(model, everywhere=config.everywhere)
    require_cores(chip, config.cores)
    decided = _searched(model, chip, config, Refiner(chip, config, config.cores), costs)
    return _divided(model, decided, chip, config.cores)


def combine_timesteps(model: Model, steps: Refinements, *, everywhere: bool) -> None:
    """Refine the rows of every group of a module in place."""
    with _regrouped(model, steps, everywhere=everywhere) as (refiner, decided):
        decided[:] = refiner.combined(decided)


def overlap_groups(model: Model, *, everywhere: bool) -> None:
    """Let edges of groups run during the ops of adjacent groups, in place."""
    with _regrouped(model, Refinements(), everywhere=everywhere) as (refiner, decided):
        decided[:] = refiner.overlapped(decided)


def choose_cores(model: Model, *, everywhere: bool) -> None:
    """Make the groups of a module run on one core if several would gain nothing."""
    with _regrouped(model, Refinements(), everywhere=everywhere) as (refiner, decided):
        shared = _shares_well(decided, refiner.chip, refiner.model.cores)
    if not shared:
        model.set(cores=1)


@contextmanager
def _regrouped(model: Model, steps: Refinements, *, everywhere: bool) -> Generator[tuple[Refiner, list[Decided]]]:
    """What decides about the groups of a module, and the groups, which are read before and written after."""
    chip = chip_of_search(model, everywhere=everywhere)
    refiner = Refiner(chip, steps, model.number("module.cores") or 1)
    decided = dissolved(model, chip, Memo(in_place=steps.in_place and rules(chip, GroupRules).RESULTS_IN_PLACE))
    yield refiner, decided
    _write(model, decided)


def _divided(model: Model, decided: Sequence[Decided], chip: ChipSpec, cores: int) -> Model:
    """The module, which changes, with these groups, and without constants that nothing reads any more."""
    for item in decided:
        if not isinstance(item, GroupSchedule):
            item[0].attributes[GLOBAL_REASON] = text(explained(*item, chip))
            if isinstance(item[0], SliceTables):
                item[0].drop_local_constants()
    _write(model, decided)
    used = {op_name(op) for op in model.ops if isinstance(op, TopWeight)}
    model = Model(model.module, model.weights.restricted(used))
    model.set(state="TPU_DIVIDED", cores=cores)
    return model


def _write(model: Model, decided: Sequence[Decided]) -> None:
    for item in reversed(decided):  # from the end, so that a group's inputs are still the values it was planned with
        if isinstance(item, GroupSchedule):
            write_group(item, model.weights)
