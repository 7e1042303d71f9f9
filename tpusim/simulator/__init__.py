"""Stage 9, the local-memory machine: command streams -> tensors and a timeline.

Input: a `Program` of `tpusim.isa` (two command queues, coefficients, tensor table) and network inputs by name.
Output: `SimulationResult`: every tensor stored in global memory, captured when it is complete, and the `Timeline`.

Invariants: tensors exist only as commands' views of bytes (`memory`, `blocks`); nothing is passed around behind the
memory's back. Commands execute in NumPy (`tiu`, `conv`, `function`, `gdma`), integers exactly, written independently of
the JAX kernels so that agreement between the two means something. What depends on no value is checked once, before the
first run (`sanitizer`): bounds, write protection, legality (`tpusim.isa.check`), uninitialised reads, deadlock, and
TIU/GDMA accesses that no dependency orders. Early and late DMA (`schedule`) give the same bits. The clock (`timing`,
`cycles`) is separate from the values.

It must not import ops, kernels or code generation, nor look at op semantics: a command says all there is to know.
"""

from tpusim.simulator.run import SimulationResult, Simulator, SimulatorOptions, simulate
from tpusim.simulator.timing import GroupCost, Span, Timeline, timeline, trace

__all__ = [
    "GroupCost",
    "SimulationResult",
    "Simulator",
    "SimulatorOptions",
    "Span",
    "Timeline",
    "simulate",
    "timeline",
    "trace",
]
