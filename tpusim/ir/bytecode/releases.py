"""What codes and layouts each release of MLIR reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpusim.errors import ConfigError, meant
from tpusim.ir.bytecode.missing import SUB_CHANNEL


@dataclass(frozen=True)
class Release:
    """What one release of MLIR reads.

    versions: the highest version of the format that is safe for it. attributes, types: the highest code of the builtin
    dialect; what has a higher one is written as text. quant: the same for quant. layouts: of properties, as
    `properties.layout_to_write` counts releases; None: properties are written as attributes, which every release reads.
    lacks: attributes and types (`missing.kind_of`) that it refuses as text too. properties: whether its ops have any.
    packages: whether encodings of packages are used, which tpusim alone reads.
    """

    name: str
    version: int
    attributes: int
    types: int
    quant: int = 5
    layouts: int | None = None
    lacks: frozenset[str] = frozenset()
    properties: bool = True
    packages: bool = False


_SINCE_20 = frozenset(
    ("f8E3M4", "f8E8M0FNU", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN", "builtin.file_range_loc", SUB_CHANNEL)
)
_SINCE_19 = _SINCE_20 | {"f8E4M3"}
_SINCE_17 = _SINCE_19 | {"f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "tf32", "builtin.distinct", "arith.overflow"}

RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        Release("llvm16", 0, 16, 19, 0, None, _SINCE_17, False),
        Release("llvm18", 4, 20, 20, 5, 2, _SINCE_19),
        Release("llvm19", 4, 20, 20, 5, 1, _SINCE_20),
        Release("llvm22", 6, 22, 20, 6, 0),
        Release("llvm24", 6, 25, 32, 6, 0),
        Release("tpuc-opt", 4, 20, 20, 5, 2, _SINCE_19),
    )
}
EVERYBODY = Release("everybody", 4, 20, 20, packages=True)
"""Version 4 with codes that every MLIR since LLVM 17 reads, and those of packages."""


def release(name: str) -> Release:
    """The release of a name. Raises ConfigError for another."""
    found = RELEASES.get(name)
    if found is None:
        raise ConfigError(f"bytecode for '{name}': one of {', '.join(RELEASES)} is required{meant(name, RELEASES)}")
    return found
