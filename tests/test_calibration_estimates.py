"""Thresholds by percentile, least square error and assumed distributions (numerics.md 15.2), on values made by hand.

test_upstream_names.py holds whole tables to the real tool's.
"""

import math
from typing import get_args

import numpy as np
import pytest
from relu_chain import chain

from tpusim.calibration.estimates import Ends, aciq_gauss_threshold, aciq_laplace_threshold, mse_threshold
from tpusim.calibration.stage import METHODS, CalibrationConfig, calibrate
from tpusim.cli.options import Method
from tpusim.errors import ConfigError

RNG = np.random.default_rng(11)


def test_the_command_line_offers_every_method():
    assert get_args(Method) == METHODS


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ConfigError, match="'median' is unknown; the methods are kl, max, percentile9999, mse"):
        calibrate(chain(), [{"x": np.ones((1, 4), np.float32)}], CalibrationConfig("median"))


@pytest.mark.parametrize("sign", [1, -1])
def test_least_square_error(sign: int):
    """No clipping of the square error of rounding (step^2 / 12) and of clipping is better; signed steps are coarser."""
    values = np.abs(RNG.laplace(size=5000)).astype(np.float32)
    values[0] *= sign * 1e-3 if sign > 0 else -1
    found = mse_threshold(values)
    magnitudes, unsigned = np.abs(values).astype(np.float64), sign > 0

    def error(limit: float) -> float:
        clipped = magnitudes > limit
        return float(
            limit**2 / 4**8 / 3 / (4 if unsigned and values.min() < 1e-6 else 1) * np.count_nonzero(~clipped)
            + ((magnitudes[clipped] - limit) ** 2).sum()
        )

    assert all(error(found) <= error(found * factor) for factor in (0.95, 0.99, 1.01, 1.05))
    assert 0 < found < magnitudes.max()


def test_least_square_error_of_few_values():
    """Of 1, 1, 4 the mean 2 comes first; 4 / (2 c + 1) with c = 4^-8 / 3 is what then stays."""
    assert mse_threshold(np.array([1, -1, 4], np.float32)) == pytest.approx(4 / (2 / 4**8 / 3 + 1), abs=1e-9)
    assert mse_threshold(np.zeros(3, np.float32)) == 1.0


def test_assumed_distributions():
    values = np.array([-1, 0, 0, 3], np.float32)
    share = 0.175 * (1 + math.sqrt(math.pi * math.log(4)))
    assert aciq_gauss_threshold(values) == pytest.approx(3.92403337 * 4 * share / math.sqrt(2 * math.log(4)))
    assert aciq_laplace_threshold(values) == pytest.approx(9.89675982 * 5 / 4)
    assert math.isnan(aciq_gauss_threshold(values[:1]))


def test_ends_are_the_percentiles_of_all_samples():
    """As upstream: 22 of 21,007 values are beyond 99.9 %, and numpy's percentile lies one of them lower."""
    samples = RNG.normal(size=(7, 3001)).astype(np.float32)
    ends = Ends(99.9, 7, 3001)
    for sample in samples:
        ends.update(sample)
    values = np.sort(samples, axis=None).astype(np.float64)
    ratio = 0.999 * 21006 % 1
    low, high = ends.limits()
    assert high == pytest.approx(values[-22] + ratio * (values[-21] - values[-22]), abs=1e-12)
    assert low == pytest.approx(values[21] + ratio * (values[20] - values[21]), abs=1e-12)
    assert np.percentile(samples, 99.9) <= high <= values[-21]
    sizes = np.sort(np.abs(values))
    assert ends.magnitude() == pytest.approx(sizes[-22] + ratio * (sizes[-21] - sizes[-22]), abs=1e-12)


def test_few_values_are_kept_whole():
    ends = Ends(99.99, 2, 10)
    ends.update(np.arange(10, dtype=np.float32))
    ends.update(np.arange(-3, 7, dtype=np.float32))
    assert ends.limits() == (-3, 9) and ends.magnitude() == 9


@pytest.mark.parametrize("method", ["mse", "aciq_gauss", "aciq_laplace"])
def test_the_input_and_the_last_tensors_are_kept_whole(method: str):
    """Of four values no percentile cuts anything off."""
    samples = iter([{"x": np.array([[1, 2, 3, 100]], np.float32)}, {"x": np.zeros((1, 4), np.float32)}])
    table, count = calibrate(chain(), samples, CalibrationConfig(method, tune_samples=0))
    assert count == 2
    found = [entry.threshold for entry in table.entries.values()]
    assert found[0] == 100 and all(t == 100 for t in found[-5:])
    assert all(entry.maximum == 100 for entry in table.entries.values())


def test_tensors_of_zeros_and_infinities_have_thresholds():
    for method in METHODS:
        zeros, _ = calibrate(chain(), [{"x": np.zeros((1, 4), np.float32)}], CalibrationConfig(method, tune_samples=0))
        assert {entry.threshold for entry in zeros.entries.values()} == {1e-5}
