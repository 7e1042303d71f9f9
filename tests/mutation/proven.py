"""Which mutants a proof over a finite field exposes: `python -m mutation.proven` (`make proof-study`).

Every class that changes places or values of random right programs of all chips, modes and cores, without any check of
structure. A mutant that the proof lets pass must give
the values of the right program for several inputs; else it is missed, and the study fails.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

import numpy as np
from right_programs import Right, compile_quickly, drawn

from mutation.corpus import Subject
from mutation.mutant import Mutant
from mutation.mutators_place import PLACE
from mutation.mutators_value import VALUE
from mutation.study import mutants
from tpusim.errors import TpusimError
from tpusim.isa.stream import Program
from tpusim.proof import prove
from tpusim.simulator import Simulator, SimulatorOptions

ONE_SEED = 10.0
"""Bits of one seed."""


def outputs(program: Program, seed: int) -> dict[str, bytes]:
    """The stored tensors for random inputs, most of them out of the range of calibration."""
    machine, rng = Simulator(program, options=SimulatorOptions(sanitize=False)), np.random.default_rng(seed)
    feeds = {e.name: rng.uniform(-3, 3, e.shape or e.view.shape).astype(np.float32) for e in program.inputs}
    with np.errstate(all="ignore"):
        return {name: array.tobytes() for name, array in machine.run(feeds).tensors.items()}


def verdict(right: Right, mutant: Mutant) -> str:
    """refused: no command of the chip; exposed: another expression; equal: the same values; missed: other values."""
    try:
        machine = Simulator(mutant.program, options=SimulatorOptions(sanitize=False))
        if not prove(right.final, machine, wanted=ONE_SEED, explain=False).passed:
            return "exposed"
        same = all(outputs(right.program, seed) == outputs(mutant.program, seed) for seed in range(3))
    except TpusimError:
        return "refused"
    return "equal" if same else "missed"


def study(first: int, count: int, each: int) -> dict[str, Counter[str]]:
    """Class -> verdicts. Raises AssertionError for a right program that is not proven."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for right in map(drawn, range(first, first + count)):
        proof = prove(right.final, Simulator(right.program))
        assert proof.passed, f"{right.name}: {proof.wrong} {proof.declared}"
        for mutant in mutants(Subject(right.name, right.program, ()), each, 1, (*PLACE, *VALUE)):
            said = verdict(right, mutant)
            found[mutant.kind][said] += 1
            if said == "missed":
                sys.stderr.write(f"missed: {right.name} {mutant.kind}: {mutant.note}\n")
        sys.stderr.write(f"{right.name}: {sum(sum(kinds.values()) for kinds in found.values()):,} mutants so far\n")
    return found


def main() -> None:
    """Print the verdicts of every class; fail if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 0), ("programs", 100), ("each", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    compile_quickly()
    found = study(options.first, options.programs, options.each)
    kinds = ("exposed", "refused", "equal", "missed")
    lines = [f"| {name} | {' | '.join(str(found[name][kind]) for kind in kinds)} |" for name in sorted(found)]
    total = sum(found.values(), Counter[str]())
    lines.append(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    sys.stdout.write("\n".join([f"| class | {' | '.join(kinds)} |", "|---|---:|---:|---:|---:|", *lines]) + "\n")
    if total["missed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
