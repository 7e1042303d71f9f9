"""Patterns that an automaton matches: drawn in Python, or read from a file of `pdl.pattern` ops."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, FusedLoc, NoneAttr, UnknownLoc
from xdsl.ir import Attribute, Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.errors import ConfigError, TpusimError, first_line
from tpusim.ir.attrs import copy_name, op_name, set_op_name
from tpusim.ir.pdl.automaton import Automaton, Match, functions_of
from tpusim.ir.pdl.constraints import constraint, imported, one_use
from tpusim.ir.pdl.drawing import Drawing, drawn
from tpusim.ir.pdl.rows import Rows
from tpusim.ir.weights import WeightStore

IN_FILE = "patterns '"
"""How the key of a file's pattern begins; the path, the name and the number follow."""


class DataPattern(RewritePattern):
    """A pattern that is drawn (`Drawing`) and becomes PDL. Its docstring says what becomes what.

    weights: of the module; only for a pattern that is applied alone.
    """

    benefit: int = 1
    """Patterns of a higher benefit are tried earlier."""

    def __init__(self, weights: WeightStore | None = None) -> None:
        self.weights = WeightStore() if weights is None else weights

    @classmethod
    def draw(cls, p: Drawing) -> None:
        """Draw the ops that the pattern matches and what becomes of them."""
        raise NotImplementedError(f"{cls.__name__}.draw")

    @property
    def key(self) -> str:
        """The name by which an automaton knows the pattern: MODULE:CLASS."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def forms(self) -> list[Any]:
        """Its `pdl.pattern` ops, one for each form."""
        return list(drawn(type(self).__name__, self.benefit, self.draw))

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Apply the pattern alone; `tpusim.ir.rewriting` runs all patterns as one automaton."""
        for match in self._alone.matches(op, self.weights):
            apply(self._alone, match, op, rewriter, self.weights)
            if rewriter.has_done_action:
                return

    @cached_property
    def _alone(self) -> Automaton:
        return automaton_of([self])


class FilePattern(DataPattern):
    """A pattern of a file. form: its `pdl.pattern`; place: file and number."""

    def __init__(self, form: Any, place: str) -> None:
        super().__init__()
        self._form, self._place = form, place
        self.benefit = form.benefit.value.data

    @property
    @override
    def key(self) -> str:
        return self._place

    @override
    def forms(self) -> list[Any]:
        return [self._form]


def read_patterns(path: Path, ctx: Context) -> list[DataPattern]:
    """The patterns of a file, the highest benefit first. Raises ConfigError, or ImportModelError for what is no PDL."""
    from xdsl.dialects import pdl

    from tpusim.ir.module import load_model

    module = load_model(path, ctx).module
    forms = [op for op in module.walk() if isinstance(op, pdl.PatternOp)]
    if not forms:
        raise ConfigError(f"patterns '{path}': a pdl.pattern is required, there is none")
    forms.sort(key=lambda op: -op.benefit.value.data)
    return [_of_file(form, path, number) for number, form in enumerate(forms)]


def _of_file(form: Any, path: Path, number: int) -> DataPattern:
    name = form.sym_name.data if form.sym_name is not None else "pattern"
    kind = type(name, (FilePattern,), {"__doc__": f"The pattern of {path}."})  # known by its name in statistics
    return cast("DataPattern", kind(form, f"{IN_FILE}{path}': {name} ({number})"))


def automaton_of(patterns: Sequence[DataPattern]) -> Automaton:
    """One automaton of patterns. Raises ConfigError for one that cannot be compiled, or names an unknown function."""
    return load(rows_of(patterns))


def rows_of(patterns: Sequence[DataPattern]) -> Rows:
    """The automaton as data."""
    from tpusim.ir.pdl.compiling import compiled

    where = patterns[0].key.rpartition(":")[0]
    rows = compiled([(pattern.key, pattern.forms()) for pattern in patterns], where)
    for name, use in functions_of(rows).items():
        (constraint if use == "apply_constraint" else imported)(name, where)
    return rows


def load(rows: Rows) -> Automaton:
    """The automaton that rows describe; dialects are loaded when it makes an op or reads a constant."""
    return Automaton(
        rows, lambda text, is_type: _parser()(text, is_type), lambda name: _context().get_optional_op(name)
    )


@cache
def _context() -> Context:
    from tpusim.ir.dialects import open_context

    return open_context()


