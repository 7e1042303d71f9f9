"""Passes of xDSL and of packages' universes in pipelines of tpusim."""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from tpusim.errors import ConfigError, ImportModelError, TpusimError, first_line
from tpusim.ir.module import Model
from tpusim.ir.universe import in_universes
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class Foreign(Pass):
    """A pass of a universe, with its options in xDSL's text form."""

    wrapped: ModulePass

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the pass in its universe."""
        return self.wrapped.name

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        try:
            self.wrapped.apply(ctx, model.module)
        except TpusimError:
            raise
        except Exception as error:
            raise ImportModelError(f"pass {self.name}: it cannot rewrite this module: {first_line(error)}") from error
        return model

    @property
    def text(self) -> str:
        """The pass with its options, as pipelines have it."""
        return str(self.wrapped.spec())


def foreign_pass(name: str, text: str) -> Foreign | None:
    """The pass of a universe that a text as `NAME{options}` describes; None if no universe has the name."""
    factory = in_universes(name, "passes")
    if factory is None:
        return None
    try:
        (spec,) = parse_pipeline(text)
        return Foreign(factory().from_spec(spec))
    except (ArgSpecParseError, ValueError, TypeError) as error:
        raise ConfigError(f"pass {name}: {error}; options are written as NAME{{option=value ...}}") from error
