"""What patterns may ask of matched ops and values, and the Python functions that they name."""

from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.errors import ConfigError
from tpusim.ir.types import element_of, is_tensor, shape_of

Native = Callable[..., Any]
NativeT = TypeVar("NativeT", bound=Native)
_READS_WEIGHTS = "reads_weights"


def one_use(matched: Operation | SSAValue) -> bool:
    """Whether a value, or each result of an op, is used once."""
    values = matched.results if isinstance(matched, Operation) else (matched,)
    return all(value.has_one_use() for value in values)


def element_type(value: SSAValue, wanted: Attribute) -> bool:
    """Whether a value is a tensor of an element type."""
    return is_tensor(value) and element_of(value) == wanted


def shape(value: SSAValue, wanted: ArrayAttr[Attribute]) -> bool:
    """Whether a value is a tensor of a shape; -1 stands for any extent."""
    extents = [cast("IntegerAttr[Any]", one).value.data for one in wanted.data]
    found = shape_of(value) if is_tensor(value) else ()
    return len(found) == len(extents) and all(b in (a, -1) for a, b in zip(found, extents, strict=True))


def chip(matched: Operation | SSAValue, *names: StringAttr) -> bool:
    """Whether the module of an op or value is lowered for one of these chips."""
    op = matched if isinstance(matched, Operation) else matched.owner
    while isinstance(op, Operation) and op.parent_op() is not None:
        op = op.parent_op()
    stated = op.attributes.get("module.chip") if isinstance(op, ModuleOp) else None
    return stated in names


CONSTRAINTS: Mapping[str, Native] = {"one_use": one_use, "element_type": element_type, "shape": shape, "chip": chip}


def reads_weights(function: NativeT) -> NativeT:
    """Mark a predicate or native rewrite: it gets the weights of the module before the matched things."""
    setattr(function, _READS_WEIGHTS, True)
    return function


def wants_weights(function: Native) -> bool:
    """Whether a function is marked by `reads_weights`."""
    return bool(getattr(function, _READS_WEIGHTS, False))


def name_of(function: Native) -> str:
    """The name of a function in PDL: of a constraint here its plain name, else MODULE:FUNCTION or MODULE:CLASS.METHOD.

    Raises ConfigError for a function that cannot be imported by name.
    """
    if CONSTRAINTS.get(function.__name__) is function:
        return function.__name__
    owner = getattr(function, "__self__", None)
    place = owner if isinstance(owner, type) else function
    path = f"{owner.__qualname__}.{function.__name__}" if isinstance(owner, type) else function.__qualname__
    if "<" in path:
        raise ConfigError(f"pattern: {path}: a function at the top of a module or a class method is required")
    return f"{place.__module__}:{path}"


def constraint(name: str, where: str) -> Native:
    """The predicate of a name. Raises ConfigError."""
    if name in CONSTRAINTS:
        return CONSTRAINTS[name]
    if ":" not in name:
        known = ", ".join(CONSTRAINTS)
        raise ConfigError(f"{where}: the constraint '{name}': one of {known} or MODULE:FUNCTION is required")
    return imported(name, where)


def imported(name: str, where: str) -> Native:
    """The function of a name MODULE:FUNCTION or MODULE:CLASS.METHOD. Raises ConfigError."""
    module, _, path = name.partition(":")
    try:
        return cast("Native", reduce(getattr, path.split("."), import_module(module)))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}: '{name}', MODULE:FUNCTION, cannot be imported: {error}") from error
