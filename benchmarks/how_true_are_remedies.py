"""The recommendations of `why` and the searches, checked by a measurement that shares no code with them.

Five networks with 64 samples each. Every command is run as a user runs it. Then the tables and modules that it wrote
are lowered, run on all samples, and compared with ONNX Runtime's results of the model's file: the squared error as a
share of the squares, in NumPy, on the samples that the command judged by and on the held-out samples. A row has the
printed and the measured figures; `RAISED` if a recommendation makes held-out samples worse, `OFF` if a printed figure
differs by more than 5 % from the measured one.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tyro

from benchmarks.accuracy.measure import DIGITS
from tests.planted import TOKENS, Graph, vit
from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import read_table
from tpusim.cli import main as command
from tpusim.inference import Flat, dequantised
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassManager
from tpusim.passes.pipelines import converted
from tpusim.running.persistence import load_module

SAMPLES, NEAR = 64, 0.05
Array = np.ndarray


# ------------------------------------------------------------------------------------------------------------ networks


def _filters(g: Graph, *shape: int) -> Array:
    """Filters of different magnitudes, like trained ones."""
    rng = np.random.default_rng(shape)
    sizes = np.exp(rng.standard_normal((shape[0], *(1,) * (len(shape) - 1))) * 0.5)
    return (g.weight(*shape) * sizes).astype(np.float32)


def resnet() -> onnx.ModelProto:
    """Three stages of a block each, and a classifier."""
    g, channels = Graph(1), 16
    x = g.add("Relu", [g.conv("x", _filters(g, 16, 3, 3, 3))])
    for stage, width in enumerate((16, 32, 64)):
        strides = [2 if stage else 1] * 2
        y = g.add("Relu", [g.conv(x, _filters(g, width, channels, 3, 3), strides=strides)])
        y = g.conv(y, _filters(g, width, width, 3, 3) * 0.6)
        other = x if width == channels else g.conv(x, _filters(g, width, channels, 1, 1), strides=strides)
        x, channels = g.add("Relu", [g.add("Add", [other, y])]), width
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    return g.finish((1, 3, 32, 32), g.add("Gemm", [x, g.constant(g.weight(64, 10))]))


def mobilenet() -> onnx.ModelProto:
    """Depthwise convolutions whose channels differ, with Clip to 6."""
    g, channels = Graph(2), 16

    def clipped(x: str) -> str:
        return g.add("Clip", [x, g.constant(np.float32(0)), g.constant(np.float32(6))])

    x = clipped(g.conv("x", _filters(g, 16, 3, 3, 3), strides=[2, 2]))
    for width, stride in ((32, 1), (32, 2), (64, 1)):
        y = clipped(g.conv(x, _filters(g, channels, 1, 3, 3), strides=[stride] * 2, group=channels))
        x, channels = clipped(g.conv(y, _filters(g, width, channels, 1, 1))), width
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    return g.finish((1, 3, 32, 32), g.add("Gemm", [x, g.constant(g.weight(64, 10))]))


def segmenter() -> onnx.ModelProto:
    """A U-Net: down twice, up twice, joined with earlier tensors of the same size."""
    g = Graph(3)
    wide = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}

    def stage(x: str, width: int, channels: int, stride: int = 1) -> str:
        return g.add("Relu", [g.conv(x, _filters(g, width, channels, 3, 3), strides=[stride] * 2)])

    def up(x: str) -> str:
        return g.add("Resize", [x, "", g.constant(np.array([1, 1, 2, 2], np.float32))], **wide)

    first = stage("x", 16, 3)
    second = stage(first, 32, 16, 2)
    x = stage(stage(second, 32, 32, 2), 32, 32)
    x = stage(g.add("Concat", [up(x), second], axis=1), 16, 64)
    x = stage(g.add("Concat", [up(x), first], axis=1), 16, 32)
    return g.finish((1, 3, 32, 32), g.conv(x, _filters(g, 4, 16, 1, 1)))


def images(count: int, size: int = 32) -> Array:
    """Smooth noise of different contrast, (count, 3, size, size)."""
    rng, f = np.random.default_rng(0), np.fft.fftfreq(size)
    reach = np.hypot(f[:, None], f[None])
    reach[0, 0] = 1
    shape = (count, 3, size, size)
    found = np.fft.ifft2((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / reach**1.2).real
    found *= np.exp(rng.standard_normal((count, 1, 1, 1)) * 0.4) / found.std(axis=(1, 2, 3), keepdims=True)
    return found.astype(np.float32)


def tokens(count: int) -> Array:
    """Rows of tokens, (count, 8, 24)."""
    return np.random.default_rng(0).standard_normal((count, *TOKENS[1:])).astype(np.float32)


NETWORKS: Mapping[str, tuple[Callable[[], onnx.ModelProto], Callable[[int], Array]]] = {
    "digits": (
        lambda: onnx.load(DIGITS / "digits.onnx"),
        lambda count: np.load(DIGITS / "calibration.npz")["image"][:count],
    ),
    "resnet": (resnet, images),
    "vit": (vit, tokens),
    "mobilenet": (mobilenet, images),
    "segmenter": (segmenter, images),
}


# --------------------------------------------------------------------------------------------------------- measurement


@dataclass(frozen=True)
class Bed:
    """A network whose run is in a folder, and ONNX Runtime's results of its samples."""

    folder: Path
    chip: str
    samples: Array
    wanted: Array

    @classmethod
    def of(cls, name: str, folder: Path, chip: str) -> Bed:
        """Import and calibrate it."""
        build, draw = NETWORKS[name]
        proto, samples = build(), draw(SAMPLES)
        key = proto.graph.input[0].name
        onnx.save(proto, folder / "net.onnx")
        np.savez(folder / "data.npz", **{key: samples})  # type: ignore[arg-type]
        session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
        wanted = np.stack([np.asarray(session.run(None, {key: sample[None]})[0]) for sample in samples])
        asked = ["--data", str(folder / "data.npz"), "--samples", str(SAMPLES), "--out", str(folder / "out")]
        said("run", str(folder / "net.onnx"), "--chip", chip, "--mode", "int8", *asked, "--to", "calibrate")
        return cls(folder, chip, samples, wanted.reshape(len(samples), -1))

    def file(self, name: str) -> str:
        """Of the run's folder."""
        return str(self.folder / "out" / name)

    def errors(self, model: Model, qtable: Path | None = None) -> Array:
        """(samples,) squared errors of a calibrated module in integers, as shares of the mean squares."""
        config = LoweringConfig(self.chip, "int8", qtable=None if qtable is None else str(qtable))
        lowered = PassManager(converted(config)).run(model)
        (found,) = Flat(lowered)(self.samples).items()
        real = dequantised(lowered, {found[0]: np.asarray(found[1])})[found[0]].reshape(self.wanted.shape)
        return np.sum((real.astype(np.float64) - self.wanted) ** 2, axis=1)

    def with_table(self, table: Path, qtable: Path | None = None) -> Array:
        """The same with a calibration table."""
        return self.errors(apply_table(load_module(Path(self.file("2_canonical.mlir"))), read_table(table)), qtable)

    def share(self, errors: Array, part: slice) -> float:
        """Of one part of the samples, as a share of all their squares."""
        return float(errors[part].mean() / np.mean(np.sum(self.wanted.astype(np.float64) ** 2, axis=1)))


