"""The input windows that cut outputs need, propagated backward through a group (layer_group.md 7)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.layer_group.slicing.sections import common_batch, extents
from tpusim.layer_group.slicing.windows import even_windows, lane_windows
from tpusim.ops.framework.base import Axis, TpuOp, Window
from tpusim.ops.framework.logical import AXES, Extents
from tpusim.ops.interfaces import (
    GroupRules,
    holds_operand,
    needed_window,
    shares_windows,
    slice_table_of,
    splits_weight,
)
from tpusim.ops.structure import TopInput
from tpusim.schedule import Sections, Subgraph, ValueSlices, Windows

_IMPOSSIBLE: Window = (0, -1)
"""Stands for the answer None of an op that cannot be cut."""


class SliceError(Exception):
    """A cut that cannot be made; the text says where and why."""


@dataclass(frozen=True)
class _Request:
    """The windows that one user (None: the store of an output) needs of a tensor along an axis."""

    user: TpuOp | None
    windows: Windows

    @property
    def who(self) -> str:
        return "the store" if self.user is None else self.user.name


def whole_slices(graph: Subgraph, chip: ChipSpec) -> dict[SSAValue, ValueSlices]:
    """The slices of a group in which no tensor is cut."""
    return {v: whole_slice(v, graph, chip) for v in graph.values}


def whole_slice(value: SSAValue, graph: Subgraph, chip: ChipSpec) -> ValueSlices:
    """A tensor of the group uncut."""
    return graph.memo.get(("whole", value, graph.kind), lambda: ValueSlices.of(extents(value, graph, chip)))


def slice_group(graph: Subgraph, sections: Sections, chip: ChipSpec) -> dict[SSAValue, ValueSlices]:
    """Windows of every tensor of the group for these sections. Raises SliceError if they cannot be made."""
    if sections.steps == 1:
        return _numbered(whole_slices(graph, chip), graph)
    slicer = _Slicer(graph, sections, chip)
    slicer.cut_results()
    for value in reversed(graph.inputs):
        slicer.cut(value)
    for value in graph.weights:
        slicer.cut_weight(value)
    return _numbered(slicer.slices, graph)


def _numbered(slices: dict[SSAValue, ValueSlices], graph: Subgraph) -> dict[SSAValue, ValueSlices]:
    """The slices, if the tables of their ops can number all elements of a slice."""
    for op, _, table in graph.tables():
        result = slices[op.results[0]]
        if not table.reaches(result.h, result.w):
            raise SliceError(f"the table of {op.name} '{op_name(op)}' cannot number all elements of a slice")
    return slices


class _Tail:
    """The cuts of the last ops of a group for given sections, which are equal in every group with this tail.

    slices: of the result of the first of these ops, or the error; before: tails longer by one op, by that op.
    """

    __slots__ = "before", "slices"

    def __init__(self, slices: "ValueSlices | SliceError | None" = None) -> None:
        self.slices = slices
        self.before: dict[TpuOp, _Tail] = {}


class _Slicer:
    """Goes through the tensors of a group from its outputs to its inputs."""

    def __init__(self, graph: Subgraph, sections: Sections, chip: ChipSpec) -> None:
        self.graph, self.sections, self.chip = graph, sections, chip
        self.slices: dict[SSAValue, ValueSlices] = {}
        self.batch = common_batch(graph, chip)
        self.inputs, self.outputs = frozenset(graph.inputs), frozenset(graph.outputs)

    def cut_results(self) -> None:
        """The slices of all results, from the last op to the first, because the users of a result come after it."""
        tail = self.graph.memo.get(("tail", self.sections, self.graph.kind, self.batch), _Tail)
        for op in reversed(self.graph.ops):
            longer = tail.before.get(op)
            if longer is None:
                longer = tail.before[op] = _Tail(self._attempted(op.results[0]))
            if isinstance(longer.slices, SliceError):
                raise SliceError(str(longer.slices))
            assert longer.slices is not None
            self.slices[op.results[0]] = longer.slices
            tail = longer

    def _attempted(self, value: SSAValue) -> "ValueSlices | SliceError":
        try:
            self.cut(value)
        except SliceError as error:
            return error.with_traceback(None)
        return self.slices[value]

    def cut(self, value: SSAValue) -> None:
        """The slices of an activation, after those of its users inside the group."""
        lengths, users = extents(value, self.graph, self.chip), self.graph.users(value)
        found = ValueSlices(*(self._along(axis, value, lengths[i], users) for i, axis in enumerate(AXES)))
        if value in self.inputs and users and all(holds_operand(user, index, self.chip) for user, index in users):
            found = _once(found)
        self.slices[value] = found

    def cut_weight(self, value: SSAValue) -> None:
        """A constant is whole and resident, unless every user cuts it with its result (7.5); then it moves by slices.

        Decision: a constant whose slices are all equal is resident too.
        """
        lengths, users = extents(value, self.graph, self.chip), self.graph.users(value)
        if (table := self._table(value, users, lengths)) is not None:
            self.slices[value] = table
            return
        whole = whole_slice(value, self.graph, self.chip)
        if self.sections.steps > 1 and all(splits_weight(user, index, self.chip) for user, index in users):
            with suppress(SliceError):  # users that cut it differently read their parts of the whole
                cut = (self._along(axis, value, lengths[i], users) for i, axis in enumerate(AXES))
                whole = _once(ValueSlices(*cut))
        if self.sections.n > 1 and whole.d == ((0, lengths[2]),) and min(lengths[0], lengths[2]) > 1:
            raise SliceError(
                f"a constant of {lengths[0]} batches and {lengths[2]} depths is held whole, and no command reads some "
                f"batches of several depths (hardware.md 2.1): nsecs={self.sections.n}"
            )
        self.slices[value] = whole

    def _table(self, value: SSAValue, users: list[tuple[TpuOp, int]], lengths: Extents) -> ValueSlices | None:
        """The slices of a constant that is made for the slices of its user's result: a part for each."""
        (user, index), *_ = users
        table = slice_table_of(user)
        if table is None or table.operand != index:
            return None
        result = self.slices[user.results[0]]
        h, w = table.windows(result.h, result.w)
        n, c, d = (((0, length),) * self.sections.count(axis) for axis, length in zip(AXES, lengths[:3], strict=False))
        return _once(ValueSlices(n, c, d, h, w))

    def _along(self, axis: Axis, value: SSAValue, length: int, users: list[tuple[TpuOp, int]]) -> Windows:
        """The windows that all users of `value` need along `axis`; their union if they differ."""
        count = self.sections.count(axis)
        if count == 1:
            return ((0, length),)
        requests: list[_Request] = []
        if value in self.outputs:
            requests.append(_Request(None, self._output_windows(axis, length)))
        for user, index in users:
            outputs = self.slices[user.results[0]].along(axis)
            requests.append(_Request(user, self._backward(user, index, axis, outputs, length)))
        first = requests[0].windows
        if any(r.windows != first for r in requests):
            if not rules(self.chip, GroupRules).SHARED_WINDOWS:
                raise SliceError(
                    f"users need different windows along {axis}, which {self.chip.name} cannot share: "
                    f"{_difference(requests)}"
                )
            if isinstance(value.owner, TopInput):
                raise SliceError(f"users need different windows of an input along {axis}: {_difference(requests)}")
            return _union(requests, axis, self.chip)
        return first

    def _output_windows(self, axis: Axis, length: int) -> Windows:
        """The cuts of a group output (section 6). Raises SliceError if there are fewer than sections."""
        count = self.sections.count(axis)
        if axis == "c":
            found = lane_windows(length, count, self.chip.lanes)
        else:
            found = even_windows(length, count, self.batch if axis == "n" else 1)
        if len(found) < count:
            raise SliceError(
                f"{axis}secs={count}: an output of {length} along {axis} gives fewer slices than sections, "
                f"{len(found)} instead of {count}; use {axis}secs={len(found)}"
            )
        return found

    def _backward(self, user: TpuOp, index: int, axis: Axis, outputs: Windows, length: int) -> Windows:
        """The operand windows for a user's output windows, clipped to the tensor (7.2 fixSlice)."""
        result = extents(user.results[0], self.graph, self.chip)[AXES.index(axis)]
        if length == 1 and result != 1:
            return ((0, 1),) * len(outputs)
        found: list[Window] = []
        must_progress = self._must_progress(axis)
        needs: dict[Window, Window] = self.graph.memo.get(("needs", user, axis, index), dict[Window, Window])
        for i, window in enumerate(outputs):
            need = needs.get(window)
            if need is None:
                need = needs[window] = needed_window(user, self.chip, axis, window, index) or _IMPOSSIBLE
            if need is _IMPOSSIBLE:
                raise SliceError(f"{user.name} cannot be cut along {axis} (layer_group.md 4)")
            start = max(need[0], 0)
            end = length if i == len(outputs) - 1 else min(need[0] + need[1], length)
            if end <= start:
                raise SliceError(
                    f"{user.name}: slice {i} of {len(outputs)} {window} needs an empty window along {axis}, "
                    f"[{start}, {end}) of {length}"
                )
            if must_progress and found and (start == 0 or end == sum(found[-1])):
                raise SliceError(
                    f"{user.name}: a window along {axis} makes no progress: [{start}, {end}) after "
                    f"[{found[-1][0]}, {sum(found[-1])}) of {length}; {self.chip.name} refuses it (layer_group.md 7.1)"
                )
            found.append((start, end - start))
        return tuple(found)

    def _must_progress(self, axis: Axis) -> bool:
        """Whether each window along an axis must begin and end after the previous window (7.1)."""
        return axis == "d" or (axis in ("h", "w") and not rules(self.chip, GroupRules).REPEATS_WINDOWS)


