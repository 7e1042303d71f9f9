"""No call in the code that only POSIX systems have, and no file whose encoding depends on the system."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [*(ROOT / "tpusim").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "crypt", "posix"}
"""Modules that Windows lacks: to be imported where their absence is met (in a `try`)."""
CALLS = {
    "os": {"fork", "forkpty", "kill", "killpg", "getuid", "geteuid", "getgid", "setsid", "pread", "pwrite", "mkfifo",
           "uname", "sysconf", "getpgid", "nice", "chown", "wait", "waitpid", "getpriority", "statvfs", "O_CLOEXEC"},
    "signal": {"pthread_sigmask", "SIGKILL", "SIGUSR1", "SIGHUP", "SIGALRM", "alarm", "setitimer", "pause", "sigwait"},
    "time": {"tzset", "pthread_getcpuclockid"},
}  # fmt: skip
ENCODED = {"read_text", "write_text"}


def guarded(tree: ast.Module) -> set[ast.AST]:
    """What stands in a `try` that catches ImportError."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any("ImportError" in ast.dump(handler) for handler in node.handlers):
            found |= {inner for statement in node.body for inner in ast.walk(statement)}
    return found


def faults(text: str) -> Iterator[str]:
    """What would not work elsewhere."""
    tree = ast.parse(text)
    met = guarded(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in met:
            yield from (f"import {name.name}" for name in node.names if name.name in POSIX)
        elif isinstance(node, ast.ImportFrom) and node not in met and node.module in POSIX:
            yield f"from {node.module}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in CALLS.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = {keyword.arg for keyword in node.keywords}
            of_path = not isinstance(node.func.value, ast.Name) or node.func.value.id not in ("self", "text")
            if node.func.attr in ENCODED and of_path and "encoding" not in names:
                yield f"{node.func.attr} without an encoding"
            modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if (
                node.func.attr == "open"
                and modes
                and set(modes[0]) <= set("rwax+t")
                and not names & {"encoding", "force_zip64"}
            ):
                yield "open without an encoding"


def test_nothing_needs_posix() -> None:
    words = [*POSIX, *(name for names in CALLS.values() for name in names), *ENCODED, "open"]
    likely = re.compile(rf"\b({'|'.join(words)})\b")  # to parse all files takes seconds
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    found = {path: list(faults(text)) for path, text in texts.items() if likely.search(text)}
    assert len(texts) > 300 and len(found) > 20 and not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import fcntl", "import fcntl"),
        ("from resource import getrusage", "from resource"),
        ("import os\nos.fork()", "os.fork"),
        ("import signal\nsignal.pthread_sigmask(0, [])", "signal.pthread_sigmask"),
        ("path.read_text()", "read_text without an encoding"),
        ("path.open('w')", "open without an encoding"),
    ],
)
def test_the_search_finds_them(text: str, fault: str) -> None:
    assert list(faults(text)) == [fault]
    assert not list(faults("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None"))
    assert not list(faults("path.read_text(encoding='utf-8'); path.open('rb')"))
