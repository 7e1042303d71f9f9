"""Every rounding mode and every table of right programs, planted wrongly: `python -m mutation.arithmetic`.

In each program all commands with a rounding get every other mode, and some entries of every table of a function are one
more. A proof must expose each; one that it lets pass must give the right values, as where nothing is rounded.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, get_args

import numpy as np
from compiling import to_addressed, to_program
from msgspec import structs
from op_cases import BY_ID
from right_programs import Right, compile_quickly, drawn
from rows import lowered

from mutation.mutant import Mutant, changed, sites
from mutation.mutators_value import patched
from mutation.proven import outputs, verdict
from tpusim.errors import TpusimError
from tpusim.isa.commands import FloatLut, Lut, Requant
from tpusim.isa.commands.requant import Rounding
from tpusim.isa.stream import Program
from tpusim.proof import Prover

MODES: tuple[str, ...] = get_args(Rounding)
TABLES = (
    *("sigmoid", "tanh", "gelu", "hardsigmoid", "hardswish", "elu", "mish", "exp", "log", "sqrt", "erf", "silu"),
    *("softmax", "log-softmax", "lstm", "gru", "atanh"),
)
"""Rows of the tests of ops whose commands have tables of functions."""
ENTRIES = 6
"""Of every table, chosen at random."""


def roundings(program: Program) -> Iterator[Mutant]:
    """Every command with a rounding, in every other mode."""
    for site in sites(program):
        command = site[1]
        requant = getattr(command, "requant", None)
        if isinstance(requant, Requant):
            for mode in MODES:
                if mode != requant.rounding:
                    yield changed(program, site, "rounding", requant=structs.replace(requant, rounding=mode))
        for name in ("rounding", "first_rounding"):
            for mode in MODES if isinstance(getattr(command, name, None), str) else ():
                if mode != getattr(command, name):
                    yield changed(program, site, name, **{name: mode})


def tables(program: Program, rng: np.random.Generator) -> Iterator[Mutant]:
    """Some entries of every table of a function are one more."""
    for site in sites(program, Lut, FloatLut):
        command: Any = site[1]
        for view in (command.table, *((command.mantissa,) if isinstance(command, FloatLut) else ())):
            for element in rng.choice(view.elements, ENTRIES, replace=False):
                mutant = patched(program, site, view, int(element), 1, "table")
                if mutant is not None:
                    yield mutant


def rows() -> Iterator[Right]:
    """Programs of one op with tables."""
    for case in (row for row in TABLES if row in BY_ID):
        for chip, mode in (("bm1684x", "int8"), ("bm1684", "int8"), ("cv183x", "int8"), ("cv183x", "bf16")):
            try:
                tpu = lowered(case, chip, mode)[0]
                final = to_addressed(tpu)
                yield Right(f"{case} {chip} {mode}", to_program(final), final, tpu, {})
            except TpusimError:
                continue  # the chip has no such op


def studied(right: Right) -> Counter[str]:
    """How many mutants have each "class verdict"; what is missed is told."""
    prover, wanted, found = Prover(right.final), cache(partial(outputs, right.program)), Counter[str]()
    rng = np.random.default_rng(7)
    for mutant in (*roundings(right.program), *tables(right.program, rng)):
        said = verdict(prover, wanted, mutant)
        found[f"{mutant.kind} {said}"] += 1
        if said == "missed":
            sys.stdout.write(f"missed: {right.name} {mutant.note}\n")
    return found


def main() -> None:
    """Print how many are exposed; fail if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=40, help="random programs, besides those with tables")
    count = parser.parse_args().programs
    compile_quickly()
    found, programs = Counter[str](), 0
    for right in (*rows(), *map(drawn, range(1000, 1000 + count))):
        found += studied(right)
        programs += 1
    sys.stdout.write(f"{programs} programs: {dict(sorted(found.items()))}\n")
    if any(name.endswith("missed") for name in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
