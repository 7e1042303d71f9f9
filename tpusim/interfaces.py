"""Interfaces: small classes of questions about an op, and targets that answer them for an op from outside.

An interface is a class whose methods are questions; its defaults are the answers of an op that says nothing. An op
implements an interface by having it among its bases. A `Target`, the compiler's view of one family of chips, may attach
a `Model` to an op's class: an object about one op that answers in the op's place, for chips of that family alone.
`ask` is the one way to put a question that targets may answer, `implementation` the same for an interface that not
every op has, and `rules` for questions about the chip itself. `registry.TARGETS` has the targets by family.

Models are attached by class, which includes its subclasses, or by an op's name, as in "top.Conv": then the dialect need
not be loaded, and the model takes effect when it is.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

from xdsl.ir import Operation

from tpusim.errors import ConfigError, UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.registry import TARGETS

OpT_co = TypeVar("OpT_co", bound=Operation, covariant=True)
AnyModel = TypeVar("AnyModel", bound=type[Any])
AnyInterface = TypeVar("AnyInterface")


class OfFamily(Protocol):
    """A chip, as far as targets look at it."""

    @property
    def family(self) -> str:
        """The name of its target in `registry.TARGETS`."""
        ...


class Model(Generic[OpT_co]):
    """A target's answers about one op. Questions of the interface that a model leaves out are put to the op itself."""

    def __init__(self, op: OpT_co) -> None:
        self.op = op


class Rules:
    """An interface about a chip instead of an op; its defaults are the answers of the reference family."""

    def __init__(self, chip: Any) -> None:
        self.chip = chip


class Target:
    """What one family of chips answers differently from the ops themselves.

    name: the family, as chips' files give it. extends: a target whose models hold here too, where this one has none.
    """

    def __init__(self, name: str, extends: "Target | None" = None) -> None:
        self.name = name
        self.extends = extends
        self._models: dict[tuple[type | str, type], type[Any]] = {}
        self._of_class: dict[tuple[type, type], type[Any] | None] = {}

    def attach(self, subject: type | str, interface: type) -> Callable[[AnyModel], AnyModel]:
        """Decorate a class as the model of `interface` for an op, given by class or name.

        The class is a `Model` and an `interface`. Raises ConfigError if the op has a model of it here already.
        """

        def register(model: AnyModel) -> AnyModel:
            if not issubclass(model, interface) or not issubclass(model, Model):
                raise ConfigError(
                    f"target {self.name}: {model.__name__} must be a Model and a {interface.__name__} to be attached"
                )
            _put_the_rest_to_the_op(model, interface)
            self._add(subject, interface, model)
            return model

        return register

    def provide(self, interface: type[Rules]) -> Callable[[AnyModel], AnyModel]:
        """Decorate a subclass of `interface` as the rules of all chips of this family."""

        def register(model: AnyModel) -> AnyModel:
            if not issubclass(model, interface):
                raise ConfigError(f"target {self.name}: {model.__name__} must be a {interface.__name__} to be provided")
            self._add(Rules, interface, model)
            return model

        return register

    def _add(self, subject: type | str, interface: type, model: type[Any]) -> None:
        present = self._models.get((subject, interface))
        if present is not None and present is not model:
            named = subject if isinstance(subject, str) else subject.__name__
            raise ConfigError(
                f"target {self.name}: {interface.__name__} of {named} is {present.__name__} already, "
                f"so {model.__name__} cannot be attached; extend the target in another one"
            )
        self._models[subject, interface] = model
        _forget()

    def model(self, subject: type, interface: type) -> type[Any] | None:
        """The model of an interface for a class: the nearest base that has one; None without any."""
        key = (subject, interface)
        if key not in self._of_class:
            self._of_class[key] = self._nearest(subject, interface)
            _CACHES.append(self._of_class)
        return self._of_class[key]

    def _nearest(self, subject: type, interface: type) -> type[Any] | None:
        for name in _subjects(subject):
            if (name, interface) in self._models:
                return self._models[name, interface]
        return None if self.extends is None else self.extends.model(subject, interface)

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


_CACHES: list[dict[tuple[type, type], type[Any] | None]] = []
"""What targets remember of their lookups; models that are attached later invalidate it."""


def _forget() -> None:
    for cache in _CACHES:
        cache.clear()
    _CACHES.clear()


def _subjects(cls: type) -> Iterator[type | str]:
    """What a model may be attached to, nearest first: each class of the method resolution order, and its op name."""
    for base in cls.__mro__:
        yield base
        if isinstance(name := vars(base).get("name"), str):
            yield name


def _put_the_rest_to_the_op(model: type[Any], interface: type) -> None:
    """Give a model, for each question that it leaves to the interface's default, a method that asks the op instead."""
    for base in interface.__mro__[:-1]:
        for name, question in vars(base).items():
            if not name.startswith("_") and callable(question) and getattr(model, name) is question:
                setattr(model, name, _forwarded(name, question))


def _forwarded(name: str, default: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Model[Operation], *args: Any, **more: Any) -> Any:
        return getattr(self.op, name)(*args, **more) if hasattr(self.op, name) else default(self, *args, **more)

    return forward


def target_of(chip: OfFamily) -> Target:
    """The target of a chip's family. Raises ConfigError for a family that is not registered."""
    return TARGETS.get(chip.family)


def implementation(op: Operation, interface: type[AnyInterface], chip: OfFamily | None) -> AnyInterface | None:
    """Who answers an interface's questions about an op: the model of the chip's target, the op itself, or nobody."""
    if chip is not None and (model := target_of(chip).model(type(op), interface)) is not None:
        return cast("AnyInterface", model(op))
    return op if isinstance(op, interface) else None


def ask(op: Operation, interface: type[AnyInterface], chip: OfFamily) -> AnyInterface:
    """Who answers, of an interface that the op must have. Raises UnsupportedError if nobody does."""
    answering = implementation(op, interface, chip)
    if answering is None:
        raise UnsupportedError(
            f"{op.name} '{op_name(op)}': {interface.__name__} is required, which neither the op nor the target "
            f"{chip.family} has; let the op's class implement it, or attach a model to it"
        )
    return answering


def ask_class(cls: type[Operation], interface: type[AnyInterface], chip: OfFamily) -> type[AnyInterface] | None:
    """Who answers the class methods of an interface: the target's model of an op's class, the class, or nobody."""
    return next(iter(ask_classes([cls], interface, chip)), None)


def ask_classes(
    classes: Iterable[type[Operation]], interface: type[AnyInterface], chip: OfFamily
) -> list[type[AnyInterface]]:
    """As `ask_class` for each of several classes, without those for which nobody answers."""
    target = target_of(chip)
    answers = ((cls, target.model(cls, interface)) for cls in classes)
    found: list[Any] = [model or cls for cls, model in answers if model is not None or issubclass(cls, interface)]
    return found


AnyRules = TypeVar("AnyRules", bound=Rules)


def rules(chip: OfFamily, interface: type[AnyRules]) -> AnyRules:
    """The rules of a chip's family, as the target provides them or as the reference family has them."""
    provided = target_of(chip).model(Rules, interface)
    return cast("AnyRules", (provided or interface)(chip))
