"""TPU-MLIR's own tools, where a user has them: its code generator makes a file for boards of a final module of ours.

The tools are never needed: a user names the folder of a Python environment that has them. `tools` runs them, `road`
takes a final module through the generator and the simulator of the chip.
"""
