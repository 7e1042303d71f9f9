"""How `make` of a top op refuses: it raises ValueError with the reason, and the reader is told which op that was.

`make` is the way into the top dialect for every front end: a class method that takes a `Builder` (contexts.py), the
operands, the attributes by TPU-MLIR's names as Python values, and the tensor's name. It appends the op, with others
around it where one op is not enough, and returns the value of the result.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar, cast

from xdsl.ir import Operation

from tpusim.errors import ImportModelError, first_line
from tpusim.ir.attrs import op_name

P = ParamSpec("P")
R = TypeVar("R")


class BuildError(ImportModelError):
    """An op that cannot be built; `why` is the reason without the op."""

    def __init__(self, op: str, name: str, why: str) -> None:
        super().__init__(f"{op} '{name}': {why}")
        self.why = why


class TooLarge(ValueError):
    """A tensor that no chip could hold."""


LARGEST = 2**31 - 1
"""Elements of the largest tensor: 8 GB in f32, more than any of the chips addresses."""


def require_size(shape: Sequence[int]) -> None:
    """Raise TooLarge for a tensor that no chip could hold."""
    if prod(shape) > LARGEST:
        raise TooLarge(f"tensors of at most {LARGEST:,} elements are required, got {tuple(shape)}")


@contextmanager
def fitting(op: Operation, doing: str) -> Generator[None]:
    """Whatever an op's rules run into becomes an ImportModelError: its attributes do not go with its operands.

    doing: what cannot be done with the op, as "cannot be computed".
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
        raise ImportModelError(
            f"{op.name} '{op_name(op)}': {doing} as the module says ({first_line(error)}); attributes "
            "and constants that go with its operands are required, correct them or make the module again"
        ) from error


def names_op(make: Callable[P, R]) -> Callable[P, R]:
    """A `make` whose ValueErrors become BuildErrors with the op's IR name and the tensor's name."""

    @wraps(make)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return make(*args, **kwargs)
        except ValueError as error:
            cls, given = cast("Any", args[0]), cast("dict[str, Any]", kwargs)
            name = given["name"] if "name" in given else given["names"][0]  # of an op with several results the first
            raise BuildError(cls.name, name, str(error)) from error

    return named
