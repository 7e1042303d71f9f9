"""The right programs that mutants are made of, and the inputs they are tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from compiling import to_program
from networks import cached_lowered, cached_network, random_tokens, randomly_grouped, reordered
from right_programs import drawn

from mutation.judge import Feeds
from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.ir.module import Model
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Program, load
from tpusim.lowering import LoweringConfig
from tpusim.running.pipeline import RunConfig, run

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@dataclass(frozen=True)
class Subject:
    """A right program and its inputs."""

    name: str
    program: Program
    feeds: tuple[Feeds, ...]


def inputs(program: Program, base: Feeds, count: int, seed: int = 0) -> tuple[Feeds, ...]:
    """base, then extremes of its range and noise between them: strong and weak signals in every channel."""
    rng = np.random.default_rng(seed)

    def other(name: str, kind: int) -> np.ndarray:
        array = base[name]
        if array.dtype.kind in "iu":
            low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        else:
            low, high = float(array.min()), float(array.max())
        if kind == 0:  # signs
            values = np.where(rng.integers(2, size=array.shape) > 0, high, low)
        elif kind == 1:  # one value per channel, strong
            values = np.broadcast_to(rng.uniform(low, high, (*array.shape[:2], *(1,) * (array.ndim - 2))), array.shape)
        elif kind == 2:  # noise
            values = rng.uniform(low, high, array.shape)
        elif kind == 3:  # beyond the range of calibration
            values = rng.standard_normal(array.shape) * 2 * max(abs(low), abs(high))
        else:  # sparse
            values = np.where(rng.integers(8, size=array.shape) == 0, rng.uniform(low, high, array.shape), 0)
        if array.dtype.kind in "iu":
            values = np.clip(np.rint(values), np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
        return values.astype(array.dtype)

    made = [{name: other(name, kind % 5) for name in base} for kind in range(count - 1)]
    return (base, *made)


def _in_program(program: Program, feeds: Feeds) -> Feeds:
    """Feeds in the stored dtype and shape."""
    found: Feeds = {}
    for entry in program.inputs:
        dtype = numpy_dtype(entry.view.dtype)
        array = np.asarray(feeds[entry.name]).reshape(entry.shape or entry.view.shape)
        found[entry.name] = array.astype(dtype)
    return found


MOST_COMMANDS = 130
"""Of a random network: the sections are drawn again until it has no more, as every mutant is checked as a whole."""


def _grouped(model: Model, seed: int) -> Program:
    rng = np.random.default_rng(seed + 7)
    while True:
        program = to_program(randomly_grouped(model, rng)[0])
        if len(program.commands) <= MOST_COMMANDS:
            return program


def random_subject(seed: int, chip: str, count: int = 4) -> Subject:
    """A random network in random groups."""
    program = _grouped(cached_lowered(seed, chip)[0], seed)
    base = _in_program(program, cached_network(seed).feeds())
    return Subject(f"random {seed} {chip}", program, inputs(program, base, count, seed))


def token_subject(seed: int, chip: str, count: int = 4) -> Subject:
    """A random network of matrix products and functions."""
    net = random_tokens(seed, (2, 10, 12))
    program = _grouped(reordered(net.top(), chip), seed)
    return Subject(f"tokens {seed} {chip}", program, inputs(program, _in_program(program, net.feeds()), count, seed))


def compiled(model: Path, chip: str, out: Path, data: str, base: Feeds | None, count: int) -> Subject:
    """A network by the whole pipeline, INT8; data: what it is calibrated on."""
    run(
        RunConfig(
            model=model,
            lowering=LoweringConfig(chip),
            data=data,
            calibration=CalibrationConfig(max_samples=8),
            out=out,
            to="codegen",
        )
    )
    program = load(out / "7_model.tpusim")
    if base is None:
        rng = np.random.default_rng(3)
        base = {e.name: rng.uniform(-1, 1, e.shape or e.view.shape).astype(np.float32) for e in program.inputs}
    feeds = _in_program(program, base)
    return Subject(f"{model.stem} {chip}", program, inputs(program, feeds, count))


def digits_subject(chip: str, folder: Path, count: int = 4) -> Subject:
    """The digits network."""
    with np.load(DIGITS / "test.npz") as data:
        image = data["image"][:1]
    return compiled(
        DIGITS / "digits.onnx",
        chip,
        folder / f"digits_{chip}",
        str(DIGITS / "calibration.npz"),
        {"image": image},
        count,
    )


def squeezenet_subject(chip: str, folder: Path, count: int = 3) -> Subject:
    """SqueezeNet with seeded weights."""
    path = folder / "squeezenet.onnx"
    if not path.exists():
        zoo.save("squeezenet", path)
    return compiled(path, chip, folder / f"squeezenet_{chip}", "random:2", None, count)


Make = Callable[[Path], Subject]
"""Compiles a subject; what it writes goes to a folder."""


def _random(seed: int, chip: str) -> Make:
    return lambda folder: random_subject(seed, chip)


def _tokens(seed: int) -> Make:
    return lambda folder: token_subject(seed, "bm1684x")


def _digits(chip: str) -> Make:
    return lambda folder: digits_subject(chip, folder)


def drawn_subject(seed: int, count: int = 3) -> Subject:
    """A program of `right_programs`: any chip, mode and number of cores, drawn or searched groups."""
    right = drawn(seed)
    base = _in_program(right.program, right.feeds)
    return Subject(right.name, right.program, inputs(right.program, base, count, seed))


def _drawn(seed: int) -> Make:
    return lambda folder: drawn_subject(seed)


SMALL: tuple[Make, ...] = (_random(1, "bm1684x"), _random(3, "bm1684"), _tokens(1), _drawn(25))
"""What the default tests try: networks whose kernels other tests compile too, and one on two cores."""

DIGITS_CHIPS = ("bm1684x", "bm1684", "cv183x", "bm1688", "cv180x")

SEVERAL = (1, 3, 5, 7, 9, 12, 14, 16, 23, 25, 31, 36, 38, 45)
"""Numbers of drawn programs that run on 2 or 8 cores."""
DRAWN = (*SEVERAL, 0, 2, 4, 6, 8, 10, 13, 17, 19, 27, 42)

FULL: tuple[Make, ...] = (
    lambda folder: squeezenet_subject("bm1684x", folder),
    *(_digits(chip) for chip in DIGITS_CHIPS),
    *(_random(seed, chip) for seed in (0, 1, 2, 3) for chip in ("bm1684x", "bm1684")),
    *(_tokens(seed) for seed in (1, 2, 3)),
    *(_drawn(seed) for seed in DRAWN),
)
"""What docs/mutation.md is made of."""
