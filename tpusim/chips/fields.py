"""The fields of a chip one by one, called as in its file, as in "bandwidth.s2l"."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from tpusim.chips.spec import ChipSpec


def flattened(chip: ChipSpec) -> dict[str, Any]:
    """Field -> value as TOML and JSON have it, those of tables with the table's name in front."""
    return dict(_leaves("", msgspec.to_builtins(chip)))


def differences(one: ChipSpec, other: ChipSpec) -> dict[str, tuple[Any, Any]]:
    """Field -> the values of both chips, where they differ; their names do not count."""
    first, second = flattened(one), flattened(other)
    names = [name for name in dict.fromkeys((*first, *second)) if name not in ("name", "extends")]
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _leaves(prefix: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _leaves(f"{prefix}{key}.", cast("dict[str, Any]", value))
        else:
            yield prefix + key, value
