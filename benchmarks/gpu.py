"""On a GPU or any other device of JAX: are integer results those of a CPU, and how fast is flat INT8.

Needs the repository and nothing else. It measures, in every form of integer products (`tpusim_kernels.prim.forms`):

* bits: integer kernels and whole networks against hashes that a CPU has recorded (benchmarks/gpu.json), and products of
  random extents against NumPy;
* images per second over batch sizes, and the share of the rate of a plain dot of the same form on this device;
* calibration in images per second, compared with the float network alone.

    python -m benchmarks.gpu                     # digits and resnet50, batches 1 to 128
    python -m benchmarks.gpu --small             # digits alone, for a CPU
    python -m benchmarks.gpu --forms bfloat16 --batches 1 128
    python -m benchmarks.gpu --small --record    # on a CPU: write the hashes again (without --small: of resnet50 too)
"""

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import lax
from tpusim_kernels import arith_int, conv, matmul
from tpusim_kernels.prim.forms import FORMS, form, is_exact, using

from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.frontend import import_onnx
from tpusim.inference import Flat, Gradual, Graph, float_upstream
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import macs_of
from tpusim.passes import PassContext, PassManager
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.pipelines import integers
from tpusim.studies.bench.about import about

ROOT = Path(__file__).resolve().parents[1]
RECORDED = Path(__file__).with_suffix(".json")
IMAGES = 4
"""Images whose integers are hashed."""
PRODUCTS = 40
"""The number of products of random extents: XLA compiles and tunes each of them separately."""
QUEUED = 10
"""Calls in a row before the host waits for their results, as when a data set is run."""
Call = Callable[[], Any]


@dataclass(frozen=True)
class Network:
    """A top module and its images (n, ...), by the name of its input."""

    name: str
    top: Model
    input: str
    images: np.ndarray

    def samples(self, count: int) -> list[dict[str, np.ndarray]]:
        """The first images, from the beginning again if there are fewer."""
        return [{self.input: self.images[i % len(self.images)][None]} for i in range(count)]

    def batch(self, count: int) -> np.ndarray:
        """The same as one array."""
        return np.concatenate([sample[self.input] for sample in self.samples(count)])

    def lowered(self, table: CalibrationTable) -> Model:
        """In INT8 for the BM1684X."""
        return PassManager(integers(LoweringConfig("bm1684x", "int8"))).run(self.top, PassContext(table=table))


def networks(small: bool) -> Iterator[Network]:
    """digits, and resnet50 with seeded weights."""
    digits = ROOT / "examples/digits"
    with np.load(digits / "calibration.npz") as images:
        top = PassManager(Canonicalize()).run(import_onnx(digits / "digits.onnx"))
        yield Network("digits", top, "image", images["image"])
    if not small:
        top = PassManager(Canonicalize()).run(import_onnx(zoo.build("resnet50"), name="resnet50"))
        yield Network("resnet50", top, "gpu_0/data_0", np.concatenate([zoo.images(1, seed) for seed in range(IMAGES)]))


# --------------------------------------------------------------------------------------------------------------- bits


def digest(arrays: Any) -> str:
    """Of shapes, types and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        found.update(f"{values.shape} {values.dtype}".encode() + values.tobytes())
    return found.hexdigest()


def kernels() -> dict[str, Call]:
    """Integer kernels on arrays of whatever bytes there are."""
    rng = np.random.default_rng(1684)
    signed = partial(rng.integers, -128, 128, dtype=np.int8)
    unsigned = partial(rng.integers, 0, 256, dtype=np.uint8)
    x, w, m = unsigned(size=(2, 12, 17, 15)), signed(size=(8, 12, 3, 3)), np.int32(rng.integers(1 << 20, 1 << 30, 8))
    geometry: dict[str, Any] = {"strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    requant: dict[str, Any] = {"do_relu": True, "out_dtype": "int8"}
    zero, shift, bias = np.int32(0), np.full(8, 38, np.int32), np.int32(rng.integers(-9999, 9999, 8))
    depthwise, grouped, left, right = (
        signed(size=(12, 1, 3, 3)), signed(size=(8, 3, 3, 3)), unsigned(size=(40, 4099)), signed(size=(4099, 24))
    )  # fmt: skip
    both = signed(size=(2, 33, 40))
    return {
        "convolution": lambda: conv.conv2d_int(
            x, w, bias, m, shift, np.int32(7), zero, groups=1, **geometry, **requant
        ),
        "convolution in groups": lambda: conv.conv2d_accumulate(x, grouped, np.int32(7), groups=4, **geometry),
        "depthwise convolution": lambda: conv.conv2d_accumulate(x, depthwise, np.int32(7), groups=12, **geometry),
        "long product": lambda: matmul.matmul_accumulate(left, right, left_transpose=False, right_transpose=False),
        "sum": lambda: arith_int.add_int(
            [both[0], both[1]], (91, 113), (6, 7), (0, 0), np.int32(0), do_relu=False, out_dtype="int8"
        ),
    }


def wrong_products(count: int) -> int:
    """The number of products of random extents, of `count`, that differ from NumPy's; each is compiled."""
    rng, wrong = np.random.default_rng(9), 0
    for turn in range(count):
        m, k, n = (int(extent) for extent in rng.integers(1, 200 if turn % 4 == 0 else 24, 3))
        lead = (int(rng.integers(1, 5)),) * (turn % 2)
        left, right = (rng.integers(-128, 128, (*lead, *rest), np.int8) for rest in ((m, k), (k, n)))
        got = matmul.matmul_accumulate(left, right, left_transpose=False, right_transpose=False)
        wrong += not np.array_equal(got, np.matmul(left.astype(np.int32), right.astype(np.int32)))
    return wrong


