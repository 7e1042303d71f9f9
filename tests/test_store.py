"""The store of artefacts: what is not a run's own is never lost, and a run is there whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import onnx
import pytest
from builders.stored import KEYS, NAMES, content, keep, run
from onnx import TensorProto, helper, numpy_helper

from tpusim.errors import ConfigError
from tpusim.running.persistence import model_key
from tpusim.running.store import LOCK, MANIFEST, UNFINISHED, Store, note_written


def test_a_run_replaces_the_run_before(tmp_path: Path):
    run(tmp_path, "1", "2", "3")
    run(tmp_path, "x", "y")
    assert content(tmp_path) == {"a.txt": "x", "b.txt": "y"}
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", "b.txt", MANIFEST}
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert list(manifest["stages"]) == ["first", "second"] and manifest["config"] == {"run": "test"}
    assert manifest["files"]["a.txt"]["stage"] == "first" and len(manifest["files"]["a.txt"]["sha256"]) == 64


@pytest.mark.parametrize("name", ["a.txt", MANIFEST, f"{UNFINISHED}/b.txt"])
def test_a_file_of_somebody_is_never_replaced(tmp_path: Path, name: str):
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"{Path(name).name} was not written by a run and would be lost; move it"):
        run(tmp_path, "1", "2", "3")
    assert (tmp_path / name).read_text() == "mine" and not (tmp_path / LOCK).exists()


def test_a_file_that_was_edited_is_never_replaced_or_removed(tmp_path: Path):
    run(tmp_path, "1", "2", "3")
    (tmp_path / "c.txt").write_text("edited")
    with pytest.raises(ConfigError, match=r"c.txt was changed since a run wrote it"):
        run(tmp_path, "x", "y", "z")
    with Store(tmp_path, NAMES[:2], "1", NAMES) as store:  # a run that does not write it leaves it
        store.begin({"run": "test"}, tmp_path, [])
        keep(store, "first", "x")
        store.publish(lambda path: False)
    assert content(tmp_path) == {"a.txt": "x", "c.txt": "edited"}


def test_a_file_of_another_size_is_not_read(tmp_path: Path):
    """It may be so large that reading takes hours; a manifest of an earlier version states no sizes."""
    run(tmp_path, "1", "2", "3")
    os.truncate(tmp_path / "c.txt", 1 << 42)
    with pytest.raises(ConfigError, match=r"c.txt was changed since a run wrote it"):
        run(tmp_path, "x", "y", "z")
    (tmp_path / "c.txt").write_text("3")
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    for entry in manifest["files"].values():
        del entry["sizes"]
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    run(tmp_path, "x", "y", "z")
    assert content(tmp_path) == {"a.txt": "x", "b.txt": "y", "c.txt": "z"}


@pytest.mark.parametrize("name", ["b.txt", "c.txt"])
def test_a_command_s_file_may_be_replaced_and_ends_what_was_complete(tmp_path: Path, name: str):
    """A command wrote two files by default into a run's folder: a file of the run, and another."""
    run(tmp_path, "1", "2", "3") if name == "c.txt" else run(tmp_path, "1", "2")
    (tmp_path / name).write_text("of a command")
    with pytest.raises(ConfigError, match="would be lost"):
        run(tmp_path, "x", "y", "z")
    note_written(tmp_path / name, "simulate", NAMES)
    left = json.loads((tmp_path / MANIFEST).read_text())["stages"]
    assert list(left) == (["first"] if name == "b.txt" else ["first", "second"])
    run(tmp_path, "x", "y", "z")
    assert content(tmp_path) == {"a.txt": "x", "b.txt": "y", "c.txt": "z"}


def test_a_command_notes_nothing_without_a_run_or_of_other_names(tmp_path: Path):
    (tmp_path / "a.txt").write_text("mine")
    note_written(tmp_path / "a.txt", "simulate", NAMES)
    assert not (tmp_path / MANIFEST).exists()
    (tmp_path / "a.txt").unlink()
    run(tmp_path, "1")
    before = (tmp_path / MANIFEST).read_text()
    (tmp_path / "mine.txt").write_text("mine")
    note_written(tmp_path / "mine.txt", "simulate", NAMES)
    note_written(tmp_path / "a.txt", "simulate", NAMES)  # as the run wrote it
    assert (tmp_path / MANIFEST).read_text() == before


