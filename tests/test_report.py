"""`report.json` keeps the keys scripts depend on (architecture.md 8) and its schema."""

import json

import numpy as np
import pytest
from small_report import TOLERANCE, comparison, exact, report

from tpusim.errors import ConfigError
from tpusim.verify import schema
from tpusim.verify.compare import compare
from tpusim.verify.report import Accuracy, write_report


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
    path = write_report(tmp_path, written)
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


def test_the_file_is_written_whole(tmp_path):
    path = write_report(tmp_path / "out", report())
    assert json.loads(path.read_text()) == report().to_json()
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["report.json"]


def test_json_has_no_infinity(tmp_path):
    mismatch = compare({"a": np.float32([np.nan, 1])}, {"a": np.float32([[1, 2, 3]])}, TOLERANCE)
    json_path = write_report(tmp_path, report(compare={"a": mismatch}))
    assert "Infinity" not in json_path.read_text() and "NaN" not in json_path.read_text()


@pytest.mark.parametrize(
    ("samples", "lost", "gained", "max_drop", "passed"),
    [(400, 27, 0, 1.0, False), (400, 4, 0, 1.0, True), (400, 5, 0, 1.0, False), (400, 27, 0, 10.0, True),
     (400, 20, 18, 1.0, True), (1, 1, 0, 1.0, True)],
)  # fmt: skip
def test_a_drop_of_top_1_fails(samples, lost, gained, max_drop, passed):
    """As in issue reports: 6.7 points lost although all comparisons pass."""
    float_hits = samples - gained
    counts = {"samples": samples, "lost": lost, "gained": gained, "max_drop": max_drop}
    top1 = {"float_top1": float_hits / samples, "int8_top1": (float_hits - lost + gained) / samples}
    assert report(compare={"a": exact()}, accuracy={**counts, **top1}).passed is passed


def test_margin_of_a_drop():
    """Paired counts: variance (b + c - (b - c)^2/n)/n^2."""
    accuracy = Accuracy(400, 0.98, 0.955, lost=12, gained=2)
    assert accuracy.drop == pytest.approx(2.5)
    assert accuracy.drop_margin == pytest.approx(196 * ((14 - 100 / 400) ** 0.5) / 400)
