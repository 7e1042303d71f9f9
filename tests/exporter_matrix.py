"""Networks of exporters on every kind of chip compared with ONNX Runtime; `make exporters` writes docs/exporters.md.

A cell is a network on a chip in a mode: it is compiled, executed flat and on the machine, and its results are compared
with ONNX Runtime's in f32. Both sides calibrate INT8 with the same samples by the largest magnitude.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from exported import NETWORKS
from exported_vision import VISION

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import CalibrationTable
from tpusim.compiled import Compiled
from tpusim.errors import TpusimError
from tpusim.frontend import OnnxReference, as_called, import_onnx
from tpusim.host.files import replacing
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import value_name
from tpusim.running.artefacts import RunConfig
from tpusim.studies.bench.contestants import quantised

PAGE = Path(__file__).parents[1] / "docs" / "exporters.md"
Arrays = Mapping[str, np.ndarray]
ALL: dict[str, Callable[[], tuple[onnx.ModelProto, Arrays]]] = {**NETWORKS, **VISION}
CELLS = (
    ("bm1684x", "f32"), ("bm1684x", "f16"), ("bm1684x", "int8"), ("bm1688", "int8"), ("bm1684", "int8"),
    ("cv183x", "int8"),
)  # fmt: skip
CALIBRATION, TESTS = 8, 4
"""Samples that thresholds are measured with, and others that results are compared on."""


@dataclass
class Network:
    """One network with its samples, what ONNX Runtime gives in f32, and a table of thresholds once it is measured."""

    proto: onnx.ModelProto
    samples: list[Arrays]
    tests: list[Arrays]
    wanted: list[np.ndarray]
    table: CalibrationTable | None = None

    @property
    def names(self) -> list[str]:
        """ONNX names of the results."""
        return [output.name for output in self.proto.graph.output]


@cache
def network(name: str) -> Network:
    """By name."""
    proto, first = ALL[name]()
    rng = np.random.default_rng(5)
    made = [first, *(_like(first, rng) for _ in range(CALIBRATION + TESTS - 1))]
    names = [output.name for output in proto.graph.output]
    reference, tests = OnnxReference(proto, names), made[CALIBRATION:]
    wanted = [_results([reference.run(sample)[n] for n in names]) for sample in tests]
    return Network(proto, made[:CALIBRATION], tests, wanted)


def _like(sample: Arrays, rng: np.random.Generator) -> Arrays:
    """Other numbers; token ids in another order; a mask of tokens stays."""
    return {
        name: rng.standard_normal(x.shape).astype(np.float32)
        if x.dtype.kind == "f"
        else x
        if name == "mask"
        else rng.permuted(x, axis=-1)
        for name, x in sample.items()
    }


def _results(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """All results in one row."""
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of two arrays in double; 1 where both are nothing but zeros."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a.ravel() @ b.ravel()) / size if size else float(np.array_equal(a, b))


def top_cosine(name: str) -> tuple[float, int]:
    """The worst of all tensors of TOP against ONNX Runtime, and their number; infinities must be equal."""
    net = network(name)
    model, sample = import_onnx(net.proto), net.tests[0]
    theirs, ours = as_called(model, OnnxReference(net.proto).run(sample)), run(model, sample)
    found = [_finite_cosine(ours[n], theirs[n]) for n in ours if n in theirs]
    return min(found), len(found)


def _finite_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    a, b = (np.asarray(x, np.float64) for x in (ours, theirs))
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return -1.0
    return cosine(a[finite], b[finite])


@dataclass(frozen=True)
class Cell:
    """cosine: the lowest of the test samples, of all results; exact: every integer of the machine as flat."""

    cosine: float
    passed: bool
    exact: bool


QUIRKS_OFF = "masks_in_integers"
"""With it, as TPU-MLIR compiles them, networks with masks of the lowest float lose their scores in INT8 (U-100)."""


def compiled(name: str, chip: str, mode: str) -> Compiled:
    """A network for a chip, with the thresholds that the first of its cells measured."""
    net = network(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an infinite mask has no range
        made = tpusim.compile(import_onnx(net.proto), net.samples, chip=chip, mode=mode, table=net.table,
                              calibration=CalibrationConfig("max"), quirks_off=QUIRKS_OFF)  # fmt: skip
    net.table = made.table or net.table
    return made


def cell(name: str, chip: str, mode: str) -> Cell:
    """Compile, execute, compare."""
    net, made = network(name), compiled(name, chip, mode)
    seen = made.verify(net.tests[0]).comparisons["local_vs_tpu"]
    found = [dequantised(made.tpu, run(made.tpu, sample)) for sample in net.tests]
    results = [_results([y[value_name(v)] for v in made.tpu.results]) for y in found]
    lowest = min(cosine(y, wanted) for y, wanted in zip(results, net.wanted, strict=True))
    return Cell(lowest, seen.passed, seen.bit_exact)


def of_onnx_runtime(name: str) -> float:
    """The same figure of ONNX Runtime's static quantisation (QDQ, int8, per channel)."""
    net = network(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(net.proto, path)
        session = quantised(path, RunConfig(path), net.samples)
    results = [session(sample) for sample in net.tests]
    assert all(isinstance(y, dict) for y in results)
    rows = [_results([y[n] for n in net.names]) for y in results]  # type: ignore[index]
    return min(cosine(y, wanted) for y, wanted in zip(rows, net.wanted, strict=True))


# ----------------------------------------------------------------------------------------------------------- the page

HEAD = f"""# Networks as exporters write them

Small networks with the node lists of today's exporters
(tests/exported.py, tests/exported_vision.py); `make exporters` measures them and writes this page. *TOP* is the worst
cosine of all tensors of the imported module against ONNX Runtime in f32. A cell is the lowest cosine of the network's
results against ONNX Runtime's in f32 over {TESTS} samples, followed by *exact* if every integer of the local-memory
machine equals the flat network's (in f32 and f16: *agrees*, its floats are within their bound). *ONNX Runtime INT8* is
the same figure of ONNX Runtime's static quantisation (QDQ, weights per channel). Both sides use the largest magnitude
over the same {CALIBRATION} samples as threshold. The networks are compiled with `--quirks-off {QUIRKS_OFF}`:
without it, as by TPU-MLIR, those with masks of the lowest float lose their scores in INT8 (U-100).

yolo_v8 joins boxes (pixels) and scores (0 to 1) in one Concat, whose operands share one scale. The scores of all
candidates then have 5 or 6 different bytes (8 or 9 in ONNX Runtime, whose bytes have zero points), and TopK chooses
among equal scores differently. The candidates themselves have a cosine of 0.9998 and more on both sides. With the
Concat and the ops after it in F16 (`--qtable`) the results have 0.881. TPU-MLIR behaves in the same way: on BM1684X its
Concat has this scale (0.12285), and the lowest cosine of its results, of its interpreter and of its closed simulator,
is 0.84392 too.

For the other cells below ONNX Runtime's, TPU-MLIR 1.30.2 was run with the same network, samples and thresholds (the
largest magnitude). Its interpreter has these lowest cosines: on bm1684x mobilenet_v3 0.99936, resnest 0.99936, flow
0.99948 and gpt-where-not (a mask of -1e4) 0.96031; on bm1684 mobilenet_v3 0.99813, efficientnet 0.99889, flow 0.99921
and shuffle 0.99952; on cv183x flow 0.99941 and shuffle 0.99970. So the difference comes from the chips' symmetric
bytes; ONNX Runtime's have zero points. TPU-MLIR stops at gpt-where-not on cv183x and does not support Attention, whose
inside ONNX Runtime leaves in float. ONNX Runtime also leaves LSTMs (tagger, crnn) in float, as TPU-MLIR does (0.99990
and 0.99999 on bm1684x), and as tpusim does, in the type that TPU-MLIR's LSTM has on the chip (DN-34).
"""


def row(name: str) -> list[str]:
    """One line of the table."""
    lowest, count = top_cosine(name)
    cells = [name, f"{lowest:.6f} of {count}", *(_text(name, chip, mode) for chip, mode in CELLS)]
    try:
        return [*cells, f"{of_onnx_runtime(name):.5f}"]
    except TpusimError as error:
        return [*cells, str(error).split("\n", 1)[0]]


def _text(name: str, chip: str, mode: str) -> str:
    try:
        found = cell(name, chip, mode)
    except TpusimError as error:
        return f"refused: {error}".split("\n", 1)[0]
    agrees = found.exact if mode == "int8" else found.passed
    return f"{found.cosine:.5f} " + (("exact" if mode == "int8" else "agrees") if agrees else "**differs**")


def main(words: Sequence[str]) -> None:
    """Measure and write; with names only those, to the terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these networks, printed")
    asked = parser.parse_args(words).names
    head = ["network", "TOP", *(f"{chip} {mode}" for chip, mode in CELLS), "ONNX Runtime INT8"]
    lines = [HEAD, _line(head), _line(["---"] * len(head))]
    for name in asked or ALL:
        lines.append(_line(row(name)))
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    if not asked:
        with replacing(PAGE) as unfinished:
            unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main(sys.argv[1:])
