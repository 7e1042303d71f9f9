"""`tpusim debug`: a prompt over `tpusim.simulator.debugger`, for a terminal or a pipe.

A line is a command; its answer is text of at most 100 columns, an error is a message. `base` reads and prints,
`breakpoints` and `inspection` have the commands for breakpoints and for memory, `prompt` adds motion and help, `syntax`
parses lines.
"""
