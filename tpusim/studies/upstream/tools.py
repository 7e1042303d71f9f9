"""Runs the command-line tools of an environment with TPU-MLIR; nothing of it is imported."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tpusim.errors import ConfigError
from tpusim.host.files import real

VARIABLE = "TPUSIM_UPSTREAM"
AUTO = "auto"
"""In place of a folder: the one that the variable names."""
LIMIT_S = 3600
"""Seconds that one tool may take: ten times what the largest network of the zoo needs."""
TELLING = re.compile(r"assert|unreachable|not (?:implemented|support)|error|fail|invalid", re.IGNORECASE)
"""A line in which a tool says why it stopped; its stack follows."""
STACK = re.compile(
    r"^ *#\d+ |^PLEASE submit|^Stack dump|^\S*tpuc-opt\(|^/\S+\.so\S*\(|^Obtained \d+ stack|^ASSERT info: none"
)
NAMES_OPS = "-debug-only=bm_codegen"
"""With this option the code generator prints each op before it makes its commands."""
WORKING = re.compile(r"^codegen op: '(.*)'$")
NEEDED = ("python", "tpuc-opt", "model_deploy.py", "model_runner.py")
"""The programs in `bin` that the studies call."""
KILLED = (-9, 137, 247)
"""Exit statuses of a tool, or of the tool that it runs, that the system stopped: nearly always for want of memory."""


class UpstreamError(ConfigError):
    """A tool of TPU-MLIR failed."""


@dataclass(frozen=True)
class Tools:
    """The command-line tools of one environment."""

    environment: Path

    @classmethod
    def find(cls, place: str) -> "Tools":
        """The tools of a folder; AUTO: of the folder that `VARIABLE` names. Raises ConfigError if a tool is missing."""
        named = os.environ.get(VARIABLE, "") if place == AUTO else place
        if not named:
            raise ConfigError(
                f"{VARIABLE} is required for `{AUTO}`: the folder of a Python 3.10 environment with tpu_mlir (its "
                "bin/tpuc-opt and others), got nothing; set it, or name the folder"
            )
        if missing := [f"bin/{tool}" for tool in NEEDED if not (Path(named) / "bin" / tool).exists()]:
            raise ConfigError(
                f"{named}: an environment with TPU-MLIR is required, got no {', '.join(missing)} there; install "
                "tpu_mlir into a Python 3.10 environment and name its folder"
            )
        return cls(real(named))

    @property
    def version(self) -> str:
        """The installed package, its name and release; the folder if the environment has no metadata of it."""
        found = sorted(self.environment.glob("lib/python3*/site-packages/tpu_mlir-*.dist-info"))
        return found[-1].name.removesuffix(".dist-info") if found else str(self.environment)

    def call(self, folder: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The exit status of one tool, and what it printed. Raises UpstreamError if it cannot run or never ends."""
        binaries = self.environment / "bin"
        environment = {**os.environ, "VIRTUAL_ENV": str(self.environment), "PATH": f"{binaries}:{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        try:
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
        except OSError as error:
            raise UpstreamError(f"{tool} of {self.environment} cannot run: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise UpstreamError(f"{tool} of {self.environment} was stopped after {LIMIT_S:,} seconds") from error

    def run(self, folder: Path, tool: str, *arguments: str) -> str:
        """What one tool printed.

        Raises UpstreamError with its reason if it failed, MemoryError if the system killed it.
        """
        done = self.call(folder, tool, *arguments)
        if done.returncode in KILLED:
            raise MemoryError(f"{tool} of {self.environment} was killed")
        if done.returncode:
            raise UpstreamError(f"{tool} of {self.environment} stopped ({done.returncode}): {reason(done)}")
        return done.stdout + done.stderr


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a tool stopped: the op in work, and the last line that says why, without its stack."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    working = [op[1] for line in lines if (op := WORKING.match(line))]
    said = [line for line in lines if not STACK.match(line) and not WORKING.match(line)]
    told = [line for line in said if TELLING.search(line)]
    crashed = len(said) + len(working) < len(lines) or done.returncode < 0
    why = "it crashed without a message" if crashed else "it printed nothing"
    if told or (said and not crashed):
        why = (told or said)[-1][:300]
    return f"at op '{working[-1]}': {why}" if working else why
