"""Runs the command-line tools of an environment with TPU-MLIR; nothing of it is imported."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tpusim.errors import ConfigError

VARIABLE = "TPUSIM_UPSTREAM"
AUTO = "auto"
"""In place of a folder: the one that the variable names."""
LIMIT_S = 3600
"""Seconds that one tool may take: ten times what the largest network of the zoo needs."""
TELLING = re.compile(r"assert|unreachable|not (?:implemented|support)|error|fail|invalid", re.IGNORECASE)
"""A line in which a tool says why it stopped; its stack follows."""
STACK = re.compile(r"^ *#\d+ |^PLEASE submit|^Stack dump|^\S*tpuc-opt\(")


class UpstreamError(ConfigError):
    """A tool of TPU-MLIR failed."""


@dataclass(frozen=True)
class Tools:
    """The command-line tools of one environment."""

    environment: Path

    @classmethod
    def find(cls, place: str) -> "Tools":
        """The tools of a folder, or of the one that `VARIABLE` names. Raises ConfigError without tools there."""
        named = os.environ.get(VARIABLE, "") if place == AUTO else place
        if not named:
            raise ConfigError(
                f"{VARIABLE} is required for `{AUTO}`: the folder of a Python 3.10 environment with tpu_mlir (its "
                "bin/tpuc-opt and others), got nothing; set it, or name the folder"
            )
        if not (Path(named) / "bin" / "tpuc-opt").exists():
            raise ConfigError(
                f"{named}: an environment with TPU-MLIR is required, got no bin/tpuc-opt there; install tpu_mlir into "
                "a Python 3.10 environment and name its folder"
            )
        return cls(Path(named).resolve())

    def call(self, folder: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The exit status of one tool, and what it printed."""
        binaries = self.environment / "bin"
        environment = {**os.environ, "VIRTUAL_ENV": str(self.environment), "PATH": f"{binaries}:{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        return subprocess.run(  # noqa: S603  the user's own environment
            [str(binaries / "python"), str(binaries / tool), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            errors="replace",
        )

    def run(self, folder: Path, tool: str, *arguments: str) -> str:
        """What one tool printed. Raises UpstreamError with its reason if it failed."""
        done = self.call(folder, tool, *arguments)
        if done.returncode:
            raise UpstreamError(f"{tool} of {self.environment} stopped ({done.returncode}): {reason(done)}")
        return done.stdout + done.stderr


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a tool stopped: the last line in which it says so, without its stack."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = [line for line in lines if not STACK.match(line)]
    told = [line for line in said if TELLING.search(line)]
    if told:
        return told[-1][:300]
    crashed = len(said) < len(lines) or done.returncode < 0
    return "it crashed without a message" if crashed else (said[-1][:300] if said else "it printed nothing")
