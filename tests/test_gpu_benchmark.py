"""benchmarks/gpu.py: the hashes in the repository are those of this code, in another form than a CPU's too."""

import json

from tpusim_kernels.prim.forms import using

from benchmarks.gpu import RECORDED, digest, kernels, network_bits, networks, table_of, weights_of


def test_recorded_hashes_of_kernels() -> None:
    recorded = json.loads(RECORDED.read_text())["kernels"]
    assert {name: digest([call()]) for name, call in kernels().items()} == recorded
    with using("bfloat16"):
        assert digest([kernels()["long product"]()]) == recorded["long product"]


def test_recorded_networks() -> None:
    """Digits with the recorded table, as a GPU gets it; of resnet50 the whole benchmark says it."""
    recorded = json.loads(RECORDED.read_text())["networks"]
    assert set(recorded) == {"digits", "resnet50"}
    (digits,) = networks(small=True)
    assert weights_of(digits) == recorded["digits"]["weights"]
    assert network_bits(digits, digits.lowered(table_of(recorded["digits"]))) == recorded["digits"]["bits"]
