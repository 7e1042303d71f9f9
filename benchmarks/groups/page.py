"""docs/groups.md from the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median

from benchmarks.groups.measure import SMALL, Gap, Row
from benchmarks.groups.results import Results
from tpusim import chips
from tpusim.studies import explore
from tpusim.studies.commands.explore_through import count, fewer, ratio, results

PUBLISHED: dict[tuple[str, int, str], float] = {
    ("resnet50", 1, "bm1684x"): 1.10,
    ("resnet50", 1, "bm1688"): 3.14,
    ("resnet50", 1, "bm1684"): 3.93,
    ("resnet50", 4, "bm1684x"): 0.82,
    ("resnet50", 4, "bm1688"): 2.48,
    ("resnet50", 4, "bm1684"): 1.24,
}
"""Milliseconds per image in INT8 (sophgo/sophon-demo, bmrt_test, October 2024; hardware.md 6); BM1688 on one core."""
SHOWN = {"off": "off", "1": "1", "2": "2"}

HEAD = """# Layer groups of the classic networks

`make groups` measures the figures and writes this page from `benchmarks/groups/results.json`; do not edit it. INT8,
symmetric, one core, default options. How groups are made: [layer_group.md](layer_group.md).

* **strategy**: of `--layer-group`: off, every op alone; 1, greedy from the end; 2, the default, dynamic programming on
  the estimated time, or the groups of 1 if they cost less. On CV18xx 2 is 1 (DL-08), so that the rows are equal.
* **groups**, **global**: layer groups, and layers that run from global memory.
* **MiB**: moved by the DMA, and its ratio to the bytes that must move: constants, network inputs and network outputs,
  each once.
* **cycles**: TIU cycles on the simulator's clock, and their ratio to the multiply-accumulates alone at the peak rate.
* **ms**: the same clock, in time. **LMEM**: the highest byte per lane that any group uses, of all bytes of a lane.
"""

PUBLISHED_HEAD = """## Compared with published figures

Milliseconds per image of the chip (sophgo/sophon-demo, `bmrt_test`, October 2024), on the clock with strategy 2, and
estimated: the clock's time multiplied by one factor per chip (DH-08). The factor is fitted to the published times of
ResNet-50 in F32, F16 and in INT8 at batch 4. The times in INT8 at batch 1 are not used in the fit, so that they check
it. `python -m benchmarks.how_far_is_the_clock` repeats the fit. Residual: the largest distance of a fitted time.
"""

PUBLISHED_TAIL = """
The factor covers effects that the clock does not model:

* The clock has no host and no driver. `bmrt_test` times a call of the runtime: launch, interrupt, synchronisation and,
  depending on the input's placement, its copy. The share of these is largest for short networks.
* Rates and latencies are the documented peaks: 58 and 44 GiB/s with 150 ns per command on BM1684X (DH-08), at which the
  compulsory bytes of ResNet-50 take 0.45 ms, longer than the ops that run meanwhile. Refresh, bank switching, traffic
  of other masters and bank conflicts inside local memory are not modelled.
* TIU cycles are those of the open profiler tables (DH-07): padded operations over the peak rate, no start-up. They do
  not contain stalls of the real array, nor other effects that the closed cycle functions of the vendor's compiler know.
* BM1684's cycle functions are closed. Its array width is derived from its published 17.6 TOPS, and its bandwidth is
  assumed (DH-02), so that this chip's figures are the least certain.
* Some effects go in the other direction: the network's input and output are f32 in these measurements, four times the
  bytes of 8-bit ones, and the conversions at both ends are separate layers.

YOLOv5s at 640 x 640 (published, INT8: 3.51 ms on BM1684X, 9.33 ms on BM1688 with one core, 11.26 ms on BM1684; per
image of a batch of four 3.34, 8.90 and 6.04) is not in the table: neither its weights nor its topology are part of the
`onnx` package, from which these networks are built.
"""

GAP_HEAD = f"""## Greedy, dynamic program, optimum

Estimated microseconds of the first {SMALL} ops of each network's longest run of local ops, and of the whole run of
digits, in all of local memory and in a sixteenth of it. The optimum is the cheapest of all divisions into consecutive
groups, all of which are tried; strategy 2 uses the cheaper result of greedy and dynamic program.
"""

THROUGH_HEAD = """## On TPU-MLIR's tools

