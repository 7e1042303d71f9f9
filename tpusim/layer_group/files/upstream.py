"""TPU-MLIR's files about layer groups, read as pins: `*.layer_group_cache.json`, `*.layer_group_config.json`.

The cache has the groups that its search chose, for each function of the module (`subfunc_0` ...): the names of all ops,
and the sections along n, c, d, h and w. The configuration says how sections are searched, and pins nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from tpusim.ops.framework.logical import AXES

SPLIT = "_mul_scale", "_new_cast"
"""Some casts are two ops in TPU-MLIR: the first has the name of the second with one of these. They are one op here."""
RETURN = "func.return"
"""Listed among the global layers, but no op of the network."""


class _Group(msgspec.Struct, frozen=True):
    """A group of the file, without its costs and indices."""

    locs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    shape_secs: tuple[int, int, int, int, int]


class _Layer(msgspec.Struct, frozen=True):
    loc: str


class _Function(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = msgspec.field(name="GroupLayer")
    layers: tuple[_Layer, ...] = msgspec.field(name="GlobalLayer")


class _Search(msgspec.Struct, frozen=True):
    strategy: Annotated[int, msgspec.Meta(ge=0, le=2)] = msgspec.field(name="shape_secs_search_strategy")


def is_cache(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a cache of layer groups."""
    return "total subfunc" in content


def is_search(content: Mapping[str, Any]) -> bool:
    """Whether a JSON object says how sections are searched."""
    return "shape_secs_search_strategy" in content


def cached_groups(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, int] | None]]:
    """(all ops of a group, its sections by axis), or (an op, None) for a global layer.

    Raises msgspec.ValidationError for a file of another form.
    """
    for name in (name for name in content if name.startswith("subfunc_")):
        function = msgspec.convert(content[name], _Function)
        for group in function.groups:
            yield _whole(group.locs), dict(zip(AXES, group.shape_secs, strict=True))
        yield from (((layer.loc,), None) for layer in function.layers if layer.loc != RETURN)


def _whole(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without the first halves of casts whose second half is listed too."""
    halves = {f"{name}{tail}" for name in names for tail in SPLIT}
    return tuple(name for name in names if name not in halves)


def searched_shapes(content: Mapping[str, Any]) -> bool:
    """Whether better sections than the first that fit are searched: strategies 1 and 2, which tpusim treats equally."""
    return msgspec.convert(content, _Search).strategy > 0
