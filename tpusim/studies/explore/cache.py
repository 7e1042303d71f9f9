"""Computed points in a folder, under hashes of everything that they depend on: a point is computed once.

Files appear whole or not at all, so that a process may be killed at any time, and several may work in one folder.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tpusim.chips import flattened
from tpusim.errors import ConfigError, TpusimError, option
from tpusim.host.documents import decode
from tpusim.host.files import replacing
from tpusim.running.persistence import file_key, model_key, samples_key
from tpusim.studies.explore.row import Row
from tpusim.studies.explore.space import VERIFIED, Point, Space, is_file
from tpusim.version import __version__

POINTS, TABLES = "points", "tables"
"""Folders of rows and of calibration tables."""


@dataclass(frozen=True)
class Cache:
    """The output folder of explorations; points in it are not computed again."""

    folder: Path

    def require_own(self, names: tuple[str, ...]) -> None:
        """Raise ConfigError if one of these files exists in a folder that no exploration has written."""
        for name in names:
            if (self.folder / name).exists() and not (self.folder / POINTS).is_dir():
                raise ConfigError(
                    f"{option('out')}: {self.folder / name} was not written by an exploration and would be "
                    "lost; move it, or "
                    "give another folder"
                )
        try:
            (self.folder / POINTS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{option('out', self.folder)}: cannot be written, {error.strerror or error}") from error

    def table(self, key: str) -> Path:
        """The calibration table of a key."""
        return self.folder / TABLES / key

    def get(self, key: str) -> Row | None:
        """The row of a key; None if it does not exist or cannot be read."""
        try:
            return decode((self.folder / POINTS / f"{key}.json").read_bytes(), Row)
        except (OSError, msgspec.MsgspecError):
            return None

    def put(self, key: str, row: Row) -> None:
        """Keep the row of one point."""
        with replacing(self.folder / POINTS / f"{key}.json") as temporary:
            temporary.write_bytes(msgspec.json.encode(row))


@dataclass(frozen=True)
class Keys:
    """The keys of a space; models and samples are read once for them."""

    space: Space
    models: dict[Path, list[str]]
    samples: list[Any]
    tools: str
    """The version of TPU-MLIR that the points go through; "" if they do not."""

    @classmethod
    def of(cls, space: Space, tools: str = "") -> "Keys":
        """Read the models of a space."""
        models = {Path(model): model_key(Path(model)) for model in space.models}
        return cls(space, models, samples_key(space.data), tools)

    def table(self, model: Path) -> str:
        """The hash of everything that a model's calibration table depends on."""
        space = self.space
        shapes = [repr(space.cut), repr(space.preprocess), space.preprocess_list, sorted(space.input_shapes.items())]
        asked = [repr(space.calibration), file_key(space.table), *shapes]
        return _hash([__version__, self.models[model], self.samples, asked])

    def point(self, point: Point) -> str:
        """The hash of everything that a point's figures depend on; the name of the model's file is not part of it."""
        how = [
            point.mode,
            file_key(point.strategy) if is_file(point.strategy) else point.strategy,
            point.batch,
            point.cores,
            self.space.asymmetric,
            self.space.verify and VERIFIED,
            *([self.tools] if self.tools else []),
        ]
        return _hash([self.table(point.model), _figures(point), how])


def _figures(point: Point) -> list[Any]:
    """All figures of the point's chip; for an impossible chip its name and settings."""
    try:
        return [flattened(point.spec())]
    except TpusimError:
        return [flattened(point.chip), point.settings]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
