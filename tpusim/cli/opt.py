"""`tpusim opt IN.mlir -p 'pass{option=..},pass'`: named passes through xDSL's driver and registry."""

import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects import builtin
from xdsl.targets.mlir import MLIRTarget
from xdsl.utils.exceptions import ArgSpecParseError, ParseError, VerifyException
from xdsl.xdsl_opt_main import xDSLOptMain

from tpusim.cli.instruments import DATA, add_arguments, numbers_of, options_of
from tpusim.cli.words import refuse
from tpusim.errors import ConfigError, ImportModelError
from tpusim.host.files import replacing
from tpusim.ir import text
from tpusim.ir.attrs import op_name
from tpusim.ir.bytecode import EVERYBODY, MAGIC, RELEASES
from tpusim.ir.content import is_known, is_module
from tpusim.ir.dialects import open_context, register_dialects
from tpusim.ir.module import Model, is_weight, load_model, packed_weights, without_weights
from tpusim.ir.names import names_to_attributes
from tpusim.ir.text import is_network
from tpusim.ir.upstream.final import written
from tpusim.ir.weights import save_weights
from tpusim.passes import PassContext, PassManager, parse_pipeline, pass_of, print_pipeline
from tpusim.registry import FRONTENDS, PASSES, PIPELINES

if TYPE_CHECKING:
    from tpusim.host.workers import Workers
    from tpusim.passes.instruments.numbers import NumbersChanged

INSTEAD = {
    "print_between_passes": "passes run under the manager of tpusim; use --print-ir-after-all",
    "time_passes": "passes run under the manager of tpusim; use --timing",
    "parsing_diagnostics": "a module that does not parse is an error of one line; leave the option out",
    "verify_diagnostics": "a module that does not verify is an error of one line; leave the option out",
}
"""Options of xDSL's driver that would do nothing, and what to do."""
THE_READERS = "reader"
"""The value of --emit-bytecode without a number: the version that the reader needs."""
STDIN = "standard input"
"""What messages call the module that no file is named for."""


