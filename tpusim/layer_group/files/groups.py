"""The file of pinned groups: where groups begin and end, their type and sections, as TOML or JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from tpusim.errors import ConfigError
from tpusim.host.documents import read_json, read_toml
from tpusim.ir.module import Model
from tpusim.layer_group.files.group_view import GlobalView, GroupView, views
from tpusim.layer_group.files.upstream import cached_groups, is_cache, is_search, searched_shapes
from tpusim.ops.framework.logical import AXES

TypeName: TypeAlias = Literal["NORMAL", "3D", "SMALL_C", "MM", "GLOBAL"]


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section counts of a pinned group; an omitted axis has one section."""

    n: int = 1
    c: int = 1
    d: int = 1
    h: int = 1
    w: int = 1


class ForcedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned group: the ops from `first` to `last`, by name, in the order of the module.

    type, sections: searched if omitted. Type GLOBAL: one op that becomes a global layer.
    ops: all ops in any order, if the file lists them: the group must have exactly these ops. A listed global layer that
    the module lacks is no error, because its lowering may differ.
    """

    first: str
    last: str
    type: TypeName | None = None
    sections: Counts | None = None
    ops: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"'{self.first}'" if self.first == self.last else f"'{self.first}'..'{self.last}'"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[ForcedGroup, ...]


@dataclass(frozen=True)
class Forced:
    """The content of a groups file. better_shapes: whether better sections than the first that fit are searched."""

    groups: tuple[ForcedGroup, ...]
    better_shapes: bool = False


def read_groups(path: Path) -> tuple[ForcedGroup, ...]:
    """The pinned groups of a file that `read_forced` reads. Raises ConfigError."""
    return read_forced(path).groups


def read_forced(path: Path) -> Forced:
    """Read a TOML file, or a JSON file (*.json), of tpusim or TPU-MLIR. Raises ConfigError."""
    try:
        return _forced(read_json(path) if path.suffix == ".json" else read_toml(path))
    except OSError as error:
        raise ConfigError(f"groups to force, {path}: {error.strerror or error}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"groups to force, {path}: {error}; expected [[groups]] with first, last and, if wanted, type and "
            f"sections, as `tpusim group --write-groups` writes them, or a layer_group_cache.json or "
            f"layer_group_config.json of TPU-MLIR"
        ) from error


def _forced(content: Any) -> Forced:
    if isinstance(content, dict):
        known = cast("dict[str, Any]", content)
        if is_cache(known):
            return Forced(tuple(_cached(ops, sections) for ops, sections in cached_groups(known)))
        if is_search(known):
            return Forced((), searched_shapes(known))
    return Forced(msgspec.convert(content, _File).groups)


def _cached(ops: tuple[str, ...], sections: dict[str, int] | None) -> ForcedGroup:
    if sections is None:
        return ForcedGroup(ops[0], ops[0], "GLOBAL", None, ops)
    return ForcedGroup(ops[0], ops[-1], None, Counts(**sections), ops)


def groups_text(model: Model) -> str:
    """The groups of a grouped module as TOML that `read_groups` reads."""
    chip = model.chip
    lines = [f"# layer groups of {model.name or 'a module'} on {chip}; `tpusim group --force` takes this file."]
    lines.append("# A group that is left out is searched; so are type and sections where they are left out.")
    for view in views(model):
        lines += ["", *(_group_lines(view) if isinstance(view, GroupView) else _global_lines(view))]
    return "\n".join(lines) + "\n"


def _global_lines(view: GlobalView) -> Iterator[str]:
    number = "" if view.index is None else f"{view.index}: "
    yield f"# {number}{json.dumps(view.name)} stays global: {' '.join(view.reason.split()) or 'no reason given'}"


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
