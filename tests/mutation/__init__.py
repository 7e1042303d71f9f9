"""Faults on purpose: wrong streams made from right ones, and which check of the machine catches each (`make mutation`).

`corpus` compiles the right programs, `mutators_order`, `mutators_place` and `mutators_value` change one thing in one,
`judge` asks legality, sanitizer and value check about the result, `proofs` shows that a mutant nobody catches computes
the same as the original for every input and timing. `table` runs it all and writes docs/mutation.md. A mutant that is
neither caught nor proven equivalent is a failure.
"""
