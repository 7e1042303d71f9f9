"""`report.json` keeps the keys scripts depend on (architecture.md 8) and its schema; `report.html` is one safe page."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tpusim.errors import ConfigError
from tpusim.verify import schema
from tpusim.verify.compare import Tolerance, compare
from tpusim.verify.report import build_report, write_report

TOLERANCE = Tolerance(0.99, 0.90)
NASTY = "<script>alert('x')</script>&\"[bold]"


def comparison(count=3, spread=0.3, seed=0):
    generator = np.random.default_rng(seed)
    references = {f"layer{index}_Conv": generator.standard_normal(64).astype(np.float32) for index in range(count)}
    targets = {
        name: value + spread * index / count * generator.standard_normal(64).astype(np.float32)
        for index, (name, value) in enumerate(references.items())
    }
    return compare(targets, references, TOLERANCE)


def exact():
    tensors = {"q": np.arange(8, dtype=np.int8)}
    return compare(tensors, tensors, TOLERANCE)


def report(**changes):
    group = {
        "id": 0,
        "ops": ["conv1", NASTY],
        "secs": {"n": 1, "c": 1, "d": 1, "h": 4, "w": 1},
        "lmem_peak_bytes": 100_000,
        "lmem_bytes": 131_072,
        "load_bytes": 1_234_567,
        "store_bytes": 65_536,
        "cycles": 54_321,
    }
    values = dict(
        version="0.1.0",
        model="resnet18",
        chip="bm1684x",
        mode="int8",
        asymmetric=False,
        stages=[("frontend", 0.8), ("simulator", 2.5)],
        compare={"tpu_vs_top": comparison(spread=0), "local_vs_tpu": exact()},
        groups=[group],
        memory={"coeff_bytes": 11_000_000, "neuron_bytes": 2_000_000},
        totals={
            "commands": 812,
            "load_bytes": 1,
            "store_bytes": 2,
            "cycles": 54_321,
            "milliseconds": 0.054,
            "macs": 10**9,
            "compulsory_bytes": 2,
            "mac_cycles": 10_000,
            "traffic_ratio": 1.5,
            "cycle_ratio": 5.4321,
        },
    )
    return build_report(**(values | changes))


def test_json_keys():
    content = report(accuracy={"samples": 100, "float_top1": 0.71, "int8_top1": 0.7}).to_json()
    assert {"tpusim", "model", "chip", "mode", "asymmetric", "stages", "compare", "groups", "memory", "totals"} <= set(
        content
    )
    assert content["stages"] == [{"name": "frontend", "seconds": 0.8}, {"name": "simulator", "seconds": 2.5}]
    assert content["accuracy"].items() >= {"samples": 100, "float_top1": 0.71, "int8_top1": 0.7}.items()
    assert content["memory"] == {"coeff_bytes": 11_000_000, "neuron_bytes": 2_000_000}
    compared = content["compare"]["local_vs_tpu"]
    required = {"passed", "bit_exact", "compared", "missing", "min_cosine", "min_euclidean", "tensors"}
    assert required <= set(compared)
    assert {"name", "verdict", "cosine", "euclidean", "sqnr_db", "bit_exact"} <= set(compared["tensors"][0])
    assert content["groups"][0]["secs"]["h"] == 4
    totals = {"commands", "load_bytes", "store_bytes", "cycles", "milliseconds", "macs"}
    assert totals <= set(content["totals"])


def test_the_schema_that_ships_is_that_of_the_types():
    """`python -m tpusim.verify.schema > tpusim/verify/report.schema.json` writes it anew."""
    assert schema.PATH.read_text() == schema.text()


def test_a_report_has_the_form_of_the_schema(tmp_path):
    mismatch = compare({"a": np.float32([np.nan, 1])}, {"a": np.float32([[1, 2, 3]])}, TOLERANCE)
    written = report(compare={"a": mismatch, "b": exact()}, accuracy={"samples": 1, "float_top1": 1, "int8_top1": 0})
    path, _ = write_report(tmp_path, written)
    found = schema.read_report(path)
    assert found.groups[0].secs["h"] == 4 and found.compare["b"].bit_exact and found.engines is None
    content = json.loads(path.read_text())
    for damage in ({"schema": 2}, {"schema": None}, {"passed": "yes"}, {"new_key": 1}, {"memory": []}):
        path.write_text(json.dumps(content | damage))
        with pytest.raises(ConfigError, match=r"report\.json: a report"):
            schema.read_report(path)


def test_accuracy_only_when_given():
    assert "accuracy" not in report().to_json()


def test_unknown_keys_are_refused():
    with pytest.raises(TypeError):
        report(memory={"weights": 1})


@pytest.mark.parametrize(
    ("comparisons", "passed"),
    [
        ({"a": exact()}, True),
        ({"a": exact(), "b": comparison(spread=5)}, False),
        ({"a": exact(), "b": compare({}, {}, TOLERANCE)}, False),
        ({}, False),
    ],
)
def test_a_report_passes_if_every_comparison_compared_something_and_passed(comparisons, passed):
    assert report(compare=comparisons).passed is passed


def test_files_are_written_whole(tmp_path):
    json_path, html_path = write_report(tmp_path / "out", report())
    assert json.loads(json_path.read_text()) == report().to_json()
    assert html_path.read_text().startswith("<!doctype html>")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["report.html", "report.json"]


def test_json_has_no_infinity(tmp_path):
    mismatch = compare({"a": np.float32([np.nan, 1])}, {"a": np.float32([[1, 2, 3]])}, TOLERANCE)
    json_path, _ = write_report(tmp_path, report(compare={"a": mismatch}))
    assert "Infinity" not in json_path.read_text() and "NaN" not in json_path.read_text()


class Tags(HTMLParser):
    """Checks that every tag is closed in order."""

    VOID = ("meta", "!doctype")

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


def page(tmp_path, **changes):
    return write_report(tmp_path, report(**changes))[1].read_text()


def test_page_is_well_formed_and_self_contained(tmp_path):
    text = page(tmp_path, accuracy={"samples": 10, "float_top1": 0.7, "int8_top1": 0.6})
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe"}
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


def test_every_name_is_escaped(tmp_path):
    tensors = {NASTY: np.float32([1])}
    nasty = compare(tensors, tensors, TOLERANCE)
    text = page(tmp_path, model=NASTY, chip=NASTY, mode=NASTY, stages=[(NASTY, 1)], compare={NASTY: nasty})
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 7


def test_tensors_are_sorted_by_worst_first_and_many_are_no_problem(tmp_path):
    text = page(tmp_path, compare={"tpu_vs_top": comparison(500, 2.0)})
    rows = re.findall(r"<td class='name'>layer(\d+)_Conv</td><td><span class='tag (\w+)'>", text)
    assert len(rows) == 500
    kinds = [kind for _, kind in rows]
    assert kinds == sorted(kinds, key=["bad", "fair", "good"].index)
    assert int(rows[0][0]) > 250 and rows[-1] == ("0", "good")
    assert len(text) < 400_000


def test_page_without_groups_and_comparisons(tmp_path):
    text = page(tmp_path, groups=[], compare={})
    assert "No layer group" in text and "FAILED" in text
