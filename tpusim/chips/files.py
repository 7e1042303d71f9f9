"""Chips from files and back: shipped chips by name, a user's chip as TOML, and a chip that a module or program carries.

A file may extend another: `extends = "bm1688"` (a shipped chip, or a file in the same folder) and the fields that
differ. A module or program compiled for a chip that is not shipped carries its definition, so that it runs without the
file.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from tpusim.chips.removed import without_removed
from tpusim.chips.spec import ChipSpec
from tpusim.errors import ConfigError, meant
from tpusim.host import documents
from tpusim.host.files import real
from tpusim.registry import CHIPS

_PACKAGE = "tpusim.chips"
_COMPARE = "compare with the files of tpusim/chips"
_Fields: TypeAlias = dict[str, Any]


class Attributed(Protocol):
    """An object with string attributes, like a module of the compiler."""

    def attribute(self, key: str, default: str = "") -> str:
        """The text of the attribute as in the file."""
        ...


@cache
def available() -> tuple[str, ...]:
    """Names of the chips that ship with tpusim, sorted."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in files(_PACKAGE).iterdir() if f.name.endswith(".toml")))


def names() -> tuple[str, ...]:
    """Names of all chips: those that ship, and those of installed packages."""
    return (*available(), *CHIPS)


def loadable() -> tuple[list[ChipSpec], dict[str, str]]:
    """(all chips that can be loaded, why others of installed packages cannot, by name, with the package)."""
    chips, faulty = list[ChipSpec](), dict[str, str]()
    for name in dict.fromkeys(names()):
        try:
            chips.append(load(name))
        except ConfigError as error:
            package = f"{CHIPS.package_of(name)}: " if name in CHIPS else ""
            faulty[name] = package + " ".join(str(error).split())
    return chips, faulty


def as_stated(chip: str | ChipSpec) -> str | ChipSpec:
    """How to write down a chip: its name if it ships with these figures, else the given chip."""
    return next((name for name in available() if _shipped(name) == chip), chip)


def load(chip: str | Path | ChipSpec) -> ChipSpec:
    """A chip by its name, from a user's TOML file, or the given chip.

    Raises ConfigError for an unknown name, a file that cannot be read, and fields that are unknown or impossible.
    """
    if isinstance(chip, ChipSpec):
        return chip
    name = next((one for one in names() if one.lower() == str(chip).lower()), str(chip))
    if name in available() and name not in CHIPS:
        return _shipped(name)
    path = Path(_named(name) or chip)
    if path.suffix == ".toml" or len(path.parts) > 1:
        return _from_file(path)
    raise ConfigError(
        f"unknown chip '{chip}': expected one of {', '.join(names())}, or a TOML file of a chip"
        f"{meant(str(chip), names())}"
    )


def _named(name: str) -> Path | None:
    """The TOML file of a chip of an installed package, None if none of them has this name. Raises ConfigError."""
    if name not in CHIPS:
        return None
    if name in available():
        raise ConfigError(
            f"chip '{name}': ships with tpusim, and {CHIPS.package_of(name)} registers another; uninstall that package"
        )
    path: object = CHIPS.get(name)
    if not isinstance(path, Path) or path.stem != name:
        raise ConfigError(f"chip '{name}': the path of a file {name}.toml is required, got {path!r}")
    return path


def of(module: Attributed) -> ChipSpec:
    """The chip that a lowered module is for."""
    return resolve(module.attribute("module.chip"), module.attribute("module.chip_definition"))


@cache
def resolve(name: str, definition: str = "") -> ChipSpec:
    """The chip of that name; definition: the text of `define`, "" for a shipped chip. Raises ConfigError."""
    if not definition:
        if name not in available():
            raise ConfigError(
                f"unknown chip '{name[:40]}': expected one of {', '.join(available())}, or its definition"
            )
        return _shipped(name)
    where = f"definition of chip '{name}'"
    try:
        fields = documents.decode(definition, _Fields)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: a JSON object of fields is required, {error}") from error
    return _checked({**_extended(fields, None, where, ()), "name": name}, where)


def define(chip: ChipSpec) -> str:
    """The fields in which a user's chip differs from a shipped one, as JSON; "" for a shipped chip."""
    if chip.name in available():
        return ""
    base: _Fields = msgspec.to_builtins(_shipped(chip.extends)) if chip.extends else {}
    changed = _difference(msgspec.to_builtins(chip), base)
    return json.dumps({**changed, **({"extends": chip.extends} if chip.extends else {})}, sort_keys=True)


