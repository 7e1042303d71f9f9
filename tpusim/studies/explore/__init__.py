"""Design spaces: the cost of networks on other chips, in other precisions, cut differently, with other chip figures.

Input: a `Space`: models and the varied options. Output: one `Row` per point of the product, and the Pareto front
(`front`). A point is compiled by the pipeline's stages and costed by its clock. It is computed once and kept in the
output folder under a hash of everything that it depends on, so that a killed exploration continues and gives the same
results. A point that cannot be compiled is a row with its error. This package makes no decision about a network; chips
and stages do.
"""

from tpusim.studies.explore.front import (
    DEFAULT_FRONT,
    MEASURES,
    Bound,
    best_under,
    comparable,
    front,
    parse_bounds,
    parse_measures,
    recommended,
)
from tpusim.studies.explore.results import read_rows, write_results
from tpusim.studies.explore.row import Row
from tpusim.studies.explore.run import Exploration, explore
from tpusim.studies.explore.space import Point, Space, parse_setting, require_energies

__all__ = [
    "DEFAULT_FRONT", "MEASURES", "Bound", "Exploration", "Point", "Row", "Space", "best_under", "comparable", "explore",
    "front", "parse_bounds", "parse_measures", "parse_setting", "read_rows", "recommended",
    "require_energies", "write_results",
]  # fmt: skip