def _once(slices: ValueSlices) -> ValueSlices:
    """One entry per axis if all slices are the same, so that the tensor is loaded once."""
    if any(len(set(slices.along(axis))) > 1 for axis in AXES):
        return slices
    return ValueSlices(*(slices.along(axis)[:1] for axis in AXES))


def _difference(requests: Sequence[_Request]) -> str:
    """The first slice of which two users need different windows, in words."""
    first = requests[0]
    other = next(r for r in requests if r.windows != first.windows)
    at = next(i for i, pair in enumerate(zip(first.windows, other.windows, strict=True)) if pair[0] != pair[1])
    return f"{first.who} needs {first.windows[at]} and {other.who} {other.windows[at]} of slice {at}"


def _shares(request: _Request, chip: ChipSpec) -> bool:
    """Whether the user can read a part of a slice; the store can, unless only convolutions may."""
    if request.user is not None:
        return shares_windows(request.user, chip)
    return not rules(chip, GroupRules).ONLY_CONVOLUTIONS_SHARE


def _union(requests: Sequence[_Request], axis: Axis, chip: ChipSpec) -> Windows:
    """Users that need different windows share the union; each must be able to read a part (layer_group.md 7.3)."""
    differ = _difference(requests)
    reluctant = next((r.who for r in requests if not _shares(r, chip)), None)
    if reluctant is not None:
        raise SliceError(
            f"users need different windows along {axis} and {reluctant} cannot read a part of a slice: {differ}"
        )
    if axis not in ("h", "w"):
        raise SliceError(f"users need different {'batches' if axis == 'n' else f'windows along {axis}'}: {differ}")
    union: list[Window] = []
    for windows in zip(*(r.windows for r in requests), strict=True):
        start, end = min(w[0] for w in windows), max(w[0] + w[1] for w in windows)
        if max(w[0] for w in windows) >= min(w[0] + w[1] for w in windows):
            raise SliceError(f"users need disjoint windows along {axis}: {differ}")
        union.append((start, end - start))
    return tuple(union)
