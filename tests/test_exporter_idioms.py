"""Networks as exporters write them today: TOP against ONNX Runtime, the machine against the flat network, masks."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from exported import FLOATS, HEADS, NETWORKS, Arrays, Net, T, gpt
from rotation import first_of

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import parse_table
from tpusim.errors import TableWarning
from tpusim.frontend import as_called, import_onnx, onnx_outputs
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.ops.add import TpuAdd


def assert_like_onnx(proto: onnx.ModelProto, model: Model, feeds: Arrays) -> None:
    """Every tensor that both have, to 1e-4 of its largest number."""
    theirs, ours = as_called(model, onnx_outputs(proto, feeds)), run(model, feeds)
    compared = [name for name in ours if name in theirs]
    for name in compared:
        wanted = theirs[name].astype(np.float32)
        limit = 1e-4 * np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
        np.testing.assert_allclose(ours[name], wanted, rtol=1e-4, atol=limit, err_msg=name)
    assert len(compared) >= 2


@pytest.mark.parametrize("name", NETWORKS)
def test_top_is_what_onnx_runtime_computes(name: str) -> None:
    proto, feeds = NETWORKS[name]()
    assert_like_onnx(proto, import_onnx(proto), feeds)


@pytest.mark.slow
@pytest.mark.rotated  # CI has a cell of each network in test_exporter_matrix.py
@pytest.mark.parametrize("mode", ["int8", "f32", "f16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_machine_computes_what_the_flat_network_does(name: str, mode: str) -> None:
    proto, feeds = NETWORKS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)  # an infinite mask has no range
        net = tpusim.compile(import_onnx(proto), [feeds], mode=mode, calibration=CalibrationConfig("max"))
    found = net.verify(feeds)
    assert found.comparisons["local_vs_tpu"].passed
    assert found.bit_exact or mode != "int8"


@pytest.mark.parametrize("idiom", first_of(["where-lowest", "where-infinite", "add-1e9"]))
def test_masks_do_not_destroy_int8(idiom: str) -> None:
    """Without the quirk masked tensors and ops that read them run in float; the other scores keep their scale."""
    proto, feeds = gpt(idiom)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        calibration = CalibrationConfig("max")
        net = tpusim.compile(import_onnx(proto), [feeds], calibration=calibration, quirks_off=["masks_in_integers"])
    (wanted,) = onnx_outputs(proto, feeds, [proto.graph.output[0].name]).values()
    scale = max(
        abs(u.scale.data)
        for op in net.tpu.body.walk()
        for v in op.results
        if is_tensor(v) and (u := uniform_of(v)) is not None
    )
    assert scale < 1
    found = dequantised(net.tpu, run(net.tpu, feeds))[op_name(net.tpu.results[0].owner)]
    assert float((found * wanted).sum() / np.linalg.norm(found) / np.linalg.norm(wanted)) > 0.99


MASKED = """# recorded from a GPT-2 block
x 0.1013081 -0.0964584 0.1013081
t0_Add 340282346638528859811704183484516925440.0 -340282346638528859811704183484516925440.0 0.1013081
t1_Softmax 1.0 0.0 1.0
"""


def test_an_integer_next_to_a_mask_has_its_scale_by_default() -> None:
    """Multipliers as in TPU-MLIR's m_tpu.mlir: scores vanish, which the op's decision and a warning say."""
    net = Net()
    lowest = np.triu(np.full((1, 1, T, T), np.finfo(np.float32).min, np.float32), 1)
    proto = net.model({"x": (FLOATS, (1, HEADS, T, T))}, net("Softmax", net("Add", "x", lowest), axis=-1))
    top = to_calibrated(to_canonical(import_onnx(proto)), parse_table(MASKED, "table"))
    (add,) = [op for op in to_tpu(top, "bm1684x").ops if isinstance(op, TpuAdd)]
    assert add.multipliers is not None
    assert add.rshifts is not None
    assert (ints(add.multipliers), ints(add.rshifts)) == ((0, 1), (0, 0))
    assert "DN-02 masks_in_integers" in str(add.attributes)
    (mended,) = [
        op for op in to_tpu(top, "bm1684x", "int8", quirks_off=("masks_in_integers",)).ops if isinstance(op, TpuAdd)
    ]
    assert mended.multipliers is None


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_a_constant_row_of_an_extreme_is_warned_of(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """At which TPU-MLIR's back end stops on BM1684X; in F16 it compiles."""
    net = Net()
    proto = net.model({"x": (FLOATS, (1, HEADS, T, T))}, net(kind, "x", np.linspace(-1, 1, T, dtype=np.float32)))
    top = to_canonical(import_onnx(proto))
    to_tpu(top, "bm1684x", "f16")
    assert not caplog.text
    to_tpu(to_calibrated(top, parse_table(f"# two\nx 1 -1 1\nt0_{kind} 1 -1 1\n", "table")))
    assert f"top.{kind} 't0_{kind}': a computed operand is required in INT8" in caplog.text
    assert f"(t0_{kind}:F16)" in caplog.text
