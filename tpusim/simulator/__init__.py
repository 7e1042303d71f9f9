"""Stage 9, the local-memory machine: command streams -> tensors and a timeline.

Input: a `Program` of `tpusim.isa` (two command queues per core, coefficients, tensor table) and inputs by name.
Output: `SimulationResult`: every tensor stored in global memory, captured when it is complete, and the `Timeline`.

Invariants: tensors exist only as commands' views of bytes (`memory`); values pass between commands in no other way.
Commands execute in NumPy (`handlers`: a function for each), integers exactly, written independently of the JAX
kernels so that agreement between the two means something. Checks that depend on no value are made once, before the
first run (`sanitizer`): bounds, write protection, legality (`tpusim.isa.check`), uninitialised reads, deadlock, and
races: accesses of two queues that nothing orders in some legal timing (`races`, by `vector_clocks`). Early and late
DMA and every random order (`schedule`) give the same bits. The clock (`timing`) is separate from the values; its
formulas are those of `tpusim.isa.cycles`, which also decide the layer groups; `summary` says what delays a program,
`roofline` what would change that, `trace` shows it in Perfetto. Given the tensors of flat inference, `checked` names
the first command that produced another value; the `debugger` steps through a program command by command.

It must not import ops, kernels or code generation, nor look at op semantics: a command states everything.
"""

from tpusim.simulator.checked import Checker, Mismatch
from tpusim.simulator.roofline import Place, Roofline, roofline
from tpusim.simulator.run import SimulationResult, Simulator, SimulatorOptions, simulate
from tpusim.simulator.summary import OpWork, Summary, Work, summary
from tpusim.simulator.timing import GroupCost, Span, Timeline, timeline
from tpusim.simulator.trace import trace

__all__ = [
    "Checker",
    "GroupCost",
    "Mismatch",
    "Place",
    "Roofline",
    "SimulationResult",
    "Simulator",
    "SimulatorOptions",
    "Span",
    "Timeline",
    "roofline",
    "simulate",
    "timeline",
    "trace",
    "OpWork",
    "Summary",
    "Work",
    "summary",
]
