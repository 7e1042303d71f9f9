"""Strict JAX for every test, and compiled kernels kept between test runs."""

from __future__ import annotations

import collecting  # before the libraries, whose imports would be collected again and again

# isort: split
import gc
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import jax
import pytest
from hypothesis import settings
from op_row import OpCase
from rotation import thin
from tpusim_kernels import store

from tpusim.cli import entry

os.environ.pop("COLUMNS", None)  # of whoever runs the tests: tables are as wide as in a pipe
DEFAULT = "not slow and not zoo"
"""The tests that pyproject.toml selects."""
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("search", settings.get_profile("repeatable"), derandomize=False)
settings.load_profile("repeatable")
"""The same tests run together see the same examples (Hypothesis also draws from constants of the modules at hand, so a
file run alone sees others); `make fuzz` looks for new ones (`--hypothesis-profile search`)."""


def pytest_configure(config: pytest.Config) -> None:
    """Implicit type or rank promotion is an error, as for users with strict settings.

    Compiling the kernels takes most of the time of a test run, so the compiled code is kept, in JAX's cache only what
    takes long: kernels have another store, and JAX would write each of them once more under a name of this run.
    Another run may be writing an entry while this one reads it: JAX then warns and compiles, which is no failure.
    """
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning")
    entry.COLLECT_AFTER = collecting.AFTER
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(base / "tpusim" / "jax-tests"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    store.use(base / "tpusim" / "kernels-tests", limit=4 << 30)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the files of all tests from the last one on, in every second process of pytest-xdist.

    All processes import the same files at the same time: so each compiles one half of those that have no bytecode yet.
    """
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS and int(number) % 2:
        for path in sorted(Path(__file__).parent.glob("test_*.py"), reverse=True):
            with suppress(Exception, pytest.skip.Exception):  # pytest says it when it collects the file
                import_module(path.stem)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no items of parameters that are marked slow, where they would be deselected: four in five of all items.

    Of a function whose parameters all are, one is made.
    Only if tests are selected by the expression of pyproject.toml, and not by their names.
    """
    config, marks = metafunc.config, metafunc.definition.own_markers
    if config.getoption("markexpr") != DEFAULT or any("::" in word for word in config.args):
        return
    for i, mark in enumerate(marks):
        values = mark.args[1] if mark.name == "parametrize" and len(mark.args) > 1 else None
        if isinstance(values, list) and not isinstance(mark.kwargs.get("ids"), list):
            kept = [value for value in values if not is_marked_slow(value)] or values[:1]
            marks[i] = pytest.mark.parametrize(mark.args[0], kept, *mark.args[2:], **mark.kwargs).mark


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the op rows last, and group the tests for `--dist loadgroup --no-loadscope-reorder`.

    One process meets all items of a row, so that it is imported, lowered and compiled once, and all of a file, whose
    networks and runs are made once per process. Rows are small: coming last, they let both processes end together.
    Items of long functions are thinned out before (rotation.py).
    """
    thin(item for item in items if row_of(item) is None and not is_slow(item))
    items.sort(key=lambda item: row_of(item) is not None)
    for item in items:
        row = row_of(item)
        if row is not None:
            item.add_marker(pytest.mark.xdist_group(row))
        elif not is_slow(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay until the end; the garbage collector need not look at them again and again.

    Raises UsageError if pytest-xdist was asked for groups and made none, as 3.8 does with pytest 9.2 (xdist #1386):
    then both processes compile the same, and nothing else shows it.
    """
    if session.config.getoption("loadgroup", False) and not any("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("--dist loadgroup does not group with this pytest; install pytest<9.2, or leave it out")
    gc.freeze()


def row_of(item: pytest.Item) -> str | None:
    """The op row that a test is about."""
    call = getattr(item, "callspec", None)
    case = call.params.get("case") if call is not None else None
    return case.id if isinstance(case, OpCase) else None


def is_marked_slow(value: object) -> bool:
    """Whether a value of a parameter is."""
    return any(mark.name in ("slow", "zoo") for mark in getattr(value, "marks", ()))


def is_slow(item: pytest.Item) -> bool:
    """Whether the default tests leave it out."""
    return bool(item.get_closest_marker("slow") or item.get_closest_marker("zoo"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the files of tests/golden anew instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--update-golden"))
