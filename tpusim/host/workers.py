"""Work units on any `concurrent.futures.Executor`: processes of this machine, a Dask or a Ray cluster.

A unit is a module's function with arguments that can be pickled, and needs nothing else. If its worker dies, it is run
again, perhaps elsewhere. Results come in the order of the units. The caller decides what a unit is.
"""

import importlib
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tpusim.errors import ConfigError, TpusimError, WorkerError, option

T = TypeVar("T")
TRIES = 4
"""How often a unit is begun before it counts as the cause of its workers' death."""
AHEAD = 64
"""The number of units in flight to a cluster at a time; for processes it is two for each."""


@dataclass(frozen=True)
class Workers:
    """The workers that run units.

    name: for display; make: makes an executor, again when one breaks; ahead: units in flight at a time, so that memory
    does not grow with their number; folder: where files for the workers are put, a new temporary one if None.
    """

    name: str
    make: Callable[[], Executor] = field(repr=False)
    ahead: int = AHEAD
    folder: Path | None = None

    @contextmanager
    def begun(self) -> "Generator[Crew]":
        """The workers, ready for units, with a folder for what all units need; both are removed afterwards."""
        with TemporaryDirectory(prefix="tpusim-", dir=self.folder) as name:
            crew = Crew(Path(name), self.make, self.ahead)
            try:
                yield crew
            finally:
                crew.close()

    @contextmanager
    def kept(self) -> "Generator[Workers]":
        """The same workers for several uses: the first one makes the executor, and the end of the context ends it."""
        executors: list[Executor] = []

        def make() -> Executor:
            if not executors:
                executors.append(self.make())
            return _Kept(executors)

        try:
            yield replace(self, make=make)
        finally:
            for executor in executors:
                executor.shutdown()


class _Kept(Executor):
    """An executor that outlives the crews that use it. kept: a list of this executor, empty once it has ended."""

    def __init__(self, kept: list[Executor]) -> None:
        self._kept, (self._executor,) = kept, kept

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Submit a call to the executor that lasts."""
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End it if its units are given up or it broke; the next crew gets another."""
        if not wait:
            self._kept.clear()
            self._executor.shutdown(wait=False, cancel_futures=cancel_futures)


@dataclass
class _Unit:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tries: int = 0
    future: "Future[Any] | None" = None
    executor: Executor | None = None


