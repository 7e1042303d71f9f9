"""Transposed and 3-D convolution beyond the op rows: slices, lowered form, packed tables, commands, refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from bench import Bench
from compiling import to_program, to_reordered, to_tpu
from hypothesis import given
from hypothesis import strategies as st
from op_cases import BY_ID
from op_row import network, node, values
from plain_names import import_onnx
from rows import calibrated, canonical, flat, lowered, tpu_ops
from streams import gmem, lmem

from tpusim import chips
from tpusim.errors import CommandError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import ints, ints_attr, op_name, text
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.check import check
from tpusim.isa.cycles import tiu_cycles
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import plan
from tpusim.lowering import LoweringConfig
from tpusim.ops.deconv.geometry import deconv_extent, deconv_need
from tpusim.ops.framework.base import TpuOp, Window
from tpusim.ops.structure import make_none
from tpusim.schedule import GroupSchedule
from tpusim.simulator import Simulator

Array = np.ndarray

# ---------------------------------------------------------------------------------------------------- slices


def test_worked_example_of_the_backward_rule() -> None:
    """layer_group.md 7.2: Deconv k4 s2 p1, ih 5: (0,4) (4,3) (7,3) -> (0,3) (1,3) (3,2)."""
    assert deconv_extent(5, 4, 2, (1, 1), 0) == 10
    found = [deconv_need(window, 5, 4, 2, 1) for window in ((0, 4), (4, 3), (7, 3))]
    assert [need.window for need in found if need] == [(0, 3), (1, 3), (3, 2)]
    assert [(need.before, need.after) for need in found if need] == [(2, 0), (0, 1), (1, 2)]


def one(case_id: str, mode: str = "int8", chip: str = "bm1684x") -> TpuOp:
    model = to_reordered(lowered(case_id, chip, mode)[0])
    return next(op for op in tpu_ops(model) if op.name in ("tpu.Deconv", "tpu.Conv3D", "tpu.Pool3D"))


def test_the_op_answers_along_h_and_w() -> None:
    """k4 s2 p1 over 6 rows and 5 columns; filter and bias are whole, channels cannot be cut."""
    op = one("deconv-4x4-s2")
    assert [op.backward_slice("h", w, 0) for w in ((0, 4), (4, 4), (8, 4))] == [(0, 3), (1, 4), (3, 3)]
    assert [op.backward_slice("w", w, 0) for w in ((0, 5), (5, 5))] == [(0, 3), (2, 3)]
    assert op.backward_slice("c", (0, 12), 0) is None
    assert one("deconv-depthwise").backward_slice("c", (0, 64), 0) == (0, 64)
    assert op.why_global(chips.load("bm1684x")) is None
    assert "smaller than the stride" in (one("deconv-gaps").why_global(chips.load("bm1684x")) or "")


@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 3))
def test_needs_are_exactly_the_inputs_seen(
    size: int, reach: int, stride: int, before: int, after: int, extra: int
) -> None:
    """Every output window against the list of inputs whose kernel covers it; all pads are where the rule says."""
    length = (size - 1) * stride + reach - before - after + extra
    for start in range(max(length, 0)):
        for count in range(1, length - start + 1):
            window = (start, count)
            seen = [
                i for i in range(size) if i * stride - before + reach > start and i * stride - before < start + count
            ]
            need = deconv_need(window, size, reach, stride, before)
            if need is None:
                assert not seen
                continue
            first, last = need.window[0], sum(need.window) - 1
            assert (not seen) or (first, last) == (seen[0], seen[-1])
            widened = need.before + (last - first) * stride + 1 + need.after
            assert min(need.before, need.after) >= 0 and widened == count + reach - 1


def test_an_output_without_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="an output that reads an input is required"):
        deconv_extent(2, 1, 3, (1, 2), 0)
    with pytest.raises(ValueError, match="an output that reads an input is required"):
        deconv_extent(2, 2, 1, (2, 1), 0)


def test_volumes_answer_along_every_axis() -> None:
    """Conv3D k(3,2,4) s(2,1,2) pads front 1, left 2; Pool3D k(2,3,2) s(1,2,2) front 1 (layer_group.md 7.2)."""
    conv, pool = one("conv3d-s2-uneven"), one("maxpool3d-s2-uneven")
    questions: list[tuple[str, Window]] = [("d", (1, 1)), ("h", (2, 3)), ("w", (1, 2)), ("n", (0, 1))]
    assert [conv.backward_slice(a, w, 0) for a, w in questions] == [(1, 3), (2, 4), (0, 6), (0, 1)]  # type: ignore[arg-type]
    assert [pool.backward_slice(a, w, 0) for a, w in questions] == [(0, 2), (4, 7), (2, 4), (0, 1)]  # type: ignore[arg-type]
    assert conv.backward_slice("c", (0, 7), 0) is None and not conv.can_slice("c")
    assert all(op.can_slice(a) for op in (conv, pool) for a in "ndhw")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- lowering


@pytest.mark.parametrize(("case_id", "suffix", "kind"), [("deconv-4x4-s2", "_i32", "tpu.Deconv"),
                                                         ("conv3d", "_int32", "tpu.Conv3D")])  # fmt: skip
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1690", "cv186x"])
def test_int8_is_accumulators_and_a_requant_per_channel(case_id: str, suffix: str, kind: str, chip: str) -> None:
    """Names and types of numerics.md 6 and 9.1; the form is upstream's, no decision."""
    model, _ = lowered(case_id, chip, "int8")
    accumulators, requant = (next(op for op in tpu_ops(model) if op.name == n) for n in (kind, "tpu.RequantIntAxis"))
    assert op_name(accumulators) == "y" + suffix and op_name(requant) == "y"
    assert storage_dtype(element_of(accumulators.results[0])) == np.int32
    assert storage_dtype(element_of(requant.results[0])).itemsize == 1
    assert "decisions" not in requant.attributes
    assert "multiplier" not in accumulators.attributes


