"""The rules of a pinned group, each with its name."""

from collections.abc import Sequence

from tpusim.chips import ChipSpec
from tpusim.errors import CapacityError, ConfigError, TpusimError
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.layer_group.candidates import group_types
from tpusim.layer_group.files import ForcedGroup
from tpusim.layer_group.planning import IMAGE_AXES, MAX_HALO, only_views, plan, shortage
from tpusim.layer_group.slicing import SliceError, extents, possible_sections, slice_group
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.interfaces import GroupRules
from tpusim.schedule import GroupSchedule, Memo, Sections, Subgraph, ValueSlices, subgraph, tensor_name

KINDS: dict[str, GroupType] = {str(kind): kind for kind in GroupType}


def refused(item: ForcedGroup, rule: str, why: str) -> ConfigError:
    """The error of a broken rule."""
    return ConfigError(f"forced group {item}: rule {rule}: {why}")


def named(op: TpuOp) -> str:
    """The name of an op in messages."""
    return f"{op.name} '{op_name(op)}'"


def ruled(item: ForcedGroup, ops: list[TpuOp], chip: ChipSpec, memo: Memo | None = None) -> GroupSchedule:
    """The plan of one pinned group; every rule has its name."""
    if only_views(ops):
        raise refused(item, "views", f"{named(ops[0])} is free in global memory; group it with an op that computes")
    kinds, memo = _kinds(item, ops, chip), memo or Memo()
    if item.sections is None:
        return _searched(item, ops, kinds, chip, memo)
    counts = Sections(**{axis: getattr(item.sections, axis) for axis in AXES})
    errors: list[TpusimError] = []
    for kind in kinds:
        try:
            return _with_sections(item, subgraph(ops, chip, kind, memo), counts, chip)
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
        if wanted is not GroupType.NORMAL and not rules(chip, GroupRules).GROUP_TYPES:
            raise refused(item, "type", f"{chip.name} has groups of type NORMAL only, got {item.type}")
    for op in ops:
        why = op.why_not_in(wanted, chip)
        if why is not None:
            raise refused(
                item, "type",
                f"{named(op)} cannot be in a group of type {wanted}: {why}; leave the op out of the group"
                + ("" if item.type is None else " or leave out its type"),
            )  # fmt: skip
    return (wanted,)


def _searched(
    item: ForcedGroup, ops: list[TpuOp], kinds: Sequence[GroupType], chip: ChipSpec, memo: Memo
) -> GroupSchedule:
    why = ""
    for kind in kinds:
        found = plan(ops, chip, kind=kind, memo=memo)
        if isinstance(found, GroupSchedule):
            return found
        why = why or found
    short = shortage(subgraph(ops, chip, kinds[0]), chip)
    if short is not None:
        raise CapacityError(f"forced group {item}: rule fit: {short}")
    raise refused(item, "sections", f"no sections work: {why}; end the group earlier or give sections")


def _with_sections(item: ForcedGroup, graph: Subgraph, sections: Sections, chip: ChipSpec) -> GroupSchedule:
    _counts(item, graph, sections, chip)
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        raise refused(item, "window", f"at {sections}: {error}; give fewer sections or a shorter group") from error
    if len(graph.ops) > 1:
        for value, cuts in slices.items():
            _halo(item, tensor_name(value), cuts, sections)
    found = plan(graph.ops, chip, sections, graph.kind, graph.memo)
    if isinstance(found, GroupSchedule):
        return found
    short = shortage(graph, chip, sections)
    raise CapacityError(f"forced group {item}: rule fit: {short or f'{found}; give other sections or a shorter group'}")


def _counts(item: ForcedGroup, graph: Subgraph, sections: Sections, chip: ChipSpec) -> None:
    """No axis has more sections than allowed; the error names the op that allows fewest."""
    limit = possible_sections(graph, chip)
    for axis in AXES:
        count, most = sections.count(axis), limit.count(axis)
        if count < 1:
            raise refused(item, f"{axis}-sections", f"at least 1 section is required, got {axis} = {count}")
        if count <= most:
            continue
        op = next((op for op in graph.ops if not graph.cuts(op, axis)), None)
        if op is not None:
            raise refused(
                item,
                f"{axis}-cut",
                f"{named(op)} cannot be cut along {axis} in a {graph.kind} group, got {axis} = {count}; "
                f"leave {axis} out or end the group before the op",
            )
        rows = min(extents(op.results[0], graph, chip)[AXES.index(axis)] for op in graph.ops)
        units = {"n": "batches", "c": "channels", "d": "planes", "h": "rows", "w": "columns"}[axis]
        raise refused(
            item, f"{axis}-sections",
            f"at most {most} sections along {axis} are possible in a {graph.kind} group on {chip.name} (the smallest "
            f"result has {rows} {units}), got {axis} = {count}",
        )  # fmt: skip


def _halo(item: ForcedGroup, name: str, cuts: ValueSlices, sections: Sections) -> None:
    for axis in IMAGE_AXES:
        windows = cuts.along(axis)
        whole, read = max(i + s for i, s in windows), sum(s for _, s in windows)
        if whole > 1 and read > MAX_HALO * whole:
            raise refused(
                item, "halo",
                f"at {sections} the {len(windows)} slices of '{name}' have {read} along {axis} for {whole}, "
                f"{read / whole:.2f} times, at most {MAX_HALO:g} is allowed; give fewer sections or a shorter group",
            )  # fmt: skip
