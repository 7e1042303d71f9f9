"""Forced groups: a file pins where groups begin and end, their type and sections; the rest is searched as usual.

What is illegal is refused with the name of the rule it breaks and the numbers; nothing is silently changed.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from tpusim.chips import ChipSpec
from tpusim.errors import CapacityError, ConfigError, TpusimError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group.capacity import shortage
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.graph import Memo, Subgraph, base_groups, group_types, subgraph
from tpusim.layer_group.plan import IMAGE_AXES, MAX_HALO, GroupPlan, plan, view_at_edge
from tpusim.layer_group.readback import GlobalView, GroupView, tensor_name, views
from tpusim.layer_group.sections import Sections, extents, possible_sections
from tpusim.layer_group.slicing import SliceError, ValueSlices, slice_group
from tpusim.layer_group.spread import spread
from tpusim.ops.base import GroupType, TpuOp
from tpusim.ops.logical import AXES

KINDS: dict[str, GroupType] = {str(kind): kind for kind in GroupType}
TypeName: TypeAlias = Literal["NORMAL", "3D", "SMALL_C", "MM"]


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section counts of a pinned group; an axis that is left out has one."""

    n: int = 1
    c: int = 1
    d: int = 1
    h: int = 1
    w: int = 1


class ForcedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned group: the ops from `first` to `last`, by name, in the order of the module.

    type, sections: searched where they are left out.
    """

    first: str
    last: str
    type: TypeName | None = None
    sections: Counts | None = None

    def __str__(self) -> str:
        return f"'{self.first}'" if self.first == self.last else f"'{self.first}'..'{self.last}'"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[ForcedGroup, ...]


# -------------------------------------------------------------------------------------------------------------- files


def read_groups(path: Path) -> tuple[ForcedGroup, ...]:
    """The pinned groups of a TOML file, or of a JSON file if its name ends so. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return msgspec.convert(content, _File).groups
    except OSError as error:
        raise ConfigError(f"--force {path}: {error.strerror or error}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"--force {path}: {error}; expected [[groups]] with first, last and, if wanted, type and sections, as "
            f"`tpusim group --write-groups` writes them"
        ) from error


def groups_text(model: Model) -> str:
    """The groups of a grouped module as TOML that `read_groups` reads."""
    chip = model.attribute("module.chip")
    lines = [f"# layer groups of {model.name or 'a module'} on {chip}; `tpusim group --force` takes this file."]
    lines.append("# A group that is left out is searched; so are type and sections where they are left out.")
    for view in views(model):
        lines.append("")
        if isinstance(view, GlobalView):
            lines.append(
                f"# {json.dumps(view.name)} stays global: {' '.join(view.reason.split()) or 'no reason given'}"
            )
        else:
            lines.extend(_group_lines(view))
    return "\n".join(lines) + "\n"


def _group_lines(view: GroupView) -> Iterator[str]:
    counts = ", ".join(f"{axis} = {view.sections[axis]}" for axis in AXES)
    yield f"[[groups]]  # {view.index}: {len(view.ops)} ops"
    yield f"first = {_quoted(view.ops[0][0])}"
    yield f"last = {_quoted(view.ops[-1][0])}"
    yield f'type = "{view.kind}"'
    yield f"sections = {{ {counts} }}"


