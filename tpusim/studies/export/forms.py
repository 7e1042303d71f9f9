"""How ops are written in another language: a function for each op, attached from outside, by class or by name."""

from collections.abc import Callable
from typing import Any, TypeVar

from xdsl.ir import Operation

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.registry import Table

FormT = TypeVar("FormT", bound=Callable[..., Any])


class Forms(dict[type[Operation], Callable[..., Any]]):
    """The forms of a language by class; a form of a class also writes its subclasses.

    language: what an error says that an op cannot be written as. added: the forms of packages by the op's name, which
    come first.
    """

    def __init__(self, language: str, added: Table[Any]) -> None:
        super().__init__()
        self.language = language
        self.added = added

    def writes(self, *classes: type[Operation]) -> Callable[[FormT], FormT]:
        """Register a function as the form of classes of ops."""

        def register(form: FormT) -> FormT:
            self.update(dict.fromkeys(classes, form))
            return form

        return register

    def known(self, op: Operation) -> bool:
        """Whether an op has a form."""
        return op.name in self.added or any(cls in self for cls in type(op).__mro__)

    def of(self, op: Operation) -> Callable[..., Any]:
        """The form of an op. Raises UnsupportedError for an op that has none."""
        if op.name in self.added:
            return self.added.get(op.name)
        for cls in type(op).__mro__:
            if cls in self:
                return self[cls]
        raise UnsupportedError(f"export: {op.name} '{op_name(op)}' cannot be written as {self.language}")
