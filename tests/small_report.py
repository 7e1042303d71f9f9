"""A report of made-up figures, and comparisons to put into it."""

import numpy as np

from tpusim.verify.compare import Tolerance, compare
from tpusim.verify.report import build_report

TOLERANCE = Tolerance(0.99, 0.90)
NASTY = "<script>alert('x')</script>&\"[bold]"


def comparison(count=3, spread=0.3, seed=0):
    generator = np.random.default_rng(seed)
    references = {f"layer{index}_Conv": generator.standard_normal(64).astype(np.float32) for index in range(count)}
    targets = {
        name: value + spread * index / count * generator.standard_normal(64).astype(np.float32)
        for index, (name, value) in enumerate(references.items())
    }
    return compare(targets, references, TOLERANCE)


def exact():
    tensors = {"q": np.arange(8, dtype=np.int8)}
    return compare(tensors, tensors, TOLERANCE)


def report(**changes):
    group = {
        "id": 0,
        "ops": ["conv1", NASTY],
        "secs": {"n": 1, "c": 1, "d": 1, "h": 4, "w": 1},
        "lmem_peak_bytes": 100_000,
        "lmem_bytes": 131_072,
        "load_bytes": 1_234_567,
        "store_bytes": 65_536,
        "cycles": 54_321,
    }
    values = dict(
        version="0.1.0",
        model="resnet18",
        chip="bm1684x",
        mode="int8",
        asymmetric=False,
        stages=[("frontend", 0.8), ("simulator", 2.5)],
        compare={"tpu_vs_top": comparison(spread=0), "local_vs_tpu": exact()},
        groups=[group],
        memory={"coeff_bytes": 11_000_000, "neuron_bytes": 2_000_000},
        totals={
            "commands": 812,
            "load_bytes": 1,
            "store_bytes": 2,
            "cycles": 54_321,
            "milliseconds": 0.054,
            "macs": 10**9,
            "compulsory_bytes": 2,
            "mac_cycles": 10_000,
            "traffic_ratio": 1.5,
            "cycle_ratio": 5.4321,
        },
    )
    return build_report(**(values | changes))
