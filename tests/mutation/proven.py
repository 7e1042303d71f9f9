"""Which mutants a proof over a finite field exposes: `python -m mutation.proven` (`make proof-study`).

Every class that changes places or values, without any check of structure. A mutant that the proof lets pass must give
the values of the right program for several inputs; else it is missed, and the study fails.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from compiling import to_addressed, to_program, to_reordered
from networks import random_network, random_tokens

from mutation.corpus import Subject
from mutation.mutant import Mutant
from mutation.mutators_place import PLACE
from mutation.mutators_value import VALUE
from mutation.study import mutants
from tpusim.errors import TpusimError
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.proof import prove
from tpusim.simulator import Simulator, SimulatorOptions

CHIPS = ("bm1684x", "bm1684", "cv183x", "bm1688", "bm1690")
ONE_SEED = 10.0
"""Bits of one seed."""


@dataclass(frozen=True)
class Proven:
    """A right program and its module."""

    name: str
    model: Model
    program: Program


def right_programs(count: int) -> Iterator[Proven]:
    """Random networks, the chips in turn; every fifth has matrix products."""
    for seed in range(count):
        chip = CHIPS[seed % len(CHIPS)]
        net = random_tokens(seed, (2, 10, 12)) if seed % 5 == 0 else random_network(seed)  # noqa: PLR2004
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tpu = to_reordered(net.top(), chip, "int8")
        opt = ("2", "1", "off")[seed % 3]
        model = to_addressed(tpu, opt)
        yield Proven(f"{seed} {chip} {opt}", model, to_program(model))


def outputs(program: Program, seed: int) -> dict[str, bytes]:
    """The stored tensors for random inputs, most of them out of the range of calibration."""
    machine, rng = Simulator(program, options=SimulatorOptions(sanitize=False)), np.random.default_rng(seed)
    feeds = {e.name: rng.uniform(-3, 3, e.shape or e.view.shape).astype(np.float32) for e in program.inputs}
    with np.errstate(all="ignore"):
        return {name: array.tobytes() for name, array in machine.run(feeds).tensors.items()}


def verdict(right: Proven, mutant: Mutant) -> str:
    """refused: no command of the chip; exposed: another expression; equal: the same values; missed: other values."""
    try:
        machine = Simulator(mutant.program, options=SimulatorOptions(sanitize=False))
        if not prove(right.model, machine, wanted=ONE_SEED, explain=False).passed:
            return "exposed"
        same = all(outputs(right.program, seed) == outputs(mutant.program, seed) for seed in range(3))
    except TpusimError:
        return "refused"
    return "equal" if same else "missed"


def study(count: int, each: int) -> dict[str, Counter[str]]:
    """Class -> verdicts. Raises AssertionError for a right program that is not proven."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for right in right_programs(count):
        proof = prove(right.model, Simulator(right.program))
        assert proof.passed, f"{right.name}: {proof.wrong} {proof.declared}"
        for mutant in mutants(Subject(right.name, right.program, ()), each, 1, (*PLACE, *VALUE)):
            said = verdict(right, mutant)
            found[mutant.kind][said] += 1
            if said == "missed":
                sys.stderr.write(f"missed: {right.name} {mutant.kind}: {mutant.note}\n")
    return found


def main() -> None:
    """Print the verdicts of every class; fail if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--each", type=int, default=4)
    options = parser.parse_args()
    found = study(options.programs, options.each)
    kinds = ("exposed", "refused", "equal", "missed")
    lines = [f"| {name} | {' | '.join(str(found[name][kind]) for kind in kinds)} |" for name in sorted(found)]
    total = sum(found.values(), Counter[str]())
    lines.append(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    sys.stdout.write("\n".join([f"| class | {' | '.join(kinds)} |", "|---|---:|---:|---:|---:|", *lines]) + "\n")
    if total["missed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
