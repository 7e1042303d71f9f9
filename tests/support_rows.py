"""Measures the support table from the op rows and writes it: tpusim/fidelity/support.json and docs/support.md.

`make support` runs this file. Every row of op_cases.py is lowered on every chip in every mode the chip has; what the op
under test became is read from the module's own marks.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import frame_cases
import msgspec
from compiling import to_tpu
from op_cases import CASES, OpCase
from op_row import CHIPS
from rows import SECONDARY, imported, top_for, tpu_ops

from tpusim import chips
from tpusim.errors import ModeWarning, UnsupportedError, spelled_as_options
from tpusim.fidelity.card import OpFidelity, fidelity_of
from tpusim.fidelity.page import support_page
from tpusim.fidelity.support import MODES, OpSupport, Outcome, Support, cell, encoded
from tpusim.host.files import replacing
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.ops import Top
from tpusim.ops.frames import YUV
from tpusim.ops.framework.base import TopOp, TpuOp

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "tpusim" / "fidelity" / "support.json", ROOT / "docs" / "support.md"

OPS = "tests/test_ops.py"

FRAME_OPS = ("tpu.Copy", "tpu.Csc", "tpu.ScaleLut", "tpu.SwapChannel")
FRAME_CASES = 10, 11, 16
"""Of frame_cases.py: packed, planar and YUV frames whose channels are swapped in front of a depthwise convolution."""
FRAME_TEST = "tests/test_frames.py::test_tensors_are_those_of_the_real_interpreter[{}]"

Found = tuple[str, str, tuple[str, ...], str]
"""(status, number type, decisions, reason) of one row in one cell."""


def config(chip: str, mode: str) -> LoweringConfig:
    number, _, asymmetric = mode.partition("-")
    return LoweringConfig(chip, number, asymmetric=bool(asymmetric))  # type: ignore[arg-type]


def mode_of(settings: LoweringConfig) -> str:
    return settings.mode + ("-asym" if settings.asymmetric else "")


def refusals() -> dict[str, str]:
    """Cells whose mode the chip does not have, with what lowering says about it."""
    found: dict[str, str] = {}
    for chip in chips.available():
        spec = chips.load(chip)
        for mode in MODES:
            settings = config(chip, mode)
            if settings.mode in spec.modes and (spec.hardware.asymmetric or not settings.asymmetric):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error", ModeWarning)  # CV18xx takes its one float type instead
                try:
                    to_tpu(top_for(CASES[0].id, settings), settings)
                except (UnsupportedError, ModeWarning) as error:
                    found[cell(chip, mode)] = str(error)
    return found


def measure(case: OpCase, refused: Mapping[str, str]) -> dict[str, tuple[str, Found]]:
    """Cell -> (top op under test, what it became)."""
    found: dict[str, tuple[str, Found]] = {}
    for chip in chips.available():
        for mode in MODES:
            if cell(chip, mode) not in refused:
                found[cell(chip, mode)] = measure_cell(case, config(chip, mode))
    return found


def measure_cell(case: OpCase, settings: LoweringConfig) -> tuple[str, Found]:
    top = top_for(case.id, settings)
    kinds = {op_name(op): op.name for op in top.ops if isinstance(op, TopOp)}
    try:
        with spelled_as_options():
            tpu = to_tpu(top, settings)
    except UnsupportedError as error:
        return kinds["y"], ("refused", "", (), str(error))
    op = stands_for(case, tpu, kinds)
    said: OpFidelity = fidelity_of(op)
    return kinds[op_name(op)], (said.status, said.number, said.decisions, steady(said.reason))


def stands_for(case: OpCase, tpu: Model, names: Container[str]) -> TpuOp:
    """What the row's op became, under a name of the top module.

    That is the op named as the result where the class is another (a Scale is a convolution on CV18xx) or computes
    accumulators of another name (Deconv before its requant).
    """
    found = [op for op in tpu_ops(tpu) if op.name in case.result.split("|") and op_name(op) in names]
    return found[-1] if found else next(op for op in tpu_ops(tpu) if op_name(op) == "y")


def steady(reason: str) -> str:
    """Measured numbers to three digits, so that another processor's last places do not change the table."""
    return re.sub(r"\d+\.\d{4,}", lambda found: f"{float(found[0]):.3g}", reason)


