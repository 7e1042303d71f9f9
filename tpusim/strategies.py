"""Strategies for layer groups by name: those that ship, and plug-ins under the entry point group `tpusim.strategies`.

A plug-in is a callable as `tpusim.layer_group.Strategy` describes it; `examples/strategy_plugin` is one to install.
Names are read from installed packages' metadata, nothing is imported before it is used.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tpusim.errors import ConfigError

ENTRY_POINTS = "tpusim.strategies"
SHIPPED = "1", "2", "off", "best"


@cache
def plugins() -> dict[str, EntryPoint]:
    """The plug-ins that are installed, by name; a name that ships stays what it is."""
    return {found.name: found for found in entry_points(group=ENTRY_POINTS) if found.name not in SHIPPED}


def names() -> tuple[str, ...]:
    """All strategies, those that ship first."""
    return *SHIPPED, *sorted(plugins())


def loaded(name: str) -> Any:
    """What a plug-in's entry point names. Raises ConfigError if it cannot be imported or called."""
    entry = plugins()[name]
    try:
        found = entry.load()
    except Exception as error:  # any code may run when somebody's module is imported
        raise ConfigError(
            f"strategy '{name}': {entry.value} could not be imported, {type(error).__name__}: {error}; repair or "
            "uninstall its package"
        ) from error
    if not callable(found):
        raise ConfigError(
            f"strategy '{name}': {entry.value} must be a callable of ops, chip, cores and memo, got "
            f"{type(found).__name__}"
        )
    return found
