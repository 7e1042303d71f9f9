"""The mode attributes of lowered modules are written as upstream writes them, and read back (TpuOps.td)."""

from __future__ import annotations

import pytest
from compiling import to_tpu
from rows import calibrated

from tpusim.errors import ImportModelError
from tpusim.ir.modes import requant_mode
from tpusim.ir.text import parse_module, print_module
from tpusim.ops import context

ROWS = [
    ("conv-3x3", "bm1684x", "int8", "quant_mode = #tpu<rq_mode MultiplierShift>"),
    ("conv-3x3", "bm1684", "int8", "quant_mode = #tpu<rq_mode OnlyShift>"),
    ("conv-3x3", "cv183x", "int8", "quant_mode = #tpu<rq_mode QDM>"),
    ("gemm-fc", "cv183x", "int8", "quant_mode = #tpu<rq_mode QDM>"),
    ("mul", "cv183x", "int8", "quant_mode = #tpu<rq_mode QDM>"),
    ("deconv-4x4-s2", "bm1684x", "int8", "quant_mode = #tpu<rq_mode MultiplierShift>"),
    ("avgpool-3x3-padded", "cv183x", "int8", "first_round_mode = #tpu<round_mode HalfUp>"),
    ("avgpool-3x3-padded", "bm1684x", "int8", "pool_mode = #tpu<pool_mode Avg>"),
    ("maxpool-2x2", "bm1684", "int8", "pool_mode = #tpu<pool_mode Max>"),
    ("sigmoid", "cv183x", "bf16", "lut_mode = #tpu<lut_mode Slope>"),
]


@pytest.mark.parametrize(("row", "chip", "mode", "written"), ROWS)
def test_modes_are_written_as_upstream_writes_them(row: str, chip: str, mode: str, written: str) -> None:
    tpu = to_tpu(calibrated(row), chip, mode)
    text = print_module(tpu.module)
    assert written in text
    assert print_module(parse_module(text, context())) == text


def test_an_unknown_mode_is_an_error_that_lists_the_modes() -> None:
    tpu = to_tpu(calibrated("conv-3x3"), "bm1684x")
    text = print_module(tpu.module).replace("rq_mode MultiplierShift", "rq_mode Shift")
    with pytest.raises(ImportModelError, match="MultiplierShift"):
        parse_module(text, context())
    with pytest.raises(ValueError, match="Shift"):
        requant_mode("Shift")
    with pytest.raises(ImportModelError, match="rq_mode"):
        parse_module(text.replace("#tpu<rq_mode Shift>", '"Shift"'), context())


def test_a_mode_may_be_a_string_as_earlier_releases_wrote_it() -> None:
    text = print_module(to_tpu(calibrated("conv-3x3"), "bm1684x").module)
    former = text.replace("#tpu<rq_mode MultiplierShift>", '"MultiplierShift"')
    assert former != text and print_module(parse_module(former, context())) == text
