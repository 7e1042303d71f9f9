"""An exploration: which points are known, the others computed, all of them written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from tpusim.errors import TpusimError
from tpusim.explore.cache import Cache, Keys
from tpusim.explore.cost import DEFECT, Bench, Material, blank, guarded, rows_of
from tpusim.explore.front import DEFAULT_FRONT, front, require_measures
from tpusim.explore.network import Network
from tpusim.explore.results import FILES, write_results
from tpusim.explore.row import Row
from tpusim.explore.space import Point, Space
from tpusim.ir.formats import number_format
from tpusim.ir.module import Model, save_model
from tpusim.workers import Crew, Workers

Keyed: TypeAlias = tuple[str, Point]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Exploration:
    """All rows in the order of the space's points, the files they are in, and how many were computed in this call."""

    rows: tuple[Row, ...]
    files: tuple[Path, ...]
    computed: int

    def __repr__(self) -> str:
        """How many points there are, on the front, and with an error."""
        errors, best = sum(bool(row.error) for row in self.rows), sum(row.front for row in self.rows)
        return f"<Exploration: {len(self.rows)} points, {best} on the front, {errors} with an error>"


def explore(
    space: Space,
    out: str | Path = "explore",
    *,
    measures: Sequence[str] = DEFAULT_FRONT,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """Compute the points of a space that the folder `out` does not have yet, and write its results there.

    measures: of the front, names of `MEASURES`. workers: who computes points, None: this process. progress: told how
    many of how many points are done. Raises ConfigError for what no point could have, and for a folder in which
    something else is; what goes wrong with a point is its row's `error`.
    """
    require_measures("measures", measures, verified=space.verify)
    points, cache = space.points(), Cache(Path(out))
    cache.require_own(FILES)
    keys = Keys.of(space)
    keyed = [(keys.point(point), point) for point in points]
    rows = {key: row for key, _ in keyed if (row := cache.get(key)) is not None}
    missing = [(key, point) for key, point in dict(keyed).items() if key not in rows]
    told, total = progress or _silent, len(rows) + len(missing)
    told(len(rows), total)
    for key, row in _computed(missing, space, cache, keys, workers):
        rows[key] = row
        if not row.error.startswith(DEFECT):
            cache.put(key, row)
        told(len(rows), total)
    found = front([_called(rows[key], point) for key, point in keyed], measures)
    return Exploration(tuple(found), tuple(write_results(found, cache.folder)), len(missing))


def _called(row: Row, point: Point) -> Row:
    """The row, of whichever point it was computed for, as this one's."""
    own = blank(point)
    return replace(row, model=own.model, chip=own.chip, settings=own.settings)


def _silent(done: int, total: int) -> None:
    del done, total


def _computed(
    missing: Sequence[Keyed], space: Space, cache: Cache, keys: Keys, workers: Workers | None
) -> Iterator[tuple[str, Row]]:
    """(key, row) of points, as soon as each is computed."""
    for model, of_model in groupby(missing, lambda one: one[1].model):
        network = Network(model, space, cache, keys.table(model), workers)
        for alike in _alike(of_model):
            point = alike[0][1]
            try:
                material = _material(network, point)
            except TpusimError as error:
                yield from ((key, guarded(one, _raising(error))) for key, one in alike)
            else:
                if workers is None:
                    bench = Bench(material)
                    yield from ((key, bench.row(one)) for key, one in alike)
                else:
                    yield from _sent(workers, material, alike)


def _alike(points: Iterator[Keyed]) -> Iterator[list[Keyed]]:
    """Points of one model by batch, and whether they need thresholds."""
    for _, of_batch in groupby(points, lambda one: one[1].batch):
        found = list(of_batch)
        for wanted in (True, False):
            some = [one for one in found if number_format(one[1].mode).calibrated == wanted]
            if some:
                yield some


def _material(network: Network, point: Point) -> Material:
    """What the points of a network, batch and kind of mode share. Raises the TpusimError that is all of theirs."""
    space = network.space
    return Material(
        network.canonical(point.batch),
        network.table if number_format(point.mode).calibrated else None,
        network.sample(point.batch) if space.verify else None,
        space.asymmetric,
    )


def _raising(error: TpusimError) -> Callable[[], dict[str, object]]:
    def fail() -> dict[str, object]:
        raise error

    return fail


def _sent(workers: Workers, material: Material, alike: Sequence[Keyed]) -> Iterator[tuple[str, Row]]:
    """The rows of points that others compute."""
    parts = _parts(alike, workers.ahead)
    with workers.begun() as crew:
        module = _shared(crew, material.canonical)
        common = (module, material.table, material.sample)
        units = ((*common, [point for _, point in part], material.asymmetric) for part in parts)
        for part, rows in zip(parts, crew.results(rows_of, units), strict=True):
            yield from zip((key for key, _ in part), rows, strict=True)


def _shared(crew: Crew, model: Model) -> str:
    """Save a module where workers can load it; its path."""
    path = crew.folder / "2_canonical.mlir"
    save_model(model, path)
    return str(path)


def _parts(alike: Sequence[Keyed], most: int) -> list[list[Keyed]]:
    """Points that share a lowered module together; each alone where that is too few parts to keep all busy."""
    found = [list(part) for _, part in groupby(alike, lambda one: (one[1].chip, one[1].settings, one[1].mode))]
    return found if len(found) >= most else [[one] for one in alike]
