"""A case becomes recorded data: the network in tests/upstream/found, the real results in tests/upstream/data."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from benchmarks.accuracy.results import Key
from benchmarks.conformance.fuzz.case import Case
from benchmarks.conformance.fuzz.judge import Judge, cause
from benchmarks.conformance.ours import Network
from benchmarks.conformance.record import record
from benchmarks.conformance.recorded import path_of
from benchmarks.conformance.replay import write_differing
from benchmarks.conformance.upstream import Upstream
from tests.upstream import networks as small
from tpusim.errors import ConfigError

ALWAYS = ("bm1684x/int8",)
"""Cells that are recorded of every network, if the real tool compiles them."""
LARGEST_BYTES = 100_000
"""A recorded network with its results may be this large: all kinds together stay under 5 MB."""


def keep(proto: onnx.ModelProto, name: str, cells: Sequence[str], upstream: Upstream) -> int:
    """Record a network as `name` with cells CHIP/MODE; returns the size of its results in bytes.

    Raises ConfigError for the name of a network of tests/upstream/networks.py, for a network that the real tool
    refuses, and for results above `LARGEST_BYTES`.
    """
    if name in small.NETWORKS:
        raise ConfigError(f"'{name}': a name of no network of tests/upstream/networks.py is required; choose another")
    proto.graph.name = name
    judge = Judge(Case(proto), upstream)
    if judge.top.failure or judge.table.failure:
        raise ConfigError(f"'{name}': a network that the real tool imports is required, got {cause(judge.top)}")
    wanted = [Key(name, *cell.split("/")) for cell in dict.fromkeys((*ALWAYS, *cells))]
    network = Network.of(name, proto, judge.case.samples)
    size = record(network, judge.top, judge.table.text("cali_table"), upstream, wanted)
    if size > LARGEST_BYTES:
        path_of(name).unlink()
        raise ConfigError(
            f"'{name}': results of at most {LARGEST_BYTES:,} bytes are required, got {size:,}; minimise it"
        )
    small.FOUND.mkdir(exist_ok=True)
    onnx.save(proto, small.FOUND / f"{name}.onnx")
    write_differing((name,))
    return size
