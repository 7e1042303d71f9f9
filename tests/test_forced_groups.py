"""Forced groups: what a file pins is done exactly, the rest is searched, what is illegal is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from builders.groups import BIG, X, add, conv, matmul, outside, softmax, value
from compiling import to_groups, to_program
from end_to_end import DIGITS, digits_run, hashes, report_of
from networks import CHIPS, cached_lowered, cached_network, randomly_grouped
from rotation import first_of
from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.cli import main
from tpusim.errors import CapacityError, ConfigError, TpusimError
from tpusim.ir.attrs import op_name, set_op_name
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.ir.types import f16
from tpusim.layer_group import (
    ForcedGroup,
    GlobalView,
    GroupView,
    LayerGroupConfig,
    groups_text,
    read_groups,
    views,
)
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.files import Counts
from tpusim.layer_group.planning import explained, plan, shortage
from tpusim.layer_group.search.rules import ruled
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TpuGroup
from tpusim.schedule import GroupSchedule, Sections, subgraph
from tpusim.simulator import Simulator

RANDOM = pytest.mark.parametrize(("seed", "chip"), [(s, c) for s in range(4) for c in CHIPS])


def regrouped(model: Model, forced: Sequence[ForcedGroup], opt: str = "1") -> Model:
    return to_groups(model, LayerGroupConfig(opt, tuple(forced)))


def runs(model: Model, chip: str) -> list[list[TpuOp]]:
    return [ops for ops, why in base_groups(model, chips.load(chip)) if why is None]


# -------------------------------------------------------------------------------------------------------------- files


@RANDOM
def test_written_groups_give_the_same_module(seed: int, chip: str, tmp_path: Path) -> None:
    """Round trip through the file: groups, sections, schedule and addresses are the same text."""
    model = cached_lowered(seed, chip)[0]
    found = to_groups(model)
    path = tmp_path / "groups.toml"
    path.write_text(groups_text(found))
    forced = read_groups(path)
    assert len(forced) == sum(isinstance(op, TpuGroup) for op in found.ops)
    assert print_module(regrouped(model, forced).module) == print_module(found.module)
    assert print_module(regrouped(model, forced, "off").module) == print_module(found.module)


def test_toml_and_json_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[groups]]\nfirst = "a"\nlast = "b"\nsections = { h = 4 }\n')
    content = {"groups": [{"first": "a", "last": "b", "sections": {"h": 4}}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    wanted = (ForcedGroup("a", "b", None, Counts(h=4)),)
    assert read_groups(tmp_path / "a.toml") == read_groups(tmp_path / "a.json") == wanted


def test_names_of_every_kind_are_written(tmp_path: Path) -> None:
    """Quotes, backslashes, control characters and other scripts survive the file."""
    model = cached_lowered(0, "bm1684x")[0].clone()
    for i, op in enumerate(o for o in model.ops if isinstance(o, TpuOp)):
        set_op_name(op, f'"{i}\\ \t\x7f\x01 ö 中 # [groups]')
    found = to_groups(model)
    (tmp_path / "g.toml").write_text(groups_text(found), encoding="utf-8")
    firsts = [v.ops[0][0] for v in views(found) if isinstance(v, GroupView)]
    assert [g.first for g in read_groups(tmp_path / "g.toml")] == firsts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[groups]\n", "Expected"),
        ("[[groups]]\nfirst = 'a'\n", "missing required field `last`"),
        ("[[groups]]\nfirst = 'a'\nlast = 'b'\nsection = 3\n", "unknown field `section`"),
        ("[[groups]]\nfirst = 'a'\nlast = 'b'\nsections = { x = 3 }\n", "unknown field `x`"),
        ("[[groups]]\nfirst = 'a'\nlast = 'b'\nsections = { h = '3' }\n", "Expected `int`"),
        ("[[groups]]\nfirst = 'a'\nlast = 'b'\ntype = 'LARGE'\n", "Invalid enum value 'LARGE'"),
        ("", "missing required field `groups`"),
    ],
)
def test_malformed_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read_groups(path)
    assert "bad.toml" in str(caught.value) and "--write-groups" in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_groups(tmp_path / "none.toml")


# ------------------------------------------------------------------------------------------------------- what is pinned


@RANDOM
def test_random_groups_are_made_as_asked(seed: int, chip: str) -> None:
    """Boundaries, type and sections of random groups; cuts that repeat too many rows are refused by name."""
    model = cached_lowered(seed, chip)[0]
    plans = randomly_grouped(model, np.random.default_rng(seed))[1]
    wanted: dict[tuple[str, str], tuple[object, dict[str, int]]] = {}
    forced: list[ForcedGroup] = []
    for one in plans:
        names = [op_name(op) for op in one.graph.ops]
        counts = {axis: one.sections.count(axis) for axis in "ncdhw"}  # type: ignore[arg-type]
        item = ForcedGroup(names[0], names[-1], str(one.graph.kind), Counts(**counts))  # type: ignore[arg-type]
        try:
            regrouped(model, [item], "off")
        except ConfigError as error:
            assert "rule halo" in str(error), error
            continue
        forced.append(item)
        wanted[names[0], names[-1]] = one.graph.kind, counts
    assert forced
    found = [v for v in views(regrouped(model, forced)) if isinstance(v, GroupView)]
    made = {(v.ops[0][0], v.ops[-1][0]): (v.kind, dict(v.sections)) for v in found}
    assert wanted.items() <= made.items()
    names = [name for v in views(regrouped(model, forced)) for name, _ in _ops(v)]
    flat = [op_name(op) for op in model.ops if isinstance(op, TpuOp)]
    assert sorted(names) == sorted(flat), "every op is there once"


def _ops(view: GroupView | GlobalView) -> Sequence[tuple[str, str]]:
    return view.ops if isinstance(view, GroupView) else [(view.name, view.op)]


@pytest.mark.parametrize("chip", first_of(CHIPS))
def test_forced_groups_give_the_same_bits(chip: str) -> None:
    """A pinned pair in the middle, cut; before and after it the search goes on."""
    model, flat = cached_lowered(0, chip)
    cut = 0
    for run in runs(model, chip):
        for i in range(len(run) - 1):
            names = op_name(run[i]), op_name(run[i + 1])
            try:
                work = regrouped(model, [ForcedGroup(*names, sections=Counts(h=2))])
            except TpusimError:
                continue
            cut += 1
            shown = [v for v in views(work) if isinstance(v, GroupView)]
            assert any((v.ops[0][0], v.ops[-1][0]) == names and v.sections["h"] == 2 for v in shown)
            result = Simulator(to_program(work)).run(cached_network(0).feeds())
            for name, array in result.tensors.items():
                assert np.array_equal(array, flat[name]), name
    assert cut > 1


# ------------------------------------------------------------------------------------------------------------ refusals


def refused(model: Model, *forced: ForcedGroup) -> str:
    with pytest.raises((ConfigError, CapacityError)) as caught:
        regrouped(model, forced)
    return str(caught.value)


def test_names_and_order() -> None:
    model = cached_lowered(0, "bm1684x")[0]
    names = [op_name(op) for op in runs(model, "bm1684x")[0]]
    assert len(names) > 3
    wrong = names[0] + "x"
    message = refused(model, ForcedGroup(wrong, names[1]))
    assert f"rule op-name: the module has no op '{wrong}'" in message and f"did you mean '{names[0]}'" in message
    assert "rule op-name" in refused(model, ForcedGroup("_" * 40, names[1]))
    message = refused(model, ForcedGroup(names[2], names[0]))
    assert "rule consecutive" in message and "swap first and last" in message
    message = refused(model, ForcedGroup(names[0], names[2]), ForcedGroup(names[2], names[3]))
    assert f"rule overlap: 1 ops, '{names[2]}' first, are in group '{names[0]}'..'{names[2]}' already" in message
    both = refused(model, ForcedGroup(wrong, wrong), ForcedGroup(names[2], names[0]))
    assert both.startswith("2 forced groups are refused:") and "op-name" in both and "consecutive" in both


def make(ops: Sequence[TpuOp]) -> list[TpuOp]:
    for i, op in enumerate(ops):
        set_op_name(op, f"op{i}")
    return list(ops)


def chain(*, k: int = 3, length: int = 2, shape: tuple[int, ...] = (1, 4, 10, 8)) -> list[TpuOp]:
    ops: list[TpuOp] = []
    x: SSAValue = value(shape)
    for _ in range(length):
        ops.append(conv(x, k))
        x = ops[-1].results[0]
    return make(ops)


def softmax_over_c() -> list[TpuOp]:
    x = value((4, 128, 6, 8), f16)
    first = add(x, x)
    return make([first, softmax(first.results[0], 1)])


def refusal(ops: list[TpuOp], chip: chips.ChipSpec = X, **fields: object) -> TpusimError:
    """What planning these ops as a forced group raises."""
    user = outside(ops[-1].results[0])
    with pytest.raises((ConfigError, CapacityError)) as caught:
        ruled(ForcedGroup("op0", f"op{len(ops) - 1}", **fields), ops, chip)  # type: ignore[arg-type]
    assert user.arguments
    return caught.value


def test_halo() -> None:
    message = str(refusal(chain(k=7), sections=Counts(h=5)))
    assert re.search(
        r"rule halo: at nsecs=1, hsecs=5 the 5 slices of '\w*' have \d+ along h for 10, \d\.\d\d times, at most 1.5",
        message,
    )
    user = outside((ops := chain(k=7))[-1].results[0])
    assert isinstance(plan(ops, X, Sections(h=5)), GroupSchedule), "the cut itself works: only the rule forbids it"
    assert user.arguments


def test_more_sections_than_rows() -> None:
    message = str(refusal(chain(), sections=Counts(h=11)))
    assert "rule h-sections: at most 10 sections along h" in message and "has 10 rows), got h = 11" in message
    assert "rule h-sections: at least 1 section is required, got h = 0" in str(refusal(chain(), sections=Counts(h=0)))
    assert "rule n-sections" in str(refusal(chain(), sections=Counts(n=2)))
    assert "rule w-sections" in str(refusal(chain(), chips.load("bm1684"), sections=Counts(w=2)))


def test_c_cut_of_a_softmax_over_c() -> None:
    """No type of group allows it: where channels may be cut, softmax must be over the last axis."""
    for fields in ({}, {"type": "NORMAL"}):
        message = str(refusal(softmax_over_c(), BIG, sections=Counts(c=2), **fields))
        assert "rule c-cut: tpu.Softmax 'op1' cannot be cut along c in a NORMAL group, got c = 2" in message
    for kind in ("MM", "SMALL_C"):
        message = str(refusal(softmax_over_c(), BIG, type=kind, sections=Counts(c=2)))
        assert f"rule type: tpu.Softmax 'op1' cannot be in a group of type {kind}: softmax along axis 1" in message


def test_c_cut_of_a_group_type_without() -> None:
    message = str(refusal(chain(shape=(1, 130, 10, 8)), type="NORMAL", sections=Counts(c=2)))
    assert "rule c-sections: at most 1 sections along c are possible in a NORMAL group on bm1684x" in message


def test_type() -> None:
    assert "rule type: tpu.Conv2D 'op0' cannot be in a group of type MM" in str(refusal(chain(), type="MM"))
    message = str(refusal(chain(), chips.load("bm1684"), type="MM"))
    assert "rule type: bm1684 has groups of type NORMAL only, got MM" in message


def test_h_cut_of_a_product() -> None:
    ops = make([matmul(value((4, 128, 16), f16), value((4, 16, 24), f16))])
    message = str(refusal(ops, BIG, sections=Counts(h=2)))
    assert "rule h-cut: tpu.MatMul 'op0' cannot be cut along h" in message and "got h = 2" in message


def test_windows_that_cannot_be_made() -> None:
    """Two users that need different rows of one tensor, on a chip that cannot share a slice."""
    first = conv(value((1, 4, 10, 8)), 1)
    wide, narrow = conv(first.output, 3), conv(first.output, 1)
    ops = make([first, wide, narrow, add(wide.output, narrow.output)])
    message = str(refusal(ops, msgspec.structs.replace(X, family="cv18xx"), sections=Counts(h=2)))
    assert "rule window: at nsecs=1, hsecs=2: users need different windows along h" in message
    assert "which bm1684x cannot share" in message


def test_no_sections_are_found() -> None:
    """Local memory is too small for the whole, and no cut has windows that the users can share, or that move on."""
    first = conv(value((1, 4, 10, 8)), 1)
    wide, narrow = conv(first.output, 3), conv(first.output, 1)
    ops = make([first, wide, narrow, add(wide.output, narrow.output)])
    message = str(refusal(ops, msgspec.structs.replace(X, family="cv18xx", lmem_bytes=1200)))
    assert "rule sections: no sections work: tpu.Conv2D: a window along h makes no progress" in message


def small(lmem_bytes: int) -> chips.ChipSpec:
    return msgspec.structs.replace(X, lmem_bytes=lmem_bytes)


def test_what_does_not_fit_names_buffers_and_remedy() -> None:
    """Bytes by hand: 4 channels of f32 10x8 take 320 bytes per lane each; two sections of 5 rows fit."""
    ops = chain(k=1, length=1, shape=(1, 4, 40, 8))
    error = refusal(ops, small(2400), sections=Counts(h=1))
    assert isinstance(error, CapacityError)
    message = str(error)
    assert (
        "rule fit: local memory needs" in message and "bytes per lane at nsecs=1, hsecs=1, bm1684x has 2,400" in message
    )
    assert (
        "result 'op0' 1,280" in message
        and "input" in message
        and re.search(r"it fits at nsecs=1, hsecs=[2-9]", message)
    )
    tight = str(refusal(chain(length=1), small(256)))
    assert "rule fit" in tight and "would have to take at most" in tight


def test_an_op_that_fits_at_no_slicing_is_explained() -> None:
    ops = chain(length=1, shape=(1, 70, 10, 8))
    user = outside(ops[0].results[0])
    tiny = small(512)
    why = plan(ops, tiny)
    assert isinstance(why, str)
    message = explained(ops[0], why, tiny)
    assert "bm1684x has 512" in message and "at the finest cut" in message
    assert re.search(r"constant '\w*' \(held\) 5,\d{3}", message) and "narrower weights" in message
    assert explained(ops[0], "some other reason", X) == "some other reason", "it fits: memory is not the reason"
    assert shortage(subgraph(ops, X), X) is None
    assert user.arguments


def test_an_op_whose_finer_cuts_fail_is_explained() -> None:
    """BM1684 refuses windows without progress: what the whole takes, and why it cannot be cut."""
    old = msgspec.structs.replace(chips.load("bm1684"), lmem_bytes=700)
    x = value((1, 4, 2, 60))
    ops = make([conv(x, 3)])
    user = outside(ops[0].results[0])
    message = group_reason(ops, old)
    assert (
        "bm1684 has 700" in message
        and "result 'op0' 512" in message
        and "at most nsecs=1, hsecs=2 are possible" in message
    )
    assert "finer cuts fail: " in message and "makes no progress" in message
    assert user.arguments


def test_an_activation_that_no_cut_makes_small_enough() -> None:
    """One row of 60 f32 columns is 240 bytes, 256 as whole vectors of the unit: three of them do not fit 700."""
    old = msgspec.structs.replace(chips.load("bm1684"), lmem_bytes=700)
    ops = make([add(value((1, 4, 2, 60)), value((1, 4, 2, 60)))])
    user = outside(ops[0].results[0])
    found = group_reason(ops, old)
    assert "local memory needs 768 bytes per lane at nsecs=1, hsecs=2, bm1684 has 700; at the finest cut" in found
    assert "input '' 256, input '' 256, result 'op0' 256" in found
    assert "would have to take at most 188 bytes per lane (cut h in 2), at most nsecs=1, hsecs=2 are possible" in found
    assert user.arguments


def group_reason(ops: list[TpuOp], chip: chips.ChipSpec) -> str:
    why = plan(ops, chip)
    assert isinstance(why, str)
    return explained(ops[0], why, chip)


# --------------------------------------------------------------------------------------------------------- on the shell


def test_command_line(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """write-groups, edit, force in `group`, `run` and `opt`: all the same module."""
    source = digits_run(tmp_path_factory, "bm1684x", "int8")
    before = hashes(source)
    groups = tmp_path / "groups.toml"
    assert main(["group", str(source / "6_final.mlir"), "--write-groups", str(groups)]) == 0
    text = groups.read_text()
    assert text.count("[[groups]]") == 1 and '# 1: "logits_Gemm" stays global: 2-D matrix product' in text
    groups.write_text('[[groups]]\nfirst = "stem_Relu"\nlast = "block_a_Relu"\nsections = { h = 2 }\n')
    words = ["group", str(source / "4_tpu.mlir"), "--force", str(groups)]
    assert main([*words, "--out", str(tmp_path / "grouped.mlir")]) == 0
    passes = f'weight-reorder,layer-group{{opt=2 force="{groups}"}}'
    assert main(["opt", str(source / "4_tpu.mlir"), "-p", passes, "-o", str(tmp_path / "opt.mlir")]) == 0
    lines = [[x for x in (tmp_path / n).read_text().splitlines() if "hsecs" in x] for n in ("grouped.mlir", "opt.mlir")]
    assert lines[0] == lines[1] and len(lines[0]) == 2 and sum("hsecs = 2" in x for x in lines[0]) == 1
    run = ["run", str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "calibration.npz"), "--samples", "24"]
    assert main([*run, "--force", str(groups), "--out", str(tmp_path / "run")]) == 0
    report = report_of(tmp_path / "run")
    assert report["passed"] and report["compare"]["local_vs_tpu"]["bit_exact"]
    pinned = next(g for g in report["groups"] if g["ops"] == ["stem_Relu", "block_a_Relu"])
    assert pinned["secs"] == {"n": 1, "c": 1, "d": 1, "h": 2, "w": 1}
    assert "1×1×1×2×1" in capsys.readouterr().out
    for first, last, rule in (
        ("stem_Relu", "logits_Gemm", "rule local: tpu.MatMul 'logits_Gemm' cannot run from local memory: 2-D matrix"),
        ("flat_Flatten", "flat_Flatten", "rule views: tpu.Reshape 'flat_Flatten' is free in global memory"),
    ):
        groups.write_text(f'[[groups]]\nfirst = "{first}"\nlast = "{last}"\n')
        assert main(words) == 1
        assert rule in capsys.readouterr().err
    assert hashes(source) == before


def test_every_rule_is_documented() -> None:
    """The names in the messages are those of docs/layer_group.md, and the other way round."""
    root = Path(__file__).resolve().parent.parent
    search = root / "tpusim" / "layer_group" / "search"
    source = "".join((search / name).read_text() for name in ("pins.py", "rules.py"))
    used = set(re.findall(r'refused\(\s*item,\s*f?"([^"]+)"', source)) | set(re.findall(r"rule (\w+): \{", source))
    used = {name.replace("{axis}", axis) for name in used for axis in ("n", "w")} - {"{rule}"}
    page = (root / "docs" / "layer_group.md").read_text().split("| rule |")[1].split("\n\n")[0]
    told = set(re.findall(r"^\| ([\w-]+)(?: \.\.\. [\w-]+)? \|", page, re.M)) | set(
        re.findall(r"\.\.\. ([\w-]+) ", page)
    )
    assert used == told and len(used) > 10