def exact_result(model: Model) -> str:
    """The last tensor that is computed by integer ops only, which depends on every integer before it."""
    names, floats = [value_name(op.results[0]) for op in model.ops if isinstance(op, TpuOp)], float_upstream(model)
    return [name for name in names if name not in floats][-1]


def network_bits(network: Network, model: Model) -> str:
    """Of the last integers of the first images."""
    graph = Graph(model, [exact_result(model)])
    return digest(array for sample in network.samples(IMAGES) for array in graph(sample).values())


def weights_of(network: Network) -> str:
    """A hash of a network's weights: seeded weights may be rounded differently on another processor."""
    return digest(network.top.weights[name] for name in sorted(network.top.weights))


def table_of(entry: dict[str, Any]) -> CalibrationTable:
    """The recorded thresholds: measured here they may differ in a last digit."""
    return CalibrationTable({name: Entry(*numbers) for name, numbers in entry["table"].items()})


def write_hashes(networks: Iterator[Network]) -> None:
    """Write what this processor computes."""
    found: dict[str, Any] = {"about": about(), "kernels": {name: digest([call()]) for name, call in kernels().items()}}
    found["networks"] = {}
    for network in networks:
        table, _ = calibrate(network.top, network.samples(IMAGES), CalibrationConfig("max"))
        entries = {name: [e.threshold, e.minimum, e.maximum] for name, e in table.entries.items()}
        bits = network_bits(network, network.lowered(table))
        found["networks"][network.name] = {"table": entries, "weights": weights_of(network), "bits": bits}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {RECORDED}")


def said(name: str, same: bool) -> bool:
    """Print a verdict."""
    print(f"  {name:<36} {'same bits as the CPU' if same else 'OTHER BITS THAN THE CPU'}")
    return same


# --------------------------------------------------------------------------------------------------------------- speed


def seconds(call: Call, rounds: int) -> float:
    """Median of a compiled call among `QUEUED` that are given to the device at once."""
    jax.block_until_ready(call())
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready([call() for _ in range(QUEUED)])
        times.append((time.perf_counter() - begin) / QUEUED)
    return statistics.median(times)


def peak(name: str, size: int, rounds: int) -> float:
    """Operations per second of one large dot in a form: the best rate of this device."""
    given, sums = (jnp.int8, jnp.int32) if name in ("library", "int8") else (jnp.dtype(name), jnp.float32)
    ones = jnp.ones((size, size), given)
    dot = jax.jit(lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=sums))
    return 2 * size**3 / seconds(lambda: dot(ones, ones), rounds)


def sweep(network: Network, model: Model, batches: tuple[int, ...], limit: float, rounds: int) -> None:
    """Images per second of flat INT8, and the share of `limit` operations per second."""
    operations = 2 * sum(macs_of(op) for op in model.ops)
    flat = Flat(model)
    for batch in batches:
        images = jax.device_put(network.batch(batch))
        rate = batch / seconds(partial(flat, images), rounds)
        print(
            f"  {network.name:<10} batch {batch:>4} {rate:>12,.1f} images/s {rate * operations / limit:>8.2%} of a dot"
        )


def calibration(network: Network, count: int) -> None:
    """Images per second of calibration, compared with the float network with every tensor kept."""
    samples = network.samples(count)
    graph = Gradual(network.top, "all")
    list(graph.each(samples[:1]))
    begin = time.perf_counter()
    list(map(len, (tensors for _, tensors in graph.each(samples))))
    plain = count / (time.perf_counter() - begin)
    for tuned in (0, 1):
        begin = time.perf_counter()
        calibrate(network.top, samples, CalibrationConfig("kl", tune_samples=tuned))
        rate = count / (time.perf_counter() - begin)
        what = f"kl, {tuned} samples tuned" if tuned else "kl"
        print(f"  {network.name:<10} {what:<20} {rate:>8,.1f} images/s, {rate / plain:.2f} x the float network")


def main(
    small: bool = False,
    record: bool = False,
    rounds: int = 7,
    forms: tuple[str, ...] = (),
    batches: tuple[int, ...] = (),
) -> None:
    """Compare and measure; exits with 1 if a bit differs."""
    if record:
        write_hashes(networks(small))
        return
    print(json.dumps({**about(), "devices": [device.device_kind for device in jax.local_devices()], "form": form()}))
    recorded, same = json.loads(RECORDED.read_text()), True
    size, usual, count = (512, (1, 8, 64), 32) if small else (4096, (1, 2, 4, 8, 16, 32, 64, 128), 64)
    made = [n for n in networks(small) if n.name in recorded["networks"]]
    for name in forms or (FORMS if jax.default_backend() == "cpu" else FORMS[1:]):
        if not is_exact(name):
            print(f"\n{name}: not exact here, see tpusim_kernels.prim.forms")
            continue
        with using(name):
            print(f"\n{name}")
            same &= said(f"{PRODUCTS} products of random extents", not wrong_products(PRODUCTS))
            for kernel, call in kernels().items():
                same &= said(kernel, digest([call()]) == recorded["kernels"][kernel])
            limit = peak(name, size, rounds)
            print(f"  a dot of {size} x {size} x {size}: {limit / 1e12:.3f} TOP/s")
            for network in made:
                entry = recorded["networks"][network.name]
                model = network.lowered(table_of(entry))
                if entry["weights"] == weights_of(network):
                    same &= said(network.name, network_bits(network, model) == entry["bits"])
                else:
                    print(f"  {network.name}: its seeded weights round in another way here, bits are not compared")
                sweep(network, model, batches or usual, limit, rounds)
    print("\ncalibration")
    for network in made:
        calibration(network, count)
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