def said(*words: str) -> str:
    """The output of a command; its status is ignored, because a goal may be unreachable."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        command(list(words))
    return shown.getvalue()


@dataclass(frozen=True)
class Row:
    """The printed and the measured errors of a command: before and after, on judged and on held-out samples."""

    command: str
    printed: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def raised(self) -> bool:
        """Whether held-out samples are worse than before."""
        return self.measured[3] > self.measured[1]

    @property
    def off(self) -> float:
        """The largest relative difference of a printed figure from the measured one."""
        pairs = zip(self.printed, self.measured, strict=True)
        return max((abs(a - b) / b for a, b in pairs if b), default=0.0)

    def __str__(self) -> str:
        """A line of a Markdown table."""
        shown = [f"{value:.4g}" for value in (*self.printed, *self.measured)]
        verdict = "RAISED " * self.raised + "OFF" * (self.off > NEAR) or "holds"
        return f"{self.command} | {' | '.join(shown)} | {verdict}"


def _row(bed: Bed, what: str, shown: str, before: Array, after: Array, judged: slice, held_out: slice) -> Row | None:
    """None where nothing is recommended."""
    found = [float(number) for number in re.findall(r"(?:judged|held out): error (\S+)", shown)]
    if len(found) < 4:
        return None
    parts = [bed.share(errors, part) for errors in (before, after) for part in (judged, held_out)]
    return Row(what, tuple(found[:4]), tuple(parts))


def rows(
    bed: Bed, commands: tuple[str, ...] = ("why", "search-qtable", "search-threshold", "correct-bias")
) -> Iterator[Row]:
    """The measured recommendations of every command for a network."""
    table, calibrated, canonical = (Path(bed.file(n)) for n in ("cali_table", "3_calibrated.mlir", "2_canonical.mlir"))
    chip, data = ["--chip", bed.chip], ["--data", str(bed.folder / "data.npz")]
    even, odd = slice(0, None, 2), slice(1, None, 2)
    first, rest = slice(30), slice(30, None)
    before = bed.with_table(table)
    if "why" in commands:
        shown = said("why", str(calibrated), *chip, "--expected-cos", "1", "--cycles", "0", "--top", "4", "--apply")
        new, after = Path(bed.file("new_cali_table")), Path(bed.file("new_qtable"))
        if found := _row(bed, "why", shown, before, bed.with_table(new, after), even, odd):
            yield found
    if "search-qtable" in commands:
        out = bed.folder / "qtable"
        wanted = f"{1 - 0.3 * (1 - _cosine(bed, before)):.6f}"
        shown = said(
            "search-qtable",
            str(calibrated),
            *chip,
            *data,
            "--samples",
            "0",
            "--expected-cos",
            wanted,
            "--out",
            str(out),
        )
        if out.is_file() and (
            found := _row(bed, "search-qtable", shown, before, bed.with_table(table, out), even, odd)
        ):
            yield found
    if "search-threshold" in commands:
        out = bed.folder / "threshold"
        asked = ["--out-table", str(out), "--out", str(bed.folder / "threshold.mlir")]
        shown = said("search-threshold", str(canonical), *chip, *data, *asked)
        lines = dict(re.findall(r"^(\w+) .* error (\S+ judged, \S+) held out", shown, re.MULTILINE))
        best = re.findall(r"^(\w+) .*  best$", shown, re.MULTILINE)[0]
        printed = [float(x) for one in ("kl", best) for x in lines[one].replace(" judged", "").split(", ")]
        measured = [bed.share(e, part) for e in (before, bed.with_table(out)) for part in (first, rest)]
        yield Row(f"search-threshold ({best})", tuple(printed), tuple(measured))
    if "correct-bias" in commands:
        asked = ["--expected-cos", "1", "--min-layer-cos", "0.99999", "--in-turn"]
        asked += ["--out-table", str(bed.folder / "bias"), "--out", str(bed.folder / "bias.mlir")]
        shown, out = said("correct-bias", str(canonical), *chip, *data, *asked), bed.folder / "bias.mlir"
        if out.is_file() and "none is made" not in shown:
            after = bed.errors(load_module(out))
            if found := _row(bed, "correct-bias", shown, before, after, first, rest):
                yield found


def _cosine(bed: Bed, errors: Array) -> float:
    """The approximate cosine of results with these errors, if errors are small and orthogonal to the results."""
    return 1 / float(np.sqrt(1 + bed.share(errors, slice(0, None, 2))))


def main(networks: tuple[str, ...] = tuple(NETWORKS), chip: str = "bm1688") -> None:
    """Print a table of Markdown."""
    print("| network | command | printed before: judged | held out | after: judged | held out "
          "| measured before: judged | held out | after: judged | held out | |")  # fmt: skip
    print(f"|---|---|{'---:|' * 8}---|")
    for name in networks:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(Bed.of(name, Path(folder), chip)):
                print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