@cache
def _parser() -> Callable[[str, bool], Attribute]:
    from tpusim.ir.bytecode.text import parser_for

    return parser_for(_context(), "pattern")


Fitting = dict[str, list[tuple[Automaton, Match]]]
"""The matches on an op by the pattern's key."""


class Automata:
    """Finds the data patterns that fit an op: by a stored automaton, and by a new one for patterns that it lacks."""

    def __init__(self, patterns: Sequence[RewritePattern], weights: WeightStore, stored: Automaton | None) -> None:
        data = {pattern.key: pattern for pattern in patterns if isinstance(pattern, DataPattern)}
        known = set(stored.patterns if stored else ())
        others = [pattern for key, pattern in data.items() if key not in known]
        self._asked, self._weights = data, weights
        self._automata = [stored] if stored and known & data.keys() else []
        if others:
            self._automata.append(automaton_of(others))

    def fitting(self, op: Operation) -> Fitting:
        """The matches on an op."""
        found: Fitting = {}
        for automaton in self._automata:
            for match in self._matches(automaton, op):
                found.setdefault(automaton.patterns[match.pattern], []).append((automaton, match))
        return found

    def _matches(self, automaton: Automaton, op: Operation) -> list[Match]:
        try:
            return automaton.matches(op, self._weights)
        except Exception as error:
            _explain(error, automaton.patterns[0], op)
            raise

    def apply(self, pattern: DataPattern, fitting: Fitting, op: Operation, rewriter: PatternRewriter) -> None:
        """Rewrite an op by the first match of a pattern whose rewrite does something."""
        for automaton, match in fitting.get(pattern.key, ()):
            try:
                apply(automaton, match, op, rewriter, self._weights)
            except Exception as error:
                _explain(error, pattern.key, op)
                raise
            if rewriter.has_done_action:
                return


def _explain(error: Exception, key: str, op: Operation) -> None:
    """Raise an error of a file's pattern as ConfigError with its place; an error of another pattern stays as it is."""
    if key.startswith(IN_FILE):
        said = str(error) if isinstance(error, TpusimError) else f"{type(error).__name__}, {first_line(error)}"
        named = f" '{op_name(op)}'" if op_name(op) else ""
        raise ConfigError(f"{key} at {op.name}{named}: {said}; mend the pattern") from error


def apply(automaton: Automaton, match: Match, op: Operation, rewriter: PatternRewriter, weights: WeightStore) -> None:
    """Rewrite an op; what PDL puts in its place keeps the op's name and gets the fused location of all matched ops.

    Ops that a native rewrite makes are named by that rewrite.
    """
    if not match.rewriter.replaces:
        automaton.run(match, op, rewriter, weights)
        return
    made: list[Operation] = []
    operands = {value.owner for value in op.operands}
    sole = [owner for owner in operands if isinstance(owner, Operation) and one_use(owner)]
    rewriter.operation_insertion_handler.append(made.append)
    try:
        state = automaton.run(match, op, rewriter, weights)
    finally:
        rewriter.operation_insertion_handler.remove(made.append)
    if not made and op.parent is None:  # an operand that only the root has read may take its name
        made = [one for one in state.matched if one in sole and one.parent is not None][-1:]
        _name_last(made, op, state.matched)
    else:
        _name_last([one for one in made if not op_name(one)], op, state.matched)


def _name_last(made: list[Operation], root: Operation, matched: Sequence[Operation]) -> None:
    """Call the last new op like the root, and those before it by numbers."""
    name, places = op_name(root), list(_places(root, matched))
    for number, new in enumerate(reversed(made)):
        if number and name:
            set_op_name(new, f"{name}_{number}")
        elif not number:
            copy_name(new, root)
            new.location = FusedLoc(tuple(places), NoneAttr()) if len(places) > 1 else places[0]


def _places(root: Operation, matched: Sequence[Operation]) -> Iterator[Any]:
    """The locations of the matched ops, each once, the root's first, whose name is the fused op's."""
    found = dict.fromkeys(part for op in (root, *matched) for part in _parts(op.location))
    yield from [place for place in found if not isinstance(place, UnknownLoc)] or [root.location]


def _parts(location: Attribute) -> Sequence[Attribute]:
    """A location, or the parts of a fused one."""
    if isinstance(location, FusedLoc) and isinstance(location.metadata, NoneAttr):
        return cast("ArrayAttr[Attribute]", location.locations).data
    return (location,)
