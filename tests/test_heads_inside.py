"""Attention of a lowered module: Permutes of heads become parts of the products, and one group takes it all."""

from __future__ import annotations

import msgspec
import onnx
import pytest
from compiling import optimized, to_canonical, to_groups, to_lowered
from upstream.networks import Builder, build

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.lowering import optimize_for_chip
from tpusim.ops.matmul import TpuMatMul
from tpusim.ops.structure import TpuGroup

BM1688 = chips.load("bm1688")
PARTS = BM1688.replace(name="parts", forms=msgspec.structs.replace(BM1688.forms, flash_attention=False))
"""BM1688 without an op for all of an attention in 16 bits."""


def lowered(name: str, chip: str | ChipSpec, mode: str = "f16", proto: onnx.ModelProto | None = None) -> Model:
    top = to_canonical(import_onnx(proto or build(name), name=name))
    return to_lowered(top, chip, mode)


def kinds(model: Model) -> list[str]:
    return [op.name for op in model.ops]


@pytest.mark.parametrize("name", ["attention", "bert"])
def test_permutes_become_parts_of_products(name: str) -> None:
    """`bert` has a mask, the same for all rows and heads, between its products."""
    before = lowered(name, PARTS)
    after = optimized(before)
    assert kinds(before).count("tpu.Permute") == 4
    assert "tpu.Permute" not in kinds(after)
    inside = [op for op in after.ops if isinstance(op, TpuMatMul) and op.has_heads]
    assert [op.transposes for op in inside] == [(False, True), (False, False)]
    assert optimize_for_chip(after) is after
    assert {op_name(v.owner) for v in after.results} == {op_name(v.owner) for v in before.results}  # type: ignore[arg-type]


def test_a_whole_block_is_one_group() -> None:
    """As the real compiler's: nothing stays global."""
    (group, *rest) = (op for op in to_groups(lowered("attention", PARTS)).ops
                      if isinstance(op, TpuGroup) or op.name.startswith("tpu."))  # fmt: skip
    assert isinstance(group, TpuGroup)
    assert not rest


@pytest.mark.parametrize(("chip", "mode"), [("bm1688", "f32"), ("bm1684", "f32")])
def test_others_keep_their_permutes(chip: str, mode: str) -> None:
    """Products in f32, and chips whose products have no such form."""
    model = lowered("attention", chip, mode)
    assert optimize_for_chip(model) is model


def patches(size: int, **attributes: object) -> onnx.ModelProto:
    """The first layer of a ViT: 2 x 1 patches to rows of 8."""
    b = Builder("patches")
    image = b.input("image", 1, 3, 2 * size, size)
    conv = b.conv(image, 3, 8, size, strides=[size, size], pads=[0] * 4, **attributes)
    b.output(b.node("Transpose", b.reshape(conv, 1, 8, 2), perm=[0, 2, 1]))
    return b.model()


def test_a_patch_is_a_row_of_a_product() -> None:
    """One Permute moves the elements of patches side by side; the product's rows are the network's."""
    model = optimized(lowered("patches", "bm1684x", proto=patches(14)))
    computing = [kind for kind in kinds(model) if kind in ("tpu.Conv2D", "tpu.MatMul", "tpu.Permute")]
    assert computing == ["tpu.Permute", "tpu.MatMul"]


@pytest.mark.parametrize(("size", "chip"), [(13, "bm1684x"), (29, "bm1688"), (14, "bm1684")])
def test_small_and_large_patches_stay_convolutions(size: int, chip: str) -> None:
    """As upstream: below 14, and on BM1688 from 29 on."""
    assert "tpu.Conv2D" in kinds(lowered("patches", chip, "f32", patches(size)))
