"""Commands as a user starts them: seconds by the clock, CPU seconds, peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = """
import resource, subprocess, sys, time
begin = time.perf_counter()
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""A small intermediate process: a process inherits the peak memory of the process that starts it."""


@dataclass(frozen=True)
class Cost:
    """wall: seconds by the clock; cpu: of processors; mib: the most memory at a time."""

    wall: float
    cpu: float
    mib: float

    def __str__(self) -> str:
        """The three, for people."""
        return f"{self.wall:6.1f} s  {self.cpu:6.1f} CPU s  {self.mib:7,.0f} MiB"


def with_compiled_modules(folder: Path | str) -> dict[str, str]:
    """The environment of this process, in which Python keeps compiled modules in a folder whatever it was told."""
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def tpusim(*arguments: str, folder: Path, kernels: Path | str) -> Cost:
    """Run the command line in a folder, with kernels kept in another one or "off".

    Raises CalledProcessError with the output if the command fails.
    """
    command = [sys.executable, "-m", "tpusim", *arguments]
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join([root, str(Path(root) / "kernels"), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": paths, "TPUSIM_KERNELS": str(kernels)}
    done = subprocess.run(  # noqa: S603  ours
        [sys.executable, "-S", "-c", LAUNCHER, *command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    *printed, last = done.stdout.splitlines()
    status, wall, cpu, peak = map(float, last.split())
    if status:
        raise subprocess.CalledProcessError(int(status), command, "\n".join(printed), done.stderr)
    return Cost(wall, cpu, peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