def test_bm1684_shifts_a_deconv_and_has_no_integer_volume() -> None:
    (deconv,) = (op for op in tpu_ops(lowered("deconv-4x4-s2", "bm1684", "int8")[0]) if op.name == "tpu.Deconv")
    assert op_name(deconv) == "y" and "DN-12" in str(deconv.attributes["tpusim.decisions"])
    assert len(ints(deconv.attributes["rshift"])) == 1 and "OnlyShift" in str(deconv.attributes["quant_mode"])
    (conv,) = (op for op in tpu_ops(lowered("conv3d", "bm1684", "int8")[0]) if op.name == "tpu.Conv3D")
    assert storage_dtype(element_of(conv.results[0])) == np.float32 and "DN-12" in str(
        conv.attributes["tpusim.decisions"]
    )


def test_cv18xx_scales_a_deconv_by_qdm_and_has_no_integer_volume() -> None:
    """numerics.md 5.5, 12.1: multiplier and shift per channel, packed with the bias as bytes; volumes in BF16."""
    model = lowered("deconv-4x4-s2", "cv183x", "int8")[0]
    (deconv,) = (op for op in tpu_ops(model) if op.name == "tpu.Deconv")
    m, r = (np.array(ints(deconv.attributes[k])) for k in ("multiplier", "rshift"))
    assert op_name(deconv) == "y" and "QDM" in str(deconv.attributes["quant_mode"])
    assert len(m) == 12 and (m >= 2**30).all() and (m < 2**31).all() and (r >= 0).all()
    reordered = to_reordered(model)
    (packed,) = (op for op in tpu_ops(reordered) if op.name == "tpu.Deconv")
    table, filter = (reordered.weights[op_name(packed.operands[i].owner)] for i in (2, 1))  # type: ignore[arg-type]
    assert table.shape == (1, 12, 1, 9) and table.dtype == np.uint8 and filter.shape == (1, 12, 16, 6)
    for case in ("conv3d", "avgpool3d"):
        volume = lowered(case, "cv183x", "int8")[0]
        op = next(o for o in tpu_ops(volume) if o.name in ("tpu.Conv3D", "tpu.Pool3D"))
        assert str(element_of(op.results[0])) == "bf16"