def test_a_file_that_appears_while_the_run_goes_on_stops_it_before_anything_is_moved(tmp_path: Path):
    with pytest.raises(ConfigError, match="b.txt was not written by a run"), Store(tmp_path, NAMES, "1") as store:
        store.begin({"run": "test"}, tmp_path, [])
        keep(store, "first", "1")
        keep(store, "second", "2")
        (tmp_path / "b.txt").write_text("mine")
        store.publish(lambda path: False)
    assert content(tmp_path) == {"b.txt": "mine"} and content(tmp_path / UNFINISHED) == {"a.txt": "1", "b.txt": "2"}


def test_a_link_is_not_followed(tmp_path: Path):
    run(tmp_path, "1")
    (tmp_path / "mine").write_text("1")
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="a.txt was changed"):
        run(tmp_path, "x")
    assert (tmp_path / "mine").read_text() == "1"


@pytest.mark.parametrize("fail", [ConfigError("no"), KeyboardInterrupt()])
def test_a_run_that_fails_leaves_both(tmp_path: Path, fail: BaseException):
    """The earlier run stays in place, the failed run's stages are elsewhere, and the error says where."""
    run(tmp_path, "1", "2", "3")
    with pytest.raises(type(fail)) as caught:
        run(tmp_path, "x", "y", fail=fail)
    assert content(tmp_path) == {"a.txt": "1", "b.txt": "2", "c.txt": "3"}
    assert content(tmp_path / UNFINISHED) == {"a.txt": "x", "b.txt": "y"}
    assert f"finished up to 'second', see {tmp_path / UNFINISHED}; resume=True" in caught.value.__notes__[0]
    run(tmp_path, "p", "q", "r")
    assert content(tmp_path) == {"a.txt": "p", "b.txt": "q", "c.txt": "r"} and not (tmp_path / UNFINISHED).exists()


def test_files_that_cannot_be_written_stop_the_run_and_count_as_unfinished(tmp_path: Path):
    """The stage after them may be computed by then, but nothing of it is kept."""

    def full(folder: Path) -> None:
        (folder / "b.txt").write_text("half")
        raise ConfigError("the disk is full")

    with pytest.raises(ConfigError, match="the disk is full") as caught, Store(tmp_path, NAMES, "1") as store:
        store.begin({"run": "test"}, tmp_path, [])
        keep(store, "first", "1")
        store.keep("second", "k2", 1.0, ("b.txt",), full)
        keep(store, "third", "3")
    assert "finished up to 'first'" in caught.value.__notes__[0]
    assert content(tmp_path / UNFINISHED) == {"a.txt": "1", "b.txt": "half"}
    run(tmp_path, "x", "y", reuse=1)
    assert content(tmp_path) == {"a.txt": "1", "b.txt": "x", "c.txt": "y"}


def test_an_error_waits_for_the_files_of_the_stage_before(tmp_path: Path):
    """They are written when the run has failed, and nothing writes into the folder any more."""
    begun, failed = Event(), Event()

    def slow(folder: Path) -> None:
        begun.set()
        assert failed.wait(10)
        (folder / "a.txt").write_text("1")

    with pytest.raises(ConfigError, match="no") as caught, Store(tmp_path, NAMES, "1") as store:
        store.begin({"run": "test"}, tmp_path, [])
        store.keep("first", "k1", 1.0, ("a.txt",), slow)
        assert begun.wait(10) and not (tmp_path / UNFINISHED / "a.txt").exists()
        failed.set()
        raise ConfigError("no")
    assert "finished up to 'first'" in caught.value.__notes__[0]
    assert content(tmp_path / UNFINISHED) == {"a.txt": "1"}


def test_a_run_that_finishes_nothing_leaves_nothing(tmp_path: Path):
    with pytest.raises(ConfigError):
        run(tmp_path / "new" / "out", fail=ConfigError("no"))
    assert list(tmp_path.iterdir()) == []