def _quoted(name: str) -> str:
    """A TOML basic string; JSON escapes all it must but DEL."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


# --------------------------------------------------------------------------------------------------------- resolution


class Pinned:
    """The plans of the pinned groups of one module."""

    def __init__(self, plans: Sequence[GroupPlan]) -> None:
        self._plans = {plan.graph.ops[0]: plan for plan in plans}

    def parts(self, ops: Sequence[TpuOp]) -> Iterator[GroupPlan | list[TpuOp]]:
        """A run of local ops as pinned groups and the runs between them, in order."""
        free: list[TpuOp] = []
        index = 0
        while index < len(ops):
            found = self._plans.get(ops[index])
            if found is None:
                free.append(ops[index])
                index += 1
                continue
            if free:
                yield free
                free = []
            yield found
            index += len(found.graph.ops)
        if free:
            yield free


def pinned(
    model: Model, chip: ChipSpec, forced: Sequence[ForcedGroup], cores: int = 1, memo: Memo | None = None
) -> Pinned:
    """Plan the pinned groups; all that are illegal are named at once. Raises ConfigError or CapacityError."""
    if not forced:
        return Pinned([])
    order = [op for op in model.ops if isinstance(op, TpuOp)]
    at = {op_name(op): i for i, op in enumerate(order)}
    runs, reasons = _runs(model, chip)
    plans: list[GroupPlan] = []
    problems: list[TpusimError] = []
    taken: dict[int, ForcedGroup] = {}
    for item in forced:
        try:
            span = _span(item, at)
            _free(item, span, taken, order)
            ops = [order[i] for i in span]
            _local(item, ops, runs, reasons)
            found = _plan(item, ops, chip, memo)
            plans.append(found if item.sections else spread(found, CostModel(chip, cores)))
        except (ConfigError, CapacityError) as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigError(f"{len(problems)} forced groups are refused:\n" + "\n".join(f"  {p}" for p in problems))
    return Pinned(plans)


def _refused(item: ForcedGroup, rule: str, why: str) -> ConfigError:
    return ConfigError(f"forced group {item}: rule {rule}: {why}")


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


def _span(item: ForcedGroup, at: Mapping[str, int]) -> range:
    for name in dict.fromkeys((item.first, item.last)):
        if name not in at:
            near = get_close_matches(name, at, n=2, cutoff=0.5)
            hint = " or ".join(f"'{n}'" for n in near)
            tail = f"did you mean {hint}?" if near else f"names are those of the module, '{next(iter(at), '')}' first"
            raise _refused(item, "op-name", f"the module has no op '{name}'; {tail}")
    begin, end = at[item.first], at[item.last]
    if end < begin:
        raise _refused(
            item,
            "consecutive",
            f"'{item.last}' (op {end}) stands before '{item.first}' (op {begin}); swap first and last",
        )
    return range(begin, end + 1)


def _free(item: ForcedGroup, span: range, taken: dict[int, ForcedGroup], order: Sequence[TpuOp]) -> None:
    shared = [i for i in span if i in taken]
    if shared:
        name, other = op_name(order[shared[0]]), taken[shared[0]]
        raise _refused(item, "overlap", f"{len(shared)} ops, '{name}' first, are in group {other} already")
    taken.update(dict.fromkeys(span, item))


def _local(item: ForcedGroup, ops: Sequence[TpuOp], runs: Mapping[TpuOp, int], reasons: Mapping[TpuOp, str]) -> None:
    for op in ops:
        if op in reasons:
            raise _refused(item, "local", f"{_name(op)} cannot run from local memory: {reasons[op]}")
    if len({runs[op] for op in ops}) > 1:
        raise _refused(item, "consecutive", "another op, which is not of the chip, stands between its ops")


def _name(op: TpuOp) -> str:
    return f"{op.name} '{op_name(op)}'"


# -------------------------------------------------------------------------------------------------------------- rules


def _plan(item: ForcedGroup, ops: list[TpuOp], chip: ChipSpec, memo: Memo | None = None) -> GroupPlan:
    """The plan of one pinned group; every rule has its name."""
    if view_at_edge(ops):
        op = ops[0] if ops[0].in_place() else ops[-1]
        raise _refused(item, "view-at-edge", f"{_name(op)} is free in global memory; begin or end the group beside it")
    kinds, memo = _kinds(item, ops, chip), memo or Memo()
    if item.sections is None:
        return _searched(item, ops, kinds, chip, memo)
    counts = Sections(**{axis: getattr(item.sections, axis) for axis in AXES})
    errors: list[TpusimError] = []
    for kind in kinds:
        try:
            return _with_sections(item, subgraph(ops, kind, memo), counts, chip)
        except (ConfigError, CapacityError) as error:
            errors.append(error)
    raise errors[0]


def _kinds(item: ForcedGroup, ops: Sequence[TpuOp], chip: ChipSpec) -> tuple[GroupType, ...]:
    """The types to try. Raises if the wanted one, or every one, is impossible."""
    if item.type is None:
        kinds = group_types(ops, chip)
        wanted = GroupType.NORMAL
        if kinds:
            return kinds
    else:
        wanted = KINDS[item.type]
        if wanted is not GroupType.NORMAL and not chip.has_group_types:
            raise _refused(item, "type", f"{chip.name} has groups of type NORMAL only, got {item.type}")
    for op in ops:
        why = op.why_not_in(wanted, chip)
        if why is not None:
            raise _refused(item, "type", f"{_name(op)} cannot be in a group of type {wanted}: {why}")
    return (wanted,)


def _searched(item: ForcedGroup, ops: list[TpuOp], kinds: Sequence[GroupType], chip: ChipSpec, memo: Memo) -> GroupPlan:
    why = ""
    for kind in kinds:
        found = plan(ops, chip, kind=kind, memo=memo)
        if isinstance(found, GroupPlan):
            return found
        why = why or found
    short = shortage(subgraph(ops, kinds[0]), chip)
    if short is not None:
        raise CapacityError(f"forced group {item}: rule fit: {short}")
    raise _refused(item, "sections", f"no sections were found: {why}; end the group earlier or give sections")


def _with_sections(item: ForcedGroup, graph: Subgraph, sections: Sections, chip: ChipSpec) -> GroupPlan:
    _counts(item, graph, sections, chip)
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        raise _refused(item, "window", f"at {sections}: {error}") from error
    if len(graph.ops) > 1:
        for value, cuts in slices.items():
            _halo(item, tensor_name(value), cuts, sections)
    found = plan(graph.ops, chip, sections, graph.kind, graph.memo)
    if isinstance(found, GroupPlan):
        return found
    short = shortage(graph, chip, sections)
    raise CapacityError(f"forced group {item}: rule fit: {short or found}")


def _counts(item: ForcedGroup, graph: Subgraph, sections: Sections, chip: ChipSpec) -> None:
    """No axis has more sections than it may have; the op that allows fewest is named."""
    limit = possible_sections(graph, chip)
    for axis in AXES:
        count, most = sections.count(axis), limit.count(axis)
        if count < 1:
            raise _refused(item, f"{axis}-sections", f"at least 1 is required, got {count}")
        if count <= most:
            continue
        op = next((op for op in graph.ops if not graph.cuts(op, axis)), None)
        if op is not None:
            raise _refused(
                item,
                f"{axis}-cut",
                f"{_name(op)} cannot be cut along {axis} in a {graph.kind} group, got {axis} = {count}",
            )
        rows = min(extents(op.results[0], graph, chip)[AXES.index(axis)] for op in graph.ops)
        units = {"n": "batches", "c": "channels", "d": "planes", "h": "rows", "w": "columns"}[axis]
        raise _refused(
            item, f"{axis}-sections",
            f"at most {most} sections along {axis} are possible in a {graph.kind} group on {chip.name} (the smallest "
            f"result has {rows} {units}), got {axis} = {count}",
        )  # fmt: skip


def _halo(item: ForcedGroup, name: str, cuts: ValueSlices, sections: Sections) -> None:
    for axis in IMAGE_AXES:
        windows = cuts.along(axis)
        whole, read = max(i + s for i, s in windows), sum(s for _, s in windows)
        if whole > 1 and read > MAX_HALO * whole:
            raise _refused(
                item, "halo",
                f"at {sections} the {len(windows)} slices of '{name}' have {read} along {axis} for {whole}, "
                f"{read / whole:.2f} times, at most {MAX_HALO:g} is allowed; fewer sections or a shorter group",
            )  # fmt: skip
