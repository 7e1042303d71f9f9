"""Random networks: every op that imports, on values of any rank, with branches and several outputs.

`random_network(seed, index)` gives the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from benchmarks.conformance.fuzz import elementwise, layers, moves
from benchmarks.conformance.fuzz.net import LARGEST, Net, Shape
from benchmarks.conformance.fuzz.production import Production
from tests.upstream.networks import samples

PRODUCTIONS: tuple[Production, ...] = (*layers.FAMILY, *elementwise.FAMILY, *moves.FAMILY)
MOST_NODES = 9
TRIES = 40
"""Draws of an op for one step, and of a whole network until its values are finite."""
RANKS = (1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 5)
ODD = (3, 5, 7, 9, 11, 13)
EVEN = (2, 4, 6, 8, 12, 16)


def random_network(seed: int, index: int) -> onnx.ModelProto:
    """Network `index` of a seed; the first draw whose values are finite on its samples."""
    for attempt in range(TRIES):
        proto = _drawn(f"r{seed}_{index}" + (f"_{attempt}" if attempt else ""))
        if proto is not None and is_finite(proto):
            return proto
    raise ValueError(f"random network {index} of seed {seed}: none of {TRIES} draws has finite values")


def _drawn(name: str) -> onnx.ModelProto | None:
    net = Net(name)
    net.input("x", *_input_shape(net))
    wanted = net.between(1, MOST_NODES)
    while net.mark < wanted:
        if not _step(net):
            return None
    net.output(*_outputs(net))
    return net.model()


def _input_shape(net: Net) -> Shape:
    rank = net.pick(*RANKS)
    sizes = [int(net.pick(*(ODD if net.chance(0.5) else EVEN))) for _ in range(rank - 1)]
    while sizes and np.prod(sizes) > LARGEST // 3:
        sizes[int(np.argmax(sizes))] //= 2
    return (int(net.pick(1, 1, 1, 2)) if rank > 1 else net.between(4, 40), *sizes)


def _step(net: Net) -> bool:
    """One op more; False if none fits."""
    for _ in range(TRIES):
        x, mark = _value(net), net.mark
        production = _production(net, len(net.shape(x)))
        try:
            found = production.apply(net, x)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            found = None
        results = [found] if isinstance(found, str) else list(found or ())
        if results and all(_is_usable(net, r) for r in net.values()):
            return True
        net.undo(mark)
    return False


def _value(net: Net) -> str:
    """A float value, usually one without a reader."""
    unread = [v for v in net.unread() if net.is_float(v)]
    known = [v for v in net.values() if net.is_float(v)]
    return net.pick(*unread) if unread and net.chance(0.75) else net.pick(*known)


def _production(net: Net, rank: int) -> Production:
    fitting = [p for p in PRODUCTIONS if rank in p.ranks]
    weights = np.array([p.weight for p in fitting])
    return fitting[int(net.rng.choice(len(fitting), p=weights / weights.sum()))]


def _is_usable(net: Net, value: str) -> bool:
    """Whether a value has one to five axes, none empty, and is small."""
    shape = net.shape(value)
    return 1 <= len(shape) <= 5 and 0 < np.prod(shape) <= LARGEST


def _outputs(net: Net) -> list[str]:
    """What nothing reads, and sometimes an inner value."""
    made = [v for v in net.values() if net.is_float(v) and v in net.results]
    unread = [v for v in net.unread() if v in made]
    inner = [v for v in made if v not in unread and net.chance(0.1)]
    return [v for v in made if v in unread or v in inner]


def is_finite(proto: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime runs the network on its samples and every output is finite."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return all(np.isfinite(a).all() for sample in samples(proto) for a in session.run(None, sample))
    except Exception:  # noqa: BLE001  the classes that ONNX Runtime raises have no common base
        return False
