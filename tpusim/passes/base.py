"""What every pass is, and a pipeline of passes, which is a pass too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from tpusim.errors import ConfigError
from tpusim.ir.module import Model, ModelContext, State
from tpusim.ir.text import trusted
from tpusim.ir.weights import WeightStore
from tpusim.passes.context import PassContext

ANCHORS = ("builtin.module", "func.func")
"""Ops that a pipeline may work on, each inside the one before it."""


TOP = frozenset({State.TOP, State.CALIBRATED})
"""The states of a top module that a lowering takes."""


class Codec(NamedTuple):
    """How an option that is no number, bool or text is read from text and written as text."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True)
class Pass(ModulePass):
    """A rewriting of a module. Fields are the options: of the text form, of the command line and of Python.

    requires: the states of a module that it takes; produces: the state that it leaves, None for the same. exact: it
    leaves the numbers that the module computes. reads_only: it leaves the module as it is. anchor: the op that it works
    on in the text form. continues: it goes on with what an earlier pass of the pipeline began in the context.
    """

    requires: ClassVar[frozenset[State]] = frozenset(State)
    produces: ClassVar[State | None] = None
    exact: ClassVar[bool] = True
    reads_only: ClassVar[bool] = False
    anchor: ClassVar[str] = "builtin.module"
    continues: ClassVar[bool] = False
    codecs: ClassVar[Mapping[str, Codec]] = {}

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place; the context gets the new weights."""
        if not isinstance(ctx, PassContext):
            self._apply_for(ctx, op)
            return
        with nullcontext() if self.composite else trusted():  # the manager verifies what a pass leaves
            result: Any = self.rewrite(ctx.model(op), ctx)
        if not isinstance(result, Model):
            raise ConfigError(f"pass {self.name}: a Model is required of its rewrite, got {result!r}")
        ctx.weights = result.weights
        if result.module is not op:
            _move(result.module, op)

    def _apply_for(self, ctx: Context, op: ModuleOp) -> None:
        """As `apply`, in a context of another class; a ModelContext gets the new weights."""
        weights = ctx.weights if isinstance(ctx, ModelContext) else WeightStore()
        mine = PassContext(weights=weights)
        self.apply(mine, op)
        if isinstance(ctx, ModelContext):
            ctx.weights = mine.weights

    @abstractmethod
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        """The rewritten module with its weights: the given one, which may be changed, or another."""

    @property
    def title(self) -> str:
        """What instruments call it."""
        return self.name

    @property
    def composite(self) -> bool:
        """Whether it runs other passes, which are watched and verified one by one."""
        return False

    def check_options(self, ctx: PassContext) -> None:
        """Raise a TpusimError for options that no module makes right; asked before any pass of a pipeline runs."""

    def require_count(self, name: str, least: int = 0, most: int | None = None) -> None:
        """Raise ConfigError unless the option's numbers are in these limits."""
        value = getattr(self, name)
        for number in value if isinstance(value, tuple) else (value,):  # type: ignore[reportUnknownVariableType]
            if number < least or (most is not None and number > most):
                limits = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
                raise ConfigError(f"pass {self.name}: {name}: {limits} is required, got {number:,}")

    def alone(self, ctx: PassContext, path: Path) -> Pass:
        """The pass for a context without what it takes from this one, which is written to files named after `path`."""
        return self

    @classmethod
    def from_config(cls, config: object, **more: Any) -> Self:
        """The pass with the options of a stage's configuration, and more."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in vars(config).items() if name in names} | more)


def _move(source: ModuleOp, target: ModuleOp) -> None:
    """Give a module the content of another."""
    target.attributes, target.sym_name = dict(source.attributes), source.sym_name
    block = source.body.detach_block(0)
    target.body.erase_block(target.body.block, safe_erase=False)
    target.body.add_block(block)


def detached(model: Model) -> Model:
    """A model with the content of another, which is left empty; ops stay the objects that they are."""
    module = ModuleOp([])
    _move(model.module, module)
    model.module.body.add_block(Block())
    return Model(module, model.weights)


@dataclass(frozen=True)
class Pipeline(Pass):
    """Passes in order. at: the op they work on; a network has one function, so all of them see the same module."""

    name: ClassVar[str] = "pipeline"
    steps: tuple[Pass, ...] = ()
    at: str = "builtin.module"

    def __post_init__(self) -> None:
        """Raise ConfigError for a pass of modules inside a function."""
        for step in self.steps:
            inner = step.at if isinstance(step, Pipeline) else step.anchor
            if ANCHORS.index(inner) < ANCHORS.index(self.at):
                raise ConfigError(f"pipeline {self.at}: {step.title} works on {inner}; put it outside {self.at}(...)")

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        ctx.run(self.steps, model.module)
        return ctx.model(model.module)

    @property
    @override
    def title(self) -> str:
        return self.at

    @property
    @override
    def composite(self) -> bool:
        return True

    @override
    def check_options(self, ctx: PassContext) -> None:
        for step in self.steps:
            step.check_options(ctx)

    @override
    def alone(self, ctx: PassContext, path: Path) -> Pass:
        return Pipeline(tuple(step.alone(ctx, path) for step in self.steps), self.at)

    def flat(self) -> Iterator[Pass]:
        """All passes in order, without the pipelines around them."""
        for step in self.steps:
            yield from step.flat() if isinstance(step, Pipeline) else (step,)
