"""Dialects of xDSL and of packages' universes (entry points `xdsl.universe`), read when a file names one of them.

A universe is imported only when a name is not known otherwise, xDSL's before those of other packages; a dialect is
imported when an op, attribute or type of it is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from typing_extensions import override
from xdsl.ir import Attribute, Dialect, Operation, TypeAttribute

from tpusim.errors import ConfigError
from tpusim.ir.opaque import TableContext
from tpusim.registry import UNIVERSES

T = TypeVar("T")
XDSL = "xdsl"


def _universes(broken: list[ConfigError]) -> Iterator[Any]:
    """The universes, xDSL's first, each imported when it is reached. broken: gets the errors of those that are none."""
    from xdsl.universe import XDSL_UNIVERSE

    yield XDSL_UNIVERSE
    for name in sorted(set(UNIVERSES) - {XDSL}):
        try:
            yield _universe(name)
        except ConfigError as error:
            broken.append(error)


def _universe(name: str) -> Any:
    from xdsl.universe import Universe

    found = UNIVERSES.get(name)
    if not isinstance(found, Universe):
        package = UNIVERSES.package_of(name)
        raise ConfigError(f"universe '{name}' of {package}: an xdsl.universe.Universe is required, got {found!r}")
    return found


def in_universes(name: str, kind: str) -> Callable[[], Any] | None:
    """The factory of the thing of a kind ("dialects", "passes") and a name; None if no universe has it.

    Raises ConfigError if a universe that may have it is broken.
    """
    broken: list[ConfigError] = []
    for universe in _universes(broken):
        things: Mapping[str, Callable[[], Any]] = getattr(universe, f"all_{kind}")
        if name in things:
            return things[name]
    if broken:
        raise broken[0]
    return None


@dataclass
class OpenContext(TableContext):
    """An xDSL context that looks a dialect that nobody registered up in the universes."""

    one_function: ClassVar[bool] = False
    _unknown: set[str] = field(default_factory=set[str])

    def _look_up(self, name: str) -> None:
        """Register the dialect of an op, attribute or type."""
        namespace = name.partition(".")[0]
        if namespace == name or namespace in self._registered_dialects or namespace in self._unknown:
            return
        factory = self._factory(namespace)
        if factory is None:
            self._unknown.add(namespace)
        else:
            self.register_dialect(namespace, factory)

    def _factory(self, namespace: str) -> Callable[[], Any] | None:
        try:
            return in_universes(namespace, "dialects")
        except ConfigError:
            if self.allow_unregistered:
                return None
            raise

    @override
    def _get_known_op(self, name: str) -> type[Operation] | None:
        self._look_up(name)
        return super()._get_known_op(name)

    @override
    def get_optional_type(self, name: str) -> type[TypeAttribute] | None:
        self._look_up(name)
        return super().get_optional_type(name)

    @override
    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        self._look_up(name)
        return super().get_optional_attr(name)

    @override
    def get_optional_dialect(self, name: str) -> Dialect | None:
        self._look_up(f"{name}.")
        return super().get_optional_dialect(name)

    @override
    def load_registered_dialect(self, name: str) -> None:
        self._look_up(f"{name}.")
        super().load_registered_dialect(name)
