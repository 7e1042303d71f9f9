"""Parse and print modules as MLIR does: generic op form, op names as locations, location aliases anywhere in the file.

xDSL's parser requires an alias before its use; MLIR prints `#loc1 = loc("input")` at the end.
`ModuleParser` reads those definitions first and then parses the text unchanged, so that error positions stay right.
"""

import io
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    Builtin,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnregisteredAttr,
)
from xdsl.dialects.func import Func, FuncOp
from xdsl.ir import Attribute, Block, Data, Dialect, Operation, ParametrizedAttribute, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from tpusim.errors import ConfigError, ImportModelError, TpusimError, UnsupportedError
from tpusim.host import files
from tpusim.ir.attrs import int_attr, name_place, op_name, take_framework_name
from tpusim.ir.dominance import walk_dominated
from tpusim.ir.functions import merge_functions, merge_host_functions
from tpusim.ir.names import names_from_attributes
from tpusim.ir.nesting import DEEPEST, MOST, Extent, extent
from tpusim.ir.opaque import TableContext
from tpusim.ir.reading import generalise, take
from tpusim.ir.splats import SPARE_OF_TEXT, Budget, shortened, with_type
from tpusim.ir.types import Quant, is_tensor, shape_of, tensor_of
from tpusim.ir.upstream import FORMER_OPS, NotComputedError, entry
from tpusim.ir.upstream.absent import drop_absent
from tpusim.ir.upstream.final import written
from tpusim.registry import DIALECTS

_LOCATION_ALIAS = re.compile(r"^(#[A-Za-z_][\w$.]*)\s*=\s*(?=loc\s*\()", re.MULTILINE)

_INTEGERS = re.compile(r"\[-?\d{1,18}(?: : i64)?(?:, -?\d{1,18}(?: : i64)?)*\]", re.ASCII)
"""A list of i64 as it is printed; 18 digits always fit."""
_LISTED = re.compile(r'<(?:\s|//[^\n]*\n)*+(?:\[|"0x([0-9A-Fa-f]*)")')
"""The beginning of a dense literal that states its elements: as a list, or as bytes (its hexadecimal digits)."""
_NO_DIGITS = re.compile(r'<(?:\s|//[^\n]*\n)*+"(?!0x)')
"""The beginning of a dense literal whose string is none of bytes."""
_NESTING = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*|->|[<>]=|[\[({<\])}>]')
"""A bracket, or what has brackets that are none: a string, a comment, an arrow."""
SEPARATOR = "// -----"
"""What separates the modules of a file of several, as in MLIR."""
_INTEGER = re.compile(r"(-?\d+)(?: : i64)?", re.ASCII)


def context(dialects: Iterable[Dialect] = (), into: Context | None = None) -> Context:
    """An xDSL context with builtin, func, quant, the given dialects, and opaque ops; anything else is an error."""
    ctx = TableContext() if into is None else into
    for dialect in (Builtin, Func, Quant, *dialects):
        ctx.load_dialect(dialect)
    return ctx


