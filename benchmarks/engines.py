"""python -m benchmarks.engines: networks in IREE and in JAX, and in how many elements they differ (extra 'iree').

Small networks (tests/upstream) with the calibration tables of TPU-MLIR that are recorded there, and digits. Rewrites
docs/engines.md. Every compiled network takes seconds; results are kept in out/engines.json, so that an interrupted
study goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.conformance.replay import Replay
from tpusim.errors import TpusimError
from tpusim.host.files import replacing
from tpusim.inference import Graph
from tpusim.inference.iree import Iree
from tpusim.ir.module import Model

NETWORKS = (
    "conv", "residual", "unet", "vit", "bert", "segformer", "detector", "squeeze", "shuffle", "norms", "deconv", "silu",
)  # fmt: skip
CELLS = (
    "bm1684x/int8", "bm1684x/int8-asym", "bm1684x/f16", "bm1684x/bf16", "bm1684x/f32", "bm1688/int8", "bm1688/f16",
    "bm1684/int8", "bm1690/bf16", "cv183x/int8", "cv183x/bf16",
)  # fmt: skip
KEPT, PAGE = Path("out/engines.json"), Path(__file__).parents[1] / "docs" / "engines.md"
BEGIN, END = "<!-- engines -->\n", "<!-- /engines -->\n"


@dataclass(frozen=True)
class Found:
    """differing, elements: of the results; largest: the largest difference; seconds: of IREE's compilation."""

    differing: int = 0
    elements: int = 0
    largest: float = 0.0
    seconds: float = 0.0
    refused: str = ""


@dataclass
class Study:
    """Run the study."""

    only: tuple[str, ...] = NETWORKS
    """Only these networks."""
    cells: tuple[str, ...] = CELLS
    """Only these CHIP/MODE."""
    page: bool = True
    """Write the page; with --no-page only measure."""

    def execute(self) -> None:
        """Cell by cell."""
        kept: dict[str, dict[str, object]] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        for key, model, inputs in _networks(self.only, self.cells, kept):
            found = _compared(model, inputs)
            kept[key] = asdict(found)
            with replacing(KEPT) as path:
                path.write_text(json.dumps(kept, indent=1))
            print(key, found, flush=True)
        if self.page:
            _write({key: Found(**value) for key, value in kept.items()})  # pyright: ignore[reportArgumentType]


def _networks(
    names: tuple[str, ...], cells: tuple[str, ...], kept: Mapping[str, object]
) -> Iterator[tuple[str, Model, dict[str, np.ndarray]]]:
    """(NETWORK/CHIP/MODE, the module, a sample) of what is not kept: a cell, and the top module in floats."""
    for name in names:
        replay = Replay(name)
        inputs = replay.data.arrays(replay.data.content.inputs)
        if f"{name}/top" not in kept:
            yield f"{name}/top", replay.canonical, inputs
        for cell in cells:
            if f"{name}/{cell}" not in kept:
                yield f"{name}/{cell}", replay.lowered(cell), inputs


def _compared(model: Model, inputs: Mapping[str, np.ndarray]) -> Found:
    """One module in both."""
    try:
        expected = Graph(model, quick=not model.attribute("module.chip"))(inputs)
        begin = time.perf_counter()
        engine = Iree(model)
        seconds = time.perf_counter() - begin
        got = engine(inputs)
    except TpusimError as error:
        return Found(refused=str(error))
    pairs = [(np.asarray(expected[name], np.float64), np.asarray(got[name], np.float64)) for name in expected]
    differing = sum(int(np.sum(~((a == b) | (np.isnan(a) & np.isnan(b))))) for a, b in pairs)
    largest = max((float(np.nanmax(np.abs(a - b), initial=0)) for a, b in pairs), default=0.0)
    return Found(differing, sum(a.size for a, _ in pairs), largest, round(seconds, 1))


def _write(found: Mapping[str, Found]) -> None:
    """Put the table between the marks of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    with replacing(PAGE) as path:
        path.write_text(before + BEGIN + "\n".join(_table(found)) + "\n" + END + after)


def _table(found: Mapping[str, Found]) -> Iterator[str]:
    """A row for each chip and mode, over all networks."""
    yield "| stage, chip, mode | networks | results that differ | largest difference | refused | compilation in IREE |"
    yield "|---|---|---|---|---|---|"
    for cell in ("top", *CELLS):
        those = [one for key, one in found.items() if key.partition("/")[2] == cell]
        ran = [one for one in those if not one.refused]
        if not those:
            continue
        differing, elements = sum(one.differing for one in ran), sum(one.elements for one in ran)
        largest, seconds = max((one.largest for one in ran), default=0.0), [one.seconds for one in ran] or [0.0]
        stage, most = "2_canonical.mlir in f32" if cell == "top" else cell, f"{largest:.1e}" if largest else "0"
        took = f"{min(seconds):.0f} to {max(seconds):.0f} s"
        yield f"| {stage} | {len(those)} | {differing:,} of {elements:,} | {most} | {len(those) - len(ran)} | {took} |"


if __name__ == "__main__":
    tyro.cli(Study, description=__doc__).execute()
