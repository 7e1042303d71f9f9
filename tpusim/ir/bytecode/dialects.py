"""The dialects whose encodings are known."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from tpusim.errors import ConfigError, TpusimError, first_line
from tpusim.ir.bytecode.builtin_attributes import ATTRIBUTES
from tpusim.ir.bytecode.builtin_types import TYPES
from tpusim.ir.bytecode.forms import DialectCodes
from tpusim.ir.bytecode.quant_types import TYPES as QUANT_TYPES
from tpusim.registry import BYTECODE

BUILTIN, QUANT = DialectCodes("builtin", ATTRIBUTES, TYPES), DialectCodes("quant", (), QUANT_TYPES)
KNOWN = (BUILTIN, QUANT)

HOOKS = ("write_version", "read_version", "upgrade")


def _guarded(codes: DialectCodes, package: str) -> DialectCodes:
    """The encoding of a package, whose hooks raise no error but ConfigError."""

    def guarded(hook: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                found = getattr(codes, hook)(*arguments)
                return found if hook != "write_version" or found is None else bytes(memoryview(found))
            except TpusimError:
                raise
            except Exception as error:  # a package's code may raise anything
                raise ConfigError(
                    f"encoding '{codes.name}' of {package}: {hook} failed, {first_line(error)}; repair its package"
                ) from error

        return call

    return replace(codes, **{hook: guarded(hook) for hook in HOOKS})


class Codes(Mapping[str, DialectCodes]):
    """Encodings by dialect: those known here, given ones, and those of packages, imported when a file has the dialect.

    packages: whether those of packages count.
    Raises ConfigError for a package's entry that is no encoding of that dialect.
    """

    def __init__(self, dialects: Iterable[DialectCodes], packages: bool = True) -> None:
        self._known = {codes.name: codes for codes in (*KNOWN, *dialects)}
        self._others = BYTECODE if packages else ()

    @property
    def loaded(self) -> Iterable[DialectCodes]:
        """Those that no package has to be imported for."""
        return self._known.values()

    @override
    def __getitem__(self, name: str) -> DialectCodes:
        if name in self._known:
            return self._known[name]
        if name not in self._others:
            raise KeyError(name)
        found = BYTECODE.get(name)
        package = BYTECODE.package_of(name)
        if not isinstance(found, DialectCodes) or found.name != name:
            wanted = "a tpusim.ir.bytecode.DialectCodes of that dialect"
            raise ConfigError(f"encoding '{name}' of {package}: {wanted} is required, got {found!r}")
        self._known[name] = _guarded(found, package)
        return self._known[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **dict.fromkeys(self._others)})

    @override
    def __len__(self) -> int:
        return len(list(iter(self)))
