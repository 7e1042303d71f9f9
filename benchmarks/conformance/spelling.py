"""Counts the stage files of ours that TPU-MLIR's `tpuc-opt` reads, whether what it prints is the same module, and
whether the next stage makes the same bytes of it.

TPUSIM_UPSTREAM=FOLDER python -m benchmarks.conformance.spelling --only 'digits/*' 'conv/bm1684x/*' --kept FILE
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import tyro
from xdsl.dialects.builtin import ModuleOp
from xdsl.irdl import IRDLOperation

from benchmarks.conformance.ours import NETWORKS, source
from benchmarks.conformance.upstream import Upstream
from tpusim import chips
from tpusim.cli import main as tpusim
from tpusim.errors import ImportModelError, TpusimError
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.upstream import defined_attributes, entry
from tpusim.ir.upstream.absent import NONE
from tpusim.ops import context

SAME = "same"
TABLE = "cali_table"
SEEN = "seen.mlir"
"""What the tool prints."""
CHIPS = ("cv181x", "cv183x", "bm1684", "bm1684x", "bm1688")
MODES = ("int8", "f16", "bf16", "f32")


@dataclass(frozen=True)
class Stage:
    """A command that makes one stage file of another, and its options."""

    command: str
    made: str
    options: tuple[str, ...] = ()

    def run(self, given: Path, folder: Path) -> str:
        """Make the file in a folder; what is said if that fails, else ""."""
        folder.mkdir(exist_ok=True)
        said = StringIO()
        with redirect_stderr(said), redirect_stdout(said):
            code = tpusim([self.command, str(given), "--out", str(folder / self.made), *self.options, "--quiet"])
        return said.getvalue().strip().splitlines()[-1] if code else ""


PROGRAM = Stage("codegen", "7_model.tpusim")


@dataclass(frozen=True)
class StageFile:
    """A stage file of a cell, the next one, and what makes that."""

    cell: str
    path: Path
    next: Path | None = None
    following: Stage | None = None

    @property
    def key(self) -> str:
        """Its name among all files of a study."""
        return f"{self.cell}/{self.path.name}"


@dataclass
class Spelling:
    """Compile networks, let `tpuc-opt` read and print every stage file, and go on from what it printed."""

    only: tuple[str, ...] = ("*",)
    """Cells NETWORK/CHIP/MODE that match one of these globs."""
    models: tuple[Path, ...] = ()
    """ONNX files in place of the networks of this benchmark; their cells are called after them."""
    files: Path | None = None
    """Read the stage files (*.mlir) of this folder and those below it; nothing is compiled."""
    kept: Path | None = None
    """Write each verdict into this file as a line, and continue after the cells that are in it."""

    def execute(self) -> None:
        """One line for each file that is refused or changed, or from which the next stage differs; then the count."""
        judged = self._judged()
        for file in self._folder(self.files) if self.files else self._compiled(judged):
            if file.key not in judged:
                judged[file.key] = judge(file)
                if self.kept:
                    with self.kept.open("a", encoding="utf-8") as kept:
                        kept.write(f"{file.key} {judged[file.key]}\n")
        for key, verdict in judged.items():
            if verdict != SAME:
                print(f"{key} {verdict}", flush=True)
        found = Counter(verdict.split(":")[0] for verdict in judged.values())
        print(", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items())) or "no file")

    def _judged(self) -> dict[str, str]:
        """The verdicts by file that an earlier run kept."""
        if self.kept is None or not self.kept.exists():
            return {}
        lines = self.kept.read_text(encoding="utf-8").splitlines()
        return {key: verdict for key, _, verdict in (line.partition(" ") for line in lines)}

    @staticmethod
    def _folder(folder: Path) -> Iterator[StageFile]:
        return (StageFile(str(path.parent.relative_to(folder)), path) for path in sorted(folder.rglob("*.mlir")))

    def _compiled(self, judged: Mapping[str, str]) -> Iterator[StageFile]:
        """The stage files of the cells whose last file is not judged yet."""
        for network, load in self._networks().items():
            cells = [cell for cell in self._cells(network) if f"{network}/{'/'.join(cell)}/6_final.mlir" not in judged]
            if cells:
                with tempfile.TemporaryDirectory() as folder:
                    onnx.save(load(), Path(folder) / f"{network}.onnx")
                    yield from compiled(Path(folder) / f"{network}.onnx", cells)

    def _networks(self) -> Mapping[str, Callable[[], onnx.ModelProto]]:
        if self.models:
            return {path.stem: partial(onnx.load, path) for path in self.models}
        return {name: lambda name=name: source(name)[0] for name in NETWORKS}

    def _cells(self, network: str) -> Iterator[tuple[str, str]]:
        for chip in CHIPS:
            for mode in MODES:
                wanted = any(fnmatch(f"{network}/{chip}/{mode}", pattern) for pattern in self.only)
                if wanted and mode in chips.load(chip).modes:
                    yield chip, mode


def compiled(model: Path, cells: Sequence[tuple[str, str]]) -> Iterator[StageFile]:
    """The stage files of a network: those that its cells share, then those of each cell. What fails is named."""
    network, folder = model.stem, model.parent
    table = str(folder / TABLE)
    canonical, calibrated = folder / "2_canonical.mlir", folder / "3_calibrated.mlir"
    measured = ("--data", "random:2", "--method", "max", "--tune-num", "0", "--out-table", table)
    if said := Stage("import", "1_top.mlir").run(model, folder):
        print(f"{network} not imported: {said}", flush=True)
        return
    yield from _chain(network, folder / "1_top.mlir", Stage("canonicalize", canonical.name))
    if canonical.exists() and not Stage("calibrate", calibrated.name, measured).run(canonical, folder):
        yield from _chain(network, canonical, Stage("calibrate", calibrated.name, ("--table", table)))
    for chip, mode in cells:
        lower = Stage("lower", "4_tpu.mlir", ("--chip", chip, "--mode", mode))
        given, place = calibrated if mode == "int8" else canonical, folder / f"{chip}-{mode}"
        if given.exists():
            stages = (lower, Stage("group", "5_grouped.mlir"), Stage("assign", "6_final.mlir"), PROGRAM)
            yield from _chain(f"{network}/{chip}/{mode}", given, *stages, folder=place)


def _chain(cell: str, given: Path, *stages: Stage, folder: Path | None = None) -> Iterator[StageFile]:
    """Run stages, each on the file of the one before; the files, each with the stage that follows."""
    folder = folder or given.parent
    for stage in stages:
        if said := stage.run(given, folder):
            print(f"{cell} {stage.command} failed: {said}", flush=True)
            return
        yield StageFile(cell, given, folder / stage.made, stage)
        given = folder / stage.made


def judge(file: StageFile) -> str:
    """`same`, or why the tool refuses a stage file, how its output differs, or what the next stage makes of it."""
    upstream, path = Upstream.find(), file.path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for needed in (path, *path.parent.glob(f"{path.stem}*.npz")):
            shutil.copy(needed, folder)
        found = upstream.call(folder, "tpuc-opt", "--mlir-print-debuginfo", path.name, "-o", SEEN)
        if found.returncode:  # with an option the tool reads the weights, too
            told = found if (alone := upstream.call(folder, "tpuc-opt", path.name)).returncode == 0 else alone
            return f"{'weights ' * (told is found)}refused: {_reason(told.stderr)}"
        seen = folder / SEEN
        try:
            before, after = _parsed(path), _parsed(seen)
        except ImportModelError as error:
            return f"unread: {error}"
        verdict = difference(plain(before), plain(after))
        return verdict if verdict != SAME or file.following is None else _followed(file, seen)


def _followed(file: StageFile, seen: Path) -> str:
    """Make the next file of what the tool printed: a program of the same bytes, or the same module and weights."""
    assert file.following and file.next
    folder = seen.parent / "following"
    if said := file.following.run(seen, folder):
        return f"not followed: {said}"
    made = folder / file.next.name
    if made.suffix != ".mlir":
        return SAME if made.read_bytes() == file.next.read_bytes() else "followed by another program"
    for wanted in file.next.parent.glob(f"{made.stem}*.npz"):
        if name := _other_arrays(wanted, folder / wanted.name):
            return f"followed by other weights: {name}"
    verdict = difference(*(plain(_parsed(path)) for path in (file.next, made)))
    return verdict if verdict == SAME else f"followed by another module: {verdict}"


def _parsed(path: Path) -> ModuleOp:
    return parse_module(path.read_text(encoding="utf-8"), context(), path.name)


def _other_arrays(wanted: Path, made: Path) -> str:
    """The first array in which two files differ."""
    with np.load(wanted) as a, np.load(made) as b:
        names = sorted({*a.files, *b.files})
        return next((n for n in names if n not in a or n not in b or a[n].tobytes() != b[n].tobytes()), "")


def _reason(said: str) -> str:
    return (said.strip().splitlines() or ["no reason"])[0][:300]


def plain(module: ModuleOp) -> list[str]:
    """The lines of a module without the attributes that no class of ours defines.

    The tool writes the weights to a file that it names itself.
    """
    module.attributes = {k: v for k, v in sorted(module.attributes.items()) if k != "module.weight_file"}
    for op in list(module.walk()):
        if op.name == NONE and not op.results[0].uses:  # the tool erases it
            op.detach()
            op.erase()
            continue
        if isinstance(op, IRDLOperation) and (known := entry(op.name)):  # others are opaque
            defined, stated = defined_attributes(type(op)), sorted(op.attributes.items())
            op.attributes = {
                k: v for k, v in stated if (k in defined or k not in known.attributes) and not known.is_default(k, v)
            }
        arguments = (a for region in op.regions for block in region.blocks for a in block.args)
        for value in (*op.results, *arguments):
            value.name_hint = None
    return print_module(module).splitlines()


def difference(before: list[str], after: list[str]) -> str:
    """The first line that differs."""
    if before == after:
        return "same"
    pairs = ((a, b) for a, b in zip(before, after, strict=False) if a != b)
    a, b = next(pairs, (str(len(before)), str(len(after))))
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"changed: {a[max(at - 80, 0) : at + 60]} -> {b[max(at - 80, 0) : at + 60]}"


if __name__ == "__main__":
    try:
        tyro.cli(Spelling).execute()
    except TpusimError as error:
        raise SystemExit(str(error)) from None
