"""What a person sees of a grouped module: `tpusim group --show`, `--plot`, read from the text alone."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from end_to_end import assert_equal, digits_run, hashes, report_of, tensors
from networks import CHIPS, cached_lowered, randomly_grouped

from tpusim import chips
from tpusim.cli import main
from tpusim.cli.grouping import WIDTH, show, wrapped
from tpusim.cli.plot import MEMORY_ROWS, PIPELINE_ROWS, draw_memory, draw_pipeline, pages, spans
from tpusim.errors import ConfigError, ImportModelError
from tpusim.ir.attrs import ints_attr, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.layer_group import GroupView, views
from tpusim.layer_group.files import Area, EntryView
from tpusim.layer_group.local_memory import buffers
from tpusim.layer_group.planning import plan
from tpusim.ops import context
from tpusim.ops.base import GroupType, TpuOp
from tpusim.ops.structure import TopWeight, TpuGroup
from tpusim.page.labels import cut, distinct
from tpusim.schedule import GroupSchedule, tensor_name

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
        (["--plot-format", "svg"], "--plot-format svg: needs --plot"),
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


def test_spans() -> None:
    assert list(spans(frozenset([0, 1, 4, 5, 6, 9]))) == [(0, 2), (4, 3), (9, 1)]
    assert list(spans(frozenset())) == []


def test_plot_without_the_library(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.patches"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["group", str(folder / "5_grouped.mlir"), "--plot", str(folder / "pictures")]) == 1
    assert "--plot needs matplotlib" in (err := capsys.readouterr().err) and "tpusim[plot]" in err
    assert not (folder / "pictures").exists()


@pytest.mark.slow
def test_plot_writes_two_pictures_per_group(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("matplotlib.image", reason="extra 'plot' is not installed")
    assert main(["group", str(folder / "5_grouped.mlir"), "--plot", str(folder / "pictures")]) == 0
    names = sorted(path.name for path in (folder / "pictures").iterdir())
    assert names == [f"group_000_{kind}.png" for kind in ("lmem", "pipeline")]
    for name in names:
        pixels = image.imread(folder / "pictures" / name)
        assert pixels.shape[0] > 150 and len(np.unique((pixels * 255).astype(np.uint8).view(np.uint32))) > 10
    assert capsys.readouterr().out.count("wrote") == 2
    words = ["--plot", str(folder / "shapes"), "--plot-format", "svg"]
    assert main(["group", str(folder / "5_grouped.mlir"), *words]) == 0
    drawn = {path.name: path.read_text() for path in (folder / "shapes").iterdir()}
    assert set(drawn) == {name.replace("png", "svg") for name in names}
    assert all("<svg" in text for text in drawn.values())
    capsys.readouterr()
    (folder / "file").write_text("no folder")
    assert main(["group", str(folder / "5_grouped.mlir"), "--plot", str(folder / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_pictures_show_every_area_and_item() -> None:
    """The rectangles drawn are those of the group, no more and no fewer."""
    pytest.importorskip("matplotlib", reason="extra 'plot' is not installed")
    from matplotlib import patches
    from matplotlib.figure import Figure

    for view in grouped(0, "bm1684x")[2]:
        figure = Figure()
        draw_memory(figure, patches, view)
        drawn = sorted((p.get_x() + 0.5, p.get_y(), p.get_width(), p.get_height()) for p in figure.axes[0].patches)
        assert drawn == sorted((r, a.address, n, a.size) for a in view.areas for r, n in spans(a.rows))
        assert len({p.get_facecolor() for p in figure.axes[0].patches}) == len(view.areas)
        figure = Figure()
        draw_pipeline(figure, patches, view)
        boxes = sorted(round(p.get_x() + 0.47) for p in figure.axes[0].patches)
        assert boxes == sorted(r for r, row in enumerate(view.rows) for _ in row)


@pytest.mark.slow
def test_large_groups_have_pages_with_everything_inside(network_of: GroupView) -> None:
    """Every row is on one page, every area of the page in its legend, and no legend reaches out of the figure."""
    pytest.importorskip("matplotlib", reason="extra 'plot' is not installed")
    from matplotlib import patches
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    view = network_of
    for draw, most in ((draw_memory, MEMORY_ROWS), (draw_pipeline, PIPELINE_ROWS)):
        found = pages(len(view.rows), most)
        assert len(found) > 1 and [row for rows in found for row in rows] == list(range(len(view.rows)))
        for rows in found:
            figure = Figure(layout="constrained", dpi=110)
            draw(figure, patches, view, rows)
            FigureCanvasAgg(figure).draw()
            box, (legend,) = figure.bbox, figure.legends
            inside = legend.get_window_extent()
            assert box.x0 <= inside.x0 and inside.x1 <= box.x1 and box.y0 <= inside.y0 and inside.y1 <= box.y1
            assert not inside.overlaps(figure.axes[0].get_window_extent())
            if draw is draw_memory:
                alive = [a for a in view.areas if not a.rows.isdisjoint(rows)]
                assert len(legend.get_texts()) == len({t.get_text() for t in legend.get_texts()}) == len(alive)


@pytest.fixture(scope="module")
def network_of() -> GroupView:
    """A group of more ops than a page has room for, with long names that differ in the middle, made by hand: one step,
    one area per op.
    """
    count, chip = MEMORY_ROWS + 8, chips.load("bm1684x")
    names = [f"backbone/stage_{i % 5}/block_{i:03}/convolution_with_a_long_name" for i in range(count)]
    rows = tuple((EntryView("TIU", name, 1, 0, held=False),) for name in names)
    areas = tuple(
        Area(name, "result", 64 * (i % 7), 64, held=False, rows=frozenset({i, (i + 1) % count}), marks={i: "W"})
        for i, name in enumerate(names)
    )
    ops = tuple((name, "tpu.Conv2D") for name in names)
    return GroupView(0, ops, GroupType.NORMAL, dict.fromkeys("ncdhw", 1), rows, areas, chip)


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

    with pytest.raises(ConfigError, match="--group 99"):
        list(plot(grouped(0, "bm1684x")[2], Path("nowhere"), 99))
