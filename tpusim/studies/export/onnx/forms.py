"""How ops of the top dialect are written as ONNX nodes: a function for each op, by name.

A function takes the op and the graph, and returns the tensor of the result. `form_of` also asks installed packages.
"""

from collections.abc import Callable
from typing import TypeVar

from xdsl.ir import Operation

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.registry import ONNX_FORMS
from tpusim.studies.export.onnx.graph import Nodes, Tensor

OpT = TypeVar("OpT", bound=Operation)
Form = Callable[[OpT, Nodes], Tensor]

FORMS: dict[type[Operation], Form[Operation]] = {}
"""The forms of this package, by class; a form of a class also writes its subclasses."""


def writes(*classes: type[OpT]) -> Callable[[Form[OpT]], Form[OpT]]:
    """Register a function as the form of classes of ops."""

    def register(form: Form[OpT]) -> Form[OpT]:
        for cls in classes:
            FORMS[cls] = form  # type: ignore[assignment]
        return form

    return register


def form_of(op: Operation) -> Form[Operation]:
    """The form of an op. Raises UnsupportedError for an op that ONNX nodes cannot express."""
    if op.name in ONNX_FORMS:
        return ONNX_FORMS.get(op.name)
    for cls in type(op).__mro__:
        if cls in FORMS:
            return FORMS[cls]
    raise UnsupportedError(f"export: {op.name} '{op_name(op)}' cannot be written as ONNX nodes")
