"""`python -m benchmarks.explore OUT`: the space of 675 points, killed twice on the way, then once more from the cache.

Thresholds are the maxima of one random sample, because figures depend on shapes only. Wall and CPU time include all
parts, also the work lost by killed ones. At the end some points are removed and computed again: the file must be the
same.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import onnx
import tyro

from benchmarks.explore.networks import NETWORKS

CHIPS, MODES, STRATEGIES, BATCHES = "bm1684,bm1684x,bm1688,cv182x,cv183x", "int8,f16,f32", "1,2,off", "1,4,16"
AGAIN = 20
"""Every n-th point is removed and computed again."""


@dataclass
class Part:
    """One process of the exploration. killed: at how many points; 0: it ended by itself."""

    killed: int
    wall_seconds: float
    cpu_seconds: float


def main(out: tyro.conf.Positional[Path], jobs: int = 2, networks: tuple[str, ...] = tuple(NETWORKS)) -> None:
    """Run the space and print the times. out: folder of models and results; existing results are not computed again."""
    out.mkdir(parents=True, exist_ok=True)
    models = [_saved(name, out) for name in networks]
    total = len(models) * 135
    for stop in (total // 3, 2 * total // 3, 0, 0):
        print(_part(models, out, jobs, stop), flush=True)
    whole = _digest(out)
    for path in sorted((out / "space" / "points").glob("*.json"))[::AGAIN]:
        path.unlink()
    print(_part(models, out, jobs, 0))
    print(f"results.parquet after {total // AGAIN} points anew: {'the same' if _digest(out) == whole else 'DIFFERS'}")


def _saved(name: str, out: Path) -> Path:
    path = out / f"{name}.onnx"
    if not path.is_file():
        onnx.save(NETWORKS[name](), path)
    return path


def _part(models: list[Path], out: Path, jobs: int, stop: int) -> Part:
    """Explore until so many points are computed, or to the end; raises RuntimeError if it fails."""
    words = ["--chips", CHIPS, "--modes", MODES, "--strategies", STRATEGIES, "--batches", BATCHES, "--jobs", str(jobs)]
    words += ["--data", "random:1", "--method", "max", "--tune-num", "0", "--out", str(out / "space")]
    begin = time.monotonic()
    with (out / "log.txt").open("a") as log:
        command = [sys.executable, "-m", "tpusim", "explore", *map(str, models), *words]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        used = 0.0
        while process.poll() is None:
            used = max(used, _cpu_seconds(process.pid))
            if stop and len(list((out / "space" / "points").glob("*.json"))) >= stop:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                break
            time.sleep(0.2)
    if not stop and process.returncode:
        raise RuntimeError(f"the exploration ended with {process.returncode}; see {out / 'log.txt'}")
    return Part(stop, round(time.monotonic() - begin, 1), round(used, 1))


def _cpu_seconds(group: int) -> float:
    """CPU time of all processes of a group so far; for ended processes as recorded by their parents."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _digest(out: Path) -> str:
    return sha256((out / "space" / "results.parquet").read_bytes()).hexdigest()


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
