"""The registry: what tpusim knows by name, loaded when first used, and what installed packages add to it.

One `Table` for each kind of thing. An entry is the thing itself, or a string "module:attribute" that is imported when
the entry is first asked for. A package adds entries by entry points in the group "tpusim.KIND"; their names are read
from the package's metadata, and nothing is imported before it is used. A name that ships stays what it is.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from tpusim.errors import ConfigError

T = TypeVar("T")


class Table(Generic[T]):
    """Named things of one kind.

    noun: what an error calls one of them. group: the entry points that add to the table.
    """

    def __init__(self, noun: str, group: str, shipped: Mapping[str, T | str]) -> None:
        self.noun = noun
        self.group = group
        self._entries: dict[str, T | str] = dict(shipped)

    @cached_property
    def plugins(self) -> Mapping[str, EntryPoint]:
        """The entry points of installed packages, by name, without those whose name ships."""
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self._entries}

    def names(self) -> tuple[str, ...]:
        """All names, those that ship first."""
        return *self._entries, *sorted(self.plugins.keys() - self._entries.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.plugins

    def add(self, name: str, thing: T | str) -> None:
        """Register a thing. Raises ConfigError if the name stands for another thing already."""
        present = self._entries.get(name)
        if present is not None and present is not thing and present != thing:
            raise ConfigError(f"{self.noun} '{name}' is registered already, as {present}; choose another name")
        self._entries[name] = thing

    def get(self, name: str) -> T:
        """The thing of that name, imported if it was not. Raises ConfigError if there is none, or its import fails."""
        if name in self._entries:
            thing = self._entries[name]
            if isinstance(thing, str):
                module, _, attribute = thing.partition(":")
                thing = self._entries[name] = cast("T", getattr(import_module(module), attribute))
            return thing
        if name in self.plugins:
            thing = self._entries[name] = cast("T", self._load(self.plugins[name]))
            return thing
        near = get_close_matches(name, self.names(), 1)
        hint = f"; did you mean '{near[0]}'" if near else ""
        raise ConfigError(f"{self.noun}: one of {', '.join(self.names()) or 'none'} is required, got '{name}'{hint}")

    def _load(self, entry: EntryPoint) -> Any:
        try:
            return entry.load()
        except Exception as error:  # any code may run when somebody's module is imported
            raise ConfigError(
                f"{self.noun} '{entry.name}': {entry.value} could not be imported, {type(error).__name__}: {error}; "
                "repair or uninstall its package"
            ) from error


TARGETS = Table[Any](
    "target",
    "tpusim.targets",
    {
        "bm1684x": "tpusim.targets.bm1684x:TARGET",
        "bm1690": "tpusim.targets.bm1684x:TARGET",
        "bm1684": "tpusim.targets.bm1684:TARGET",
        "cv18xx": "tpusim.targets.cv18xx:TARGET",
    },
)
"""What each family of chips answers in place of the ops, a `tpusim.interfaces.Target`, by family."""