class _Lexer(MLIRLexer):
    """xDSL's lexer, whose pattern for strings takes exponential time on a string that is not closed; this does not."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class ModuleParser(Parser):
    """xDSL's parser with location aliases that may be defined after their use, which remembers the names of values."""

    def __init__(self, ctx: Context, text: str, name: str = "<text>", budget: Budget | None = None) -> None:
        super().__init__(ctx, "", name)
        self._budget = budget or Budget(SPARE_OF_TEXT)
        self._parser_state = ParserState(_Lexer(Input(text, name)))
        self._late: dict[str, int] = {}
        self._resolving: set[str] = set()
        self._extents: dict[int, Extent] = {}
        self._typed: list[tuple[Operation, str]] = []
        self._int_attr = cache(int_attr)
        self._require_shallow(text)
        for match in _LOCATION_ALIAS.finditer(text):
            if match.group(1) in self._late:
                self.raise_error(f"location alias {match.group(1)} is defined twice", match.start(), match.end())
            self._late[match.group(1)] = match.end()

    def _require_shallow(self, text: str) -> None:
        depth = 0
        for match in _NESTING.finditer(text):
            bracket = match[0]
            if bracket in "([{<":
                depth += 1
                if depth > DEEPEST:
                    told = f"at most {DEEPEST} brackets in one another are read"
                    self.raise_error(told, match.start(), match.end())
            elif bracket in ")]}>":
                depth = max(depth - 1, 0)

    def parse_optional_str_literal(self) -> str | None:
        """A string literal; escaped bytes are UTF-8, which is how the printer writes a name that is not ASCII."""
        escaped = self.parse_optional_bytes_literal()
        return super().parse_optional_str_literal() if escaped is None else escaped.decode("utf-8")

    def _parse_optional_array_attr(self) -> ArrayAttr[Attribute] | None:
        """An array; integers as they are printed are read in one go: nearly all of a lowered module's text is these."""
        if self._current_token.kind != MLIRTokenKind.L_SQUARE:
            return None
        integers = _INTEGERS.match(self.lexer.input.content, self.pos)
        if integers is None:
            return super()._parse_optional_array_attr()
        self._resume_from(integers.end())
        return ArrayAttr([self._int_attr(int(digits)) for digits in _INTEGER.findall(integers[0])])

    def parse_shape_dimension(self, allow_dynamic: bool = True) -> int:
        """An extent, which MLIR has in 64 bits."""
        extent = super().parse_shape_dimension(allow_dynamic)
        if extent >= 1 << 63:
            self.raise_error(f"Expected an extent below 2**63, got {extent}")
        return extent

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr[Any]:
        """A dense literal; a splat beyond what may be repeated keeps its one element."""
        self._literal, self._literal_at = type, self.pos
        if _NO_DIGITS.match(self.lexer.input.content, self.pos):
            self.raise_error("Expected a string of hexadecimal digits that begins with 0x")
        given: Any = None if type is None else self._shortened(len(self.lexer.input.content))
        found = super().parse_dense_int_or_fp_elements_attr(given)
        return with_type(found, self._literal)

    def _parse_dense_literal_type(self) -> Any:
        self._literal = super()._parse_dense_literal_type()
        return self._shortened(self.pos - self._literal_at)

    def _shortened(self, most: int) -> Any:
        """The type to parse the literal with; a list and a string of several elements must fit the whole type."""
        kind: Any = self._literal
        listed = _LISTED.match(self.lexer.input.content, self._literal_at)
        one = listed is None or (listed[1] and len(listed[1]) == 2 * kind.get_element_type().compile_time_size)
        return shortened(kind, self._budget, most) if one else kind

    def _get_op_by_name(self, name: str) -> type[Operation]:
        return super()._get_op_by_name(FORMER_OPS.get(name, name))

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        super()._register_ssa_definition(name, values, span)
        if len(values) == 1 and isinstance(values[0].owner, Operation) and SSAValue.is_valid_name(name):
            self._typed.append((values[0].owner, name))

    def name_ops(self) -> None:
        """Name every op whose location has no name after its value: `%conv1 = "top.Conv"...` is called conv1.

        That is how a person writes a module: the names of tensors and weights without a `loc("...")` per line. A value
        that is only numbered (%0) names nothing.
        """
        for op, name in self._typed:
            if not op_name(op) and is_tensor(op.results[0]):
                name_place(op, name)

    def _parse_location(self) -> LocationAttr:
        if self._current_token.kind == MLIRTokenKind.HASH_IDENT and self._current_token.text in self._late:
            return self._resolve(self._consume_token().text)
        if self.parse_optional_keyword("fused"):
            return self._parse_fused()
        if (text := self.parse_optional_str_literal()) is None:
            return super()._parse_location()
        if self.parse_optional_punctuation(":") is not None:
            return self._parse_place(StringAttr(text))
        from tpusim.ir.bytecode.forms import unchecked

        inner = self.parse_optional_punctuation("(") and self._parse_location()
        if inner is not None:
            self.parse_punctuation(")")
        return unchecked(NameLoc, desc=StringAttr(text), location=inner or NoneAttr())

    def _parse_place(self, file: StringAttr) -> LocationAttr:
        """The rest of a place in a file, `1:2`, or of a range, `1:2 to 3:4` or `1:2 to :4` on the same line."""
        line = IntAttr(self.parse_integer(allow_boolean=False, allow_negative=False))
        self.parse_punctuation(":")
        place = FileLineColLoc(file, line, IntAttr(self.parse_integer(allow_boolean=False, allow_negative=False)))
        if self.parse_optional_keyword("to") is None:
            return place
        from tpusim.ir.bytecode.missing import FileRangeLoc

        last = self.parse_optional_integer(allow_boolean=False, allow_negative=False)
        self.parse_punctuation(":")
        end = IntAttr(self.parse_integer(allow_boolean=False, allow_negative=False))
        places = [place.line, place.column, *([] if last is None else [IntAttr(last)]), end]
        return FileRangeLoc(place.filename, ArrayAttr(places))  # type: ignore[return-value]

    def _parse_dialect_type_or_attribute_body(
        self, attr_name: str, is_type: bool, is_opaque: bool, starting_opaque_pos: int | None
    ) -> UnregisteredAttr | ParametrizedAttribute | Data[Any]:
        """Also the quant types that are kept only."""
        if is_type and attr_name in ("quant.any", "quant.uniform"):
            from tpusim.ir.quant_text import KEPT, parse_kept

            if attr_name == "quant.any" or KEPT.match(self.lexer.input.content, self.pos):
                return parse_kept(self, attr_name)
        return super()._parse_dialect_type_or_attribute_body(attr_name, is_type, is_opaque, starting_opaque_pos)

    def _parse_external_resources(self) -> None:
        """Resources of tools, as `mlir_reproducer`, say nothing about the module: they are skipped."""

        def key() -> None:
            if self.parse_optional_str_literal() is None:
                self.expect(self.parse_optional_identifier, "the key of a resource is expected")
            self.parse_punctuation(":")

        def group() -> None:
            key()
            self.parse_comma_separated_list(self.Delimiter.BRACES, entry)

        def entry() -> None:
            key()
            self.parse_attribute()

        self.parse_comma_separated_list(self.Delimiter.BRACES, group)

    def _parse_fused(self) -> FusedLoc:
        """`fused[...]` or `fused<metadata>[...]`; xDSL prints the metadata and does not read it."""
        metadata: Attribute = NoneAttr()
        if self.parse_optional_punctuation("<") is not None:
            metadata = self.parse_attribute()
            self.parse_punctuation(">")
        parts = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
        return FusedLoc(tuple(parts), metadata)

    def _resolve(self, alias: str) -> LocationAttr:
        """The location an alias stands for, parsed where it is defined (aliases may name other aliases)."""
        if alias not in self.attribute_aliases:
            if alias in self._resolving:
                self.raise_error(f"location alias {alias} is defined by itself")
            if len(self._resolving) >= DEEPEST:
                self.raise_error(f"at most {DEEPEST} location aliases that name one another are read")
            self._resolving.add(alias)
            here = self.pos
            self._resume_from(self._late[alias])
            location = self.parse_optional_location()
            self._resume_from(here)
            if location is None:
                self.raise_error(f"location alias {alias} requires loc(...)")
            self._resolving.remove(alias)
            self.attribute_aliases[alias] = location
            self._measure(alias)
        return self.attribute_aliases[alias]  # type: ignore[return-value]

    def _parse_alias_def(self) -> None:
        alias = self._current_token.text
        if alias not in self._late:
            super()._parse_alias_def()
            self._measure(alias)
            return
        self._resolve(self._consume_token().text)
        self.parse_punctuation("=")
        self.parse_optional_location()

    def _measure(self, alias: str) -> None:
        """Keep the extent of what an alias stands for. Raises ParseError beyond what nests or fits."""
        value = self.attribute_aliases[alias]
        found = self._extents[id(value)] = extent(value, self._extents)
        if found.levels > DEEPEST:
            self.raise_error(f"at most {DEEPEST} levels of attributes are read, the alias {alias} has more")
        if found.size > MOST:
            self.raise_error(f"at most {MOST:,} attributes are read, the alias {alias} stands for more")


