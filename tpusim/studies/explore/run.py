"""An exploration: known points are read, the others are computed, and all are written."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from typing import TypeAlias

from msgspec.structs import replace

from tpusim.errors import TpusimError, WorkerError, WriteError
from tpusim.host.files import real
from tpusim.host.workers import Crew, Workers
from tpusim.ir.formats import number_format
from tpusim.ir.module import Model, save_one_file
from tpusim.studies.explore.cache import Cache, Keys
from tpusim.studies.explore.cost import SHORTAGE, UNKEPT, Bench, Material, blank, guarded, lowered_as, rows_of
from tpusim.studies.explore.front import DEFAULT_FRONT, front, require_measures
from tpusim.studies.explore.network import Network, require_inputs
from tpusim.studies.explore.results import FILES, write_results
from tpusim.studies.explore.row import Row
from tpusim.studies.explore.space import Point, Space, require_energies
from tpusim.studies.explore.through import Road
from tpusim.studies.upstream.tools import Tools

Keyed: TypeAlias = tuple[str, Point]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Exploration:
    """All rows in the order of the space's points, the written files, and how many points this call computed."""

    rows: tuple[Row, ...]
    files: tuple[Path, ...]
    computed: int

    @property
    def short(self) -> tuple[Row, ...]:
        """The rows for which this computer had too little memory; the next call computes them again."""
        return tuple(row for row in self.rows if row.error.startswith(SHORTAGE))

    def __repr__(self) -> str:
        """The number of points, of those on the front, and of those with an error."""
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
    """Compute the points of a space that the folder `out` does not have yet, and write all results to it.

    measures: of the front, names of `MEASURES`. workers: compute the points; None: this process. progress: called with
    the number of finished points and of all points. Raises ConfigError for options that are impossible for all points,
    and for a folder with other content; an error of a single point is its row's `error`.
    """
    require_measures("measures", measures, verified=space.verify, through=bool(space.through_upstream))
    require_energies("measures", measures, space)
    points, cache = space.points(), Cache(Path(out))
    require_inputs(space)
    cache.require_own(FILES)
    tools = Tools.find(space.through_upstream) if space.through_upstream else None
    keys = Keys.of(space, tools.version if tools else "")
    keyed = [(keys.point(point), point) for point in points]
    rows = {key: row for key, _ in keyed if (row := cache.get(key)) is not None}
    missing = [(key, point) for key, point in dict(keyed).items() if key not in rows]
    told, total = progress or _silent, len(rows) + len(missing)
    told(len(rows), total)
    for key, row in _computed(missing, _Whole(space, cache, keys, tools), workers):
        rows[key] = row
        if not row.error.startswith(UNKEPT):
            cache.put(key, row)
        told(len(rows), total)
    found = front([_called(rows[key], point) for key, point in keyed], measures)
    return Exploration(tuple(found), tuple(write_results(found, cache.folder)), len(missing))


def _called(row: Row, point: Point) -> Row:
    """A row that was computed for an equal point, with the description of this point."""
    own = blank(point)
    return replace(row, model=own.model, chip=own.chip, settings=own.settings)


def _silent(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True)
class _Whole:
    """The common data of all points."""

    space: Space
    cache: Cache
    keys: Keys
    tools: Tools | None

    def network(self, model: Path, workers: Workers | None) -> Network:
        return Network(model, self.space, self.cache, self.keys.table(model), workers)

    def road(self, network: Network, batch: int) -> Road | None:
        """TPU-MLIR's tools for a network and batch, with its first sample."""
        if self.tools is None:
            return None
        key = f"{network.table_key} {self.tools.version} {batch}"
        return Road(self.tools, real(self.cache.folder), network.samples(batch)[0], key)


def _computed(missing: Sequence[Keyed], whole: _Whole, workers: Workers | None) -> Iterator[tuple[str, Row]]:
    """(key, row) of each point when it is computed."""
    if workers is None:
        for alike, material in _materials(missing, whole, None):
            bench = None if isinstance(material, Exception) else Bench(material)
            yield from ((key, _failed(one, material) if bench is None else bench.row(one)) for key, one in alike)
    elif missing:
        with workers.begun() as crew:
            yield from _sent(_materials(missing, whole, workers), crew, workers.ahead)


def _materials(
    missing: Sequence[Keyed], whole: _Whole, workers: Workers | None
) -> Iterator[tuple[list[Keyed], Material | Exception]]:
    """Points with common material, together with it or with their common error."""
    for model, of_model in groupby(missing, lambda one: one[1].model):
        network = whole.network(model, workers)
        for alike in _by_material(of_model):
            try:
                yield alike, _material(network, alike[0][1], whole)
            except (WriteError, WorkerError):
                raise  # it is no figure of a point, and nothing of it is kept
            except (TpusimError, MemoryError) as error:
                yield alike, error


def _by_material(points: Iterator[Keyed]) -> Iterator[list[Keyed]]:
    """Points of one model in groups by batch and by whether they need thresholds."""
    for _, of_batch in groupby(points, lambda one: one[1].batch):
        found = list(of_batch)
        for wanted in (True, False):
            some = [one for one in found if number_format(one[1].mode).calibrated == wanted]
            if some:
                yield some


def _material(network: Network, point: Point, whole: _Whole) -> Material:
    """The common data of the points of a network, batch and kind of mode. Raises their common TpusimError."""
    space = network.space
    return Material(
        network.canonical(point.batch),
        network.table if number_format(point.mode).calibrated else None,
        network.samples(point.batch) if space.verify else [],
        space.asymmetric,
        whole.road(network, point.batch),
    )


def _failed(point: Point, error: object) -> Row:
    assert isinstance(error, Exception)
    return guarded(point, _raising(error))


def _raising(error: Exception) -> Callable[[], dict[str, object]]:
    def fail() -> dict[str, object]:
        raise error

    return fail


def _sent(
    materials: Iterator[tuple[list[Keyed], Material | Exception]], crew: Crew, ahead: int
) -> Iterator[tuple[str, Row]]:
    """The rows of points that workers compute; meanwhile this process prepares the next network."""
    sent: deque[tuple[list[Keyed], Path]] = deque()
    failed: deque[tuple[str, Row]] = deque()

    def units() -> Iterator[tuple[object, ...]]:
        for number, (alike, material) in enumerate(materials):
            if isinstance(material, Exception):
                failed.extend((key, _failed(one, material)) for key, one in alike)
                continue
            path = _shared(crew, material.canonical, number)
            for part in _parts(alike, ahead):
                sent.append((part, path))
                yield (
                    str(path),
                    material.table,
                    material.samples,
                    [point for _, point in part],
                    material.asymmetric,
                    material.road,
                )

    for rows in crew.results(rows_of, units()):
        while failed:
            yield failed.popleft()
        part, path = sent.popleft()
        yield from zip((key for key, _ in part), rows, strict=True)
        if sent and sent[0][1] != path:  # results keep their order, so all points of the previous module are done
            rmtree(path.parent)
    yield from failed


def _shared(crew: Crew, model: Model, number: int) -> Path:
    """Save a module in a new folder where workers can load it, and return its path."""
    path = crew.folder / str(number) / "2_canonical.mlir"
    path.parent.mkdir()
    save_one_file(model, path)
    return path


def _parts(alike: Sequence[Keyed], most: int) -> list[list[Keyed]]:
    """Points grouped by lowered module, or each alone if that gives too few parts to keep all workers busy."""
    found = [list(part) for _, part in groupby(alike, lambda one: lowered_as(one[1]))]
    return found if len(found) >= most else [[one] for one in alike]
