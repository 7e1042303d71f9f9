"""Dialects by namespace. A dialect is loaded when a module with its ops or attributes is read, built or lowered.

`tpusim.registry.DIALECTS` names all dialects, including those of installed packages. A package's dialect is imported
only when it is loaded. `top` and `tpu` share the files of this package, because an op's lowering builds the ops that it
lowers to. Loading `tpu` therefore imports no classes: it adds the names to a context and runs what waits for the
dialect (`registry.when_loaded`).
"""

from functools import partial
from typing import Any, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect, Operation

from tpusim.errors import ConfigError
from tpusim.ir.text import context as ir_context
from tpusim.ir.universe import OpenContext
from tpusim.registry import DIALECTS

OpT = TypeVar("OpT", bound=Operation)


def dialect(namespace: str) -> Dialect:
    """The dialect of a namespace; it is loaded first if necessary. Raises ConfigError if there is no such dialect."""
    loaded = DIALECTS.get(namespace)
    if _required.get(namespace) is not loaded:
        _require_namespace(namespace, loaded)
        _required[namespace] = loaded
    return loaded


_required: dict[str, Dialect] = {}
"""Dialects that passed `_require_namespace`, by namespace."""


def _require_namespace(namespace: str, loaded: object) -> None:
    if not isinstance(loaded, Dialect) or loaded.name != namespace:
        got = f"one called '{loaded.name}'" if isinstance(loaded, Dialect) else type(loaded).__name__
        raise ConfigError(f"dialect '{namespace}': an xdsl.ir.Dialect of that name is required, got {got}")
    strangers = [op.name for op in loaded.operations if op.dialect_name() != namespace]
    if strangers:
        raise ConfigError(
            f"dialect '{namespace}': ops named '{namespace}.NAME' are required, got {', '.join(strangers)}; rename "
            "them, or register another dialect for them"
        )


def load_dialect_of(op: type[Operation]) -> None:
    """Load the dialect of an op class, if it is registered."""
    namespace = op.dialect_name()
    if not DIALECTS.is_loaded(namespace) and namespace in DIALECTS:
        dialect(namespace)


def register_dialects(ctx: Context) -> None:
    """Let a context load each registered dialect with the first op or attribute of its namespace."""
    for namespace in DIALECTS:
        ctx.register_dialect(namespace, partial(dialect, namespace))


def context() -> Context:
    """An xDSL context of builtin, func, quant and all registered dialects; those are loaded when a text needs them."""
    ctx = ir_context()
    register_dialects(ctx)
    return ctx


def open_context() -> Context:
    """As `context`, with the dialects of xDSL and of packages' universes."""
    ctx = ir_context(into=OpenContext())
    register_dialects(ctx)
    return ctx


def op_classes(kind: type[OpT], module: ModuleOp) -> list[type[OpT]]:
    """All op classes of a kind in the dialects that a module uses, in the order of the registry."""
    used = {op.dialect_name() for op in module.walk()}
    return [op for namespace in DIALECTS if namespace in used for op in _classes_of(namespace, kind)]


_of_kind: dict[tuple[str, type[Operation]], tuple[Dialect, list[type[Any]]]] = {}
"""(namespace, kind) -> the dialect and its op classes of that kind."""


def _classes_of(namespace: str, kind: type[OpT]) -> list[type[OpT]]:
    loaded, known = dialect(namespace), _of_kind.get((namespace, kind))
    if known is None or known[0] is not loaded:
        known = _of_kind[namespace, kind] = loaded, [op for op in loaded.operations if issubclass(op, kind)]
    return known[1]


def is_op(name: str, kind: type[Operation]) -> bool:
    """Whether an op of that kind has that name, as in "top.Conv"."""
    namespace = name.partition(".")[0]
    return namespace in DIALECTS and any(
        op.name == name and issubclass(op, kind) for op in dialect(namespace).operations
    )
