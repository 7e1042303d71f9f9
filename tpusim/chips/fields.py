"""The fields of a chip one by one, by their names in its file: "bandwidth.s2l"."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from tpusim.chips.spec import ChipSpec


def flattened(chip: ChipSpec) -> dict[str, Any]:
    """Field -> its TOML or JSON value; fields of a table have the table's name before them."""
    return dict(_leaves("", msgspec.to_builtins(chip)))


def described(chip: ChipSpec) -> dict[str, Any]:
    """Field -> its value, and "hardware.requant" and others, what all chips of the family have in common."""
    hardware = cast("dict[str, Any]", msgspec.to_builtins(chip.hardware))
    return flattened(chip) | {f"hardware.{name}": value for name, value in hardware.items()}


def differences(one: ChipSpec, other: ChipSpec) -> dict[str, tuple[Any, Any]]:
    """Field or part of the hardware -> its values of both chips, if they differ; the chips' names do not count."""
    first, second = described(one), described(other)
    names = [name for name in dict.fromkeys((*first, *second)) if name not in ("name", "extends")]
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _leaves(prefix: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _leaves(f"{prefix}{key}.", cast("dict[str, Any]", value))
        else:
            yield prefix + key, value
