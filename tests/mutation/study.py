"""Make mutants of one program and settle each: caught, proven equivalent, or missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mutation.corpus import Subject
from mutation.judge import Judge, Verdict
from mutation.mutant import Mutant, Mutator
from mutation.mutators_claim import CLAIM
from mutation.mutators_order import ORDER
from mutation.mutators_place import PLACE
from mutation.mutators_value import VALUE
from mutation.proofs import CONSTANT, proof

MUTATORS: tuple[Mutator, ...] = (*ORDER, *PLACE, *VALUE, *CLAIM)
"""Every class."""

DEPENDENCIES = ("drop_dependency", "weaken_dependency")
"""Classes that must be found by the race detector, whatever the values are."""


def mutants(subject: Subject, each: int, seed: int, mutators: Sequence[Mutator] = MUTATORS) -> Iterator[Mutant]:
    """Up to `each` different mutants of every class."""
    for number, mutator in enumerate(mutators):
        rng = np.random.default_rng([seed, number])
        seen: set[str] = set()
        for _ in range(3 * each):
            mutant = mutator(subject.program, rng)
            if mutant is not None and mutant.note not in seen and len(seen) < each:
                seen.add(mutant.note)
                yield mutant


def settle(judge: Judge, mutant: Mutant) -> Verdict:
    """The checks; a mutant they let pass is proven equivalent, or shown wrong with its operands fed directly."""
    with np.errstate(all="ignore"):  # wrong addresses give floats that are no numbers
        verdict = judge.judge(mutant)
        if not verdict.first:
            verdict.proof = proof(judge, mutant)
            if not verdict.proof:
                verdict.fed = verdict.value = judge.cut(mutant, CONSTANT)
    return verdict


def missed(verdict: Verdict) -> bool:
    """Whether nobody catches a mutant that is not proven equivalent, or a race is found by luck only."""
    if verdict.proof:
        return False
    if verdict.mutant.kind in DEPENDENCIES:
        return verdict.part != "races"
    return not verdict.first