def changed(chip: ChipSpec, name: str, fields: Mapping[str, Any]) -> ChipSpec:
    """The chip with other values of some fields, called `name`. Raises ConfigError for unknown or impossible ones."""
    return _checked(_merged(msgspec.to_builtins(chip), {"extends": _ancestor(chip), **fields, "name": name}), name)


def _ancestor(chip: ChipSpec) -> str:
    return chip.name if chip.name in available() else chip.extends


@cache
def _shipped(name: str) -> ChipSpec:
    text = (files(_PACKAGE) / f"{name}.toml").read_text(encoding="utf-8")
    fields = _extended(documents.parse_toml(text), None, f"chip file {name}.toml", ())
    return _decoded({**fields, "name": name, "extends": ""}, f"chip file {name}.toml")


def _from_file(path: Path) -> ChipSpec:
    where = f"chip file {path}"
    return _checked({"name": path.stem, **_fields(path, where, ())}, where)


def _fields(path: Path, where: str, seen: tuple[Path, ...]) -> _Fields:
    """All fields of a chip file, those of the file it extends included."""
    if real(path) in seen:
        raise ConfigError(f"{where}: extends itself; let it extend another chip")
    try:
        own = documents.read_toml(path)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read, {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{where}: TOML is required, {error}") from error
    return _extended(own, path.parent, where, (*seen, real(path)))


def _extended(own: _Fields, folder: Path | None, where: str, seen: tuple[Path, ...]) -> _Fields:
    """The fields, over those of the chip that `extends` names; `extends` then names the shipped chip at the root.

    folder: the folder of files that it extends; None for the text of a module, which names no file.
    """
    base = own.get("extends")
    if not base:
        return own
    if base in available():
        below = {**msgspec.to_builtins(_shipped(base)), "extends": base}
    elif folder is not None and str(base).endswith(".toml"):
        below = _fields(folder / str(base), f"{where}: extends {base}", seen)
    else:
        raise ConfigError(f"{where}: extends '{base}', expected one of {', '.join(available())}, or a TOML file")
    below.pop("name", None)
    return _merged(below, {key: value for key, value in own.items() if key != "extends"})


def _merged(below: _Fields, above: Mapping[str, Any]) -> _Fields:
    """`below` with the values of `above`; tables field by field."""
    found = dict(below)
    for key, value in above.items():
        found[key] = _merged(below[key], value) if _are_tables(below.get(key), value) else value
    return found


def _difference(fields: _Fields, base: _Fields) -> _Fields:
    found: _Fields = {}
    for key, value in fields.items():
        if key in ("name", "extends") or (key in base and base[key] == value):
            continue
        found[key] = _difference(value, base[key]) if _are_tables(base.get(key), value) else value
    return found


def _are_tables(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


def _decoded(fields: _Fields, where: str) -> ChipSpec:
    fields, why = without_removed(fields)
    if why is not None:
        raise ConfigError(f"{where}: {why}")
    try:
        chip = msgspec.convert(fields, ChipSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}; {_COMPARE}") from error
    if (why := chip.problem()) is not None:
        raise ConfigError(f"{where}: {why}; {_COMPARE}")
    return _in_addition_to_family(chip)


def _in_addition_to_family(chip: ChipSpec) -> ChipSpec:
    """The chip without ops that its family names already, as files of 0.2.0 do."""
    family = chip.hardware
    rule, host, local = (
        tuple(op for op in ops if op not in known)
        for ops, known in (
            (chip.integers.float_only, family.float_only),
            (chip.forms.on_host, family.on_host),
            (chip.local.global_only, family.global_only),
        )
    )
    return replace(
        chip,
        integers=replace(chip.integers, float_only=rule),
        forms=replace(chip.forms, on_host=host),
        local=replace(chip.local, global_only=local),
    )


def _checked(fields: _Fields, where: str) -> ChipSpec:
    """A user's chip; it must not have the name of a shipped chip."""
    chip = _decoded(fields, where)
    if chip.name not in available():
        return chip
    shipped = _shipped(chip.name)
    if replace(chip, extends="") != shipped:
        raise ConfigError(f"{where}: {chip.name} is a shipped chip with other figures; give this one another name")
    return shipped
