"""Every op row on CV18xx in INT8: all operands of every integer op against an independent oracle."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_groups, to_program, to_reordered
from op_cases import CASES, OpCase
from op_oracles_cv18xx import CV18XX
from rotation import marks, some_first, turn
from rows import lowered, operands_of, tpu_ops, under_test
from slicings import Forced, cuts

from tpusim import chips
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import uniform_of
from tpusim.ops.structure import TpuGroup
from tpusim.registry import STRATEGIES
from tpusim.running.agreement import compare_local
from tpusim.schedule import Sections
from tpusim.simulator import Simulator

USUAL = [
    pytest.param(c, id=c.id, marks=marks(some_first(c, 0) or turn(c, 0, 48)))
    for c in CASES
    if "cv183x" not in c.refused_on
]
"""The first row of one op in three, and of all rows one in 24."""


@pytest.mark.parametrize("case", USUAL)
def test_integers_are_the_oracle(case: OpCase) -> None:
    """On the row's values, and on values over the whole range of the operands' types."""
    tpu, _ = lowered(case.id, "cv183x", "int8")
    tensors = {**case.feeds(), **run(tpu, case.feeds())}
    for op in tpu_ops(tpu):
        if uniform_of(op.results[0]) is None:
            continue
        expected = CV18XX[op.name](op, operands_of(op, tpu, tensors))
        np.testing.assert_array_equal(tensors[op_name(op)], expected, err_msg=op_name(op), strict=True)
        extreme = operands_of(op, tpu, None)
        found = np.asarray(op.compute(extreme, chips.load("cv183x"))[0])
        np.testing.assert_array_equal(found, CV18XX[op.name](op, extreme), err_msg=op_name(op), strict=True)


REFUSED = ("makes no progress", "cannot be cut along h")
"""Why CV18xx may refuse a section count that is possible on other chips (layer_group.md 7.1, 7.2)."""


def few_sections(limit: Sections) -> list[Sections]:
    found = [Sections(limit.n)] if limit.n > 1 else []
    found += [Sections(h=h) for h in sorted({2, limit.h}) if 1 < h <= limit.h]
    return found + ([Sections(2, h=2)] if min(limit.n, limit.h) > 1 else [])


def placed(name: str, model: Model) -> tuple[int, int] | str:
    """(nsecs, hsecs) of the group an op is in, or why it is in none."""
    op = next(o for o in tpu_ops(model) if op_name(o) == name)
    group = op.parent_op()
    if not isinstance(group, TpuGroup):
        return str(op.attributes["tpusim.global_reason"])
    found = group.sections()
    return found["n"], found["h"]


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.id, marks=marks(some_first(c, 0) or turn(c, 0, 32))) for c in CASES if c.axes]
)
def test_slices_equal_the_whole(case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole run of ops as one group cut along n, h and both: the machine gives the flat tensors."""
    tpu, _ = lowered(case.id, "cv183x", "int8")
    reordered, feeds = to_reordered(tpu), case.feeds()
    op = under_test(case, reordered) if any(o.name in case.result.split("|") for o in tpu_ops(reordered)) else None
    if op is None:  # a Scale is a depthwise convolution, an op with a number a table
        op = tpu_ops(reordered)[-1]
    _, limit, kind = cuts(op, chips.load("cv183x"))
    flat = run(tpu, feeds)
    for sections in few_sections(limit):
        monkeypatch.setitem(STRATEGIES.entries, "forced", Forced(sections, kind))
        grouped = to_groups(reordered, "forced")
        cut = placed(op_name(op), grouped)
        assert cut == (sections.n, sections.h) or any(why in str(cut) for why in REFUSED)
        program = to_program(grouped)
        machine = Simulator(program).run(feeds, watch=True).tensors
        found = compare_local(tpu, feeds, machine, flat)
        assert found.compared and found.passed, [(t.name, t.verdict, t.note) for t in found.failures]
        assert all(t.bit_exact for t in found.tensors if t.is_integer)
