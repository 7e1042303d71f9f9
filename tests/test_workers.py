"""Work units: the order of results, workers that die, clusters by name, calibration that merges exactly."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from relu_chain import chain, growing
from worker_functions import refuse_the_first, square

from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.errors import CalibrationError, ConfigError, WorkerError
from tpusim.host.workers import Workers, processes, workers_of


class Inline(Executor):
    """Runs at once, in this process; every fifth unit is lost once, as on a cluster whose worker went away."""

    def __init__(self) -> None:
        self.begun = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.begun += 1
        future: Future[Any] = Future()
        try:
            if self.begun % 5 == 3:
                raise ConnectionError("worker lost")
            future.set_result(fn(*args, **kwargs))
        except (CalibrationError, ConnectionError) as error:
            future.set_exception(error)
        return future


INLINE = Workers("here", Inline, 3)


def results(workers: Workers, function: Callable[..., Any], units: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    with workers.begun() as crew:
        yield from crew.results(function, units)


@pytest.mark.every
@pytest.mark.parametrize("method", ["kl", "percentile9999", "aciq_gauss"])
def test_units_merge_to_the_table_of_one_process(method: str) -> None:
    config = CalibrationConfig(method, tune_samples=2)
    seen: list[int] = []
    table, count = calibrate(chain(), growing(21), config, seen.append, workers=INLINE)
    assert (table, count) == calibrate(chain(), growing(21), config)
    assert seen[-1] == 21 and seen == sorted(seen)


class Breaking(Executor):
    """Breaks with its fourth unit. ended: all that have ended."""

    ended: list["Breaking"]

    def __init__(self, ended: list["Breaking"]) -> None:
        self.inner, self.ended, self.count = Inline(), ended, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.count += 1
        if self.count == 4:
            raise BrokenExecutor("gone")
        return self.inner.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ended.append(self)


def test_kept_workers_serve_several_uses_until_they_break() -> None:
    made: list[Breaking] = []
    ended: list[Breaking] = []

    def make() -> Breaking:
        made.append(Breaking(ended))
        return made[-1]

    with Workers("here", make, 3).kept() as kept:
        assert list(results(kept, pow, [(1, 2), (2, 2)])) == [1, 4]
        assert len(made) == 1 and not ended
        assert list(results(kept, pow, [(3, 2), (4, 2)])) == [9, 16], "the second breaks the first executor"
        assert len(made) == 2 and ended == made[:1]
    assert ended == made


def test_an_error_of_a_unit_is_said_and_not_tried_again() -> None:
    def refuse(number: int) -> int:
        if number == 1:
            raise CalibrationError("no such sample")
        return number

    found = results(Workers("here", Inline, 1), refuse, [(0,), (1,), (2,)])
    assert next(found) == 0
    with pytest.raises(CalibrationError, match="no such sample"):
        next(found)


def test_a_unit_that_always_kills_its_worker() -> None:
    def always(number: int) -> int:
        raise ConnectionError(number)

    with pytest.raises(WorkerError, match="failed 4 times, last with ConnectionError: 7; look at its workers"):
        list(results(Workers("here", Inline, 1), always, [(7,)]))


def test_processes_of_which_one_dies(tmp_path: Path) -> None:
    found = list(results(processes(2), square, ((i, tmp_path) for i in range(9))))
    assert found == [i**2 for i in range(9)]
    assert (tmp_path / "died").exists()


def test_processes_that_are_given_up(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Those that work and those units that wait for one: all end at once, and no thread prints a traceback."""
    complaints: list[object] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    begin, before = time.monotonic(), set(threading.enumerate())
    with pytest.raises(CalibrationError, match="no such sample"):
        list(results(processes(2), refuse_the_first, ((i,) for i in range(9))))
    assert not active_children()
    assert not [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    assert not complaints and capfd.readouterr().err == "" and time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("jobs", "executor", "folder", "message"),
    [
        (1, "dask:8786", None, "executor='dask:8786': dask://HOST:PORT or ray://HOST:PORT is required"),
        (1, "slurm://a:1", None, "dask://HOST:PORT or ray://HOST:PORT is required"),
        (2, "dask://a:1", None, "jobs=2: executor='dask://a:1' has its own number of workers"),
        (2, "", Path("x"), "share=x: needs executor=..."),
        (1, "dask://127.0.0.1:1", None, r"needs distributed; pip install 'tpusim\[dask\]'"),
        (1, "ray://127.0.0.1:1", None, r"needs ray; pip install 'tpusim\[ray\]'"),
    ],
)
def test_what_is_no_executor(
    jobs: int, executor: str, folder: Path | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=message):
        workers_of(jobs, executor, folder)
    assert workers_of(1, "", None) is None


class Task:
    """What `ray.remote(function).remote(...)` gives: a reference with a `future`."""

    def __init__(self, future: "Future[Any]") -> None:
        self.future = lambda: future


def test_a_client_with_rays_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself is too large for the tests; errors reach its client wrapped, with the function's own as `cause`."""

    def remote(fn: Callable[..., Any]) -> SimpleNamespace:
        def run(*args: Any) -> Task:
            future: Future[Any] = Future()
            try:
                future.set_result(fn(*args))
            except CalibrationError as error:
                wrapped = RuntimeError("RayTaskError")
                wrapped.cause = error  # type: ignore[attr-defined]
                future.set_exception(wrapped)
            return Task(future)

        return SimpleNamespace(remote=run)

    addresses: list[str] = []
    package = SimpleNamespace(init=lambda address, **_: addresses.append(address), remote=remote)
    monkeypatch.setitem(sys.modules, "ray", package)
    workers = workers_of(1, "ray://head:10001", None)
    assert workers is not None and addresses == ["ray://head:10001"]
    config = CalibrationConfig("max", tune_samples=0)
    assert calibrate(chain(), growing(9), config, workers=workers) == calibrate(chain(), growing(9), config)

    def refuse() -> None:
        raise CalibrationError("wrapped")

    with pytest.raises(CalibrationError, match="wrapped"):
        list(results(workers, refuse, [()]))


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=request.param, threads_per_worker=1, dashboard_address=None, scheduler_port=0
    ) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cluster", [1, 3], indirect=True)
def test_a_dask_cluster_of_which_one_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    workers = workers_of(1, cluster.scheduler_address.replace("tcp", "dask"), tmp_path)
    assert workers is not None
    killed: list[int] = []

    def kill(done: int) -> None:
        if not killed and len(cluster.workers) > 1:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], 9)

    config, samples = CalibrationConfig("kl", tune_samples=0), growing(60)
    assert calibrate(chain(), samples, config, kill, workers=workers) == calibrate(chain(), samples, config)
    assert len(killed) == (len(cluster.workers) > 1)