@pytest.mark.parametrize(("case_id", "dtype"), [("deconv-positive-filter", np.uint8), ("deconv-4x4-s2", np.int8),
                                                ("conv3d-positive-filter", np.uint8), ("conv3d", np.int8)])  # fmt: skip
def test_filters_are_unsigned_without_negative_weights_and_bias(case_id: str, dtype: type) -> None:
    assert storage_dtype(element_of(one(case_id).operands[1])) == dtype


def test_coefficients_of_a_deconv_by_the_formulas() -> None:
    """Scales, filter, bias with zero point, and requant of every channel (numerics.md 5.1, 7.1, 7.2)."""
    top = calibrated("deconv-grouped")
    model = to_tpu(top, "bm1684x")
    deconv, requant = (next(o for o in tpu_ops(model) if o.name == n) for n in ("tpu.Deconv", "tpu.RequantIntAxis"))
    source = next(op for op in top.ops if op.name == "top.Deconv")
    w, b = (top.weights[op_name(source.operands[i].owner)] for i in (1, 2))  # type: ignore[arg-type]
    original = values((12, 4, 3, 3))
    for oc, ic in product(range(8), range(6)):  # ONNX has (ic, oc/group, kh, kw)
        np.testing.assert_array_equal(w[oc, ic], original[oc // 4 * 6 + ic, oc % 4])
    scale = np.maximum((np.abs(w).reshape(8, -1).max(axis=1) / np.float32(127)).astype(np.float64), 1e-5)
    q = np.asarray(model.weights[op_name(deconv.operands[1].owner)])  # type: ignore[arg-type]
    np.testing.assert_allclose(q, w / scale.reshape(-1, 1, 1, 1), atol=0.5 + 1e-6)
    found = [uniform_of(v) for v in (deconv.operands[0], requant.results[0])]
    s_in, s_out = (uniform.scale.data for uniform in found if uniform)
    stored = model.weights[op_name(deconv.operands[2].owner)]  # type: ignore[arg-type]
    np.testing.assert_allclose(stored, b / (scale * s_in), atol=0.5 + 1e-3)
    m, right, _ = model.weights[op_name(requant.operands[1].owner)].reshape(8, 3).T.astype(np.float64)  # type: ignore[arg-type]
    r = -right
    np.testing.assert_allclose(m / 2**r, scale * s_in / s_out, rtol=1e-6)


@pytest.mark.parametrize(("chip", "words"), [("bm1684x", 3), ("bm1688", 2), ("bm1690", 2)])
def test_requant_tables_are_packed_by_chip(chip: str, words: int) -> None:
    """Lowering packs (m, -r, z), or m and -r with z in the high half (numerics.md 6); inference reads them back.

    Multipliers and shifts of a module of an earlier release are attributes, which weight-reorder packs in the same way.
    """
    config = LoweringConfig(chip, "int8", asymmetric=True)
    model = to_tpu(calibrated("deconv-4x4-s2"), config)
    after = next(op for op in tpu_ops(model) if op.name == "tpu.RequantIntAxis")
    table = model.weights[op_name(after.operands[1].owner)]  # type: ignore[arg-type]
    earlier = model.clone()
    before = next(op for op in tpu_ops(earlier) if op.name == "tpu.RequantIntAxis")
    m, left = table[0, :, 0, 0], table[0, :, 0, 1]
    r = -(left if words == 3 else (left & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32))
    none = make_none()
    earlier.body.insert_op_before(none, before)
    before.operands[1] = none.output
    before.attributes |= {"tpusim.multiplier": ints_attr(m), "tpusim.rshift": ints_attr(r)}
    reordered = to_reordered(earlier)
    packed = next(op for op in tpu_ops(reordered) if op.name == "tpu.RequantIntAxis")
    np.testing.assert_array_equal(reordered.weights[op_name(packed.operands[1].owner)], table)  # type: ignore[arg-type]
    assert table.shape == (1, 12, 1, words) and table.dtype == np.int32
    uniform = uniform_of(after.results[0])
    assert uniform is not None
    zero = uniform.zero_point.value.data
    assert zero != 0 and (m > 0).all()
    if words == 3:
        assert (table[0, :, 0, 1] == -r).all() and (table[0, :, 0, 2] == zero).all()
    else:
        assert ((table[0, :, 0, 1] & 0xFF) == (-r & 0xFF)).all() and (table[0, :, 0, 1] >> 16 == zero).all()
    acc = np.random.default_rng(0).integers(-(2**20), 2**20, (2, 12, 3, 5)).astype(np.int32)
    np.testing.assert_array_equal(after.inference([acc, table])[0], before.inference([acc, None])[0])
    assert after.compact_operands(chips.load(chip)) == ((1,) if words == 2 else ())


# ---------------------------------------------------------------------------------------------------- import


def output_shape(model: onnx.ModelProto) -> tuple[int, ...]:
    return shape_of(import_onnx(model).results[0])


def test_geometry_that_cannot_be_done_is_refused() -> None:
    weights = {"w": values((5, 6, 3, 3))}

    def deconv(shape: tuple[int, ...] = (1, 5, 4, 4), **more: object) -> onnx.ModelProto:
        return network([node("ConvTranspose", "x w", **more)], weights)({"x": shape})

    assert output_shape(deconv(auto_pad="VALID")) == (1, 6, 6, 6)
    assert output_shape(deconv(output_shape=[9, 8], strides=[2, 2])) == (1, 6, 9, 8)
    for more, words in (
        ({"auto_pad": "SAME"}, "auto_pad NOTSET, VALID"),
        ({"pads": [9, 9, 9, 9]}, "an output that reads an input"),
        ({"kernel_shape": [2, 2]}, "kernel_shape"),
        ({"shape": (1, 4, 4, 4)}, "a filter"),
        ({"pads": [-1, 0, 0, 0]}, "0 and more are required"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            import_onnx(deconv(**more))  # type: ignore[arg-type]
    flat = network([node("ConvTranspose", "x w")], {"w": values((5, 6, 3))})({"x": (1, 5, 4, 4)})
    with pytest.raises(UnsupportedError, match="1-D to 3-D transposed convolution"):
        import_onnx(flat)


def test_a_volume_conv_that_fills_the_depth_is_two_dimensional() -> None:
    """Conv3dTo2d: only with one group, no depth pads, and the kernel as deep as the input."""
    assert [op.name for op in canonical("conv3d-depth-2d").ops if op.name in ("top.Conv", "top.Reshape")] == [
        "top.Reshape", "top.Conv", "top.Reshape",
    ]  # fmt: skip
    conv = next(op for op in canonical("conv3d-depth-2d").ops if op.name == "top.Conv")
    assert len(ints(conv.attributes["kernel_shape"])) == 2
    for case in ("conv3d", "conv3d-grouped", "conv3d-1x1x1"):
        kept = next(op for op in canonical(case).ops if op.name == "top.Conv")
        assert len(ints(kept.attributes["kernel_shape"])) == 3


# ---------------------------------------------------------------------------------------------------- commands


def alone(case_id: str) -> Model:
    """The row's module with its window op as a global layer and the others in groups."""
    work = to_reordered(lowered(case_id, "bm1684x", "int8")[0])
    chip = chips.load("bm1684x")
    for op in reversed(tpu_ops(work)):
        found = plan([op], chip)
        if op.name != "tpu.Conv3D" and isinstance(found, GroupSchedule):
            write_group(found)
        else:
            op.attributes["tpusim.global_reason"] = text("as the test says")
    work.set(state="TPU_DIVIDED")
    return work


def test_layers_become_the_commands_meant() -> None:
    """Deconv and its requant in one local group; a Conv3D that stays global as one kernel, its requant local."""

    def of(case: str) -> list[isa.Command]:
        return list(to_program(lowered(case, "bm1684x", "int8")[0]).commands)  # fmt: skip

    local = of("deconv-4x4-s2")
    (conv,) = (c for c in local if isinstance(c, isa.Conv))
    assert conv.inserts == (1, 1) and conv.rotate and conv.pads == (2, 2, 2, 2) and conv.output.dtype == "i32"
    assert sum(isinstance(c, isa.ChannelRescale) for c in local) == 1
    assert not any(isinstance(c, isa.GlobalKernel) for c in local)
    volume = to_program(alone("conv3d")).commands
    (kernel,) = (c for c in volume if isinstance(c, isa.GlobalKernel))
    assert isinstance(kernel.body, isa.Conv) and kernel.body.kernel == (3, 3, 3) and kernel.reason == "as the test says"
    assert sum(isinstance(c, isa.ChannelRescale) for c in volume) == 1
    assert any(isinstance(c, isa.Depthwise) and c.inserts == (1, 1) for c in of("deconv-depthwise"))


def test_inserted_and_rotated_convolution_by_hand() -> None:
    """1x1x1x2 with one value inserted: places a z b; a kernel (1, 2, 3), turned to (3, 2, 1), z = pad value."""
    bench = Bench()
    image = bench.put(np.array([[[[10, 20]]]], np.int8))
    row = np.zeros((1, 1, 1, 3 * 64), np.int8)
    row[0, 0, 0, [0, 64, 128]] = 1, 2, 3
    filter = bench.put(row, layout="compact")
    out = bench.space((1, 1, 1, 3), "i32")
    fields = {"input": image, "filter": filter, "output": out, "kernel": (1, 3), "pads": (0, 1, 0, 1)}
    found = bench.run(isa.Conv, **fields, inserts=(0, 1), rotate=True, pad_value=5)
    assert found.reshape(-1).tolist() == [5 * 3 + 10 * 2 + 5, 10 * 3 + 5 * 2 + 20, 5 * 3 + 20 * 2 + 5]
    straight = bench.run(isa.Conv, **fields, inserts=(0, 1), pad_value=5)
    assert straight.reshape(-1).tolist() == [5 + 10 * 2 + 5 * 3, 10 + 5 * 2 + 20 * 3, 5 + 20 * 2 + 5 * 3]


def test_channel_rescale_by_hand() -> None:
    """Ties away from zero, a left shift, a zero point, saturation; both table forms."""
    for chip, table in (
        ("bm1684x", [[1, -1, 4], [3, 2, -7]]),
        ("bm1688", [[1, (-1 & 0xFF) | 4 << 16], [3, 2 | (-7 & 0xFFFF) << 16]]),
    ):
        bench = Bench(chip)
        words = np.array([table], np.int64).astype(np.uint32).view(np.int32).reshape(1, 2, 1, -1)
        x = bench.put(np.array([[[[3, -3, 400]], [[1, -2, 40]]]], np.int32))
        view = bench.put(words, layout="aligned" if chip == "bm1684x" else "compact")
        found = bench.run(isa.ChannelRescale, input=x, table=view, output=bench.space((1, 2, 1, 3), "i8"))
        assert found.tolist() == [[[[6, 2, 127]], [[5, -31, 127]]]]


def test_rules_of_the_new_fields() -> None:
    """Inserted elements 0-14, three window axes only in a global kernel, tables of the chip's width."""
    chip = chips.load("bm1684x")
    out = lmem(1024, (1, 1, 31, 1), "i32")
    local = {"id": 1, "dep": 0, "op": "d", "input": lmem(0, (1, 1, 3, 1)), "output": out, "kernel": (1, 1),
             "filter": lmem(512, (1, 1, 1, 64), layout="compact")}  # fmt: skip
    check(isa.Conv(**local, inserts=(14, 0)), chip)
    with pytest.raises(CommandError, match="inserts within 0-14"):
        check(isa.Conv(**local, inserts=(15, 0)), chip)
    with pytest.raises(CommandError, match="a reach of 31 into 3 padded rows"):
        check(isa.Conv(**local), chip)
    with pytest.raises(CommandError, match="2 or 3 entries of kernel"):
        check(isa.Conv(**{**local, "kernel": (1, 1, 1)}), chip)
    volume = isa.Conv(
        id=0, dep=0, op="v", input=gmem(0, (1, 1, 2, 3, 3)), filter=gmem(64, (1, 1, 1, 64)), kernel=(1, 1, 1),
        output=gmem(128, (1, 1, 3, 3, 3), "i32"), strides=(1, 1, 1), pads=(0,) * 6, dilations=(1, 1, 1),
        inserts=(0, 0, 0),
    )  # fmt: skip
    with pytest.raises(CommandError, match="a reach of 3 into 2 padded depths"):
        check(isa.GlobalKernel(id=1, dep=0, op="v", body=volume), chip)
    rescale = {"id": 1, "dep": 0, "op": "r", "input": out, "output": lmem(2048, (1, 1, 31, 1))}
    check(isa.ChannelRescale(**rescale, table=lmem(4096, (1, 1, 1, 3), "i32")), chip)
    with pytest.raises(CommandError, match=r"table \(1, 1, 1, 3\)"):
        check(isa.ChannelRescale(**rescale, table=lmem(4096, (1, 1, 1, 2), "i32")), chip)
    with pytest.raises(CommandError, match="table at a multiple of 8 bytes"):
        check(isa.ChannelRescale(**rescale, table=lmem(4100, (1, 1, 1, 3), "i32", "compact")), chip)


def test_a_volume_costs_its_planes() -> None:
    """od*kd 2-D convolutions (hardware.md 5.1), and the bias: two steps of 32 bits over all accumulators."""
    chip = chips.load("bm1684x")
    (kernel,) = (c for c in to_program(alone("conv3d")).commands if isinstance(c, isa.GlobalKernel))
    # 2 images, 64 lanes, 30 pixels to 32, 64 channels by 9 taps; 64 lanes x 64 x 4 products per cycle; 4 depths x 3
    plane = 2 * 64 * 32 * 64 * 9 // (64 * 64 * 4)
    assert isinstance(kernel.body, isa.Conv) and kernel.body.bias is not None
    assert tiu_cycles(kernel.body, chip) == 4 * 3 * plane + 2 * ceil_div(kernel.body.output.elements, 64 * 16)


@pytest.mark.slow  # kernels of many shapes
def test_extreme_bytes_and_a_zero_point_agree_everywhere() -> None:
    """Asymmetric, inputs at both ends of the range: machine and flat inference, bit for bit."""
    for case_id in ("deconv-uneven", "deconv-depthwise", "conv3d-dilated", "deconv3d", "deconv3d-uneven"):
        config = LoweringConfig("bm1684x", "int8", asymmetric=True)
        model = to_tpu(calibrated(case_id), config)
        feeds = {k: np.sign(v).astype(np.float32) for k, v in BY_ID[case_id].feeds(3).items()}
        expected = run(model, feeds)
        program = to_program(model)
        found = Simulator(program).run(feeds, watch=True).tensors
        checked = [n for n in found if found[n].dtype.kind in "iu"]
        assert checked and all(np.array_equal(found[n], expected[n]) for n in checked)


def test_relu_of_accumulators_is_relu_of_the_result() -> None:
    """A fused relu acts on the int32 accumulator; the result is what a relu after the requant gives."""
    tensors = flat("deconv-relu", "bm1684x", "int8")
    assert tensors["y_i32"].min() == 0 and tensors["y"].dtype == np.uint8
