"""What strangers get: a wheel with all data files and types, which runs without the repository."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from empty_environments import PARTS, PYTHONS, build_wheel, run, why_not
from release import faults

from tpusim.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {
    (ROOT / name).name: ROOT / name for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
}


def data_files(folder: Path) -> set[str]:
    """Files of a package that are no Python, relative to it."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in files if path.suffix not in (".py", ".pyc")}


@pytest.mark.every
@pytest.mark.parametrize("name", FOLDERS)
def test_packages_say_that_they_are_typed(name: str):
    assert "py.typed" in data_files(FOLDERS[name])


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


def test_the_wheel_has_every_file(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name, folder in FOLDERS.items():
        modules = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
        assert {f"{name}/{file}" for file in modules | data_files(folder)} <= names
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(FOLDERS)


EDITABLE = """
import pathlib, sys, tpusim, tpusim_kernels
assert pathlib.Path(tpusim.__file__).parent == pathlib.Path(sys.argv[1]) / "tpusim", tpusim.__path__
assert pathlib.Path(tpusim_kernels.__file__).parents[1] == pathlib.Path(sys.argv[1]) / "kernels"
tpusim.compile, tpusim.load
"""


@pytest.mark.parametrize("clone", ["tpusim", "kernels", "tpusim_kernels"])
def test_an_editable_install_wins_over_the_folder_of_a_clone(tmp_path: Path, clone: str):
    """Imported from the folder above a clone, whatever its name; type checkers read the same .pth file."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    tree = tmp_path / clone
    tree.mkdir()
    for name in PARTS:
        (tree / name).symlink_to(ROOT / name)
    site = tmp_path / "site"
    run([*words, site, "-e", tree], tmp_path)
    (pth,) = site.glob("*.pth")
    assert pth.read_text().split() == [str(tree), str(tree / "kernels")]
    installed = [str(ROOT), str(ROOT / "kernels")]  # the environment of the tests has this tree, too
    path = f"import site, sys; sys.path[:] = [p for p in sys.path if p not in {installed}]"
    code = f"{path}\nsite.addsitedir({str(site)!r})\n{EDITABLE}"
    run([sys.executable, "-c", code, str(tree)], tmp_path, PYTHONPATH="")


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


def planted(tmp_path: Path, name: str, before: str, after: str) -> list[str]:
    """The faults of a release whose file has `after` in place of `before`."""
    for file in ("pyproject.toml", "CITATION.cff"):
        (tmp_path / file).write_text((ROOT / file).read_text())
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n## {__version__} (2026-01-31)\n\n- One.\n")
    text = (tmp_path / name).read_text()
    assert before in text
    (tmp_path / name).write_text(text.replace(before, after))
    return list(faults(tmp_path, __version__))


@pytest.mark.every
@pytest.mark.parametrize(
    ("name", "before", "after", "fault"),
    [
        ("CHANGELOG.md", "# Changelog", "# Changes", ""),
        ("CHANGELOG.md", "Unreleased\n", "Unreleased\n- More.\n", "an empty section Unreleased is required"),
        ("CHANGELOG.md", "(2026-01-31)", "(soon)", f"one section '## {__version__} (YYYY-MM-DD)' is required"),
        ("CHANGELOG.md", "- One.\n", "- One.\n" * 121, "at most 120 lines"),
        ("CITATION.cff", __version__, "0.0.9", "CITATION.cff: version"),
        ("pyproject.toml", f'version = "{__version__}"', 'version = "0.0.9"', "pyproject.toml: version"),
    ],
)
def test_a_release_names_what_is_wrong(tmp_path: Path, name: str, before: str, after: str, fault: str):
    found = planted(tmp_path, name, before, after)
    assert len(found) == bool(fault) and all(fault in line for line in found)
