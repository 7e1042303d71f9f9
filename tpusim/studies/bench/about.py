"""What was measured on: figures without it say nothing."""

import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tpusim.studies.bench.contestants import threads
from tpusim.version import __version__


def about() -> dict[str, str | int]:
    """What a timing depends on: processor, threads and the versions of the packages that compute."""
    packages = {name: version(name) for name in ("jaxlib", "numpy", "onnxruntime")}
    return {"processor": _processor(), "threads": threads(), "tpusim": __version__, **packages}


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
