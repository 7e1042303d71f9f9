"""Random right programs: every chip, mode and number of cores, drawn groups or searched ones, all refinements.

`python -m right_programs --count 2000` (`make right-programs`) asks of each: the machine finds nothing, the program is
proven equal to its module, every order of the queues gives the same bits, and local memory holds what flat inference
computes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

import jax
import numpy as np
from compiling import to_addressed, to_program, to_reordered
from networks import Network, random_network, random_tokens, randomly_grouped
from tpusim_kernels import store

from tpusim import chips
from tpusim.errors import TpusimError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.proof import prove
from tpusim.running.agreement import compare_local
from tpusim.simulator import Simulator

MOST_COMMANDS = 400
"""Of a drawn program: sections are drawn again until it has no more."""
NETWORKS = 60
"""The number of image networks; groups, chips and modes are drawn for each of them."""
KEPT = 200
"""Programs after which compiled kernels are dropped: each is a dozen mappings of memory, of which there are 65,530."""
CHIPS = ("bm1684x", "bm1690", "bm1684", "bm1688", "cv183x", "bm1690", "cv186x", "bm1688", "cv181x", "bm1690", "cv182x")
"""Those with several cores more often, so that a third of the programs has some."""


@dataclass(frozen=True)
class Right:
    """A right program, what it was made of, with addresses in `final`, and its input."""

    name: str
    program: Program
    final: Model
    tpu: Model
    feeds: dict[str, np.ndarray]


def volumes(seed: int) -> Network:
    """A small network of volumes."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    x = net.input((1, 3, 4, 6, 8))
    for _ in range(3):
        x = net.conv3d(x, int(rng.choice([4, 10]))) if rng.integers(2) else net.pool3d(x)
    return net


def _network(seed: int, chip: str, rng: np.random.Generator) -> tuple[str, Network]:
    kinds: list[tuple[str, Callable[[], Network]]] = [
        ("images", lambda: random_network(seed % NETWORKS, int(rng.choice([3, 6, 9])), int(rng.choice([1, 1, 4])))),
        ("volumes", lambda: volumes(seed % 20)),
        ("tokens", lambda: random_tokens(seed % 20, (2, 10, 12))),
    ]
    if chips.load(chip).hardware.batch_packing or chips.load(chip).hardware.bf16_unit:
        kinds = kinds[:1]
    name, make = kinds[int(rng.choice(len(kinds), p=[0.6, 0.2, 0.2][: len(kinds)] if len(kinds) > 1 else None))]
    return name, make()


def drawn(seed: int) -> Right:
    """The right program of this number."""
    rng = np.random.default_rng([seed, 77])
    name = CHIPS[seed % len(CHIPS)]
    chip = chips.load("cv180x" if name == "cv182x" and seed // len(CHIPS) % 2 else name)
    mode = str(rng.choice(["int8", "int8", *chip.modes]))
    asymmetric = mode == "int8" and chip.hardware.asymmetric and bool(rng.integers(3) == 0)
    what, net = _network(seed, chip.name, rng)
    net.below = 0.6 if asymmetric else 1.0
    config = LoweringConfig(chip.name, mode, asymmetric=asymmetric)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tpu = to_reordered(net.top(), config)
    cores = int(rng.choice([1, chip.cores, chip.cores])) if chip.cores > 1 else 1
    how, final, program = _program(tpu, cores, rng)
    name = f"{seed}: {what} {chip.name} {mode}{' asymmetric' * asymmetric} {cores} cores, {how}"
    return Right(name, program, final, tpu, net.feeds(seed))


def _program(tpu: Model, cores: int, rng: np.random.Generator) -> tuple[str, Model, Program]:
    """Drawn groups and sections, or those that a search finds, with some of the refinements."""
    if rng.integers(2):
        for _ in range(20):
            final = to_addressed(randomly_grouped(tpu, rng)[0])
            program = to_program(final, share=cores)
            if len(program.commands) <= MOST_COMMANDS * cores:
                return "drawn", final, program
    flags = [bool(flag) for flag in rng.integers(2, size=4)]
    names = ("timestep_moves", "in_place", "group_overlap", "timestep_combine")
    opt, secs = str(rng.choice(["1", "2", "off"])), str(rng.integers(2))
    config = LayerGroupConfig(
        **dict(zip(names, flags, strict=True)), opt=opt, shape_secs_search_strategy=secs, cores=cores  # type: ignore[arg-type]
    )  # fmt: skip
    final = to_addressed(tpu, config)
    return f"searched {opt}", final, to_program(final, share=cores)


def wrong(right: Right, orders: int, *, flat: bool) -> str:
    """The findings in a correct program, empty without any; orders: random ones in addition to early and late."""
    try:
        machine = Simulator(right.program)
        feeds = {e.name: np.asarray(right.feeds[e.name]).reshape(e.shape or e.view.shape) for e in right.program.inputs}
        found = machine.run(feeds, watch=True).tensors
        tried = {tuple(machine.order)}
        for number in range(-1, orders):
            other = machine.reordered("late" if number < 0 else "random", max(number, 0))
            if tuple(other.order) in tried:  # the same commands in the same order
                continue
            tried.add(tuple(other.order))
            again = other.run(feeds, watch=True).tensors
            if {n: a.tobytes() for n, a in found.items()} != {n: a.tobytes() for n, a in again.items()}:
                return f"order {other.options.dma} {other.options.seed} gives other bits"
    except TpusimError as error:
        return str(error)
    if not flat:
        return ""
    result = compare_local(right.tpu, feeds, found, run(right.tpu, feeds))
    return "; ".join(f"{t.name}: {t.note}" for t in result.tensors if not t.passed)


def unproven(right: Right) -> str:
    """What structure, or the proof that the program computes its module, finds wrong; empty: nothing."""
    try:
        proof = prove(right.final, Simulator(right.program))
    except TpusimError as error:
        return str(error)
    if proof.passed and not proof.unjudged:
        return ""
    return f"{proof.wrong or ''} {proof.declared} {dict(proof.unjudged)}"


def compile_quickly() -> None:
    """Thousands of kernels run a few times each: most time is XLA's. They give the same bits however they are compiled.

    None is kept on disk, where those of users are.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    store.use(None)


def main(arguments: list[str]) -> int:
    """Try `--count` programs from `--first` on; 1 if something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("count", 2000), ("first", 0), ("orders", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--static", action="store_true", help="only ask whether the machine accepts and proves them")
    given = parser.parse_args(arguments)
    compile_quickly()
    failed, seen = 0, Counter[str]()
    # neighbours share a network, so that kernels compiled for one serve the next
    seeds = sorted(range(given.first, given.first + given.count), key=lambda seed: seed % NETWORKS)
    for number, seed in enumerate(seeds, start=1):
        if number % KEPT == 0:
            sys.stderr.write(f"{number}: {failed} with findings, {process_time():.0f} s of CPU\n")
            jax.clear_caches()
        try:
            right = drawn(seed)
        except UnsupportedError:
            seen["unsupported"] += 1
            continue
        seen[right.program.header.chip] += 1
        seen["several cores"] += any(c.core for c in right.program.commands)
        found = unproven(right)
        if not found and not given.static:
            found = wrong(right, given.orders, flat=True)
        failed += bool(found)
        if found:
            sys.stdout.write(f"{right.name}: {found}\n")
    sys.stdout.write(f"{given.count} programs, {failed} with findings; {dict(seen)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