def parse_module(text: str, ctx: Context, name: str = "<text>", *, keep: bool = False) -> ModuleOp:
    """Parse and verify one module. Raises ImportModelError with file, line and what was wrong.

    keep: an op that its class refuses is kept as it is, as an opaque op, in place of an error.
    """
    parser: ModuleParser | None = None
    _require_one(text, name)
    try:
        parser = ModuleParser(ctx, text, name)
        module = parser.parse_module()
    except ConfigError:  # a dialect cannot be loaded
        raise
    except Exception as error:  # noqa: BLE001  xDSL's parser meets broken text with exceptions of every kind
        reached = "" if parser is None or isinstance(error, ParseError) else f"line {_line_at(text, parser.pos)}: "
        raise ImportModelError(f"module '{name}' does not parse: {reached}{_explained(error, ctx)}") from error
    parser.name_ops()
    return checked(module, name, ctx, keep=keep)


def checked(module: ModuleOp, name: str, ctx: Context, *, keep: bool = False) -> ModuleOp:
    """A module that was read from `name`, in the form that the stages take, and verified. Raises ImportModelError."""
    try:
        _read_properties_as_attributes(module)
        for op in module.walk():
            if isinstance(op, FuncOp):  # whose type and name all that follows reads
                op.get_irdl_definition().verify(op)
        _take(module, name, ctx, keep=keep)
        require_order(module, name)
        verify(module, name)
    except TpusimError:
        raise
    except Exception as error:  # noqa: BLE001  an op's checks may meet operands they do not expect
        raise ImportModelError(f"module '{name}' does not verify: {_first_words(error)}") from error
    return module


