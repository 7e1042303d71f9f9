"""Proofs of whole networks: seconds and memory next to a run of one input on the machine, on four chips.

Run and proof take turns in one process, in CPU seconds on one thread; the smallest of each counts. Memory is the peak
of the process during a run and during a proof. Prints a line of a table for each network and chip (docs/proof.md).
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.exported import NETWORKS
from tests.exported_vision import VISION
from tests.planted import TOKENS, vit
from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.pipelines import calibrated, canonical, commands, converted, grouped
from tpusim.proof import prove
from tpusim.simulator import Simulator

CHIPS = {"bm1684x": 1, "bm1688": 2, "bm1690": 8, "cv183x": 1}
"""Chip -> cores."""
Feeds = Mapping[str, Any]


def networks() -> dict[str, Callable[[], tuple[onnx.ModelProto, Feeds]]]:
    """Name -> how the model and an input are made."""
    tokens = np.random.default_rng(3).standard_normal(TOKENS).astype(np.float32)
    classic = {name: lambda name=name: _classic(name) for name in zoo.ZOO}
    return {**NETWORKS, "vit": lambda: (vit(), {"x": tokens}), **VISION, **classic}


def _classic(name: str) -> tuple[onnx.ModelProto, Feeds]:
    proto = zoo.build(name)
    constants = {tensor.name for tensor in proto.graph.initializer}
    (given,) = [value.name for value in proto.graph.input if value.name not in constants]
    return proto, {given: zoo.images(1)}


def _peak() -> float:
    """Peak memory of the process in GB since `_forget`."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1e6


def _forget() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measured(final: Model, machine: Simulator, feeds: Feeds, rounds: int) -> str:
    """The row of one program. Raises AssertionError if it is not proven."""
    times: dict[str, list[float]] = {"run": [], "proof": []}
    memory: dict[str, float] = {}
    proof = prove(final, machine)
    assert proof.passed and not proof.unjudged, f"{proof.wrong} {proof.declared} {proof.unjudged}"
    calls: dict[str, Callable[[], object]] = {
        "run": lambda: machine.run(feeds), "proof": lambda: prove(final, machine)
    }  # fmt: skip
    for _ in range(rounds):
        for name, call in calls.items():
            _forget()
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
            memory[name] = _peak()
    run, prover = min(times["run"]), min(times["proof"])
    judged = f"{len(proof.stated)}" + (f" and {len(proof.uncut)}" if proof.uncut else "")
    return f"{judged} | {run:.3f} | {prover:.3f} | {memory['run']:.2f} | {memory['proof']:.2f} |"


def table(names: Sequence[str], chips: Sequence[str], mode: str, rounds: int) -> None:
    """Print a row for every network and chip."""
    print("| network | chip | ops | machine | proof | GB of the machine | GB of the proof |", flush=True)
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    for name in names:
        proto, feeds = networks()[name]()
        samples = [feeds]
        before = PassContext(samples=samples)
        ranged = PassManager((*canonical(), *calibrated(config=CalibrationConfig("max"))))
        try:
            top = ranged.run(import_onnx(proto, name=name), before)
        except TpusimError as error:
            print(f"| {name} | | {error} |", flush=True)
            continue
        for chip in chips:
            cores, kind = CHIPS[chip], "bf16" if mode != "int8" and chip == "cv183x" else mode
            steps = (
                *converted(LoweringConfig(chip, kind)),  # type: ignore[arg-type]
                *grouped(LayerGroupConfig("1", cores=cores)),
            )
            try:
                divided = PassManager(steps).run(top.clone(), PassContext(samples=samples))
                final = PassManager(commands(cores=cores)[:1]).run(divided)
                machine = Simulator(PassManager(commands(cores=cores)[1:]).program(final))
                row = measured(final, machine, feeds, rounds)
            except TpusimError as error:
                row = f"refused: {error} |"
            print(f"| {name} | {chip}{f', {cores} cores' * (cores > 1)} | {row}", flush=True)


def main() -> None:
    """Compile, run and prove."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*networks()])
    parser.add_argument("--chips", nargs="*", choices=list(CHIPS), default=list(CHIPS))
    parser.add_argument("--mode", default="int8")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table(given.networks, given.chips, given.mode, given.rounds)


if __name__ == "__main__":
    main()
