"""A run: what it is asked for, its stages in order, what each leaves on disk, and what is measured along the way.

`pipeline` has the stages, `artefacts` what they are asked for and make, `persistence` and `store` the folder of a run,
`network` a network in whatever form a user gives it.
"""
