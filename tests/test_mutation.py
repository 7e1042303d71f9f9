"""Faults on purpose: every wrong stream is refused or gives wrong values that the check sees (docs/mutation.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutation.claims import CLAIMS
from mutation.corpus import SMALL, squeezenet_subject
from mutation.judge import Judge
from mutation.study import MUTATORS, missed, mutants, settle
from mutation.table import PAGE
from rotation import one_in


@pytest.mark.every
@pytest.mark.parametrize("number", one_in(2, [(n,) for n in range(len(SMALL))]))
def test_mutants_are_caught_or_proven_equivalent(number: int, tmp_path: Path) -> None:
    subject = SMALL[number](tmp_path)
    judge = Judge(subject.program, subject.feeds)
    verdicts = [settle(judge, mutant) for mutant in mutants(subject, 1, number + 100)]
    assert len(verdicts) > 30 and len({v.mutant.kind for v in verdicts}) >= 30
    assert [f"{v.mutant.kind}: {v.mutant.note}" for v in verdicts if missed(v)] == []
    assert {v.first for v in verdicts} >= {"legality", "sanitizer", "value"}


@pytest.mark.slow
def test_mutants_of_squeezenet(tmp_path: Path) -> None:
    subject = squeezenet_subject("bm1684x", tmp_path)
    judge = Judge(subject.program, subject.feeds)
    verdicts = [settle(judge, mutant) for mutant in mutants(subject, 1, 200)]
    assert [f"{v.mutant.kind}: {v.mutant.note}" for v in verdicts if missed(v)] == []


def test_the_page_is_current() -> None:
    """Its classes are those of the code, it has the mutants it promises, and none is missed; else `make mutation`."""
    text = PAGE.read_text(encoding="utf-8")
    table = re.findall(r"^\| (\w+) \| (.*?) \| (\d+) \|", text, re.MULTILINE)
    classes = {name: (what, int(count)) for name, what, count in table}
    assert [name for name in classes if name != "all" and "_" in name] == [m.__name__ for m in MUTATORS]
    for mutator in MUTATORS:
        assert classes[mutator.__name__][0] == " ".join((mutator.__doc__ or "").split()).rstrip(".")
        assert classes[mutator.__name__][1] > 0
    assert int(re.findall(r"each of the\s+([\d,]+) mutants", text)[0].replace(",", "")) >= 5000
    assert ", 0 are missed" in text


def test_every_class_is_under_one_claim() -> None:
    classes = [name for _, _, names in CLAIMS for name in names]
    assert sorted(classes) == sorted(m.__name__ for m in MUTATORS)
