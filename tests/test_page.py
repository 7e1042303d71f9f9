"""`report.html` is one safe page without a network; a browser shows its pictures, and its filter works."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from end_to_end import digits_run
from small_report import NASTY, TOLERANCE, comparison, report

from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.module import load_model
from tpusim.layer_group.files import GroupView, views
from tpusim.ops import context
from tpusim.page import Cause, Diagnosis, Evidence, Work, histograms, report_page
from tpusim.page.pictures import MOST_WORKS, histogram, memory_map, merged, pipeline, timeline
from tpusim.running.persistence import page_of
from tpusim.verify.compare import compare


class Tags(HTMLParser):
    """Checks that every tag is closed in order."""

    VOID = ("meta", "!doctype", "input")

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(**changes):
    return report_page(report(**changes).to_json())


def test_page_is_well_formed_and_self_contained():
    text = page(accuracy={"samples": 10, "float_top1": 0.7, "int8_top1": 0.6})
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    names = {tag for tag, _ in tags.seen}
    assert not names & {"link", "img", "iframe", "object"} and [tag for tag, _ in tags.seen].count("script") == 1
    assert not any({"src", "href"} & set(attributes) for _, attributes in tags.seen)
    assert "url(" not in text and "@import" not in text
    for part in (
        "resnet18",
        "bm1684x",
        "PASSED",
        "frontend",
        "conv1",
        "1×1×1×4×1",
        "97.7 KiB of 128.0 KiB (76%)",
        "70.00%",
    ):
        assert part in text


def test_every_name_is_escaped():
    tensors = {NASTY: np.float32([1])}
    nasty = compare(tensors, tensors, TOLERANCE)
    text = page(model=NASTY, chip=NASTY, mode=NASTY, stages=[(NASTY, 1)], compare={NASTY: nasty})
    assert text.count("<script") == 1
    assert text.count("&lt;script&gt;") >= 7


def test_tensors_are_sorted_by_worst_first_and_many_are_no_problem():
    text = page(compare={"tpu_vs_top": comparison(500, 2.0)})
    rows = re.findall(r'<td class="name">layer(\d+)_Conv</td><td><span class="tag (\w+)">', text)
    assert len(rows) == 500
    kinds = [kind for _, kind in rows]
    assert kinds == sorted(kinds, key=["bad", "fair", "good"].index)
    assert int(rows[0][0]) > 250 and rows[-1] == ("0", "good")
    assert len(text) < 400_000


def test_page_without_groups_and_comparisons():
    text = page(groups=[], compare={})
    assert "No layer group" in text and "FAILED" in text


def test_several_cores_have_a_table():
    one = {"commands": 7, "load_bytes": 2048, "store_bytes": 0, "tiu_busy": 0.25, "gdma_busy": 0.5}
    cores = [{"core": number, **one} for number in (0, 1)]
    assert "<h2>Cores</h2>" in page(cores=cores) and "<h2>Cores</h2>" not in page(cores=cores[:1])


# ------------------------------------------------------------------------------------------------------------ evidence


def test_histograms_count_every_value_and_what_is_clipped():
    values = np.float32([-1, 0, 0.5, 2, np.nan])
    found = dict(histograms({"a": values, "i": np.int8([1]), "e": np.float32([])}, {"a": (-0.5, 1.0)}))
    assert list(found) == ["a"]
    a = found["a"]
    assert (sum(a.counts), a.low, a.high, a.clipped) == (4, -1.0, 2.0, 0.5)
    drawn = histogram(a)
    assert [line.points[0][0] for line in drawn.lines] == [pytest.approx(20), pytest.approx(80)]
    wide = histogram(dict(histograms({"a": values}, {"a": (-9.0, 9.0)}))["a"])
    assert all(box.x >= 0 and box.x + box.width <= wide.width for box in wide.boxes)
    constant = histogram(dict(histograms({"c": np.ones(3, np.float32)}, {}))["c"])
    assert len(constant.boxes) == 1


def test_tensors_stand_in_the_order_of_the_network():
    assert merged([["b", "c"], ["a", "b", "x", "c", "d"]]) == ["a", "b", "x", "c", "d"]


def test_a_long_timeline_is_put_together():
    works = [Work(f"op{i % 7}", 0, 0, engine, i, i + 1) for i in range(10_000) for engine in ("tiu", "gdma")]
    drawn = timeline(works)
    assert len(drawn.boxes) < 2 * 2 * MOST_WORKS
    assert "TIU" in [text.text for text in drawn.texts] and "ops, the first op" in drawn.boxes[0].title
    few = timeline(works[:4])
    assert len(few.boxes) == 4 and "op0, group 0: 0 to 1 ns" in few.boxes[0].title


def test_every_area_and_every_transfer_of_a_group_is_drawn(tmp_path_factory: pytest.TempPathFactory):
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    group = next(v for v in views(load_model(folder / "5_grouped.mlir", context())) if isinstance(v, GroupView))
    memory, pipe = memory_map(group), pipeline(group)
    assert {box.title.split(":")[0] for box in memory.boxes if box.title} == {area.name for area in group.areas}
    assert len(pipe.boxes) == sum(len(row) for row in group.rows)
    for picture in (memory, pipe):
        assert all(b.x >= 0 and b.x + b.width <= picture.width and b.y >= 0 for b in picture.boxes)
        assert all(b.y + b.height <= picture.height for b in picture.boxes)


def test_causes_are_ranked_and_escaped():
    causes = (Cause(NASTY, "in F16", 0.99, "outliers", f"seen {NASTY}"), Cause("b", "with threshold 3", 0.9))
    text = report_page(report().to_json(), Evidence(diagnosis=Diagnosis(0.8, causes, {"b": 7.5}, ("x",), 0.995)))
    assert "<td>outliers</td>" in text and text.count("<td>single op</td>") == 1
    assert text.index("in F16") < text.index("with threshold 3") and "+0.190000" in text and "0.995000" in text
    assert text.count("<script") == 1
    assert "<h2>Causes</h2>" not in report_page(report().to_json())


def test_why_writes_the_page_of_its_run_with_the_causes(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path):
    run, out = digits_run(tmp_path_factory, "bm1684x", "int8"), tmp_path / "why.html"
    assert main(["why", str(run / "3_calibrated.mlir"), "--top", "1", "--report", str(out)]) == 0
    text, usual = out.read_text(), (run / "report.html").read_text()
    assert text.count("<svg") == usual.count("<svg") > 20 and '<table id="causes">' in text
    assert "single op" in text.split('<table id="causes">')[1]  # digits has no cause, and an op that loses most
    (tmp_path / "alone").mkdir()
    with pytest.raises(ConfigError, match=r"needs a whole `tpusim run`; missing: report\.json"):
        page_of(tmp_path / "alone", load_model(run / "3_calibrated.mlir", context()), Diagnosis(1, (), {}))


# ------------------------------------------------------------------------------------------------------------- browser


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(scheme: str, tmp_path_factory: pytest.TempPathFactory):
    """No errors and no requests; pictures have an extent; the filter hides rows, a click sorts them."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright comes with the extra 'browser'")
    chromium = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no chromium on the path")
    path = digits_run(tmp_path_factory, "bm1684x", "int8") / "report.html"
    with playwright.sync_playwright() as start:
        browser = start.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(color_scheme=scheme, viewport={"width": 400, "height": 800})
        wrong: list[str] = []
        view.on("console", lambda message: wrong.append(message.text))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        view.goto(path.as_uri())
        assert view.evaluate("document.documentElement.scrollWidth") <= 400
        sizes = view.locator("svg:visible").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
        assert len(sizes) > 15 and min(sizes) > 10
        check_the_table(view)
        browser.close()
    assert wrong == []


