"""The file of pinned groups: where groups begin and end, their type and sections, as TOML or JSON."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from tpusim.errors import ConfigError
from tpusim.ir.module import Model
from tpusim.layer_group.files.group_view import GlobalView, GroupView, views
from tpusim.ops.logical import AXES

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


def read_groups(path: Path) -> tuple[ForcedGroup, ...]:
    """The pinned groups of a TOML file, or of a JSON file if its name ends so. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return msgspec.convert(content, _File).groups
    except OSError as error:
        raise ConfigError(f"groups to force, {path}: {error.strerror or error}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"groups to force, {path}: {error}; expected [[groups]] with first, last and, if wanted, type and "
            f"sections, as `tpusim group --write-groups` writes them"
        ) from error


def groups_text(model: Model) -> str:
    """The groups of a grouped module as TOML that `read_groups` reads."""
    chip = model.attribute("module.chip")
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
