"""How accurate is each network on each chip in each mode? Measures, keeps the results, writes docs/accuracy.md.

`make accuracy` (python -m benchmarks.accuracy) measures what results.json does not have yet and writes the file after
every cell, so that an interrupted run continues; then it writes the page from the results. `measure` computes the
common part of a network's cells once; `published` has upstream's tolerances; `page` turns results into Markdown.
"""