def check_the_table(view):
    names = [tensor["name"] for tensor in compared(view)]
    view.fill("#filter", "block_")
    assert shown(view) == [name for name in names if "block_" in name] != names
    view.fill("#filter", "")
    assert shown(view) == names
    view.locator("#ops th", has_text="cosine").click()
    cosines = view.locator("#ops tbody tr td:nth-child(6)").all_inner_texts()
    values = [float(text) for text in cosines if text]
    assert values == sorted(values) and len(set(values)) > 5
    stem = view.locator("#ops tr", has_text="block_a_Relu").first.locator("td").nth(4).inner_text()
    assert stem.split()[0] in ("int8", "uint8"), "the type as the chip stores it"
    width = "document.querySelector('.group svg').getBoundingClientRect().width"
    before = view.evaluate(width)
    view.locator(".group [data-zoom='1.5']").first.click()
    assert view.evaluate(width) == pytest.approx(1.5 * before, rel=0.01)


def compared(view):
    report = json.loads(Path(view.url.removeprefix("file://")).with_name("report.json").read_text())
    ops = [{"name": op["op"]} for op in report["engines"]["ops"]]
    tensors = report["compare"]["tpu_vs_top"]["tensors"]
    return [*tensors, *(op for op in ops if op["name"] not in {tensor["name"] for tensor in tensors})]


def shown(view):
    return view.locator("#ops tbody tr:visible td.name").all_inner_texts()


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({}, ("0.950000", "a", "0")),  # one sample
        ({"a": (0.95, 0.8, 0), "b": (0.7, 0.6, 3)}, ("0.700000", "b", "3")),
        ({"a": (0.7, 0.9, 2), "b": (0.7, 0.6, 5)}, ("0.700000", "b", "5")),  # by euclidean similarity then
        ({"a": (None, None, 1), "b": (0.7, 0.6, 3)}, ("not a number", "a", "1")),
        ({"a": (1.0, 0.5, 4), "b": (1.0, 1.0, 0)}, ("1.000000", "a", "4")),
    ],
)
def test_the_worst_tensor_is_that_of_the_worst_sample(over: dict[str, tuple[float, float, int]], said: tuple[str, ...]):
    """As the terminal says it, not of the first sample alone."""
    content = report(compare={"tpu_vs_top": comparison()}).to_json()
    found = content["compare"]["tpu_vs_top"]
    found |= {"min_cosine": 0.95, "worst": "a", "samples": 8 if over else 1}
    found["over_samples"] = [
        {
            "name": name, "is_result": False, "passed": True, "worst_sample": worst, "least_cosine": cosine,
            "median_cosine": 1.0, "least_euclidean": euclidean, "median_euclidean": 1.0, "not_judged": [],
        }
        for name, (cosine, euclidean, worst) in over.items()
    ]  # fmt: skip
    page = report_page(content)
    row = re.split("<h2>Comparisons</h2>", page)[1].split("<tbody>")[1].split("</tr>")[0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert cells[4].startswith(said[0]) and (cells[6], cells[7]) == said[1:], cells


@pytest.mark.parametrize("value", [0.0, -1.5, 2.0**20, 2.0**60, -3.4028235e38, 1e-40])
def test_the_histogram_of_one_value_is_one_bar(value: float):
    """Also of a mask: half a unit around it is no range in floats."""
    ((_, found),) = histograms({"mask": np.full((2, 3), value, np.float32)}, {})
    assert sum(found.counts) == max(found.counts) == 6
    assert found.low == found.high == np.float32(value)
