"""The picture of an exploration: the front of exactly the two measures on its axes, and what stands for what."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tpusim.errors import ConfigError
from tpusim.studies.commands.explore_plot import KINDS, draw, figure_of, pair, staircase
from tpusim.studies.explore import Row, front

MIB = 2**20


def row(ms: float, mib: float, **more: Any) -> Row:
    usual: dict[str, Any] = {"chip": "c", "mode": "int8", "strategy": "2", "lmem_bytes": 1}
    model, settings, cores = "m", more.pop("settings", ""), more.pop("cores", 1)
    fields = {**usual, **more}
    chip, mode, strategy, error = (fields.pop(name, "") for name in ("chip", "mode", "strategy", "error"))
    found = Row(model, chip, settings, mode, strategy, 0, cores, error)
    return msgspec.structs.replace(found, milliseconds=ms, moved_bytes=round(mib * MIB), **fields)


def test_the_line_leaves_out_what_only_a_third_measure_saves() -> None:
    """The point at (3, 3) is on the front of three measures for its local memory, and beaten in the plane."""
    rows = [row(1, 4, lmem_bytes=9), row(3, 3, lmem_bytes=1), row(2, 2, lmem_bytes=9), row(5, 1, lmem_bytes=9)]
    assert all(one.front for one in front(rows))
    assert staircase(rows, ("ms", "bytes")) == [(1, 5), (2, 5), (2, 2), (4, 2), (4, 1)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shown", [("ms", "bytes"), ("bytes", "ms"), ("ms", "cos"), ("cos", "ms"), ("lmem", "energy")])
def test_every_point_is_on_the_line_or_beaten_by_a_corner(seed: int, shown: tuple[str, str]) -> None:
    """By definition, not by the code of fronts: small numbers, so that ties occur."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(1, 6, (12, 5)).astype(float)
    rows = [row(a, b, cosine=c / 6, lmem_bytes=int(d) * 1024, energy_uj=e) for a, b, c, d, e in numbers]
    units = {"ms": 0, "bytes": 1, "cos": 2, "lmem": 3, "energy": 4}
    scale = np.array([1, 1, 1 / 6, 1, 1])
    places = [tuple((line * scale)[units[name]] for name in reversed(shown)) for line in numbers]
    better = [-1 if name == "cos" else 1 for name in reversed(shown)]

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        pairs = [(a * sign, b * sign) for a, b, sign in zip(one, other, better, strict=True)]
        return all(a <= b for a, b in pairs) and pairs != [(b, b) for _, b in pairs]

    best = {place for place in places if not any(beats(other, place) for other in places)}
    found = staircase(rows, shown)
    near = {tuple(np.round(place, 9)) for place in best}  # sixths are multiplied in one and divided in the other
    assert {tuple(np.round(place, 9)) for place in found[::2]} == near and len(found) == 2 * len(best) - 1
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(found))
    assert not any(beats(corner, place) for corner in found[1::2] for place in best)


def test_the_axes_are_the_first_two_measures() -> None:
    assert pair(("ms", "bytes", "lmem")) == ("ms", "bytes") and pair(("cos", "cos", "ms")) == ("cos", "ms")
    assert (
        pair(("ms",)) == ("ms", "bytes") and pair(("bytes",)) == ("bytes", "ms") and pair(("cos",)) == ("cos", "bytes")
    )


def drawn(rows: list[Row], **more: Any) -> Any:
    pytest.importorskip("matplotlib", reason="extra 'plot' is not installed")
    return figure_of(rows, **more)


def lines(axes: Any) -> list[tuple[float, float]]:
    """Where points are drawn: those with a mark."""
    return [(float(one.get_xdata()[0]), float(one.get_ydata()[0])) for one in axes.lines if one.get_marker() != "None"]


def test_the_legend_names_every_chip_mode_and_strategy() -> None:
    choices = (("bm1684x", "cv183x"), ("int8", "f32", "bf16"), ("1", "best", "off"))
    rows = [row(1 + i, 20 - i, chip=c, mode=m, strategy=s) for i, (c, m, s) in enumerate(product(*choices))]
    rows.append(row(9, 9, chip="bm1688", settings="lmem_bytes=65536", cores=2, strategy="$mine"))
    figure = drawn(rows)
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert {name for names in choices for name in names} | {"bm1688 lmem_bytes=65536, 2 cores", r"\$mine"} <= set(said)
    assert len(said) == len(set(said)) and "front of these two" in said
    looks = {(str(one.get_color()), one.get_marker(), one.get_fillstyle(), one.get_markersize())
             for one in figure.axes[0].lines if one.get_marker() != "None"}  # fmt: skip
    assert len(looks) == len(rows)
    assert sorted(lines(figure.axes[0])) == sorted(((one.moved_bytes or 0) / MIB, one.milliseconds) for one in rows)


@pytest.mark.parametrize(
    ("values", "scale"),
    [((1, 9.9), "linear"), ((1, 10), "log"), ((0.08, 4.5), "log"), ((0, 50), "linear"), ((2, 2), "linear")],
)
def test_an_axis_of_a_decade_is_logarithmic(values: tuple[float, float], scale: str) -> None:
    (axes,) = drawn([row(values[0], 4), row(values[1], 3)]).axes
    assert (axes.get_yscale(), axes.get_xscale()) == (scale, "linear")
    (axes,) = drawn([row(4, values[0]), row(3, values[1])]).axes
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, "linear")


def test_points_without_a_measure_are_left_out_and_none_is_refused(tmp_path: Path) -> None:
    rows = [row(1, 2, energy_uj=3.0), row(2, 1), row(3, 1, error="no")]
    (axes,) = drawn(rows, measures=("energy", "ms")).axes
    assert lines(axes) == [(1, 3)]
    with pytest.raises(ConfigError, match="--plot: a point with cos and ms is required"):
        figure_of(rows, ("cos", "ms"))
    for kind in KINDS:
        draw(rows, tmp_path / f"picture{kind}")
        assert (tmp_path / f"picture{kind}").stat().st_size > 1000
