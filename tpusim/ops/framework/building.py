"""How `make` of a top op refuses operands: it raises ValueError, which becomes a BuildError that names the op.

Every front end builds top ops by their `make`. It is a class method that takes a `Builder` (contexts.py), the operands,
the attributes as Python values under TPU-MLIR's names, and the tensor's name. It appends the op, and further ops if one
op is not enough, and returns the result.
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
"""Elements of the largest tensor: 8 GB in f32, more than any chip addresses."""


def require_size(shape: Sequence[int]) -> None:
    """Raise TooLarge for a tensor that no chip could hold."""
    if prod(shape) > LARGEST:
        raise TooLarge(f"tensors of at most {LARGEST:,} elements are required, got {tuple(shape)}")


@contextmanager
def fitting(op: Operation, doing: str) -> Generator[None]:
    """Turn an error in an op's rules into an ImportModelError: the op's attributes do not fit its operands.

    doing: what cannot be done with the op, such as "cannot be computed".
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
        raise ImportModelError(
            f"{op.name} '{op_name(op)}': {doing} as the module says ({first_line(error)}); attributes "
            "and constants that go with its operands are required, correct them or make the module again"
        ) from error


def names_op(make: Callable[P, R]) -> Callable[P, R]:
    """Turn the ValueErrors of a `make` into BuildErrors with the op's IR name and the tensor's name."""

    @wraps(make)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return make(*args, **kwargs)
        except ValueError as error:
            cls, given = cast("Any", args[0]), cast("dict[str, Any]", kwargs)
            name = given["name"] if "name" in given else given["names"][0]  # the first result names an op with several
            raise BuildError(cls.name, name, str(error)) from error

    return named
