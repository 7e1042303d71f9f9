"""`tpusim dis`, `tpusim asm`: a program as text and back; and the output of `tpusim simulate --check`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    Preprocessing,
    PreprocessOptions,
    compiled_of,
)
from tpusim.cli.output import Output
from tpusim.errors import ImportModelError
from tpusim.host import files

if TYPE_CHECKING:
    from tpusim.simulator import Checker

SHOWN = 20
"""At most so many wrong commands are printed."""


@dataclass
class Disassemble(Command):
    """Print a program as text, one line per command; the text of a whole program can be edited and assembled again.

    Takes a program (7_model.tpusim), the folder of a run, or any network, which is compiled first.
    """

    says = "the `lines` of the text, where it is not written to a file"

    program: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PROGRAM|NETWORK")]
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()
    net: str | None = None
    """Of a program of several nets (`tpusim link`): the one to print."""
    op: str | None = None
    """Only the commands of this op."""
    engine: Literal["tiu", "gdma"] | None = None
    """Only the commands of this engine."""
    core: int | None = None
    """Only the commands of this core."""
    out: Path | None = None
    """Text to write; default: print it."""

    def execute(self, console: Output) -> bool:
        """Print or write the text."""
        from tpusim.host.files import replacing
        from tpusim.isa.listing import extract, listing

        program = compiled_of(
            self.program, (self.network, self.preprocessing, self.calibration, self.lowering, self.grouping), self.net
        ).program
        whole = self.op is None and self.engine is None and self.core is None
        text = listing(program) if whole else extract(program, op=self.op, engine=self.engine, core=self.core)
        if self.out is None:
            console.result(lines=text.splitlines())
            console.lines(text)
            return True
        with replacing(self.out) as temporary:
            temporary.write_text(text, encoding="utf-8")
        console.wrote(self.out, f"{len(program.commands):,} commands" if whole else "")
        return True


@dataclass
class Assemble(Command):
    """Assemble the text of a whole program to .tpusim. Coefficients, which text lacks, come from a program file."""

    says = "the number of `commands`"

    text: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TEXT")]
    coefficients: Path
    """Program file with the coefficients: the file that was disassembled."""
    out: Path | None = None
    """Program to write; default: the text's name with .tpusim."""

    def execute(self, console: Output) -> bool:
        """Assemble, check every command's legality, and write."""
        from tpusim.isa.check import check
        from tpusim.isa.listing import assemble
        from tpusim.isa.stream import load, save

        try:
            text = files.text(self.text)
        except (OSError, UnicodeDecodeError) as error:
            raise ImportModelError(f"{self.text}: cannot be read as text, {error}") from error
        base = load(self.coefficients)
        program = assemble(text, base.coefficients, str(self.text))
        chip = program.header.chip_spec
        for command in program.commands:
            check(command, chip)
        path = self.out or self.text.with_suffix(".tpusim")
        save(program, path)
        console.result(commands=len(program.commands))
        console.wrote(path, f"{len(program.commands):,} commands")
        return True


def said_alone(counts: Mapping[str, int]) -> str:
    """The entries of a program that no command confirms, in one line."""
    return "no command confirms: " + ", ".join(f"{count} {what}" for what, count in counts.items())


def show_check(console: Output, checker: "Checker") -> bool:
    """Print the result of a checked run; True if no command was wrong."""
    console.result(checked=checker.checked, mismatches=[str(mismatch) for mismatch in checker.mismatches])
    for mismatch in checker.mismatches[:SHOWN]:
        console.tell(str(mismatch))
    unknown = checker.unknown
    without = f"; not in the reference: {', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}" if unknown else ""
    console.print(
        f"compared {checker.checked:,} slices, stores and tensors of {len(checker.names) - len(unknown)} tensors: "
        f"{len(checker.mismatches):,} wrong{without}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return not checker.mismatches
