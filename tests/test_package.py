"""What strangers get: a wheel with all data files and types, which runs without the repository."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from empty_environments import PARTS, PYTHONS, build_wheel, run, why_not

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"), "--no-build-isolation")


def test_the_environments_of_make_wheel_test_are_those_that_are_promised():
    """A version that is not here is named with its reason, not left out."""
    assert min(PYTHONS) == PROJECT["project"]["requires-python"].removeprefix(">=")
    assert set(FOLDERS[name].relative_to(ROOT).parts[0] for name in FOLDERS) <= set(PARTS)
    assert why_not(sys.executable) == "" and why_not("python0.1") == "no python0.1 on the path"


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
