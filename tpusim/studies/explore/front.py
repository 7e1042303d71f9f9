"""The Pareto front of points, and the best point within bounds.

Points are compared with points of the same model and batch only, because others do other work.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TypeAlias

from msgspec.structs import replace

from tpusim.errors import ConfigError, option
from tpusim.studies.explore.row import Row

MEASURES = {
    "ms": "milliseconds",
    "cycles": "cycles",
    "bytes": "moved_bytes",
    "lmem": "lmem_bytes",
    "weights": "weight_bytes",
    "neurons": "neuron_bytes",
    "groups": "groups",
    "energy": "energy_uj",
    "cos": "cosine",
    "euc": "euclidean",
    "real": "upstream_cycles",
}
"""Name in options -> field of a row."""
MORE_IS_BETTER = ("cos", "euc")
"""The measures that need --verify."""
REAL = "real"
"""The measure that needs --through-upstream."""
DEFAULT_FRONT = ("ms", "bytes", "lmem")


@dataclass(frozen=True)
class Bound:
    """An upper bound of a measure, or a lower bound of a similarity."""

    measure: str
    limit: float

    def holds(self, row: Row) -> bool:
        """Whether the row has the measure, within the bound."""
        sign = -1 if self.measure in MORE_IS_BETTER else 1
        return cost(row, self.measure) <= sign * self.limit


def cost(row: Row, measure: str) -> float:
    """The measure as a cost (smaller is better); infinite if it is unknown."""
    value = getattr(row, MEASURES[measure])
    if value is None:
        return inf
    return -value if measure in MORE_IS_BETTER else value


def undominated(costs: Sequence[tuple[float, ...]]) -> list[bool]:
    """For each cost vector whether no other is at most as large in all components and smaller in one."""
    return [not any(other != one and _covers(other, one) for other in set(costs)) for one in costs]


def _covers(other: tuple[float, ...], one: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(other, one, strict=True))


def front(rows: Sequence[Row], measures: Sequence[str] = DEFAULT_FRONT) -> list[Row]:
    """The rows, in their order, with `front` set; a row with an error is on none."""
    costs = {i: tuple(cost(row, m) for m in measures) for i, row in enumerate(rows) if not row.error}
    best: set[int] = set()
    for _, numbers in comparable(rows, costs):
        kept = undominated([costs[i] for i in numbers])
        best.update(i for i, keep in zip(numbers, kept, strict=True) if keep)
    return [replace(row, front=i in best) for i, row in enumerate(rows)]


def best_under(rows: Sequence[Row], bounds: Sequence[Bound]) -> dict[tuple[str, int], Row | None]:
    """(model, batch) -> its fastest row within all bounds, or None; ties: fewer bytes, then less local memory."""
    found: dict[tuple[str, int], Row | None] = {}
    for key, numbers in comparable(rows, range(len(rows))):
        within = [rows[i] for i in numbers if not rows[i].error and all(bound.holds(rows[i]) for bound in bounds)]
        found[key] = min(within, key=lambda row: tuple(cost(row, m) for m in DEFAULT_FRONT), default=None)
    return found


Network: TypeAlias = tuple[str, int, str, str, int]
"""Model, batch, chip, mode and cores: rows of which only the cuts differ."""


def recommended(rows: Sequence[Row]) -> dict[Network, Row | None]:
    """The fastest row of each network on TPU-MLIR's tools, by the real profile; None if its compiler's cut is faster.

    A row counts if both bmodels have a profile, and if its results are those of flat inference or of TPU-MLIR's
    compile. Networks without such a row are left out.
    """
    found: dict[Network, list[Row]] = {}
    for row in rows:
        if row.upstream_cycles is not None and row.compiler_cycles is not None and confirmed(row):
            found.setdefault((row.model, row.batch, row.chip, row.mode, row.cores), []).append(row)
    best = {key: min(some, key=lambda row: cost(row, REAL)) for key, some in found.items()}
    return {key: row if cost(row, REAL) <= (row.compiler_cycles or 0) else None for key, row in best.items()}


def confirmed(row: Row) -> bool:
    """Whether the simulator's results are those of flat inference, or those of TPU-MLIR's compile."""
    return 0 in (row.upstream_differ, row.compiler_differ)


def comparable(rows: Sequence[Row], numbers: Iterable[int]) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """((model, batch), the numbers of its rows), in the order of first appearance."""
    found: dict[tuple[str, int], list[int]] = {}
    for number in numbers:
        found.setdefault((rows[number].model, rows[number].batch), []).append(number)
    yield from found.items()


def parse_measures(text: str, *, verified: bool, through: bool = False) -> tuple[str, ...]:
    """`ms,bytes` -> ("ms", "bytes"). Raises ConfigError for unknown measures and for those that are not measured."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    require_measures(option("front"), names, verified=verified, through=through)
    return names


def parse_bounds(text: str, *, verified: bool, through: bool = False) -> tuple[Bound, ...]:
    """`ms=5,cos=0.99` -> bounds. Raises ConfigError."""
    found: list[Bound] = []
    for part in text.split(","):
        name, _, limit = part.partition("=")
        require_measures(option("best_under"), (name.strip(),), verified=verified, through=through)
        try:
            found.append(Bound(name.strip(), float(limit)))
        except ValueError:
            raise ConfigError(
                f"{option('best_under', part)}: MEASURE=NUMBER is required, as in ms=5,cos=0.99"
            ) from None
        if not isfinite(found[-1].limit):
            raise ConfigError(f"{option('best_under', part)}: a finite number is required")
    return tuple(found)


def require_measures(flag: str, names: Sequence[str], *, verified: bool, through: bool = False) -> None:
    """Raise ConfigError unless these are measures, and are measured."""
    for name in names or ("",):
        if name not in MEASURES:
            raise ConfigError(f"{flag} '{name}': expected one of {', '.join(MEASURES)}")
        if name in MORE_IS_BETTER and not verified:
            raise ConfigError(f"{flag} {name}: similarities are measured with {option('verify', True)}; give it too")
        if name == REAL and not through:
            raise ConfigError(f"{flag} {name}: {option('through_upstream', 'FOLDER')} is required, which measures it")
