"""The op sequences that exporters write for each layer: one row each, in several forms.

`table` says what a row is; the other files have the rows.
"""

from benchmarks.conformance.fuzz.idioms import activations, attention, norms, others, vision
from benchmarks.conformance.fuzz.idioms.table import Row

ROWS: tuple[Row, ...] = (*activations.ROWS, *norms.ROWS, *attention.ROWS, *vision.ROWS, *others.ROWS)
"""All rows."""
