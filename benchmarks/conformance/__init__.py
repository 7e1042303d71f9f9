"""Is every bit as in TPU-MLIR? Compiles networks with both, compares stage by stage, writes docs/conformance.md.

`make conformance` (python -m benchmarks.conformance) needs an outside environment with TPU-MLIR's command-line tools,
named by TPUSIM_UPSTREAM; their output is kept in out/conformance under a hash of the input, so that an interrupted run
continues. `upstream` runs the tools, `ours` does the same with tpusim, `text` reads the modules of both, `pairing`
pairs ops, `compare` counts differences, `explained` has the differences whose reason is known, `page` writes the page.
`record` (make upstream-data) writes upstream's results for our small networks as data of tests/test_upstream.py.
"""
