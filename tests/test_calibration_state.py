"""Calibration that was killed, devices that share samples, and memory that does not grow."""

import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from op_cases import BY_ID
from op_row import network, node
from plain_names import import_onnx
from relu_chain import chain, growing
from rows import canonical

from tpusim.calibration import state as tested
from tpusim.calibration.estimates import SPARE, Ends
from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import METHODS, CalibrationConfig, calibrate
from tpusim.errors import CalibrationError
from tpusim.host import threads
from tpusim.inference import Gradual, gradual, run
from tpusim.ir.module import Model

SAMPLES = growing(21)


class Killed:
    """The samples, of which the network never sees the one after `after`."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __len__(self) -> int:
        return len(SAMPLES)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        yield from SAMPLES[: self.after]
        raise KeyboardInterrupt


@pytest.mark.every
@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_gives_the_same_table(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "EVERY_SECONDS", 0)
    config, path = CalibrationConfig(method, tune_samples=2), tmp_path / "state.npz"
    for after in (1, 7, 13):
        with pytest.raises(KeyboardInterrupt):
            calibrate(chain(), Killed(after), config, state=path)
    seen: list[int] = []
    resumed = calibrate(chain(), SAMPLES, config, seen.append, state=path)
    assert resumed == calibrate(chain(), SAMPLES, config)
    assert seen[:2] == [13, 14]


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    config, path = CalibrationConfig("max"), tmp_path / "state.npz"
    calibrate(chain(), SAMPLES[:5], config, state=path)
    with pytest.raises(CalibrationError, match="belongs to another method, 'max, 2048 bins, any number of samples' wh"):
        calibrate(chain(), SAMPLES, CalibrationConfig("kl"), state=path)
    other = import_onnx(network([node("Relu", "x", "y")])({"x": (1, 4)}), name="chain")
    with pytest.raises(CalibrationError, match="belongs to another model"):
        calibrate(other, SAMPLES, config, state=path)
    for samples in (SAMPLES[1:], SAMPLES[:4]):
        with pytest.raises(CalibrationError, match="belongs to other samples, the first 5 must be as they were"):
            calibrate(chain(), samples, config, state=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CalibrationError, match="cannot be read"):
        calibrate(chain(), SAMPLES, config, state=path)


@pytest.mark.parametrize(
    ("method", "few", "counts"), [("kl", 1024, (32, 512)), ("percentile9999", 1024, (32, 256)), ("kl", 8, (72, 264))]
)
def test_memory_does_not_grow_with_the_samples(
    method: str, few: int, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histograms, values beyond the percentile and one batch are all that is kept: not 2 % of the samples' bytes."""
    monkeypatch.setattr(gradual, "FEW_FLOAT", few)
    model = import_onnx(network([node("Relu", "x", "y")])({"x": (1, 8192)}), name="wide")

    def peak(count: int) -> int:
        samples = Samples(f"random:{count}", {"x": ((1, 8192), np.dtype(np.float32))})
        tracemalloc.start()
        calibrate(model, samples, CalibrationConfig(method, tune_samples=2))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(few + gradual.BATCH if few < min(counts) else 2)  # imports, kernels
    less, more = map(peak, counts)
    assert more - less < 0.02 * (counts[1] - counts[0]) * 4 * 8192


def test_calibration_compiles_no_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of samples: XLA's memory for a graph grows with the network, that for an op does not."""
    monkeypatch.setattr(gradual, "FEW_FLOAT", 2)
    monkeypatch.setattr(gradual, "BATCH", 4)
    monkeypatch.delattr(gradual, "Graph")
    wanted = calibrate(chain(), SAMPLES[:9], CalibrationConfig("kl", tune_samples=2))
    monkeypatch.setattr(gradual, "FEW_FLOAT", 100)
    assert calibrate(chain(), SAMPLES[:9], CalibrationConfig("kl", tune_samples=2)) == wanted


def test_ends_keep_what_a_level_needs_and_no_more() -> None:
    values = np.random.default_rng(5).standard_normal((400, 1000)).astype(np.float32)
    ends, everything = Ends(99.9, 400, 1000), Ends(99.9, 400, 1000)
    for row in values:
        ends.update(row)
    everything.found = values.ravel()
    assert ends.found.size <= SPARE * 401
    assert ends.limits() == everything.limits()
    assert ends.magnitude() == everything.magnitude()


def test_samples_are_read_as_often_as_asked() -> None:
    samples = Samples("random:9:4", {"x": ((1, 4), np.dtype(np.float32))}, 7)
    assert len(samples) == len(list(samples)) == len(list(samples)) == 7


@pytest.mark.parametrize("row", ["", "pool-flatten-fc", "where-tensor", "concat-constant", "layernorm-channels"])
def test_batches_have_the_bits_of_one_sample_alone(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two go op by op, then batches of four; the last of three goes op by op again."""
    monkeypatch.setattr(gradual, "FEW_FLOAT", 2)
    monkeypatch.setattr(gradual, "BATCH", 4)
    graph = Gradual(canonical(row) if row else chain(), "all")
    samples = [BY_ID[row].feeds(seed) for seed in range(9)] if row else SAMPLES[:9]
    for number, (sample, found) in enumerate(graph.each(samples)):
        assert sample is samples[number]
        for name, wanted in run(graph.model, sample).items():
            np.testing.assert_array_equal(found[name], wanted)
    assert graph.compiled


def test_large_tensors_go_two_abreast(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, none lost where the next sample fails, and with the bits of one alone."""
    monkeypatch.setattr(gradual, "LARGE", 0)
    monkeypatch.setattr(threads, "processors", lambda: 2)
    both = threading.Barrier(2)

    def slow(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        both.wait(10)
        return run(model, inputs)

    monkeypatch.setattr(gradual, "run", slow)

    def samples() -> Iterator[dict[str, np.ndarray]]:
        yield from SAMPLES[:4]
        raise CalibrationError("a fifth is required, got none")

    graph, seen = Gradual(chain(), "all"), 0
    with pytest.raises(CalibrationError, match="a fifth"):
        for sample, found in graph.each(samples()):
            assert sample is SAMPLES[seen]
            for name, wanted in run(graph.model, sample).items():
                np.testing.assert_array_equal(found[name], wanted)
            seen += 1
    assert seen == 4 and not graph.compiled


ON_DEVICES = """
import jax, numpy as np
from relu_chain import chain, growing
from tpusim.inference import Gradual
from tpusim.calibration.measured import Measured
assert len(jax.local_devices()) == 4
states = []
for count in (1, 2, 4):
    measured = Measured(chain(), "kl", 2048, 0)
    for sample, tensors in Gradual(chain(), "all", jax.local_devices()[:count]).each(growing(21)):
        measured.update(tensors, "")
    states.append(measured.state())
for state in states[1:]:
    for name, array in states[0].items():
        np.testing.assert_array_equal(state[name], array)
"""


@pytest.mark.slow
def test_one_two_and_four_devices_measure_the_same() -> None:
    tests = Path(__file__).parent
    path = os.pathsep.join(map(str, (tests, tests.parent, tests.parent / "kernels")))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", ON_DEVICES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