def test_resume_goes_on_from_what_is_complete(tmp_path: Path):
    with pytest.raises(ConfigError):
        run(tmp_path, "1", "2", fail=ConfigError("no"))
    with Store(tmp_path, NAMES, "1") as store:
        assert store.completed(KEYS) == (tmp_path / UNFINISHED, ["first", "second"])
        assert store.completed({**KEYS, "second": "other"}) == (tmp_path / UNFINISHED, ["first"])
    run(tmp_path, "3", reuse=2)
    assert content(tmp_path) == {"a.txt": "1", "b.txt": "2", "c.txt": "3"} and not (tmp_path / UNFINISHED).exists()
    (tmp_path / "b.txt").write_text("edited")
    with Store(tmp_path, ("c.txt",), "1", NAMES) as store:
        assert store.completed(KEYS) == (tmp_path, ["first"])
        assert store.completed(KEYS, edited=True) == (tmp_path, ["first", "second", "third"])


def test_a_file_in_the_way_that_is_the_same_is_no_loss(tmp_path: Path):
    """So that stages before `--from`, which a person edited, may stand."""
    run(tmp_path, "1", "2", "3")
    (tmp_path / "a.txt").write_text("edited")
    with Store(tmp_path, NAMES[1:], "1", NAMES) as store:
        store.begin({"run": "test"}, tmp_path, ["first"])
        keep(store, "second", "x")
        store.publish(lambda path: False)
    assert content(tmp_path) == {"a.txt": "edited", "b.txt": "x"}
    run(tmp_path, "p")


def test_what_is_read_stays(tmp_path: Path):
    run(tmp_path, "1", "2", "3")
    with Store(tmp_path, NAMES, "1") as store:
        store.begin({"run": "test"}, tmp_path, [])
        keep(store, "first", "x")
        store.publish(lambda path: path.name == "c.txt")
    assert content(tmp_path) == {"a.txt": "x", "c.txt": "3"}
    run(tmp_path, "1", "2", "3")  # and is still known as a run's


HOLD = """
import sys, time
from pathlib import Path
from tpusim.running.store import Store
with Store(Path(sys.argv[1]), ("a.txt", "b.txt"), "1") as store:
    store.begin({"run": "other"}, Path(sys.argv[1]), [])
    store.keep("first", "k", 1.0, ("a.txt",), lambda folder: (folder / "a.txt").write_text("1"))
    def half(folder):
        (folder / "b.txt").write_text("half")
        print("ready", flush=True)
        time.sleep(60)
    store.keep("second", "k", 1.0, ("b.txt",), half)
"""


def test_a_second_run_is_refused_and_a_dead_ones_lock_is_taken_over(tmp_path: Path):
    """Killed in the middle of a file: the next run knows its remains as a run's."""
    run(tmp_path, "1", "2")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True, env=here) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        with pytest.raises(ConfigError, match=rf"another run \(process {other.pid}\) writes to it"):
            run(tmp_path, "x")
        other.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK).exists() and content(tmp_path / UNFINISHED) == {"a.txt": "1", "b.txt": "half"}
    run(tmp_path, "x", "y")
    assert content(tmp_path) == {"a.txt": "x", "b.txt": "y"} and not (tmp_path / UNFINISHED).exists()


def test_killed_between_two_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Both contents of a name that is being replaced are a run's."""
    run(tmp_path, "1", "2")
    replace = Path.replace

    def dying(self: Path, target: Path) -> Path:
        if self.name == "b.txt":
            raise SystemExit
        return replace(self, target)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Path, "replace", dying)
        run(tmp_path, "x", "y")
    assert content(tmp_path) == {"a.txt": "x", "b.txt": "2"}
    run(tmp_path, "p", "q")
    assert content(tmp_path) == {"a.txt": "p", "b.txt": "q"}


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="a folder to write to is required, got Not a directory"):
        run(tmp_path / "file" / "out", "1")


def test_weights_outside_the_model_file_are_part_of_its_key(tmp_path: Path):
    path = tmp_path / "model.onnx"
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32), "w")
    tensor = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [6]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", tensor[:1], tensor[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = model_key(path)
    assert model_key(path) == before and len(before) == 2
    (tmp_path / "weights.bin").write_bytes(b"\0" * 24)
    assert model_key(path) != before
    assert model_key(tmp_path / "none.onnx") == [""]
