"""What a person sees of a grouped module: `tpusim group --show`, `--plot`, read from the text alone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from end_to_end import assert_equal, digits_run, hashes, report_of, tensors
from networks import CHIPS, cached_lowered, randomly_grouped

from tpusim import chips
from tpusim.cli import main
from tpusim.cli.grouping import WIDTH, show, wrapped
from tpusim.errors import ConfigError, ImportModelError
from tpusim.host.labels import cut, distinct
from tpusim.ir.attrs import ints_attr, op_name, value_name
from tpusim.ir.module import Model, load_model
from tpusim.ir.text import parse_module, print_module
from tpusim.layer_group import GroupView, views
from tpusim.layer_group.files import Area, EntryView
from tpusim.layer_group.files.group_view import Visit
from tpusim.layer_group.local_memory import buffers
from tpusim.layer_group.planning import plan
from tpusim.ops import context
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.structure import TopWeight, TpuGroup
from tpusim.page.pictures import LEFT, MAP_HEIGHT, ROW, TOP, memory_map, pipeline
from tpusim.page.svg import svg_file
from tpusim.schedule import GroupSchedule, tensor_name

SVG = "{http://www.w3.org/2000/svg}"
RANDOM = pytest.mark.parametrize(("seed", "chip"), [(s, c) for s in range(4) for c in CHIPS])


def grouped(seed: int, chip: str) -> tuple[Model, list[GroupSchedule], list[GroupView]]:
    """A randomly grouped network, its plans, and the groups as read from its printed text.

    The plans are remade on the module without groups, because writing a group moves its values.
    """
    flat = cached_lowered(seed, chip)[0]
    model, written = randomly_grouped(flat, np.random.default_rng(seed))
    by_name = {op_name(op): op for op in flat.ops if isinstance(op, TpuOp)}
    plans: list[GroupSchedule] = []
    for one in written:
        ops = [by_name[op_name(op)] for op in one.graph.ops]
        found = plan(ops, chips.load(chip), one.sections, one.graph.kind)
        assert isinstance(found, GroupSchedule)
        plans.append(found)
    again = Model(parse_module(print_module(model.module), context()), model.weights)
    return model, plans, [v for v in views(again) if isinstance(v, GroupView)]


@RANDOM
def test_areas_are_the_plans_buffers(seed: int, chip: str) -> None:
    """Size, address, rows and held of every buffer, although the reader knows only the text."""
    _, plans, found = grouped(seed, chip)
    assert len(plans) == len(found) > 0
    spec = chips.load(chip)
    for one, view in zip(plans, found, strict=True):
        made = buffers(one.graph, one.rows, one.slices, spec, steps=one.sections.steps)
        where = one.allocation.address
        count = len(one.rows)
        wanted = sorted((where[b.owner], b.size, sorted(b.rows(count)), b.held) for b in made)
        assert sorted((a.address, a.size, sorted(a.rows), a.held) for a in view.areas) == wanted
        assert view.overlaps == () and view.kind == one.graph.kind and view.steps == one.sections.steps
        assert view.peak == one.allocation.peak_bytes


@RANDOM
def test_rows_are_the_plans_rows(seed: int, chip: str) -> None:
    """Items with their stages; constants, inputs and results are told apart."""
    _, plans, found = grouped(seed, chip)
    for one, view in zip(plans, found, strict=True):
        for row, items in zip(one.rows, view.rows, strict=True):
            wanted = {("TIU", value_name(op.results[0]), 1) for op in row.layers}
            wanted |= {(t.kind, tensor_name(t.value), t.stage) for t in row.transfers}
            assert {(i.engine, i.tensor, i.stage) for i in items} == wanted and len(items) == len(wanted)
            assert all(i.bytes > 0 for i in items)
        kinds = {a.name: a.kind for a in view.areas}
        for v in one.graph.values:
            made_here = any(v is op.results[0] for op in one.graph.ops)
            kind = "weight" if isinstance(v.owner, TopWeight) else "result" if made_here else "input"
            assert kinds[tensor_name(v)] == kind


def test_every_area_is_written_before_it_is_used() -> None:
    for view in grouped(0, "bm1684x")[2]:
        for area in view.areas:
            marks = "".join(area.marks.values())
            assert ("L" in marks) == (area.kind in ("input", "weight")) and ("W" in marks) != ("L" in marks)
            assert set(area.marks) <= area.rows
            assert area.kind == "work" or set("RS") & set(marks)


def test_a_row_whose_item_is_lost_is_an_error() -> None:
    model = grouped(0, "bm1684x")[0].clone()
    group = next(op for op in model.ops if isinstance(op, TpuGroup))
    group.attributes["flow"] = ints_attr([-1, 0])
    with pytest.raises(ImportModelError, match="no row of the group's flow has it"):
        list(views(model))
    group.attributes["flow"] = ints_attr([-1, 99])
    with pytest.raises(ImportModelError, match="flow names item 99"):
        list(views(model))


# --------------------------------------------------------------------------------------------------------------- text


def test_cut_keeps_both_ends() -> None:
    assert cut("abcdefghij", 10) == "abcdefghij"
    assert cut("abcdefghij", 5) == "ab…ij" and len(cut("abcdefghij", 4)) == 4


def test_wrapped_lines() -> None:
    lines = list(wrapped("  ops:", [f"op{i} (tpu.Something)" for i in range(40)], 7))
    assert all(len(line) <= WIDTH for line in lines) and len(lines) > 5
    joined = " ".join(line.strip() for line in lines)
    assert joined == "ops: " + ", ".join(f"op{i} (tpu.Something)" for i in range(40))
    assert all(len(line) <= WIDTH for line in wrapped("x:", ["n" * 500, "m"], 4))


@RANDOM
def test_lines_fit_120_columns(seed: int, chip: str) -> None:
    found = list(views(grouped(seed, chip)[0]))
    lines = list(show(found))
    assert max(len(line) for line in lines) <= WIDTH
    for view in found:
        if isinstance(view, GroupView):
            whole = list(show(found, view.index))
            assert max(len(line) for line in whole) <= WIDTH
            assert all(any(cut(a.name, 20)[-9:] in line for line in whole) for a in view.areas)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    path = tmp_path / "artefacts"
    shutil.copytree(digits_run(tmp_path_factory, "bm1684x", "int8"), path)
    return path


def test_show_of_a_grouped_module_only_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(folder)
    for name in ("5_grouped.mlir", "6_final.mlir"):
        capsys.readouterr()
        assert main(["group", str(folder / name), "--show"]) == 0
        out = capsys.readouterr().out
        count = len(report_of(folder)["groups"][0]["ops"])
        head = rf"^Group 0 of 3: type NORMAL, sections n=1 c=1 d=1 h=1 w=1 \(1 step\), {count} ops, (\d+) rows$"
        rows = re.search(head, out, re.M)
        assert rows is not None and int(rows[1]) <= count  # rows may be combined
        assert re.search(r"^ +0  imagestem_Relu_ui8 @1 +stem_conv_Conv_filter_int8_merged @1 4,096$", out, re.M)
        assert re.search(r" +global_GlobalAveragePool @2 64$", out, re.M)
        assert re.search(r"^ +[\d,]+ +[\d,]+ +\d+  stem_conv_Conv_filter_int8_merged +L +R$", out, re.M)
        assert "View flat_Flatten (tpu.Reshape): views are free in global memory" in out
        assert "OVERLAP" not in out
        totals = report_of(folder)["totals"]
        assert f"= {totals['traffic_ratio']:.2f} x what must move once, {totals['cycles']:,} cycles = " in out
    assert hashes(folder) == before


def test_show_reads_what_a_hand_wrote(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A buffer moved onto another is seen; nothing is searched again."""
    path = folder / "6_final.mlir"
    text = path.read_text()
    moved, count = re.subn(r"out_addr = \d+", "out_addr = 0", text)
    assert count > 20
    path.write_text(moved)
    assert main(["group", str(path), "--show", "--group", "0"]) == 0
    assert "OVERLAP" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--show", "--group", "7"], "--group 7: the module has groups 0 to 2 only"),
        (["--show", "--out", "x.mlir"], "grouped already, so --out would do nothing; give 4_tpu.mlir"),
        (["--show", "--force", "x.toml"], "grouped already"),
        (["--show", "--cores", "2", "--no-timestep-moves"], "so --cores and --no-timestep-moves would do nothing"),
        (["--show", "--layer-group", "1"], "so --layer-group would do nothing"),
        ([], "TPU_"),
    ],
)
def test_refused(folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(folder)
    assert main(["group", str(folder / "5_grouped.mlir"), *words]) == 1
    assert message in capsys.readouterr().err
    assert hashes(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "1"], "--group 1: needs --show or --plot"),
        (["--layer-group", "off", "--shape-secs-search-strategy", "1"], "needs --layer-group 2, got --layer-group off"),
        (["--layer-group", "1", "--shape-secs-search-strategy", "1"], "--shape-secs-search-strategy 1: needs"),
    ],
)
def test_refused_before_anything_is_written(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a module that would be grouped."""
    (folder / "5_grouped.mlir").write_text("mine")
    before = hashes(folder)
    assert main(["group", str(folder / "4_tpu.mlir"), *words]) == 1
    assert message in capsys.readouterr().err
    assert hashes(folder) == before


def test_text_alone_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    """`tpusim codegen 6_final.mlir && tpusim simulate` in a folder with nothing else, and the weights."""
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("6_final.mlir", "chip_weights.npz"):
        shutil.copy(folder / name, alone)
    assert main(["codegen", str(alone / "6_final.mlir")]) == 0
    for dma in ("early", "late"):
        words = ["simulate", str(alone / "7_model.tpusim"), "--input", str(folder / "inputs.npz"), "--dma", dma]
        assert main(words) == 0
        got, wanted = tensors(alone / "local_outputs.npz"), tensors(folder / "local_outputs.npz")
        assert set(got) <= set(wanted) and got
        assert_equal(got, {name: wanted[name] for name in got})


# ----------------------------------------------------------------------------------------------------------- pictures


def test_plot_writes_two_pictures_per_group(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", str(folder / "5_grouped.mlir"), "--plot", str(folder / "pictures")]) == 0
    drawn = {path.name: ElementTree.parse(path).getroot() for path in sorted((folder / "pictures").iterdir())}
    assert list(drawn) == [f"group_000_{kind}.svg" for kind in ("lmem", "pipeline")]
    view = next(v for v in views(load_model(folder / "5_grouped.mlir", context())) if isinstance(v, GroupView))
    for root, picture in zip(drawn.values(), (memory_map(view), pipeline(view)), strict=True):
        titles = [found.text for found in root.iter(f"{SVG}title")]
        assert titles[0] == picture.says and sorted(map(str, titles[1:])) == sorted(
            b.title for b in picture.boxes if b.title
        )
    assert capsys.readouterr().out.count("wrote") == 2
    (folder / "file").write_text("no folder")
    assert main(["group", str(folder / "5_grouped.mlir"), "--plot", str(folder / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_pictures_show_every_area_and_item() -> None:
    """The rectangles drawn are those of the group, no more and no fewer; a lifetime that wraps around is two."""
    for view in grouped(0, "bm1684x")[2]:
        boxes = [box for box in memory_map(view).boxes if box.title]
        scale = (MAP_HEIGHT - TOP) / view.peak
        drawn = sorted(((b.x - 1 - LEFT) / ROW, round((b.y - TOP) / scale), (b.width + 2) / ROW) for b in boxes)
        stretches = [(rows, area) for area in view.areas for rows in consecutive(sorted(area.rows))]
        assert drawn == sorted((rows[0], area.address, len(rows)) for rows, area in stretches)
        assert len({box.hue for box in boxes}) == len(view.areas)
        listed = [text.text for text in memory_map(view).texts if text.x > LEFT + ROW * len(view.rows)]
        assert len(listed) == len(set(listed)) == len(view.areas)
        drawn = sorted(round((box.x - LEFT - 2) / ROW) for box in pipeline(view).boxes)
        assert drawn == sorted(r for r, row in enumerate(view.rows) for _ in row)


def consecutive(rows: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][-1] == row - 1:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def test_a_file_is_read_without_the_page() -> None:
    """No variable of a style sheet is left, nothing is loaded, names are text; everything is inside of the picture."""
    name = '<a href="x">&$_' * 3
    entry = EntryView("load", name, 0, 64, held=True)
    areas = tuple(
        Area(f"{i}{name}", "weight", 64 * i, 64, held=True, rows=frozenset({0, 2}), marks={}) for i in range(60)
    )
    view = GroupView(
        3, ((name, "tpu.Conv2D"),), GroupType.NORMAL, dict.fromkeys("ncdhw", 1), ((entry,), (), (entry,)), areas,
        chips.load("bm1684x"), visits=(Visit(1, entry, 4, 0, 64),),
    )  # fmt: skip
    for picture in (memory_map(view), pipeline(view)):
        text = svg_file(picture, [name, "second"])
        root = ElementTree.fromstring(text)
        assert "var(" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
        width, height = (float(root.attrib[side]) for side in ("width", "height"))
        for box in root.iter(f"{SVG}rect"):
            if "x" in box.attrib:
                assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
                assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height
        classes = {kind for box in root.iter(f"{SVG}rect") for kind in box.attrib.get("class", "").split()}
        assert classes - {"key"} <= set(re.findall(r"[.](\w+)", text))
    assert len([box for box in pipeline(view).boxes if box.kind == "visitor"]) == 1
    drawn = svg_file(pipeline(view), [])
    assert "for group 4" in drawn and "for a neighbouring group, once" in drawn


def test_short_names_are_never_alike() -> None:
    names = [f"backbone/stage_{i % 5}/block_{i:03}/convolution_with_a_long_name" for i in range(190)]
    short = distinct([*names, "x", *names], 20)
    assert set(short) == {*names, "x"} and short["x"] == "x"
    assert len(set(short.values())) == len(short) and all(len(text) <= 20 for text in short.values())
    assert "_003" in distinct(names[3:9:5], 20)[names[3]]
    twins = ["a" * 30 + "b" + "c" * 30, "a" * 30 + "d" + "c" * 30]
    assert len(set(distinct(twins, 9).values())) == 2


def test_group_number_of_a_plot() -> None:
    from tpusim.cli.plot import plot

    with pytest.raises(ConfigError, match="group=99"):
        list(plot(grouped(0, "bm1684x")[2], Path("nowhere"), 99))
