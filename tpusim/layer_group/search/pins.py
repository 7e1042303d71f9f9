"""Pinned groups: a file says where groups begin and end; the rest is searched as usual.

An illegal group is refused with the name of the broken rule and the numbers; nothing is silently changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from tpusim.chips import ChipSpec
from tpusim.errors import CapacityError, ConfigError, TpusimError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.files import ForcedGroup
from tpusim.layer_group.planning import Decided
from tpusim.layer_group.search.multicore import for_cores
from tpusim.layer_group.search.rules import named, refused, ruled
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import GroupSchedule, Memo

PINNED = "pinned as a global layer"


class Pinned:
    """The plans of the pinned groups of one module, and its pinned global layers."""

    def __init__(self, decided: Sequence[Decided]) -> None:
        self._decided = {one.graph.ops[0] if isinstance(one, GroupSchedule) else one[0]: one for one in decided}

    def parts(self, ops: Sequence[TpuOp]) -> Iterator[Decided | list[TpuOp]]:
        """A run of local ops as pinned groups, pinned global layers and the runs between them, in order."""
        free: list[TpuOp] = []
        index = 0
        while index < len(ops):
            found = self._decided.get(ops[index])
            if found is None:
                free.append(ops[index])
                index += 1
                continue
            if free:
                yield free
                free = []
            yield found
            index += len(found.graph.ops) if isinstance(found, GroupSchedule) else 1
        if free:
            yield free


def pinned(
    model: Model, chip: ChipSpec, forced: Sequence[ForcedGroup], cores: int = 1, memo: Memo | None = None
) -> Pinned:
    """Plan the pinned groups; the error names all illegal groups at once. Raises ConfigError or CapacityError."""
    if not forced:
        return Pinned([])
    order = [op for op in model.ops if isinstance(op, TpuOp)]
    at = {op_name(op): i for i, op in enumerate(order)}
    runs, reasons = _runs(model, chip)
    decided: list[Decided] = []
    problems: list[TpusimError] = []
    taken: dict[int, ForcedGroup] = {}
    for item in forced:
        if item.type == "GLOBAL" and item.ops and item.first not in at:
            continue
        try:
            span = _span(item, at)
            _free(item, span, taken, order)
            ops = [order[i] for i in span]
            if item.type == "GLOBAL":
                decided.append((_alone(item, ops), PINNED))
                continue
            _local(item, ops, runs, reasons)
            found = ruled(item, ops, chip, memo)
            decided.append(found if item.sections else for_cores(found, CostModel(chip, cores)))
        except (ConfigError, CapacityError) as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigError(f"{len(problems)} forced groups are refused:", *(f"  {p}" for p in problems))
    return Pinned(decided)


def require_named(forced: Sequence[ForcedGroup], names: Sequence[str]) -> None:
    """Raise ConfigError for a pinned group that begins or ends at no op, or ends before it begins.

    names: of the module's ops, in their order.
    """
    at = {name: i for i, name in enumerate(names)}
    for item in forced:
        _span(item, at)


def _runs(model: Model, chip: ChipSpec) -> tuple[dict[TpuOp, int], dict[TpuOp, str]]:
    """(run of every op that can be local, reason of every op that cannot)."""
    runs: dict[TpuOp, int] = {}
    reasons: dict[TpuOp, str] = {}
    for number, (ops, why) in enumerate(base_groups(model, chip)):
        if why is None:
            runs.update(dict.fromkeys(ops, number))
        else:
            reasons[ops[0]] = why
    return runs, reasons


def _alone(item: ForcedGroup, ops: Sequence[TpuOp]) -> TpuOp:
    if len(ops) > 1 or item.sections is not None:
        raise refused(item, "type", "a global layer is one op without sections; give first and last the same name")
    return ops[0]


def _span(item: ForcedGroup, at: Mapping[str, int]) -> range:
    for name in dict.fromkeys((item.first, item.last, *item.ops)):
        if name not in at:
            near = get_close_matches(name, at, n=2, cutoff=0.5)
            hint = " or ".join(f"'{n}'" for n in near)
            tail = f"did you mean {hint}?" if near else f"names are those of the module, '{next(iter(at), '')}' first"
            raise refused(item, "op-name", f"the module has no op '{name}'; {tail}")
    begin, end = at[item.first], at[item.last]
    if end < begin and not item.ops:
        raise refused(
            item,
            "consecutive",
            f"'{item.last}' (op {end}) stands before '{item.first}' (op {begin}); swap first and last",
        )
    if not item.ops:
        return range(begin, end + 1)
    places = sorted(at[name] for name in item.ops)
    if places != list(range(places[0], places[-1] + 1)):
        names, missing = list(at), next(i for i in range(places[0], places[-1]) if i not in places)
        why = f"'{names[missing]}' stands between its {len(places)} ops; was the file made with another table or mode?"
        raise refused(item, "consecutive", f"{why} If not, take the group out of it")
    return range(places[0], places[-1] + 1)


def _free(item: ForcedGroup, span: range, taken: dict[int, ForcedGroup], order: Sequence[TpuOp]) -> None:
    shared = [i for i in span if i in taken]
    if shared:
        name, other = op_name(order[shared[0]]), taken[shared[0]]
        raise refused(item, "overlap", f"{len(shared)} ops, '{name}' first, are in group {other} already")
    taken.update(dict.fromkeys(span, item))


def _local(item: ForcedGroup, ops: Sequence[TpuOp], runs: Mapping[TpuOp, int], reasons: Mapping[TpuOp, str]) -> None:
    for op in ops:
        if op in reasons:
            raise refused(item, "local", f"{named(op)} cannot run from local memory: {reasons[op]}")
    if len({runs[op] for op in ops}) > 1:
        raise refused(item, "consecutive", "another op, which is not of the chip, stands between its ops")
