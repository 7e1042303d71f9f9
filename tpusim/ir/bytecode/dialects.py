"""The dialects whose encodings are known."""

from collections.abc import Iterable, Iterator, Mapping

from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.bytecode.builtin_attributes import ATTRIBUTES
from tpusim.ir.bytecode.builtin_types import TYPES
from tpusim.ir.bytecode.forms import DialectCodes
from tpusim.ir.bytecode.quant_types import TYPES as QUANT_TYPES
from tpusim.registry import BYTECODE

BUILTIN, QUANT = DialectCodes("builtin", ATTRIBUTES, TYPES), DialectCodes("quant", (), QUANT_TYPES)
KNOWN = (BUILTIN, QUANT)


class Codes(Mapping[str, DialectCodes]):
    """Encodings by dialect: those known here, given ones, and those of packages, imported when a file has the dialect.

    Raises ConfigError for a package's entry that is no encoding of that dialect.
    """

    def __init__(self, dialects: Iterable[DialectCodes]) -> None:
        self._known = {codes.name: codes for codes in (*KNOWN, *dialects)}

    @property
    def loaded(self) -> Iterable[DialectCodes]:
        """Those that no package has to be imported for."""
        return self._known.values()

    @override
    def __getitem__(self, name: str) -> DialectCodes:
        if name in self._known:
            return self._known[name]
        if name not in BYTECODE:
            raise KeyError(name)
        found = BYTECODE.get(name)
        if not isinstance(found, DialectCodes) or found.name != name:
            package = BYTECODE.package_of(name)
            wanted = "a tpusim.ir.bytecode.DialectCodes of that dialect"
            raise ConfigError(f"encoding '{name}' of {package}: {wanted} is required, got {found!r}")
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **dict.fromkeys(BYTECODE)})

    @override
    def __len__(self) -> int:
        return len(list(iter(self)))
