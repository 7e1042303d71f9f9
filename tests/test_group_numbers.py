"""A group has one number: in the program, for a person, in the file of pinned groups, in options and pictures.

What is expected is counted here from the module: everything that has a command, in program order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from compiling import to_groups, to_program
from end_to_end import digits_run, report_of
from networks import Network, cached_lowered, randomly_grouped, reordered

from tpusim.cli import main
from tpusim.cli.grouping import show
from tpusim.errors import ConfigError, spelled_as_options
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group import GlobalView, GroupView, LayerGroupConfig, group_number, groups_text, views
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TpuGroup
from tpusim.studies.explore.whatif import what_if


@pytest.fixture(autouse=True)
def typed() -> Iterator[None]:
    """Messages are those of the command line."""
    with spelled_as_options():
        yield


def mixed(chip: str) -> Model:
    """Groups with a view and global layers between them: a product of two tensors is none of a group's ops here."""
    net = Network(np.random.default_rng(7))
    x = net.relu(net.conv(net.input((1, 3, 12, 10)), 10))
    flat = net.flatten(net.global_pool(x))
    return reordered(net.top(net.matmul(flat, (10, 10)), net.relu(net.conv(x, 10))), chip)


def counted(model: Model) -> list[tuple[int, tuple[str, ...]]]:
    """(number, ops) of all that has commands: reshapes outside groups are free in global memory."""
    found: list[tuple[str, ...]] = []
    for op in model.ops:
        if isinstance(op, TpuGroup):
            found.append(tuple(op_name(inner) for inner in op.body.block.ops if isinstance(inner, TpuOp)))
        elif isinstance(op, TpuOp) and op.name != "tpu.Reshape":
            found.append((op_name(op),))
    return list(enumerate(found))


def networks(name: str) -> Model:
    """Grouped modules of many kinds."""
    kind, _, rest = name.partition(" ")
    if kind == "random":
        seed, chip = rest.split()
        return randomly_grouped(cached_lowered(int(seed), chip)[0], np.random.default_rng(int(seed)))[0]
    chip, opt = rest.split()
    return to_groups(mixed(chip), opt)


ALL = [*(f"random {seed} {chip}" for seed, chip in [(0, "bm1684x"), (1, "bm1684"), (2, "bm1684x"), (3, "bm1684")]),
       *(f"mixed {chip} {opt}" for chip, opt in [("bm1684x", "1"), ("cv183x", "1"), ("bm1684", "off")])]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_one_number_everywhere(name: str) -> None:
    model = networks(name)
    wanted = counted(model)
    assert [(entry.id, entry.ops) for entry in to_program(model).groups] == wanted
    found = list(views(model))
    ops = [(v.index, tuple(n for n, _ in v.ops) if isinstance(v, GroupView) else (v.name,)) for v in found]
    assert [pair for pair in ops if pair[0] is not None] == wanted
    heads = [re.match(r"(?:Group|Global layer) (\d+) of (\d+): ", line) for line in show(found)]
    assert [(int(m[1]), int(m[2])) for m in heads if m] == [(number, len(wanted)) for number, _ in wanted]
    written = re.findall(r"^(?:\[\[groups\]\]  )?# (\d+): ", groups_text(model), re.M)
    assert [int(number) for number in written] == [number for number, _ in wanted]


@pytest.mark.parametrize("name", ALL)
def test_a_number_of_a_group_a_global_layer_and_none(name: str) -> None:
    found = list(views(networks(name)))
    for view in found:
        if isinstance(view, GroupView):
            assert group_number(found, view.index) is view
            assert next(show(found, view.index)).startswith(f"Group {view.index} of ")
        elif view.index is not None:
            assert list(show(found, view.index))[0].startswith(f"Global layer {view.index} of ")
            with pytest.raises(ConfigError, match=f"--group {view.index}: a layer group.* got the global layer"):
                group_number(found, view.index)
    for number in (-1, len(found)):
        with pytest.raises(ConfigError, match=f"--group {number}: the module has groups 0 to"):
            list(show(found, number))


def test_the_networks_have_what_is_tried() -> None:
    """Global layers before, between and after groups, and views without a number."""
    kinds = set[str]()
    for name in ALL:
        text = "".join(
            "g" if isinstance(v, GroupView) else "l" if v.index is not None else "v" for v in views(networks(name))
        )
        kinds |= {kind for kind in ("lg", "gl", "glg", "gvl", "ll") if kind in text}
    assert kinds >= {"lg", "gl", "gvl", "ll"}


def test_another_cut_of_a_group_after_a_global_layer() -> None:
    """`explore group` takes the number that is shown, and says it."""
    model = mixed("cv183x")
    grouped = to_groups(model)
    view = [v for v in views(grouped) if isinstance(v, GroupView)][-1]
    assert view.index > 0
    found = what_if(model, LayerGroupConfig(), view.index)
    assert found.group == view.index and found.ops == tuple(name for name, _ in view.ops)
    layer = next(v for v in views(grouped) if isinstance(v, GlobalView) and v.index is not None)
    with pytest.raises(ConfigError, match=f"--group {layer.index}: a layer group"):
        what_if(model, LayerGroupConfig(), layer.index)


def test_options_take_the_numbers_of_the_report(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every number that `tpusim run` prints can be shown; the page has the same ones."""
    folder: Path = digits_run(tmp_path_factory, "bm1684x", "int8")
    page = (folder / "report.html").read_text()
    for group in report_of(folder)["groups"]:
        capsys.readouterr()
        assert main(["group", str(folder / "5_grouped.mlir"), "--show", "--group", str(group["id"])]) == 0
        what = (
            f"Global layer {group['id']} of 3: {group['ops'][0]} " if group["reason"] else f"Group {group['id']} of 3:"
        )
        assert capsys.readouterr().out.startswith(what)
        assert (f"{group['id']} (global)" if group["reason"] else f"Group {group['id']} <span") in page
