"""Stage 9, the local-memory machine: command streams -> tensors and a timeline.

Input: a `Program` of `tpusim.isa` (two command queues per core, coefficients, tensor table) and inputs by name.
Output: `SimulationResult`: every tensor stored in global memory, captured when it is complete, and the `Timeline`.

Invariants: tensors exist only as commands' views of bytes (`memory`); nothing is passed around behind the memory's
back. Commands execute in NumPy (`handlers`: a function for each), integers exactly, written independently of the JAX
kernels so that agreement between the two means something. What depends on no value is checked once, before the first
run (`sanitizer`): bounds, write protection, legality (`tpusim.isa.check`), uninitialised reads, deadlock, and accesses
of two queues that nothing orders in some legal timing (`races`, by the vector clocks of `happens`). Early and late DMA
and every random order (`schedule`) give the same bits. The clock (`timing`) is separate from the values; its formulas
are `tpusim.isa.cycles`, by which layer groups are chosen too; `summary` says what holds a program up, `roofline` what
would change that, `trace` shows it in Perfetto. Given the tensors of flat inference, `checked` names the first command
that produced another value; the `debugger` goes through a program command by command.

It must not import ops, kernels or code generation, nor look at op semantics: a command says all there is to know.
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
