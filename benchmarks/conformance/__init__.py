"""Is every bit as in TPU-MLIR itself? Compiles networks with both, compares stage by stage, writes docs/conformance.md.

`make conformance` (python -m benchmarks.conformance) needs an outside environment with TPU-MLIR's command-line tools,
named by TPUSIM_UPSTREAM; what they print is kept in out/conformance, addressed by what went in, so that an interrupted
run continues. `upstream` runs the tools, `ours` does the same with tpusim, `text` reads the modules of both, `pairing`
says which op is which, `compare` counts, `explained` holds the differences whose reason is known, `page` writes.
`record` (make upstream-data) writes what upstream computed for our small networks as data of tests/test_upstream.py.
"""
