"""Rewrite patterns as data: MLIR's dialect `pdl`, from files or drawn in Python, run by an automaton.

xDSL translates all patterns into one automaton in the dialect `pdl_interp`, which tests each property of an op once
for all patterns. `compiling` calls xDSL and gives the automaton as `rows`; `automaton` executes them by their
`meanings`. xDSL's interpreter applies every match instead of the best one, lacks switches over counts, and takes a
third of a second to import. `drawing` is the Python form that writes PDL; `patterns` has the classes that the driver
applies, `constraints` what patterns may ask, `picture` a pattern as text. Neither `pdl` nor `pdl_interp` is imported
unless a pattern is compiled.
"""

from tpusim.ir.pdl.constraints import chip, element_type, one_use, reads_weights, shape
from tpusim.ir.pdl.drawing import Drawing, Node, Value
from tpusim.ir.pdl.patterns import DataPattern, load, read_patterns, rows_of

__all__ = [
    "DataPattern", "Drawing", "Node", "Value", "chip", "element_type", "load", "one_use", "read_patterns",
    "reads_weights", "rows_of", "shape",
]  # fmt: skip