class OptMain(xDSLOptMain):
    """xDSL's driver with tpusim's dialects, passes and parser; weights follow the module in and out.

    weight_file: what the printed module says of its weights; empty: what it said when it was read. printed: the module.
    """

    weight_file = ""
    printed: builtin.ModuleOp
    manager: PassManager
    numbers: "NumbersChanged | None" = None
    parts: "list[Model] | tuple[()]" = ()
    read: Model
    """What was named on the command line, or came from standard input."""

    def register_all_dialects(self) -> None:
        """Those of this project, of xDSL and of packages; each is loaded when the file names it."""
        self.ctx = text.context(into=PassContext())
        register_dialects(self.ctx)

    @property
    def binary(self) -> bool:
        """Whether bytecode is to be written."""
        return self.args.emit_bytecode is not None or self.args.bytecode_for is not None or self.args.one_file

    def register_all_passes(self) -> None:
        """Those of the registry; pipelines are read by `tpusim.passes`, which looks passes up by itself."""
        for name in (*PASSES, *PIPELINES):
            self.register_pass(name, lambda name=name: PASSES.get(name))

    def register_all_frontends(self) -> None:
        """Modules as MLIR text, and the files of frameworks, with their weights."""

        def parse(stream: Any) -> builtin.ModuleOp:
            del stream  # `open` has read it
            return self.parts.pop(0).module if self.parts else self.read.module

        for suffix in ("mlir", *FRONTENDS):
            self.available_frontends[suffix] = parse

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        """The file that was named, or standard input; the file says what it is, not its suffix."""
        stream, _ = super().get_input_stream()
        return stream, "mlir"

    def open(self) -> None:
        """Read the module that was named, or import the model; its weights go into the context. Raises TpusimError."""
        if self.args.input_file == "-":
            self.args.input_file = None
        if self.args.split_input_file:
            self.parts = self._split()
            self.read = self.parts[0]
        else:
            self.read = self._named(Path(self.args.input_file)) if self.args.input_file else self._from_stdin()
        cast("PassContext", self.ctx).weights = self.read.weights.copy()

    def _named(self, path: Path) -> Model:
        if not is_known(path) or is_module(path):
            return load_model(path, self._open_context(), keep=not self.manager.pipeline.steps)
        from tpusim.frontend import read_model

        return read_model(path)

    def _open_context(self) -> Context:
        """A context of all known dialects; ops of others are read if the option allows it."""
        context = open_context()
        context.allow_unregistered = self.args.allow_unregistered_dialect
        return context

    def _split(self) -> list[Model]:
        """The modules of a file that `// -----` separates, without weights. Raises ConfigError for passes."""
        if not self.args.input_file or self.manager.pipeline.steps or self.args.output_file:
            raise ConfigError(
                "opt: --split-input-file: a named file, no pass and no -o are required: passes and -o take one module "
                "with its weights"
            )
        parts = text.read_text(Path(self.args.input_file)).split(text.SEPARATOR)
        named = f"{self.args.input_file}, part {{}}".format
        return [
            without_weights(text.parse_module(part, self._open_context(), named(number), keep=True))
            for number, part in enumerate(parts, 1)
        ]

    def _from_stdin(self) -> Model:
        """The module on standard input. Raises ConfigError for what is none, and for weights that passes need."""
        named = "standard input: {} is required, {}; name a file instead".format
        given = sys.stdin.buffer.read()
        if not given.strip():
            raise ConfigError(named("a module", "it is empty"))
        try:
            read = without_weights(self._of_bytes(given))
        except UnicodeDecodeError as error:
            raise ConfigError(named("a module as text or bytecode", "it has bytes that are no UTF-8")) from error
        needed = [op_name(op) for op in read.module.walk() if is_weight(op)]
        if needed and self.manager.pipeline.steps:
            shown = ", ".join(needed[:3]) + " ..." * (len(needed) > 3)
            what = f"the data of {shown} does not come with it"
            raise ConfigError(named("a module without weights", what))
        return read

    def _of_bytes(self, given: bytes) -> builtin.ModuleOp:
        """A module as text or bytecode. Raises ImportModelError, and UnicodeDecodeError for what is neither."""
        context = self._open_context()
        if given.startswith(MAGIC):
            from tpusim.ir.bytecode import Bytecode
            from tpusim.ir.one_file import current_module

            return current_module(Bytecode(given, context, STDIN), context)
        keep = not self.manager.pipeline.steps
        return text.parse_module(given.decode("utf-8"), context, STDIN, keep=keep)

    def register_all_arguments(self, arg_parser: ArgumentParser) -> None:
        """Those of xDSL's driver but for INSTEAD, which help leaves out, of the instruments, and of bytecode."""
        arg_parser.prog = "tpusim opt"
        super().register_all_arguments(arg_parser)
        for action in arg_parser._actions:
            action.help = SUPPRESS if action.dest in INSTEAD else action.help
        arg_parser.error = _refuse  # type: ignore[method-assign]  the standard one prints ten lines of usage first
        add_arguments(arg_parser)
        add = arg_parser.add_argument
        add(
            "--emit-bytecode",
            nargs="?",
            type=_version,
            const=THE_READERS,
            metavar="N",
            help="write MLIR bytecode of this version (0 to 6) to -o; by default the version that the reader needs",
        )
        add("--bytecode-for", choices=tuple(RELEASES), help="the reader of the bytecode: its version and its codes")
        add("--jobs", type=int, default=1, help="processes for the functions of cse, dce, fold, sccp and canonicalize")
        add("--one-file", action="store_true", help="write bytecode with the weights in it, no npz")  # fmt: skip
        add(
            "--verify-passes", metavar="DATA", nargs="?", const=DATA, default="",
            help=f"run a sample of DATA ({DATA}) after every pattern and pass; fail if one changed numbers",
        )  # fmt: skip
        add(
            "--names-as-attributes",
            action="store_true",
            help="state names as attributes, for tools that drop locations",
        )
        add("--run-reproducer", action="store_true", help="the input is what --crash-reproducer wrote: run its passes")

    def setup_pipeline(self) -> None:
        """Read the pipeline in the text form of `tpusim.passes`, which xDSL's does not contain: it nests."""
        if self.args.run_reproducer and self.args.input_file in (None, "-"):
            raise ConfigError("opt: --run-reproducer: the file that --crash-reproducer wrote is required, got none")
        if self.args.run_reproducer:
            from tpusim.passes.instruments.reproducer import read_reproducer

            pipeline = read_reproducer(Path(self.args.input_file))
        else:
            pipeline = parse_pipeline(self.args.passes)
        self._require_sense()
        instruments = list(options_of(self.args).instruments(_to_stderr))
        if self.args.verify_passes:
            from tpusim.proof.rewritings import ExpressionsChanged

            self.numbers = numbers_of(self.args.verify_passes)
            instruments += [self.numbers, ExpressionsChanged()]
        cast("PassContext", self.ctx).workers = _workers(self.args.jobs)
        self.manager = PassManager(pipeline, instruments, verify=not self.args.disable_verify)

    @property
    def version(self) -> int | None:
        """The requested version of bytecode; None: that of the reader."""
        requested = self.args.emit_bytecode
        return None if requested == THE_READERS else requested

    def _require_sense(self) -> None:
        """Raise ConfigError for an option that would do nothing, and for a version that its reader does not read."""
        for option, instead in INSTEAD.items():
            if getattr(self.args, option):
                raise ConfigError(f"opt: --{option.replace('_', '-')}: {instead}")
        reader, version = self.args.bytecode_for, self.version
        if reader and version is not None and version > RELEASES[reader].version:
            raise ConfigError(
                f"opt: --bytecode-for {reader}: it reads versions up to {RELEASES[reader].version}, got "
                f"--emit-bytecode={version}; leave --emit-bytecode out"
            )

    def apply_passes(self, prog: builtin.ModuleOp) -> None:
        """Run the pipeline under the pass manager; print what its instruments report."""
        try:
            self.manager.apply(cast("PassContext", self.ctx), prog)
        finally:
            for line in self.manager.report():
                _to_stderr(line)

    def register_all_targets(self) -> None:
        """MLIR text is the only target; `-t` with another is a usage error."""
        self.available_targets["mlir"] = lambda: MLIRTarget

    def output_resulting_program(self, prog: builtin.ModuleOp) -> str:
        """In the form that was asked for, always with locations: they are the op names."""
        self.args.print_debuginfo, self.printed = True, prog
        if self.args.names_as_attributes:
            names_to_attributes(prog)
        if not is_network(prog) and not cast("PassContext", self.ctx).weights:
            self.weight_file = ""
        if self.weight_file:
            prog.attributes["module.weight_file"] = builtin.StringAttr(self.weight_file)
        return super().output_resulting_program(written(prog)).rstrip("\n") + "\n"


