"""What strangers get: a wheel with all data files and types, which runs without the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpusim.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {name: ROOT / folder for name, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()}


def data_files(folder: Path) -> set[str]:
    """Files of a package that are no Python, relative to it."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in files if path.suffix not in (".py", ".pyc")}


@pytest.mark.every
@pytest.mark.parametrize("name", FOLDERS)
def test_all_data_files_are_packaged(name: str):
    packaged = {
        path.relative_to(FOLDERS[name]).as_posix()
        for pattern in PROJECT["tool"]["setuptools"]["package-data"][name]
        for path in FOLDERS[name].glob(pattern)
    }
    assert packaged == data_files(FOLDERS[name]) and "py.typed" in packaged


def test_one_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert PROJECT["project"]["version"] == __version__
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [__version__]


def run(words: list[str | Path], folder: Path, **more: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, **more})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel of this tree, built outside it: setuptools would leave `build` and egg-info behind."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", *{f.relative_to(ROOT).parts[0] for f in FOLDERS.values()}):
        (tree / name).symlink_to(ROOT / name)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, tree]
    run([sys.executable, *build], tree)
    (found,) = out.glob("tpusim-*.whl")
    yield found


@pytest.mark.slow
def test_the_wheel_has_every_file(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name, folder in FOLDERS.items():
        modules = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
        assert {f"{name}/{file}" for file in modules | data_files(folder)} <= names
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(FOLDERS)


@pytest.mark.slow
def test_the_wheel_runs_outside_the_repository(wheel: Path, tmp_path: Path):
    """Digits from ONNX to verdict, with nothing of the repository on the path; dependencies are those of the tests."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    words = f"run {DIGITS}/digits.onnx --chip bm1688 --mode int8 --data {DIGITS}/calibration.npz --samples 8 --out out"
    here = f"import tpusim; assert tpusim.__file__.startswith({str(site)!r})"
    code = f"{here}\nfrom tpusim.cli import main\nmain({words.split()})"
    out = run([sys.executable, "-W", "error", "-c", code], tmp_path, PYTHONPATH=str(site))
    assert "PASSED" in out and (tmp_path / "out" / "report.json").exists()
