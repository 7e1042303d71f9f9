"""Which mutants a proof over a finite field exposes: `python -m mutation.proven` (`make proof-study`).

Every class that changes places or values of random right programs of all chips, modes and cores, without any check of
structure. A mutant that the proof lets pass must give
the values of the right program for several inputs; else it is missed, and the study fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import process_time

import jax
import numpy as np
from right_programs import Right, compile_quickly, drawn

from mutation.corpus import Subject
from mutation.mutant import Mutant
from mutation.mutators_place import PLACE, swapped_inputs
from mutation.mutators_value import VALUE
from mutation.study import mutants
from tpusim.errors import TpusimError
from tpusim.isa.stream import Program
from tpusim.proof import Prover
from tpusim.simulator import Simulator, SimulatorOptions

ONE_SEED = 10.0
"""Bits of one seed."""
DROPPED = 40
"""Programs after which compiled kernels are dropped."""


def outputs(program: Program, seed: int) -> dict[str, bytes]:
    """The stored tensors for random inputs, most of them out of the range of calibration."""
    machine, rng = Simulator(program, options=SimulatorOptions(sanitize=False)), np.random.default_rng(seed)
    feeds = {e.name: rng.uniform(-3, 3, e.shape or e.view.shape).astype(np.float32) for e in program.inputs}
    with np.errstate(all="ignore"):
        return {name: array.tobytes() for name, array in machine.run(feeds).tensors.items()}


def verdict(prover: Prover, wanted: Callable[[int], dict[str, bytes]], mutant: Mutant) -> str:
    """refused: no command of the chip; exposed: another expression; equal: the same values; missed: other values."""
    try:
        machine = Simulator(mutant.program, options=SimulatorOptions(sanitize=False))
        if not prover.prove(machine, wanted=ONE_SEED, explain=False).passed:
            return "exposed"
        same = all(wanted(seed) == outputs(mutant.program, seed) for seed in range(3))
    except TpusimError:
        return "refused"
    return "equal" if same else "missed"


def studied(right: Right, each: int) -> Counter[str]:
    """How many mutants of a program have each "class verdict". Raises AssertionError if it is not proven itself."""
    prover = Prover(right.final)
    proof = prover.prove(Simulator(right.program))
    assert proof.passed, f"{right.name}: {proof.wrong} {proof.declared}"
    wanted, found = cache(partial(outputs, right.program)), Counter[str]()
    for mutant in mutants(Subject(right.name, right.program, ()), each, 1, (*PLACE, *VALUE, swapped_inputs)):
        said = verdict(prover, wanted, mutant)
        found[f"{mutant.kind} {said}"] += 1
        if said == "missed":
            sys.stderr.write(f"missed: {right.name} {mutant.kind}: {mutant.note}\n")
    return found


def study(numbers: range, each: int, kept: Path | None = None) -> Counter[str]:
    """All programs together. kept: a file with a line for each program that was studied; it is not studied again."""
    known = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.exists() else []
    found = {row["number"]: Counter[str](row["mutants"]) for row in known if row["number"] in numbers}
    for number in numbers:
        if number in found:
            continue
        right = drawn(number)
        found[number] = studied(right, each)
        sys.stderr.write(f"{right.name}: {found[number].total()} mutants, {process_time():.0f} s of CPU\n")
        if kept:
            with kept.open("a") as file:
                file.write(json.dumps({"number": number, "program": right.name, "mutants": found[number]}) + "\n")
        if number % DROPPED == DROPPED - 1:
            jax.clear_caches()
    return sum(found.values(), Counter[str]())


def main() -> None:
    """Print the verdicts of every class; fail if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 0), ("programs", 100), ("each", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--kept", type=Path, help="a file of the programs studied so far, to go on after an interruption"
    )
    options = parser.parse_args()
    compile_quickly()
    found = study(range(options.first, options.first + options.programs), options.each, options.kept)
    verdicts = ("exposed", "refused", "equal", "missed")
    kinds = sorted({key.split()[0] for key in found})
    rows = [(kind, [found[f"{kind} {said}"] for said in verdicts]) for kind in kinds]
    rows.append(("all", [sum(counts) for counts in zip(*(counts for _, counts in rows), strict=True)]))
    lines = [f"| {name} | {' | '.join(map(str, counts))} |" for name, counts in rows]
    sys.stdout.write("\n".join([f"| class | {' | '.join(verdicts)} |", "|---|---:|---:|---:|---:|", *lines]) + "\n")
    if rows[-1][1][-1]:
        sys.exit(1)


if __name__ == "__main__":
    main()
