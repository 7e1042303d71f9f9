"""Comparison of two runs: the layer groups that differ, and their costs. Input: the objects of two `report.json`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from tpusim.errors import ConfigError
from tpusim.host.documents import read_json

Json = dict[str, Any]


class _Sections(msgspec.Struct):
    n: int
    c: int
    d: int
    h: int
    w: int


class _Group(msgspec.Struct):
    ops: Annotated[list[str], msgspec.Meta(min_length=1)]
    secs: _Sections
    reason: str
    cycles: int
    load_bytes: int
    store_bytes: int


class _Totals(msgspec.Struct):
    milliseconds: float
    cycles: int
    load_bytes: int
    store_bytes: int
    commands: int


TOTALS = _Totals.__struct_fields__


class _Report(msgspec.Struct):
    """What a comparison reads of a report, of whatever version."""

    model: str
    chip: str
    mode: str
    groups: list[_Group]
    totals: _Totals


@dataclass(frozen=True)
class Part:
    """The smallest sets of groups of both runs with the same ops; global layers are groups with a reason."""

    before: tuple[Json, ...]
    after: tuple[Json, ...]

    @property
    def changed(self) -> bool:
        """Whether they are cut differently; costs may differ even if not."""
        return [_cut(group) for group in self.before] != [_cut(group) for group in self.after]

    def sums(self, figure: str) -> tuple[int, int]:
        """A figure of all groups, before and after."""
        return sum(group[figure] for group in self.before), sum(group[figure] for group in self.after)


def read_report(path: Path) -> Json:
    """The object of a `report.json`, given as file or folder of a run. Raises ConfigError."""
    file = path / "report.json" if path.is_dir() else path
    try:
        found = cast("object", read_json(file))
        msgspec.convert(found, _Report)
    except (OSError, ValueError) as error:  # what msgspec raises is a ValueError
        raise ConfigError(f"report {file}: a report.json of `tpusim run` is required, {error}") from error
    return cast("Json", found)


def parts(before: Json, after: Json) -> list[Part]:
    """All groups of two reports, in parts with the same ops; an op of one run only (a cast) belongs to its place."""
    common = _ops(before["groups"]) & _ops(after["groups"])
    return list(_parts(list(before["groups"]), list(after["groups"]), common))


def _parts(one: list[Json], other: list[Json], common: set[str]) -> Iterator[Part]:
    left: list[Json] = []
    right: list[Json] = []
    while one or other:
        mine, theirs = _ops(left) & common, _ops(right) & common
        if one and (mine <= theirs or not other):
            left.append(one.pop(0))
        else:
            right.append(other.pop(0))
        if _ops(left) & common == _ops(right) & common and (left and right or not one or not other):
            yield Part(tuple(left), tuple(right))
            left, right = [], []
    if left or right:
        yield Part(tuple(left), tuple(right))


def _ops(groups: Sequence[Json]) -> set[str]:
    return {op for group in groups for op in group["ops"]}


def _cut(group: Json) -> tuple[object, ...]:
    """The cut of a group, without its cost."""
    return tuple(group["ops"]), bool(group["reason"]), () if group["reason"] else tuple(group["secs"].items())
