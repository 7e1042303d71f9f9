"""Folders that somebody else prepared: a run writes, reads and deletes nothing outside of the folder it is given."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from builders.stored import NAMES, content, run
from hostile_models import external

from tpusim.errors import ConfigError
from tpusim.frontend.onnx import external_files
from tpusim.host.files import is_file_name, replacing
from tpusim.running.persistence import data_of
from tpusim.running.store import LOCK, MANIFEST, UNFINISHED, Store

MINE = "mine"
SHA = hashlib.sha256(MINE.encode()).hexdigest()
OUTSIDE = [
    "../thesis.txt",
    "../../thesis.txt",
    "/TOP/thesis.txt",
    "x/../../thesis.txt",
    ".",
    "..",
    "",
    "a\0b",
    "..\\a.txt",
]


pytestmark = pytest.mark.every


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder next to files of the user."""
    for folder in (tmp_path, tmp_path / "out", tmp_path / "out" / UNFINISHED):
        folder.mkdir(exist_ok=True)
        (folder / "thesis.txt").write_text(MINE)
    return tmp_path / "out"


def mine(out: Path) -> list[str]:
    """The user's files, as they are now."""
    return [(folder / "thesis.txt").read_text() for folder in (out.parent, out, out / UNFINISHED)]


@pytest.mark.parametrize("where", ["", UNFINISHED])
@pytest.mark.parametrize("name", [*OUTSIDE, "thesis.txt"])
def test_a_manifest_names_no_file_of_the_user(out: Path, name: str, where: str):
    """As a file that is being written, as one of a known content, and as one of a complete stage."""
    name = name.replace("/TOP", str(out.parent))
    entry, files = {"sha256": SHA, "stage": "first"}, [name, "a.txt"]
    stage = {"key": "k1", "seconds": 1.0, "files": files}
    hostile = {"tpusim": "1", "writing": [name], "files": {name: entry}, "stages": {"first": stage}}
    for folder in (out, out / UNFINISHED) if where else (out,):
        (folder / MANIFEST).write_text(json.dumps(hostile))
    with Store(out, NAMES, "1") as store:
        assert store.completed({"first": "k1"}, edited=True) == (out / UNFINISHED, [])
    run(out, "1", "2", "3")
    run(out, "x")
    assert mine(out) == [MINE] * 3 and (out / "a.txt").read_text() == "x"


@pytest.mark.parametrize("stage", ["first", "second"])
def test_unfinished_files_are_a_matter_of_the_unfinished_run(out: Path, stage: str):
    """In the folder itself a run writes nothing before it is complete."""
    (out / "b.txt").write_text(MINE)
    (out / MANIFEST).write_text(json.dumps({"tpusim": "1", "writing": ["b.txt"]}))
    with pytest.raises(ConfigError, match=r"b.txt was not written by a run and would be lost"):
        run(out, stage, "2")
    assert (out / "b.txt").read_text() == MINE


def test_samples_of_a_run_may_be_named_by_links_that_lead_nowhere(out: Path):
    (out / "inputs.npz").symlink_to("inputs.npz")
    for data in ("random:3", str(out.parent / "thesis.txt")):
        (out / MANIFEST).write_text(json.dumps({"tpusim": "1", "config": {"data": data}}))
        assert data_of(out) == (data, 0)


def as_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def as_hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def as_text(path: Path, target: Path) -> None:
    path.write_text(target.read_text())


def as_folder(path: Path, target: Path) -> None:
    path.mkdir()


def as_pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [as_link, as_hard_link, as_text, as_folder, as_pipe])
def test_a_lock_leads_to_no_other_file(out: Path, make):
    make(out / LOCK, out.parent / "thesis.txt")
    with pytest.raises(ConfigError, match="the lock of a run is required, which this is not; remove it"):
        run(out, "1")
    assert mine(out) == [MINE] * 3 and (out / LOCK).exists()


@pytest.mark.parametrize("left", ["", "123\n", "4194304"])
def test_the_lock_of_a_dead_run_is_taken(out: Path, left: str):
    (out / LOCK).write_text(left)
    run(out, "1")
    assert (out / "a.txt").read_text() == "1" and not (out / LOCK).exists()


def test_the_folder_of_an_unfinished_run_is_no_link(tmp_path: Path):
    (tmp_path / "home").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / UNFINISHED).symlink_to(tmp_path / "home")
    with pytest.raises(ConfigError, match="must be a folder in it, got a link"):
        run(tmp_path / "out", "1")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_copy_of_a_complete_stage_follows_no_link(out: Path):
    """Stages that are reused from a finished run are copied; a link of that name would take the copy elsewhere."""
    run(out, "1", "2")
    (out / UNFINISHED).mkdir(exist_ok=True)
    (out / UNFINISHED / "a.txt").symlink_to(out.parent / "thesis.txt")
    with (
        Store(out, NAMES[1:], "1", NAMES) as store,
        pytest.raises(ConfigError, match=r"a.txt was not written by a run"),
    ):
        store.begin({"run": "test"}, out, ["first"])
    assert (out.parent / "thesis.txt").read_text() == MINE and content(out)["a.txt"] == "1"


@pytest.mark.parametrize("name", ["/dev/zero", *OUTSIDE])
def test_weights_of_a_model_are_files_of_its_folder(out: Path, name: str):
    """Nothing else is read, not even for a digest."""
    for place in (name.replace("/TOP", str(out.parent)), "weights.bin"):
        (out / "net.onnx").write_bytes(external(place).SerializeToString())
        (out / "weights.bin").write_bytes(b"1234")
        assert external_files(out / "net.onnx") == [out / "weights.bin"] * (place == "weights.bin")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_of_a_folder(name: str):
    assert not is_file_name(name)
    assert is_file_name("..txt") and is_file_name("größe 1.npz")


def test_what_is_written_is_a_file_under_a_name_that_nobody_knows(tmp_path: Path):
    """Not a device, a pipe or a folder; and links that somebody put where a temporary file was expected do nothing."""
    names: set[str] = set()
    for _ in range(3):
        with replacing(tmp_path / "made") as temporary:
            temporary.write_text("whole")
            names.add(temporary.name)
    assert len(names) == 3 and not any(str(os.getpid()) in name for name in names)
    as_pipe(tmp_path / "pipe", tmp_path)
    for path in (Path(os.devnull), tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="a file is required, which this is not"), replacing(path):
            raise AssertionError
    assert not Path(os.devnull).is_file()
