"""Deep networks with default options: groups that hold every op, legal commands, and the bits of the flat inference."""

from functools import cache

import numpy as np
import pytest
from compiling import to_groups, to_program
from deep_networks import DEEP
from networks import Network, reordered
from rotation import marks

from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group.search import dynamic
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TpuGroup
from tpusim.simulator import Simulator

QUICK = {("regnet", "bm1690")}
"""One in the default run; CI has the others on one chip each: compiling their kernels takes half a minute."""


def rows() -> list[object]:
    chips = ("bm1684x", "bm1688", "bm1690")
    pairs = [(name, chip) for name in DEEP for chip in chips]
    in_ci = {(name, chips[number % 3]) for number, name in enumerate(DEEP)}  # `make slow` has every one on all three
    return [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow if pair in in_ci else marks(usual=False))
        for pair in pairs
    ]


@cache
def lowered(name: str, chip: str) -> Model:
    return reordered(DEEP[name]().top(), chip)


@cache
def grouped(name: str, chip: str) -> Model:
    return to_groups(lowered(name, chip))


def computed(model: Model) -> list[str]:
    """The names of a module's ops, groups opened; transfers have their tensor's."""
    inner = [op for outer in model.ops for op in (outer.body.block.ops if isinstance(outer, TpuGroup) else (outer,))]
    return list(dict.fromkeys(op_name(op) for op in inner if isinstance(op, TpuOp)))


@pytest.mark.parametrize(("name", "chip"), rows())
def test_deep_networks_are_grouped_and_coded(name: str, chip: str) -> None:
    model, found = lowered(name, chip), grouped(name, chip)
    assert sorted(computed(found)) == sorted(computed(model))
    groups = [op for op in found.ops if isinstance(op, TpuGroup)]
    assert 0 < len(groups) < len(computed(model)) / 3  # ops share groups; no division ends in one op each
    assert to_program(found).commands  # generating checks every command against the chip


def computes_the_same(model: Model, found: Model, feeds: dict[str, np.ndarray]) -> None:
    flat = run(model, feeds)
    tensors = Simulator(to_program(found)).run(feeds, watch=True).tensors
    assert len(tensors) > len(flat) / 2
    assert all(array.tobytes() == flat[name].tobytes() for name, array in tensors.items())


@pytest.mark.slow  # ten seconds compile the kernels of the flat inference
def test_a_deep_network_computes_the_same_in_groups() -> None:
    key = ("mobilenet_v3", "bm1684x")
    computes_the_same(lowered(*key), grouped(*key), DEEP["mobilenet_v3"]().feeds())


def test_groups_may_end_inside_a_cluster_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GlobalAveragePool, Flatten] ends in a view, and so does every group that holds both: the product is global."""
    net = Network(np.random.default_rng(0))
    x = net.input((1, 10, 12, 10))
    for kind in ("Sigmoid", "Tanh", "Sigmoid"):
        x = net.function(x, kind)
    net.matmul(net.flatten(net.global_pool(x)), (10, 7))
    monkeypatch.setattr(dynamic, "CLUSTERS", 3)  # two ops each
    model = reordered(net.top(), "bm1684x")
    found = to_groups(model)
    assert sorted(computed(found)) == sorted(computed(model))
    computes_the_same(model, found, net.feeds())
