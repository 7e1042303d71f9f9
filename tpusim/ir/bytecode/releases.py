"""What codes and layouts each release of MLIR reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpusim.errors import ConfigError, meant


@dataclass(frozen=True)
class Release:
    """What one release of MLIR reads.

    versions: the highest version of the format that is safe for it. attributes, types: the highest code of the builtin
    dialect; what has a higher one is written as text. quant: the same for quant. layouts: of properties, as
    `properties.layout_to_write` counts releases.
    """

    name: str
    version: int
    attributes: int
    types: int
    quant: int = 5
    layouts: int = 0


RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        Release("llvm16", 0, 16, 19, 0),
        Release("llvm18", 4, 20, 20, 5, 2),
        Release("llvm19", 4, 20, 20, 5, 1),
        Release("llvm22", 6, 22, 20, 6),
        Release("llvm24", 6, 25, 32, 6),
        Release("tpuc-opt", 4, 20, 20, 5, 2),
    )
}
EVERYBODY = Release("everybody", 4, 20, 20)
"""Version 4 with codes that every MLIR since LLVM 17 reads."""


def release(name: str) -> Release:
    """The release of a name. Raises ConfigError for another."""
    found = RELEASES.get(name)
    if found is None:
        raise ConfigError(f"bytecode for '{name}': one of {', '.join(RELEASES)} is required{meant(name, RELEASES)}")
    return found
