"""`tpusim support`: how far to trust each op on each chip in each mode, or the card of one lowered module."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import LoweringOptions, Network, NetworkOptions, network_of
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table
from tpusim.ir.formats import number_format

if TYPE_CHECKING:
    from tpusim.fidelity.support import Line


@dataclass
class Support(Command):
    """Look up which ops are exact to the specification, follow a decision, fall back to float or are refused."""

    says = "`rows`, one for each op, chip, mode and outcome; with --module the `card`"

    chip: str | None = None
    """Only this chip."""
    mode: str | None = None
    """Only this mode: int8, int8-asym, f16, bf16 or f32."""
    op: str | None = None
    """Only this op: Conv, Softmax ..."""
    module: Path | None = None
    """Instead of the table, the card of this network: a tpu module (4_tpu.mlir, or of a later stage), the folder of a
    run, or a model or module that is lowered for --chip in --mode; missing ranges are assumed.
    """
    network: Network = NetworkOptions()

    def execute(self, console: Output) -> bool:
        """Print the table, or the card."""
        if self.module is not None:
            return self._card(console, self.module)
        import msgspec

        from tpusim.fidelity.support import lines, load

        rows = lines(load(), self.chip, self.mode, self.op)
        console.result(rows=msgspec.to_builtins(rows))
        console.print(support_table(rows))
        return True

    def _card(self, console: Output, path: Path) -> bool:
        from tpusim.cli.show import fidelity_table
        from tpusim.fidelity import card_of

        if self.op is not None:
            raise ConfigError(
                f"--module {path}: the card has every op of the module, so --op would do nothing; leave it out"
            )
        given = network_of(path, (self.network, self._lowering()), assume=True)
        lowered = next((name for name in ("final", "grouped") if given.level == name), "tpu")
        card = card_of(given.model(lowered))
        console.result(card=card.to_json())
        console.print(fidelity_table(card))
        return True

    def _lowering(self) -> LoweringOptions:
        """The options of lowering for a network that is not lowered yet."""
        mode, asymmetric = (self.mode or "int8").removesuffix("-asym"), (self.mode or "").endswith("-asym")
        number_format(mode)
        found = {"chip": self.chip, "mode": self.mode and mode, "asymmetric": asymmetric or None}
        return LoweringOptions(**{name: value for name, value in found.items() if value is not None})  # pyright: ignore[reportArgumentType]


def support_table(rows: Sequence["Line"]) -> Table:
    """One line per op, mode and outcome, with the chips that share it."""
    from tpusim.fidelity.card import TITLES

    table = Table("Fidelity of every op (specification: numerics.md)").words("op", "mode").prose("chips")
    table.words("class").prose("sections", "why, and the test that proves it")
    order = sorted(rows, key=lambda r: (r.op, _mode_index(r), _outcome(r)))
    for _, group in groupby(order, key=lambda r: (r.op, r.mode, _outcome(r))):
        same = list(group)
        first = next((r for r in same if r.executed), same[0])
        says = TITLES[first.status] + (f" {first.number}" if first.status == "float" else "")
        why = "; ".join(p for p in (first.reason, ", ".join(first.decisions)) if p)
        spec, details = ", ".join(first.spec), [part for part in (why, _test(first)) if part]
        cells = (first.op.removeprefix("top."), first.mode, ", ".join(r.chip for r in same), says, spec, details)
        table.row(*cells)
    return table


def _mode_index(row: "Line") -> int:
    from tpusim.fidelity.support import MODES

    return MODES.index(row.mode)


def _outcome(row: "Line") -> tuple[int, str, tuple[str, ...], str]:
    from tpusim.fidelity.card import WORST_FIRST

    return WORST_FIRST.index(row.status), row.number, row.decisions, row.reason


def _test(row: "Line") -> str:
    """The node id of a test without the common folder."""
    elsewhere = "" if row.executed or not row.test else " (same form, on another chip)"
    return row.test.removeprefix("tests/") + elsewhere