`TPUSIM_UPSTREAM=DIR python -m benchmarks.groups.through FOLDER` runs its networks through `tpusim explore
--through-upstream` ([files for boards](howto/boards.md#which-cut-to-take)), with TPU-MLIR 1.30.2, INT8, one core:

* **clock**: cycles of tpusim's clock; **real**: of the profile that TPU-MLIR's code generator writes of our cut.
* **cut**: by strategy 2 or `best`. **TPU-MLIR's**: of the profile of the cut that TPU-MLIR's compiler makes
  (`model_deploy.py --opt 2`); **fewer**: how many of these our cut saves. **MiB**: loads and stores in the profiles.
* **results**: of our bmodel on TPU-MLIR's simulator, against flat inference, element by element: equal, or how many
  differ and whether they are equal to those of TPU-MLIR's bmodel.
"""

THROUGH_TAIL = """
The figures of this table, but for yolo and resnet50, are older than two rules that the clock follows now: the generator
loads a slice of the image for a first convolution of three channels with a command per channel, and an element-wise op
in no group with others is a global layer. The clock counted one command for all three channels. On bm1688, where a
start-up is long, that was the cause of 2,300 of the 2,471 cycles of difference on SqueezeNet with `best`, and of all of
it on mobile and unet. Where results differ, it is by one step of a softmax in INT8, as in TPU-MLIR's bmodel.
"""


def groups_page(found: Results) -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for (batch, network), rows in groupby(found.rows, lambda r: (r.batch, r.network)):
        title = network if batch == 1 else f"{network}, batch {batch}"
        parts.append(f"## {title}\n\n" + "\n".join(_table(rows)) + "\n")
    parts += [PUBLISHED_HEAD + "\n" + "\n".join(_published(found.rows)) + "\n" + PUBLISHED_TAIL]
    parts += [GAP_HEAD + "\n" + "\n".join(_gaps(found.gaps)) + "\n"]
    if found.through:
        parts += [THROUGH_HEAD + "\n" + "\n".join(_through(found.through)) + "\n" + THROUGH_TAIL]
    return "\n".join(parts)


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| chip | strategy | groups | global | MiB | x must move | cycles | x MAC | ms | LMEM |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for _, several in groupby(rows, lambda r: r.chip):
        yield from (_line(row) for row in sorted(several, key=lambda r: list(SHOWN).index(r.opt)))


def _line(row: Row) -> str:
    share = row.lmem_peak_bytes / chips.load(row.chip).lmem_bytes
    return (
        f"| {row.chip} | {SHOWN[row.opt]} | {row.groups} | {row.global_layers} | {row.moved_bytes / 2**20:.2f} "
        f"| {row.moved_bytes / row.compulsory_bytes:.2f} | {row.cycles:,} | {row.cycles / row.mac_cycles:.2f} "
        f"| {row.milliseconds:.3f} | {share:.0%} |"
    )


def estimated(row: Row) -> float:
    """Milliseconds per image, by the factor of the chip."""
    return row.milliseconds / row.batch * chips.load(row.chip).calibration.factor


def _published(rows: Iterable[Row]) -> Iterator[str]:
    yield "| network | batch | chip | published | clock | factor | residual | estimate | estimate / published |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        known = PUBLISHED.get((row.network, row.batch, row.chip))
        if known is not None and row.opt == "2":
            clock, fit = row.milliseconds / row.batch, chips.load(row.chip).calibration
            yield (
                f"| {row.network} | {row.batch} | {row.chip} | {known:.2f} | {clock:.2f} | {fit.factor:.2f} "
                f"| {fit.residual:.0%} | {estimated(row):.2f} | {estimated(row) / known:.2f} |"
            )


def _gaps(gaps: Iterable[Gap]) -> Iterator[str]:
    yield "| network | chip | local memory | ops | greedy | dynamic | optimum | greedy over | dynamic over |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
    for gap in gaps:
        memory = "all" if gap.share == 1 else f"1/{gap.share}"
        figures = " | ".join(f"{ns / 1000:.2f}" for ns in (gap.greedy_ns, gap.dynamic_ns, gap.optimum_ns))
        over = " | ".join(f"{ns / gap.optimum_ns - 1:.1%}" for ns in (gap.greedy_ns, gap.dynamic_ns))
        yield f"| {gap.network} | {gap.chip} | {memory} | {gap.ops} | {figures} | {over} |"


def _through(rows: Sequence[explore.Row]) -> Iterator[str]:
    yield "| network | chip | cut | clock | real | clock / real | TPU-MLIR's | fewer | MiB | TPU-MLIR's | results |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|"
    yield from map(_through_line, rows)
    ratios = [abs(row.cycles / row.upstream_cycles - 1) for row in rows if row.cycles and row.upstream_cycles]
    best = [row for row in rows if row.strategy == "best" and row.upstream_cycles and row.compiler_cycles]
    signs = [(row.upstream_cycles or 0) - (row.compiler_cycles or 0) for row in best]
    advice = explore.recommended(rows)
    yield ""
    yield f"The clock is {median(ratios):.1%} from the real profile in the median, {max(ratios):.1%} at most."
    yield (
        f"`best` has fewer cycles than TPU-MLIR's cut in {sum(s < 0 for s in signs)} of {len(signs)} cases, as many in "
        f"{sum(s == 0 for s in signs)}, more in {sum(s > 0 for s in signs)}."
    )
    yield (
        f"`tpusim explore` recommends a cut of tpusim in {sum(row is not None for row in advice.values())} of "
        f"{len(advice)} cases, never one with more cycles than TPU-MLIR's."
    )


def _through_line(row: explore.Row) -> str:
    real, theirs = row.upstream_cycles, row.compiler_cycles
    cells = [
        row.model, row.chip, row.strategy, count(row.cycles), count(real), ratio(row.cycles, real), count(theirs),
        fewer(real, theirs), _mib(row.upstream_bytes), _mib(row.compiler_bytes),
        row.error or row.upstream_error or row.compiler_error or results(row),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _mib(value: int | None) -> str:
    return "-" if value is None else f"{value / 2**20:.2f}"
