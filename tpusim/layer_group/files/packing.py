"""The least local memory for the areas of a group, by CP-SAT, to compare the greedy allocation with it.

The answer is exact if the solver finishes in time (`Packing.exact`), else bounds. The extra `exact` has OR-Tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from tpusim.errors import extra_required
from tpusim.isa.layout import align, ceil_div
from tpusim.layer_group.files.group_view import Area, GroupView

SECONDS = 10.0
"""Seconds that the solver may spend on one group."""


@dataclass(frozen=True)
class Packing:
    """Bytes per lane. peak: of the allocation; found: of the best known placement; least: a lower bound."""

    peak: int
    found: int
    least: int

    @property
    def exact(self) -> bool:
        """Whether the least is known exactly."""
        return self.found == self.least


def least_bytes(view: GroupView) -> int:
    """The bytes of the fullest row, including gaps to whole words between areas: no placement needs less."""
    word = view.chip.eu_bytes
    return max((_stacked([area.size for area in alive], word) for alive in _rows(view)), default=0)


def packed(view: GroupView, seconds: float = SECONDS) -> Packing:
    """The least peak of the group's areas with their present lifetimes and results in place.

    Banks are ignored: the allocation may need more to keep the engines out of each other's banks. seconds: limit of
    wall time. Raises ConfigError without OR-Tools.
    """
    least = least_bytes(view)
    if view.peak <= least:
        return Packing(view.peak, view.peak, view.peak)
    cp_model = _solver()
    model, word = cp_model.CpModel(), view.chip.eu_bytes
    top = ceil_div(view.peak, word)
    start = {a.name: model.new_int_var(0, top - ceil_div(a.size, word), a.name) for a in view.areas}
    blocks = {
        a.name: model.new_fixed_size_interval_var(start[a.name], ceil_div(a.size, word), a.name) for a in view.areas
    }
    for alive in _rows(view):
        model.add_no_overlap([blocks[area.name] for area in alive])
    for area in view.areas:
        if area.in_place_of:
            model.add(start[area.name] == start[area.in_place_of])
        model.add_hint(start[area.name], area.address // word)
    peak = model.new_int_var(least, view.peak, "peak")
    model.add_max_equality(peak, [word * start[area.name] + area.size for area in view.areas])
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Packing(view.peak, view.peak, least)
    return Packing(view.peak, round(solver.objective_value), max(least, ceil(solver.best_objective_bound - 1e-6)))


def _solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise extra_required("exact packing", "OR-Tools", "exact", error) from error
    return cp_model


def _rows(view: GroupView) -> list[list[Area]]:
    """Areas that must not overlap, by row; of two that share bytes the larger. No row is contained in another."""
    found = set[frozenset[str]]()
    named = {area.name: area for area in view.areas}
    for row in range(len(view.rows)):
        alive = {area.name for area in view.areas if row in area.rows and area.size}
        for area in [named[name] for name in alive]:
            if area.in_place_of in alive:
                alive.discard(min(area, named[area.in_place_of], key=lambda a: a.size).name)
        found.add(frozenset(alive))
    apart = [alive for alive in found if not any(alive < other for other in found)]
    return [[area for area in view.areas if area.name in alive] for alive in apart]


def _stacked(sizes: Sequence[int], word: int) -> int:
    """Bytes of stacked areas, each starting at a whole word; the area with the largest gap after it comes last."""
    spare = max((align(size, word) - size for size in sizes), default=0)
    return sum(align(size, word) for size in sizes) - spare
