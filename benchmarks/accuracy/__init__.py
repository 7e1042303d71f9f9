"""How accurate is each network on each chip in each mode? Measures, keeps the results, writes docs/accuracy.md.

`make accuracy` (python -m benchmarks.accuracy) measures what results.json does not have yet and writes the file after
every cell, so that an interrupted run continues where it stopped; then it writes the page from the results. `measure`
shares what a network's cells have in common; `published` knows upstream's tolerances; `page` is results in, Markdown
out.
"""
