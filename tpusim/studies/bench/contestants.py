"""Who runs: ONNX Runtime in f32 and INT8, the flat network in f32 and INT8, the machine with and without checks."""

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpusim.compiled import Compiled
from tpusim.errors import TpusimError, first_line
from tpusim.frontend import OnnxReference, front_end
from tpusim.frontend.onnx import read_onnx
from tpusim.inference import Flat
from tpusim.running.artefacts import RunConfig
from tpusim.running.network import Network
from tpusim.simulator import SimulatorOptions

PER_CHANNEL = 13
"""The first opset whose DequantizeLinear has an axis."""
Sample = Mapping[str, np.ndarray]
Call = Callable[[], object]


class Unavailable(TpusimError):
    """A contestant that cannot run this network; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """prepare: makes the function that runs all samples once. at_once: whether it takes them in one call."""

    name: str
    prepare: Callable[[], Call]
    at_once: bool


def threads() -> int:
    """How many processors this process may use; what both sides get."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def contestants(network: Network, samples: Sequence[Sample]) -> Iterator[Contestant]:
    """In the order in which they are prepared; the first is the base of all ratios. A module has no ONNX Runtime.

    samples: of the batch that the module has, also to calibrate with if the network is not calibrated. The network is
    compiled when the first of tpusim's contestants is prepared.
    """
    path, config, made = network.model_path, network.config, list[Compiled]()

    def compiled() -> Compiled:
        if not made:
            network.artefacts.given = [dict(sample) for sample in samples]
            made.append(Compiled(network))
        return made[0]

    stacked = {name: np.concatenate([s[name] for s in samples]) for name in samples[0]}
    if path is not None and front_end(path).through_onnx:
        yield Contestant("ONNX Runtime F32", lambda: _one_by_one(_session(path, config), samples), at_once=False)
        yield Contestant(
            "ONNX Runtime INT8", lambda: _one_by_one(quantised(path, config, samples), samples), at_once=False
        )
    yield Contestant("tpusim flat F32", lambda: _flat(Flat(compiled().top), stacked), at_once=True)
    yield Contestant("tpusim fast F32", lambda: _flat(compiled().fast_f32, stacked), at_once=True)
    yield Contestant(
        f"tpusim flat {config.lowering.format.name.upper()}", lambda: _flat(compiled().flat, stacked), True
    )
    for name, options in (("checked", SimulatorOptions()), ("bare", SimulatorOptions(sanitize=False))):
        yield Contestant(f"tpusim machine, {name}", lambda o=options: _machine(compiled(), o, samples), at_once=False)


def _session(source: Any, config: RunConfig) -> Callable[[Sample], object]:
    names = [output.name for output in read_onnx(source).graph.output]
    shapes = config.input_shapes
    return OnnxReference(source, names, input_shapes=shapes, threads=threads(), integers=True).run


def quantised(path: Path, config: RunConfig, samples: Sequence[Sample]) -> Callable[[Sample], object]:
    """ONNX Runtime's static quantisation: QDQ, int8, weights per channel, calibrated with the same samples."""
    from onnxruntime import quantization  # pyright: ignore[reportMissingTypeStubs]

    tools: Any = quantization
    rows = iter(samples)

    class Reader(tools.CalibrationDataReader):
        def get_next(self) -> Sample | None:
            return next(rows, None)

    with tempfile.TemporaryDirectory() as folder, _without_warnings():
        ready, out = str(Path(folder) / "ready.onnx"), str(Path(folder) / "quantised.onnx")
        try:
            tools.shape_inference.quant_pre_process(_recent(path, folder), ready, skip_symbolic_shape=True)
            tools.quantize_static(
                ready, out, Reader(), quant_format=tools.QuantFormat.QDQ, per_channel=True,
                activation_type=tools.QuantType.QInt8, weight_type=tools.QuantType.QInt8,
            )  # fmt: skip
        except Exception as error:  # whatever its quantiser raises for a model that it does not take
            raise Unavailable(f"ONNX Runtime's quantiser: {first_line(error)}") from error
        return _session(Path(out), config)


def _recent(path: Path, folder: str) -> str:
    """A file of the model in an opset that has scales per channel."""
    from onnx import version_converter

    proto = read_onnx(path)
    opset = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= PER_CHANNEL:
        return str(path)
    recent = Path(folder) / "recent.onnx"
    recent.write_bytes(version_converter.convert_version(proto, PER_CHANNEL).SerializeToString())
    return str(recent)


@contextmanager
def _without_warnings() -> Generator[None]:
    """ONNX Runtime's quantiser warns by the root logger of what is as it should be, and divides infinities of masks."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)


def _one_by_one(run: Callable[[Sample], object], samples: Sequence[Sample]) -> Call:
    return lambda: [run(sample) for sample in samples]


def _flat(flat: Flat, stacked: Sample) -> Call:
    return lambda: flat(stacked)


def _machine(net: Compiled, options: SimulatorOptions, samples: Sequence[Sample]) -> Call:
    machine = net.machine(options)
    return lambda: [machine.run(sample) for sample in samples]
