"""Proof that a program computes what its module says, for all inputs.

Input: an addressed module with its weights, and a program. Both are interpreted over a finite field (`tpusim.field`):
the module op by op (`flat`), the program on the machine's memories in its order (`simulator.field`). Every slice, store
and tensor must be the same element on both sides. Output: a `Proof`, or in it the first command that computes another
expression, with the element, what was expected and what was found.

An op's meaning is the registry's in `FIELD_OPS` (`meanings`), or else that of its commands on whole tensors (`uncut`).
What is not known as an expression is not judged: it is named, with the tensors that depend on it.
"""

from tpusim.proof.prove import Proof, Prover, prove

__all__ = ["Proof", "Prover", "prove"]