def collect(measured: Mapping[str, Mapping[str, tuple[str, Found]]], refused: Mapping[str, str]) -> Support:
    """The table of {row: {cell: (op, outcome)}}."""
    by_op: dict[str, dict[str, dict[Found, list[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row, cells in measured.items():
        for where, (op, found) in cells.items():
            by_op[op][where][found].append(row)
    seen = {op.name for case in CASES for op in imported(case.id).ops if isinstance(op, TopOp)}
    classes = {c.name: c for c in Top.operations if issubclass(c, TopOp)}
    return Support(
        chips=chips.available(),
        ops=tuple(OpSupport(op, classes[op].SPEC, tuple(outcomes(by_op[op]))) for op in sorted(by_op)),
        refused=dict(refused),
        oracles={cell(c, "int8"): f"{OPS}::test_lowering_kernels_and_machine[{{row}}-{c}-int8]" for c in CHIPS},
        tests=executing_tests(),
        rewritten=tuple(sorted(seen - set(by_op) - {"top.Input"})),
    )


def executing_tests() -> dict[str, str]:
    """Cell -> node id of the test that runs a row in it, flat and on the machine."""
    found = {
        cell(c, m): f"{OPS}::test_lowering_kernels_and_machine[{{row}}-{c}-{m}]" for c in CHIPS for m in ("int8", "f32")
    }
    for label, settings in SECONDARY.items():
        where = cell(settings.chip, mode_of(settings))
        found.setdefault(where, f"tests/test_modes.py::test_machine_agrees_with_flat[{{row}}-{label}]")
    return found


def outcomes(cells: Mapping[str, Mapping[Found, list[str]]]) -> Iterable[Outcome]:
    """Equal outcomes shown by equal rows are one, with all their cells."""
    together: dict[tuple[Found, tuple[str, ...]], list[str]] = defaultdict(list)
    for where, found in cells.items():
        for outcome, rows in found.items():
            together[outcome, tuple(rows)].append(where)
    for (status, number, decisions, reason), rows in together:
        where = tuple(together[(status, number, decisions, reason), rows])
        yield Outcome(status, number, rows, where, decisions, reason)  # type: ignore[arg-type]


def frames(refused: Mapping[str, str]) -> tuple[OpSupport, ...]:
    """The ops of fused preprocessing that nothing else makes, on every chip that fuses it, in every mode."""
    found: dict[str, dict[str, dict[Found, list[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for number in FRAME_CASES:
        network, _, _, options, _ = frame_cases.CASES[number]
        for chip in chips.available():
            for mode in MODES:
                if cell(chip, mode) in refused or chip == "bm1684":  # which fuses none: test_frames.py
                    continue
                if options.get("customization_format") in YUV and chips.load(chip).frame_alignment is None:
                    continue  # refused: test_frames.py
                name, _, asymmetric = mode.partition("-")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ModeWarning)  # frames are aligned on CV18xx alone
                    tpu = frame_cases.lowered(network, chip, name, {**options, "asymmetric": bool(asymmetric)})
                for op in tpu_ops(tpu):
                    if op.name in FRAME_OPS:
                        said = fidelity_of(op)
                        outcome = said.status, said.number, said.decisions, said.reason
                        found[op.name][cell(chip, mode)][outcome].append(FRAME_TEST.format(number))
    return tuple(OpSupport(op, (), tuple(outcomes(found[op]))) for op in sorted(found))


def measured_table() -> Support:
    """The whole table, from the code as it is."""
    refused = refusals()
    table = collect({case.id: measure(case, refused) for case in CASES}, refused)
    return msgspec.structs.replace(table, frames=frames(refused))


def main() -> None:
    support = measured_table()
    PAGE.parent.mkdir(exist_ok=True)
    for path, content in ((DATA, encoded(support)), (PAGE, support_page(support).encode())):
        with replacing(path) as target:
            target.write_bytes(content)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}: {len(support.ops)} ops, {len(support.chips)} chips\n")


if __name__ == "__main__":
    main()
