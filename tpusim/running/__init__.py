"""A run: its options, its stages in order, the files of each stage, and the measurements.

`pipeline` has the stages, `artefacts` their options and results, `persistence` and `store` the folder of a run,
`network` a network in any form that a user may give.
"""
