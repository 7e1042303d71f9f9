"""Interfaces: whom a question reaches, and that a target's models hold for its family alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import f32
from xdsl.irdl import IRDLOperation, irdl_op_definition

from tpusim import chips
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.interfaces import Model, Rules, Target, ask, ask_class, implementation, rules, target_of
from tpusim.ir.dialects import dialect
from tpusim.ops import interfaces
from tpusim.ops.framework.base import TpuOp
from tpusim.registry import TARGETS


class Sizes:
    """Two questions."""

    def rows(self) -> int:
        return 0

    def columns(self) -> int:
        return 0

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return ()


class Base(IRDLOperation, Sizes):
    """Answers both."""

    name = "t.base"

    def rows(self) -> int:
        return 1

    def columns(self) -> int:
        return 2

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return ("base",)


@irdl_op_definition
class Narrow(Base):
    name = "t.narrow"

    def columns(self) -> int:
        return 3


@irdl_op_definition
class Wide(Base):
    name = "t.wide"


class Costs(Rules):
    def price(self) -> int:
        return self.chip.lanes


@pytest.fixture
def target() -> Iterator[Target]:
    """A family for one test; `CHIP` belongs to it."""
    made = Target("odd")
    TARGETS.add("odd", made)
    yield made
    TARGETS.remove("odd")


def odd_chip() -> chips.ChipSpec:
    return chips.load("bm1688").replace("odd", family="odd")


class Rows(Model[Base], Sizes):
    def rows(self) -> int:
        return 10 + self.op.rows()


def test_a_model_answers_on_its_family_alone(target: Target) -> None:
    target.attach(Base, Sizes)(Rows)
    for op, columns in ((Narrow(), 3), (Wide(), 2)):
        answers = ask(op, Sizes, odd_chip())
        assert (answers.rows(), answers.columns()) == (11, columns)
        assert ask(op, Sizes, chips.load("bm1688")) is op


def test_the_nearest_model_counts_and_a_late_one_too(target: Target) -> None:
    target.attach(Base, Sizes)(Rows)
    assert ask(Narrow(), Sizes, odd_chip()).rows() == 11

    @target.attach("t.narrow", Sizes)
    class Nearer(Model[Narrow], Sizes):  # pyright: ignore[reportUnusedClass]
        def rows(self) -> int:
            return 20

    assert [ask(op, Sizes, odd_chip()).rows() for op in (Narrow(), Wide())] == [20, 11]


def test_a_name_is_enough_for_a_dialect_that_is_not_loaded(target: Target) -> None:
    @target.attach("later.op", Sizes)
    class Later(Model[IRDLOperation], Sizes):  # pyright: ignore[reportUnusedClass]
        def rows(self) -> int:
            return 5

    @irdl_op_definition
    class LaterOp(IRDLOperation):
        name = "later.op"

    answers = ask(LaterOp(), Sizes, odd_chip())
    assert (answers.rows(), answers.columns()) == (5, 0)  # the op itself has no answers: the interface's default


def test_class_questions(target: Target) -> None:
    @target.attach(Wide, Sizes)
    class Kinds(Model[Wide], Sizes):  # pyright: ignore[reportUnusedClass]
        @classmethod
        def kinds(cls) -> tuple[str, ...]:
            return ("odd",)

    found = [ask_class(cls, Sizes, odd_chip()) for cls in (Wide, Narrow, xdsl_test.TestOp)]
    assert [None if one is None else one.kinds() for one in found] == [("odd",), ("base",), None]


def test_a_target_extends_another(target: Target) -> None:
    target.attach(Base, Sizes)(Rows)
    further = Target("further", extends=target)
    assert further.model(Narrow, Sizes) is Rows

    @further.attach(Narrow, Sizes)
    class Nearer(Model[Narrow], Sizes):
        pass

    assert (further.model(Narrow, Sizes), further.model(Wide, Sizes)) == (Nearer, Rows)
    assert target.model(Narrow, Sizes) is Rows


def test_rules_of_a_family(target: Target) -> None:
    assert rules(odd_chip(), Costs).price() == 32

    @target.provide(Costs)
    class OddCosts(Costs):  # pyright: ignore[reportUnusedClass]
        def price(self) -> int:
            return 2 * super().price()

    assert (rules(odd_chip(), Costs).price(), rules(chips.load("bm1684"), Costs).price()) == (64, 64)
    assert rules(chips.load("bm1688"), Costs).price() == 32


def test_who_has_no_answer() -> None:
    op = xdsl_test.TestOp(result_types=[f32])
    assert implementation(op, Sizes, chips.load("bm1684")) is None and implementation(Wide(), Sizes, None) is not None
    with pytest.raises(UnsupportedError, match=r"Sizes is required, which neither the op nor the target bm1684 has"):
        ask(op, Sizes, chips.load("bm1684"))


def test_misuse(target: Target) -> None:
    target.attach(Base, Sizes)(Rows)
    target.attach(Base, Sizes)(Rows)  # the same again is no conflict

    class Other(Model[Base], Sizes):
        pass

    class NoModel(Sizes):
        pass

    with pytest.raises(ConfigError, match="target odd: Sizes of Base is Rows already, so Other cannot be attached"):
        target.attach(Base, Sizes)(Other)
    for wrong, interface in ((NoModel, Sizes), (Other, Costs)):
        with pytest.raises(ConfigError, match=f"{wrong.__name__} must be a Model and a {interface.__name__}"):
            target.attach(Wide, interface)(wrong)
    with pytest.raises(ConfigError, match="Other must be a Costs to be provided"):
        target.provide(Costs)(Other)


def test_every_shipped_chip_has_a_target() -> None:
    found = {name: target_of(chips.load(name)).name for name in chips.available()}
    assert set(found.values()) == {"bm1684x", "bm1690", "bm1684", "cv18xx"}
    assert [n for n, t in found.items() if t == "cv18xx"] == ["cv180x", "cv181x", "cv182x", "cv183x"]


def unasked(classes: Iterable[type]) -> set[tuple[str, str]]:
    """(op class, method) of questions of an interface that a class answers but does not have among its bases."""
    known = [
        c for c in vars(interfaces).values() if isinstance(c, type) and c.__module__.startswith(interfaces.__name__)
    ]
    answered = defaultdict[str, set[type]](set)
    for interface in known:
        for name, question in vars(interface).items():
            if callable(question) and not name.startswith("_"):
                answered[name].add(interface)
    return {
        (cls.__name__, name)
        for cls in classes
        for name, asking in answered.items()
        if hasattr(cls, name) and not any(issubclass(cls, interface) for interface in asking)
    }


def test_no_op_answers_a_question_that_is_not_asked() -> None:
    shipped = [op for op in dialect("tpu").operations if issubclass(op, TpuOp)]
    assert len(shipped) > 40 and unasked(shipped) == set()
    assert unasked([type("Lone", (), {"in_place": lambda self: True})]) == {("Lone", "in_place")}
