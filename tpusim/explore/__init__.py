"""Spaces of designs: what networks cost on other chips, in other precisions, cut differently, with other figures.

Input: a `Space`: models and what is to be varied. Output: one `Row` per point of the product, and the points that no
other one beats (`front`). A point is compiled by the pipeline's own stages and costed by its clock; it is computed once
and kept in the output folder under a hash of all that it depends on, so that a killed exploration continues and
gives the same results. A point that cannot be compiled is a row with its error.
It decides nothing about a network: what a chip can do and what a stage makes is known further down.
"""

from tpusim.explore.front import (
    DEFAULT_FRONT,
    MEASURES,
    Bound,
    best_under,
    comparable,
    front,
    parse_bounds,
    parse_measures,
)
from tpusim.explore.results import read_rows, write_results
from tpusim.explore.row import Row
from tpusim.explore.run import Exploration, explore
from tpusim.explore.space import Point, Space, parse_setting, require_energies

__all__ = [
    "DEFAULT_FRONT", "MEASURES", "Bound", "Exploration", "Point", "Row", "Space", "best_under", "comparable", "explore",
    "front", "parse_bounds", "parse_measures", "parse_setting", "read_rows",
    "require_energies", "write_results",
]  # fmt: skip