def _take(module: ModuleOp, name: str, ctx: Context, *, keep: bool) -> None:
    """Bring a module into the form that the stages take; see `checked`."""
    names_from_attributes(module)
    for op in module.walk():
        if entry(op.name) is not None:
            take_framework_name(op)
    drop_absent(module)
    if not is_network(module):
        return
    if not keep and isinstance(ctx, TableContext):
        (merge_functions if ctx.one_function else merge_host_functions)(module, name)
    if not keep:
        generalise(module, ctx)
    take(module, keep=keep)
    _require_static_shapes(module, name)


_UNREGISTERED = re.compile(r"(?:Operation (?=\w+\.)|dialect |')(\w+)[\w.$]*'? is not registered")


def _explained(error: Exception, ctx: Context) -> str:
    """`_first_words`, and what to install for an op, attribute or type of a dialect that is not registered."""
    words, known = _first_words(error), sorted(ctx.registered_dialect_names)
    unknown = _UNREGISTERED.fullmatch(error.msg) if isinstance(error, ParseError) else None
    if unknown is None or unknown[1] in known:
        return words
    return (
        f"{words}; the dialect '{unknown[1]}' is required, the registered ones are {', '.join(known)}: install the "
        "package that registers it (entry point group tpusim.dialects or xdsl.universe), or allow unregistered dialects"
    )


def _require_one(text: str, name: str) -> None:
    """Raise ImportModelError for a file of no module or of several, which may give one alias several meanings."""
    parts = sum(bool(part.strip()) for part in text.split(f"\n{SEPARATOR}"))
    if not parts:
        raise ImportModelError(f"module '{name}': one module is required, the file is empty; take what a stage wrote")
    if parts > 1:
        raise ImportModelError(
            f"module '{name}': one module is required, the file has {parts}, separated by `{SEPARATOR}`; write each "
            "into a file, or print them with `tpusim opt --split-input-file`"
        )


def _read_properties_as_attributes(module: ModuleOp) -> None:
    """MLIR may write an op's attributes as `<{...}>`; ops that declare no properties have them in `{...}`."""
    for op in module.walk():
        if op.properties and isinstance(op, IRDLOperation) and not op.get_irdl_definition().properties:
            op.attributes.update(op.properties)
            op.properties.clear()


def is_network(module: ModuleOp) -> bool:
    """Whether a module has an op of the registered dialects, which are those of networks."""
    return any(op.dialect_name() in DIALECTS for op in module.walk())