def _workers(jobs: int) -> "Workers | None":
    if jobs < 1:
        raise ConfigError(f"opt: --jobs {jobs}: 1 or more is required")
    if jobs == 1:
        return None
    from tpusim.host.workers import processes

    return processes(jobs)


def _refuse(message: str) -> NoReturn:
    """Exit with status 2 for options that cannot be read. message: of the parser."""
    refuse("tpusim opt", message)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def optimise(words: Sequence[str]) -> int:
    """Run the driver; exit status 0, 1 if a pass changed numbers that it must keep.

    Raises TpusimError for bad input or a failing pass.
    """
    try:
        return _optimise(OptMain("tpusim pass driver", list(_gathered(words))))
    except (ArgSpecParseError, ParseError, VerifyException, ValueError) as error:
        raise ImportModelError(f"opt: {error}") from error


def _version(word: str) -> int | str:
    if word != THE_READERS and not word.isdigit():
        raise ArgumentTypeError(f"a version, 0 to 6, is required, got {word!r}")
    return word if word == THE_READERS else int(word)


def _gathered(words: Sequence[str]) -> Iterator[str]:
    """The words with passes in TPU-MLIR's spelling, `--pass` and `--pass="a=b c=d"`, as one `-p` after the others.

    A file after --emit-bytecode is no version.
    """
    steps = list[str]()
    words = [
        f"{word}={THE_READERS}" if word == "--emit-bytecode" and not after.isdigit() else word
        for word, after in zip_longest(words, words[1:], fillvalue="")
    ]
    named = sum(word.startswith(("-p", "--passes")) for word in words)
    for word in words:
        found = re.fullmatch(r"--([\w-]+)(?:=(.*))?", word, re.DOTALL)
        if found is None or not (found[1] in PASSES or found[1] in PIPELINES):
            yield word
        else:
            steps.append(print_pipeline(pass_of(found[1], found[2] or "")))
    if named + bool(steps) + ("--run-reproducer" in words) > 1:
        raise ConfigError(
            "opt: one pipeline is required, of -p, of passes as --PASS, or of --run-reproducer; got several; write all "
            "passes into one -p, separated by commas"
        )
    if steps:
        yield from ("-p", ",".join(steps))


def _optimise(driver: OptMain) -> int:
    context, output = cast("PassContext", driver.ctx), driver.args.output_file
    driver.open()
    if output is not None:
        _write(driver, context, Path(output))
    else:
        if driver.binary:
            raise ConfigError("opt: bytecode is no text for a terminal; name a file, -o OUT.mlirbc")
        before = set(context.weights)
        driver.run()
        if set(context.weights) - before:
            from tpusim.cli.output import stderr_console

            stderr_console().print("tpusim: the module has new weights; write it with -o OUT.mlir to get them too")
    return int(driver.numbers is not None and driver.numbers.first is not None)


def _write(driver: OptMain, context: PassContext, output: Path) -> None:
    """Write the module in the form that was asked for, and its weights next to it."""
    absent = bool(driver.read.attribute("module.weight_file")) and not context.weights
    if absent and driver.args.one_file:
        raise ConfigError(
            f"opt: --one-file: the weights of '{driver.args.input_file}' are required, they are not there"
        )
    driver.weight_file = "" if absent else f"{output.stem}_weights.npz"
    with replacing(output) as temporary:
        driver.args.output_file = str(temporary)
        driver.run()
        weights = packed_weights(driver.printed, context.weights)
        if driver.binary:
            temporary.write_bytes(_bytecode(driver, weights))
        if driver.weight_file and not driver.args.one_file:
            save_weights(weights, output.parent / driver.weight_file)


def _bytecode(driver: OptMain, weights: Mapping[str, np.ndarray]) -> bytes:
    """The module as bytecode in the version and with the codes that were asked for."""
    from tpusim.ir.one_file import encode_module

    args = driver.args
    reader = RELEASES[args.bytecode_for] if args.bytecode_for else EVERYBODY
    return encode_module(driver.printed, weights if args.one_file else None, version=driver.version, release=reader)