class Crew:
    """Running workers: an executor, replaced when it breaks, and the units in flight.

    folder: seen by all of them.
    """

    def __init__(self, folder: Path, make: Callable[[], Executor], ahead: int) -> None:
        self.folder, self._make, self._ahead = folder, make, ahead
        self._executor = make()
        self._under_way: deque[_Unit] = deque()

    def results(self, function: Callable[..., T], units: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """function(*unit) of every unit, in their order.

        A unit whose worker dies is run again, elsewhere if necessary. Raises the TpusimErrors of units, and WorkerError
        for a unit that has failed in another way `TRIES` times.
        """
        for unit in units:
            self._add(_Unit(function, unit))
            if len(self._under_way) >= self._ahead:
                yield self._next()
        while self._under_way:
            yield self._next()

    def _add(self, unit: _Unit) -> None:
        """Count one more unit as under way, and begin it."""
        self._under_way.append(unit)  # first, since Ctrl-C may come when it has begun
        self._begin(unit)

    def _next(self) -> Any:
        """The result of the unit that was begun first."""
        result = self._finished(self._under_way[0])
        self._under_way.popleft()
        return result

    def _begin(self, unit: _Unit) -> None:
        unit.tries += 1
        try:
            unit.future = self._executor.submit(unit.function, *unit.arguments)
        except BrokenExecutor:  # it broke with an earlier unit
            self._renew()
            unit.future = self._executor.submit(unit.function, *unit.arguments)
        unit.executor = self._executor

    def _finished(self, unit: _Unit) -> Any:
        while True:
            assert unit.future is not None
            error = unit.future.exception()
            if error is None:
                return unit.future.result()
            if isinstance(error, TpusimError):
                raise error
            if unit.tries >= TRIES:
                raise WorkerError(
                    f"a work unit failed {unit.tries} times, last with {type(error).__name__}: {error}; look at its "
                    f"workers (memory, versions), or run it here with {option('jobs', 1)}"
                ) from error
            if isinstance(error, BrokenExecutor) and unit.executor is self._executor:
                self._renew()
            self._begin(unit)

    def _renew(self) -> None:
        self._executor.shutdown(wait=False)
        self._executor = self._make()

    def close(self) -> None:
        """Drop the units in flight; idle workers end normally."""
        self._executor.shutdown(wait=not self._under_way)


def processes(jobs: int) -> Workers:
    """So many processes of this machine."""
    return Workers(f"{jobs} processes", lambda: ProcessesExecutor(jobs), 2 * jobs)


class ProcessesExecutor(Executor):
    """Processes of this machine that leave Ctrl-C to their parent, and end when it gives up."""

    def __init__(self, jobs: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts)
        self._begun: list[Any] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Submit a call; a process that begins now never sees Ctrl-C, not even before it can ignore it."""
        from multiprocessing import active_children

        before = active_children()
        with _interrupts_kept_from_children():
            try:
                return self._executor.submit(fn, *args, **kwargs)
            finally:
                self._begun += [child for child in active_children() if child not in before]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: at once if they are not waited for, else after what they have begun.

        The thread that manages them is waited for in either case: Python's exit stops it, and prints a traceback if
        the thread ends at the same moment. Futures in flight then fail; cancelled ones would stop that thread.
        """
        for process in () if wait else self._begun:
            process.terminate()
        self._executor.shutdown(cancel_futures=wait and cancel_futures)


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _interrupts_kept_from_children() -> Generator[None]:
    """Processes that begin inside have SIGINT blocked, where the system has masks; here it comes a moment later."""
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


def workers_of(jobs: int, executor: str, folder: Path | None) -> Workers | None:
    """The workers that options name; None: this process alone.

    executor: `dask://HOST:PORT` (a scheduler's address) or `ray://HOST:PORT`, or "" for `jobs` processes. Raises
    ConfigError for what is neither, and for a package that is not installed.
    """
    if not executor:
        if folder is not None:
            raise ConfigError(
                f"{option('share', folder)}: needs {option('executor')}; the processes of {option('jobs')} "
                "already share temporary files"
            )
        return processes(jobs) if jobs > 1 else None
    if jobs > 1:
        raise ConfigError(
            f"{option('jobs', jobs)}: {option('executor', executor)} has its own number of workers; leave one out"
        )
    scheme, found, address = executor.partition("://")
    makers = {"dask": _dask, "ray": _ray}
    if not found or scheme not in makers or not address:
        raise ConfigError(f"{option('executor', executor)}: dask://HOST:PORT or ray://HOST:PORT is required")
    return Workers(executor, makers[scheme](address), AHEAD, folder)


def _package(scheme: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{option('executor', scheme)}://: needs {module}; pip install 'tpusim[{scheme}]'") from error


def _dask(address: str) -> Callable[[], Executor]:
    distributed = _package("dask", "distributed")

    def connect() -> Executor:
        try:
            return DaskExecutor(distributed.Client(f"tcp://{address}", timeout=10))
        except OSError as error:
            raise ConfigError(f"{option('executor')} dask://{address}: no scheduler answers there ({error})") from error

    return connect


class DaskExecutor(Executor):
    """A Dask client's executor that ends the connection too. Dask itself moves units of a worker that dies."""

    def __init__(self, client: Any) -> None:
        self._client, self._executor = client, client.get_executor(pure=False)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Submit a call, as a client of Dask does."""
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the executor, then the connection to it."""
        del cancel_futures
        self._executor.shutdown(wait=wait)
        self._client.close()


def _ray(address: str) -> Callable[[], Executor]:
    ray = _package("ray", "ray")
    try:
        ray.init(address=f"ray://{address}", ignore_reinit_error=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{option('executor')} ray://{address}: no cluster answers there ({error})") from error
    return lambda: RayExecutor(ray)


class RayExecutor(Executor):
    """Ray's tasks as an executor. ray: its package, connected to a cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """A task with the function's result, or its error as the function raised it."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # nobody cancels it while it gets its result

        def hand_over(task: "Future[T]") -> None:
            error = task.exception()
            if error is None:
                done.set_result(task.result())
            else:
                cause = getattr(error, "cause", None)
                done.set_exception(cause if isinstance(cause, TpusimError) else error)

        self._ray.remote(fn).remote(*args, **kwargs).future().add_done_callback(hand_over)
        return done
