"""The instruments of passes as options: of `tpusim run`, and in MLIR's spelling of `tpusim opt`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

from typing_extensions import Doc

from tpusim.errors import ConfigError, meant
from tpusim.registry import PASSES

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.passes.instruments import Instrument
    from tpusim.passes.instruments.numbers import NumbersChanged, Tensors

Form = Literal["mlir", "dot", "svg"]
DATA = "random:1"
"""The sample of a module for which no data is named."""


@dataclass(frozen=True)
class InstrumentOptions:
    """What watches the passes; all that is printed goes to stderr."""

    print_ir_before: Annotated[tuple[str, ...], Doc("Print the module before these passes.")] = ()
    print_ir_before_all: Annotated[bool, Doc("Print the module before every pass.")] = False
    print_ir_after: Annotated[tuple[str, ...], Doc("Print the module after these passes.")] = ()
    print_ir_after_all: Annotated[bool, Doc("Print the module after every pass.")] = False
    print_ir_after_change: Annotated[bool, Doc("Print the module after every pass that changed it.")] = False
    print_ir_after_failure: Annotated[bool, Doc("Print the module as a failing pass leaves it.")] = False
    dump_before: Annotated[str, Doc("Folder for files of the module before every pass.")] = ""
    dump_after: Annotated[str, Doc("Folder for files of the module after every pass.")] = ""
    dump_after_change: Annotated[str, Doc("Folder for files of the module after every pass that changed it.")] = ""
    dump_form: Annotated[tuple[Form, ...], Doc("Forms of these files: mlir (the default), dot, svg.")] = ()
    timing: Annotated[bool, Doc("Print the seconds of passes, their steps and patterns.")] = False
    pattern_statistics: Annotated[bool, Doc("Print how often patterns were tried and fired.")] = False
    crash_reproducer: Annotated[
        str, Doc("File to write if a pass fails: the module before it and the passes from there on.")
    ] = ""

    def instruments(self, write: Callable[[str], None]) -> "Iterator[Instrument]":
        """The instruments that the options name; write: prints a text. ConfigError for an option without effect."""
        from tpusim.passes.instruments.reproducer import Reproducer
        from tpusim.passes.instruments.statistics import PatternStatistics
        from tpusim.passes.instruments.timing import Timing

        yield from self._printing(write)
        yield from self._dumping()
        if self.timing:
            yield Timing()
        if self.pattern_statistics:
            yield PatternStatistics()
        if self.crash_reproducer:
            yield Reproducer(Path(self.crash_reproducer))

    def _printing(self, write: Callable[[str], None]) -> "Iterator[Instrument]":
        from tpusim.passes.instruments.printing import ALL, PrintIR

        before = [*self.print_ir_before, *[ALL] * self.print_ir_before_all]
        after = [*self.print_ir_after, *[ALL] * self.print_ir_after_all]
        for name in (*self.print_ir_before, *self.print_ir_after):
            if name not in PASSES:
                known = ", ".join(PASSES)
                raise ConfigError(f"print-ir: one of {known} is required, got '{name}'{meant(name, PASSES)}")
        if before or after or self.print_ir_after_failure:
            yield PrintIR(write, before=before, after=after, on_failure=self.print_ir_after_failure)
        if self.print_ir_after_change:
            yield PrintIR(write, after=[ALL], changed_only=True)

    def _dumping(self) -> "Iterator[Instrument]":
        from tpusim.passes.instruments.dump import Dump

        folders = {"before": self.dump_before, "after": self.dump_after, "change": self.dump_after_change}
        if self.dump_form and not any(folders.values()):
            raise ConfigError(
                f"--dump-form {self.dump_form[0]}: needs --dump-before, --dump-after or --dump-after-change"
            )
        for when, folder in folders.items():
            if folder:
                yield Dump(Path(folder), [when], self.dump_form or ("mlir",))  # type: ignore[list-item]


def add_arguments(parser: ArgumentParser) -> None:
    """The options of InstrumentOptions for a parser of the standard library; each value has its option."""
    group = parser.add_argument_group("instruments", InstrumentOptions.__doc__)
    hints = get_type_hints(InstrumentOptions, include_extras=True)
    for field in fields(InstrumentOptions):
        kind, *more = get_args(hints[field.name])
        how: dict[str, Any] = {"help": more[-1].documentation, "default": field.default}
        if kind is bool:
            how["action"] = "store_true"
        elif field.default == ():
            how["action"] = "append"
            how["default"] = []
        group.add_argument(f"--{field.name.replace('_', '-')}", **how)


def options_of(args: Namespace) -> InstrumentOptions:
    """The options that the parser read. Raises ConfigError for another form of files."""
    found = {field.name: getattr(args, field.name) for field in fields(InstrumentOptions)}
    found |= {name: tuple(value) for name, value in found.items() if isinstance(value, list)}  # type: ignore[arg-type]
    if unknown := set(found["dump_form"]) - set(get_args(Form)):
        raise ConfigError(f"--dump-form {min(unknown)}: one of {', '.join(get_args(Form))} is required")
    return InstrumentOptions(**found)


def numbers_of(data: str, given: "Tensors | None" = None) -> "NumbersChanged":
    """The check that passes keep numbers, on a sample, or on the first of some data."""
    from tpusim.passes.instruments.numbers import NumbersChanged

    return NumbersChanged(given or (lambda model: _sample_of(model, data)))


def _sample_of(model: "Model", data: str) -> "Tensors":
    from tpusim.calibration.samples import Samples
    from tpusim.images import images_of
    from tpusim.inference import input_specs

    return dict(next(iter(Samples(data, input_specs(model), 1, images=images_of(model)))))
