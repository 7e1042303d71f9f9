"""Code generation: an addressed tpu module -> a program of TIU and GDMA commands (codegen.md, layer_group.md 15).

Input: state TPU_ADDRESSED, read from the module alone (it may come from a text file). Output: `isa.stream.Program`.
Groups run as their schedule says (`group`, over the loop of `tpusim.schedule`), global layers become global kernels
(`layer`); `emitter` gives ids and dependencies: inside a row both engines wait for the row's start only, elsewhere the
order is serial (DC-08).
The op's `emit` says which commands it needs; this stage supplies views and order and names no op.
"""

from tpusim.codegen.program import generate

__all__ = ["generate"]
