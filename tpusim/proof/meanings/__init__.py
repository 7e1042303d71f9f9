"""What tpu ops compute over a finite field, independently of their commands.

One function for each op: of the op, its operands and the field, to its first result; None if this form of the op states
none. The registry's `FIELD_OPS` has them by the op's name. Operands are elements in the operands' shapes, constants as
the chip stores them, None for an absent operand. The formulas are those of docs/spec/numerics.md; where the chip's
commands use an equal one in other steps, such as a saturation after the zero point, the meaning has these steps.
"""
