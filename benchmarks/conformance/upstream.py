"""Runs TPU-MLIR in a separate environment and keeps its output and results under a hash of the input.

The environment is a Python 3.10 one with `tpu_mlir` installed; the variable TPUSIM_UPSTREAM names its folder. Nothing
of it is imported: its command-line tools run in fresh folders, and the files they write are read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tpusim.errors import ConfigError
from tpusim.ir.formats import NumberFormat, number_format
from tpusim.studies.upstream.tools import VARIABLE, Tools, UpstreamError
from tpusim.verify.tolerances import TPU_VS_TOP

CACHE = Path(__file__).parents[2] / "out" / "conformance"
Array = np.ndarray


def takes_table(format: NumberFormat) -> bool:
    """Whether the real compiler stops without a calibration table: for integers, and for floats of 8 bits."""
    return format.calibrated or format.activation.startswith("f8")


@dataclass(frozen=True)
class Files:
    """The kept files of one step: a folder with fixed file names."""

    folder: Path

    def text(self, name: str) -> str:
        """A text file; empty if the tool wrote none."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def arrays(self, name: str) -> dict[str, Array]:
        """An npz file; empty if the tool wrote none."""
        path = self.folder / name
        if not path.exists():
            return {}
        with np.load(path) as found:
            return dict(found)

    @property
    def failure(self) -> str:
        """Why the tool failed; empty if it did not."""
        return self.text("failure.txt")