def only_network(module: ModuleOp) -> bool:
    """Whether a module has, apart from modules and functions, only ops of the registered dialects."""
    known = {"builtin", "func", *DIALECTS}
    return all(op.dialect_name() in known for op in module.walk()) and is_network(module)


def _require_static_shapes(module: ModuleOp, where: str) -> None:
    """Raises ImportModelError for a `?` in the shape of a value or a function's type: every extent has to be known."""
    for op in module.walk():
        arguments = [value for region in op.regions for block in region.blocks for value in block.args]
        for value in (*op.results, *arguments):
            if is_tensor(value) and DYNAMIC_INDEX in shape_of(value):
                named = f"{op.name} '{op_name(op)}'" if op_name(op) else op.name
                raise ImportModelError(
                    f"module '{where}': {named} requires tensors of known extents, got {tensor_of(value)}; "
                    "write a number for each `?`"
                )


_trusted = ContextVar("trusted", default=False)


@contextmanager
def trusted() -> Generator[None]:
    """Inside, `verify` does not check what passes make: searches make nearly the same module many times."""
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def verify(module: ModuleOp, where: str) -> None:
    """Verify the module. Raises ImportModelError that says `where` the module came from (a file, a pass).

    Raises UnsupportedError if it is right, but has an op that tpusim does not compute.
    """
    if _trusted.get():
        return
    try:
        module.verify()
    except VerifyException as error:
        told = f"module '{where}' does not verify: {_culprit(module)}{_first_words(error)}"
        raise (UnsupportedError if isinstance(error, NotComputedError) else ImportModelError)(told) from error


def require_order(module: ModuleOp, where: str) -> None:
    """Raise ImportModelError for a value that is used before it is made.

    Blocks that no path reaches are not checked, as in MLIR.
    """
    made = set[SSAValue]()

    def follow(block: Block) -> None:
        made.update(block.args)
        for op in block.ops:
            early = next((i for i, value in enumerate(op.operands) if value not in made), None)
            if early is not None:
                raise ImportModelError(
                    f"module '{where}': {op.name} uses its operand {early} before it is made; move the op that makes "
                    "it in front of this one"
                )
            for region in op.regions:
                enter(region)
            made.update(op.results)

    def enter(region: Region) -> None:
        for block, enters in walk_dominated(region):
            if enters:
                follow(block)
            else:
                made.difference_update(_made_in(block))

    enter(module.body)


def _made_in(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def _culprit(module: ModuleOp) -> str:
    """The first op that does not verify by itself, as a prefix of a message that does not name it."""
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            message = _first_words(error)
            known = f"'{op_name(op)}'" in message if op_name(op) else op.name in message
            return "" if known else f"{op.name} '{op_name(op)}': " if op_name(op) else f"{op.name}: "
    return ""


def _first_words(error: Exception) -> str:
    """An error's message on a few lines: the position and the reason, never the whole module."""
    if isinstance(error, ParseError):
        span = error.span
        content = str(span.input.content)
        line = _line_at(content, span.start)
        snippet = "".join(content.splitlines()[line - 1 : line]).strip()
        return f"line {line}: {error.msg}" + (f"; near `{snippet[:100]}`" if snippet else "")
    lines = [s for s in str(error).strip().splitlines() if s.strip()]
    return lines[-1].strip()[:400] if lines else type(error).__name__


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def print_module(module: ModuleOp) -> str:
    """The module as text that tpusim and MLIR parse, with locations and all operands that TPU-MLIR's ops have."""
    stream = io.StringIO()
    Printer(stream, print_debuginfo=True).print_op(written(module))
    return stream.getvalue() + "\n"


def read_text(path: Path) -> str:
    """The text of a file. Raises ImportModelError if it is missing or not UTF-8."""
    try:
        return files.text(path)
    except OSError as error:
        raise ImportModelError(f"module '{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ImportModelError(
            f"'{path}': MLIR text is required, got other bytes ({error.reason} {error.start}); "
            "`tpusim run` makes modules of an ONNX or TFLite model, as out/…/3_calibrated.mlir"
        ) from error
