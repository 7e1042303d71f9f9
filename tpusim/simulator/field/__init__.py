"""The machine over a finite field: the same commands on the same memories, with elements instead of bytes.

`FieldMachine` is a memory of the machine in which every byte has a field element in place of its value: views, layouts,
lanes, regions and the order of the commands are the machine's. What a command means for elements is one function for
each class of commands, in the registry's `FIELD_HANDLERS` (and `FIELD_MEANINGS` for macro functions), as `HANDLERS`
are for bytes. A command or function without one is not judged (`NotJudged`), and is named in the report of a proof.

`moves` has copies, `windows` convolutions and pools, `tiu` the other commands, `functions` the macro functions.
"""

from tpusim.simulator.field.memory import FieldMachine, NotJudged

__all__ = ["FieldMachine", "NotJudged"]
