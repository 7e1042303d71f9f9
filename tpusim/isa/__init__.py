"""The contract between code generation and the machine.

`region`: which bytes a command touches (views of LMEM and GMEM). `layout`: the stride formulas of every layout.
`commands`: the TIU, GDMA and global-kernel commands, a file each with fields, operands, rules and cycles. `functions`:
the macro functions, in the same form. `check`: the rules of all commands (one function is one rule). `steps` and
`transfers`: the parts of cycles and transfer times. `cycles`: how long a command takes on a chip. `stream`: the
program (command streams with ids and dependencies, coefficients, the tensor table) and its file form.

Invariants: a command is frozen data; its reads() and writes() name every byte it touches; nothing else connects codegen
and simulator. This package knows no op of the IR. Sources: docs/spec/codegen.md 2 to 4, docs/spec/hardware.md 2 and 4.
"""
