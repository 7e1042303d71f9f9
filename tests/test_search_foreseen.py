"""What the search foresees of sets of float ops: errors that add up, and the cheapest set by them."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS

from tpusim.calibration.table import read_table
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.studies.search import Cosine, Trials
from tpusim.studies.search.errors import LONGEST, Errors, neighbours
from tpusim.studies.search.errors import _vector as vector  # pyright: ignore[reportPrivateUsage]
from tpusim.studies.search.model import Foreseen

TABLE = Path(__file__).resolve().parent / "upstream" / "names" / "digits_search_cali_table"
INT8 = LoweringConfig("bm1684x", "int8")


@cache
def calibrated() -> Model:
    return to_calibrated(to_canonical(import_onnx(DIGITS / "digits.onnx")), read_table(TABLE))


def samples(count: int) -> list[dict[str, np.ndarray]]:
    return [{"image": image[None]} for image in np.load(DIGITS / "calibration.npz")["image"][:count]]


def test_errors_foresee_what_sets_lose() -> None:
    """Of digits: none in float, all but one, and halves; within a factor of 2 where anything is lost."""
    asked = Trials(calibrated(), INT8, samples(2), Cosine(1.0))
    names, rng = list(asked.candidates), np.random.default_rng(0)
    halves = [frozenset(rng.choice(names, len(names) // 2, replace=False).tolist()) for _ in range(4)]
    for floats in (frozenset[str](), *halves):
        real, foreseen = 1 - asked.cosine(floats, 2), asked.errors.loss(set(names) - floats)
        assert real > 1e-6 and real / 2 < foreseen < real * 2, (floats, real, foreseen)
    assert asked.errors.loss(()) == 0
    alone = {name: asked.errors.loss({name}) for name in names}
    assert alone["stem_Relu"] == max(alone.values()) > 10 * alone["mix_Relu"] > 0
    assert asked.errors.loss(names) < 0.9 * sum(alone.values())  # vectors: some of it cancels


def test_errors_are_of_the_samples_that_are_given() -> None:
    tpu = to_tpu(calibrated(), INT8)
    one, other = samples(2)
    both = Errors.of(calibrated(), tpu, [one, other], ["mix_Relu"]).loss({"mix_Relu"})
    alone = [Errors.of(calibrated(), tpu, [sample], ["mix_Relu"]).loss({"mix_Relu"}) for sample in (one, other)]
    assert both == pytest.approx(np.mean(alone)) and alone[0] != alone[1]


def test_long_results_are_folded() -> None:
    """Angles between errors are kept within a few per cent; what lies along the result is no error."""
    rng = np.random.default_rng(1)
    wanted, first, second = rng.standard_normal((3, 200_000)) * [[1], [0.01], [0.01]]
    one, other = vector(wanted + first, wanted), vector(wanted + first + second, wanted)
    assert one.shape == (LONGEST,)
    size = first @ first / (wanted @ wanted)
    assert one @ one == pytest.approx(size, rel=0.1) and one @ other == pytest.approx(size, rel=0.1)
    assert other @ other == pytest.approx(2 * size, rel=0.1)
    assert np.abs(vector(wanted * 2, wanted)).max() < 1e-12


def foreseen(seed: int, count: int, allowed: float) -> tuple[Foreseen, list[str]]:
    """Of a chain of ops with errors and prices drawn."""
    rng = np.random.default_rng(seed)
    names = [f"op{i}" for i in range(count)]
    rows = rng.standard_normal((count, 20)) * 0.01 * rng.uniform(0.1, 3, (count, 1))
    longer = dict(zip(names, rng.uniform(-20, 300, count).tolist(), strict=True))
    prices = {name: longer[name] + 60 for name in names[:3]}
    between = [(one, other, 100) for one, other in zip(names, names[1:], strict=False)]
    return Foreseen(Errors(names, (rows @ rows.T)[None, None]), (), longer, prices, between, allowed), names


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_set_is_near_to_the_best_of_all(seed: int) -> None:
    """It keeps to what is allowed; of all sets of nine ops none is a tenth cheaper than it."""
    model, names = foreseen(seed, 9, 0.002)
    allowed = [
        np.isin(names, chosen)
        for count in range(10)
        for chosen in combinations(names, count)
        if model.loss(frozenset(chosen)) <= model.allowed
    ]
    best, found = min(model.cycles(one) for one in allowed), model.cheapest()
    assert model.loss(found) <= model.allowed < model.loss(frozenset())
    assert best <= model.cycles(np.isin(names, list(found))) <= best + 0.1 * abs(best) + 30


def test_what_was_measured_makes_others_likelier() -> None:
    """A set that lost three times what was foreseen: the next one has more ops in float, for three times as much."""
    model, names = foreseen(0, 9, 0.002)
    first = model.cheapest()
    before = model.loss(first)
    model.learn(first, 3 * before)
    assert model.loss(first) == pytest.approx(3 * before) and len(model.cheapest()) > len(first)
    model.learn(frozenset(names), 0.0)  # nothing foreseen: nothing learnt
    assert model.loss(first) == pytest.approx(3 * before)


def test_tensors_between_ops() -> None:
    model = to_canonical(import_onnx(DIGITS / "digits.onnx"))
    found = list(neighbours(model))
    sizes = {name: array.size for name, array in run(model, samples(1)[0]).items()}
    assert found and all(sizes[producer] == elements for producer, _, elements in found)
    assert {consumer for _, consumer, _ in found} >= {value_name(value) for value in model.results}