class Upstream:
    """The tools of one environment, with a cache of their results."""

    def __init__(self, environment: Path, cache: Path = CACHE) -> None:
        self._tools, self._cache = Tools(environment), cache
        self.version = _version(environment)

    @classmethod
    def find(cls, cache: Path = CACHE) -> Upstream:
        """The environment that TPUSIM_UPSTREAM names. Raises ConfigError without it."""
        place = os.environ.get(VARIABLE, "")
        if not place:
            raise ConfigError(
                f"{VARIABLE} is required: the folder of a Python 3.10 environment with tpu_mlir and its command-line "
                "tools (bin/model_transform.py and others), got nothing; set it, or use the recorded tests/upstream"
            )
        if not (Path(place) / "bin" / "model_deploy.py").exists():
            raise ConfigError(
                f"{VARIABLE}={place}: an environment with bin/model_deploy.py is required, got none there"
            )
        return cls(Path(place), cache)

    def transform(self, model: onnx.ModelProto, sample: Mapping[str, Array], *, floats: bool = True) -> Files:
        """top.mlir, top_weights.npz, top_origin.mlir, and with `floats` every float tensor of one sample."""
        data = model.SerializeToString()

        def work(folder: Path) -> None:
            (folder / "m.onnx").write_bytes(data)
            np.savez(folder / "in.npz", **sample)
            self.run(folder, "model_transform.py", "--model_name", "m", "--model_def", "m.onnx", "--mlir", "m.mlir")
            if floats:
                self.run(folder, "model_runner.py", "--input", "in.npz", "--model", "m.mlir", "--dump_all_tensors",
                         "--output", "float.npz")  # fmt: skip

        kept = {n: n for n in ("m.mlir", "m_origin.mlir", "m_top_f32_all_weight.npz", "float.npz", "transform.log")}
        return self._cached(("transform", data, _bytes(sample) if floats else "no floats"), work, kept)

    def calibrate(self, top: Files, samples: Sequence[Mapping[str, Array]]) -> Files:
        """cali_table: what run_calibration.py measures on these samples."""

        def work(folder: Path) -> None:
            for name in ("m.mlir", "m_top_f32_all_weight.npz"):
                if (top.folder / name).exists():
                    shutil.copy(top.folder / name, folder / name)
            (folder / "data").mkdir()
            for number, sample in enumerate(samples):
                np.savez(folder / "data" / f"{number:03}.npz", **sample)
            self.run(folder, "run_calibration.py", "m.mlir", "--dataset", "data", "--input_num", str(len(samples)),
                      "--tune_num", "0", "-o", "cali_table")  # fmt: skip

        what = ("calibrate", top.text("m.mlir"), top.folder.name, *(_bytes(s) for s in samples))
        return self._cached(what, work, {"cali_table": "cali_table"})

    def deploy(
        self,
        top: Files,
        table: str,
        sample: Mapping[str, Array],
        chip: str,
        mode: str,
        more: Sequence[str] = (),
        *,
        simulated: bool = True,
    ) -> Files:
        """The lowered module and its weights, every tensor, the closed simulator's outputs, groups and profile.

        simulated: run the compiled file in the closed simulator; without, there is no chip.npz.
        """
        number, _, asymmetric = mode.partition("-")
        suffix = "cvimodel" if chip.startswith("cv18") and chip != "cv186x" else "bmodel"

        def work(folder: Path) -> None:
            for name in ("m.mlir", "m_top_f32_all_weight.npz"):
                if (top.folder / name).exists():
                    shutil.copy(top.folder / name, folder / name)
            (folder / "table").write_text(table, encoding="utf-8")
            np.savez(folder / "in.npz", **sample)
            options = ["--calibration_table", "table"] * takes_table(number_format(number))
            options += ["--tolerance", "0.0,0.0"] * (number not in TPU_VS_TOP)
            options += ["--asymmetric"] * bool(asymmetric) + list(more)
            failed = self._compile(folder, ["--quantize", number.upper(), *options, "--processor", chip], f"m.{suffix}")
            _settle(folder)
            self.run(folder, "model_runner.py", "--input", "in.npz", "--model", "m_tpu.mlir", "--dump_all_tensors",
                      "--output", "tensors.npz")  # fmt: skip
            if failed is not None:
                raise failed
            if simulated:
                self.run(folder, "model_runner.py", "--input", "in.npz", "--model", f"m.{suffix}", "--output",
                          "chip.npz")  # fmt: skip

        kept = {n: n for n in ("tensors.npz", "chip.npz", "groups.json", "deploy.log")}
        kept |= {"m_tpu.mlir": "tpu.mlir", "m_weights.npz": "weights.npz", "m_final.mlir": "final.mlir"}
        kept |= {"compiler_profile_0.txt": "profile.txt"}
        what = ("deploy", top.text("m.mlir"), top.folder.name, table, _bytes(sample), chip, mode, " ".join(more))
        what += () if simulated else ("not simulated",)
        return self._cached(what, work, kept)

    def _compile(self, folder: Path, options: Sequence[str], file: str) -> UpstreamError | None:
        """Lower and compile; the error of a compilation whose lowered module is there all the same."""
        try:
            self.run(folder, "model_deploy.py", "--mlir", "m.mlir", *options, "--model", file, "--debug")
        except UpstreamError as error:
            if not list(folder.glob("m_*_tpu.mlir")):
                raise
            return error
        return None

    def _cached(self, what: Sequence[str | bytes], work: Callable[[Path], None], kept: Mapping[str, str]) -> Files:
        digest = hashlib.sha256(self.version.encode())
        for part in what:
            digest.update(part.encode() if isinstance(part, str) else part)
        target = self._cache / digest.hexdigest()[:24]
        if not target.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._cache, prefix="work-") as place:
                folder = Path(place)
                done = folder / "kept"
                done.mkdir()
                try:
                    work(folder)
                except UpstreamError as error:
                    (done / "failure.txt").write_text(str(error), encoding="utf-8")
                for name, new in kept.items():
                    if (folder / name).exists():
                        shutil.move(folder / name, done / new)
                with suppress(OSError):  # another run was faster
                    done.rename(target)
        return Files(target)

    def run(self, folder: Path, tool: str, *arguments: str) -> None:
        """One tool. Raises UpstreamError with the last lines it printed."""
        done = self.call(folder, tool, *arguments)
        (folder / f"{tool.removeprefix('model_').removesuffix('.py')}.log").write_text(done.stdout + done.stderr)
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            raise UpstreamError(f"{tool} {' '.join(arguments)}: exit {done.returncode}\n{last}")

    def call(self, folder: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The exit status of one tool, and what it printed."""
        return self._tools.call(folder, tool, *arguments)


def _settle(folder: Path) -> None:
    """Give the deploy step's files names that do not depend on chip and mode."""
    for pattern, name in (("m_*_tpu.mlir", "m_tpu.mlir"), ("m_*_final.mlir", "m_final.mlir")):
        for path in folder.glob(pattern):
            path.rename(folder / name)
    for path in folder.glob("m_*.layer_group_cache.json"):
        path.rename(folder / "groups.json")
    for path in folder.glob("m_*_tpu_weights.npz"):
        shutil.copy(path, folder / "m_weights.npz")


def _bytes(arrays: Mapping[str, Array]) -> bytes:
    return b"".join(
        n.encode() + str(a.shape).encode() + np.ascontiguousarray(a).tobytes() for n, a in sorted(arrays.items())
    )


def _version(environment: Path) -> str:
    """The installed version. Raises ConfigError without its metadata."""
    found = Tools(environment).version
    if found == str(environment):
        raise ConfigError(f"{VARIABLE}={environment}: tpu_mlir is required there, got no such package")
    return found
