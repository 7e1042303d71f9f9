"""Rewritings of modules of any dialect, by the traits and effects of their ops; they know no op.

`cse`, `dce`, `symbols`, `inlining`, `constants` (folding and sccp) and `simplify` (canonicalisation) are functions of
an op or a region, which they change in place. What is done inside one isolated op never depends on another, so
`tpusim.passes.generic` can run them for several functions at a time. xDSL has the traits, folders and patterns of its
dialects; `arith` and `control` add those of MLIR that it does not have. Results equal those of `mlir-opt` 22.
"""
