"""The step debugger: a program on the machine, executed command by command, forwards and backwards.

Input: a `Program`, network inputs, and the tensors of flat inference if commands are to be checked as they run. It
returns objects and prints nothing: every answer has a readable `repr` (notebooks); `tpusim debug` is a prompt over
the same calls.

Invariants: it executes what `Simulator.run` executes, in the same order, on the same memories; an ordinary run does
not depend on it and is no slower. Going back restores the bytes that commands overwrote (`history`).
"""

from tpusim.simulator.debugger.accesses import Access, ByteRange
from tpusim.simulator.debugger.breakpoints import Breakpoint
from tpusim.simulator.debugger.debugger import Debugger
from tpusim.simulator.debugger.execution import Stop, Verdict
from tpusim.simulator.debugger.inputs import random_inputs
from tpusim.simulator.debugger.memory_contents import Bytes, Operand, Slice, Stored
from tpusim.simulator.debugger.state import Place, Queue

__all__ = [
    "Access",
    "Breakpoint",
    "ByteRange",
    "Bytes",
    "Debugger",
    "Operand",
    "Place",
    "Queue",
    "Slice",
    "Stop",
    "Stored",
    "Verdict",
    "random_inputs",
]
