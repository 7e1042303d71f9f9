"""Writes docs/mutation.md: `make mutation`."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutation.claims import CLAIMS
from mutation.corpus import FULL
from mutation.judge import CHECKS, Judge, Verdict
from mutation.proofs import PROOFS
from mutation.study import MUTATORS, missed, mutants, settle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutation.md"
EACH = 3
"""Mutants of every class and program."""

_HEAD = """# Faults on purpose: which check finds a wrong command stream

`make mutation` makes this page; do not edit it. Right programs ({programs} of them, {several} on several
cores) are changed in one place, by a seeded random choice, and three checks are asked about each of the
{mutants:,} mutants, each on its own:

* **legality**: `tpusim.isa.check`, one command at a time, no other knowledge;
* **sanitizer**: what `Simulator` refuses before it runs anything: bounds, tables, deadlock, races, uninitialised reads,
  bytes of another tensor (`Command.sources`), constants by another name, work areas, tables that the commands
  contradict, windows that do not fit their slices, and at run time elements stored twice with two values;
* **value**: `tpusim simulate --check`: slices in local memory and stored tensors against those of the right program,
  bit for bit (floats within the bound of `tpusim.numbers.closeness`), on {inputs} inputs: one of the network's own,
  signs, channels, noise, and values beyond the range of calibration.

**{caught:,} mutants are caught, {equivalent:,} are proven equivalent or counted, {missed} are missed.** Every
dependency that was dropped or weakened is found by the race detector, unless the order of conflicting commands is
proven to be the same.

A consistent lie passes structure, and three inputs may not show it; `tpusim simulate --prove` compares expressions
instead ([proofs](proof.md)).

The columns *legality*, *sanitizer* and *value* count what each check would catch by itself; *first* counts who is the
first to catch, in this order. *fed* is the part of *value* that none of these inputs of the whole network shows: it is
seen in the network that begins at the changed command, whose operands are then fed. *equivalent* names the proofs.

| class | what is wrong | mutants | legality | sanitizer | value | first | fed | equivalent | missed |
|---|---|---:|---:|---:|---:|---|---:|---|---:|
"""

_CLAIMS = """
## What the README claims, and which check carries it

Of the mutants that are not equivalent: how many *structure* finds, that is legality and sanitizer, which see no value,
and how many only the *values* show.

| claim | by | classes | wrong | structure | only values |
|---|---|---|---:|---:|---:|
"""

_PROOFS = """
## Proofs of equivalence

| proof | it shows | mutants |
|---|---|---:|
"""

_PARTS = """
## What the sanitizer says first

| part | mutants |
|---|---:|
"""

_CORPUS = """
## Programs

| program | commands | mutants | caught | equivalent | missed |
|---|---:|---:|---:|---:|---:|
"""

_OTHERS = """
## Faults of the system, and hostile files

`make faults` lets the n-th write, rename, removal or new folder fail (disk), the n-th large array find no memory, or
kills a child process when the n-th unit of work is given out, in whole commands on the digits network. No call of fsync
is made. Afterwards the same command, undisturbed (`--resume` where it has that), must write what it writes in an empty
folder, a run that said it was done must be done, and no file of the user may change. Every n was taken
(`ARGS="--every 1 1 1"`). The thousands of arrays of `search-qtable` fail in one run, each in a process forked at
the n-th; the command is then repeated in each of the different folders that these processes left.

| command | what fails | points | wrong |
|---|---|---:|---:|
| run | disk | 263 | 0 |
| run | memory | 348 | 0 |
| run --to lower | disk | 120 | 0 |
| run --to lower | memory | 214 | 0 |
| run --jobs 2 | processes | 6 | 0 |
| calibrate --state | disk | 18 | 0 |
| calibrate --state | memory | 204 | 0 |
| explore | disk | 21 | 0 |
| explore | memory | 244 | 0 |
| search-qtable | disk | 5 | 0 |
| search-qtable | memory | 7,947 | 0 |

`make hostile` changes bytes, numbers, words and paths in the files of a run, in its ONNX model, samples, chips and
tables, or puts a link, a pipe, a device, a folder or a file of 1 TB in the place of one, and gives them to the commands
that read them. No traceback may escape, within 60 CPU seconds and 8 GB, and Python's audit events must show no write,
move or removal outside of the output folder. Of 8,000 files and folders of the last study 10 had a finding; what they
found is mended (a function that does not return, an edited report, a name that is not UTF-8, a huge file in place of a
result), or was the study's (a clock that counted other work, a table that was written by default next to its module);
none of the 10 has one any more.
"""


@dataclass(frozen=True)
class Row:
    """What is kept of a verdict."""

    kind: str
    caught: tuple[str, ...]
    part: str
    proof: str
    fed: bool
    missed: bool
    note: str


@dataclass(frozen=True)
class Studied:
    """One program's mutants."""

    name: str
    commands: int
    inputs: int
    cores: int
    rows: tuple[Row, ...]


def row(verdict: Verdict) -> Row:
    caught = tuple(name for name in CHECKS if getattr(verdict, name))
    return Row(
        verdict.mutant.kind,
        caught,
        verdict.part,
        verdict.proof,
        bool(verdict.fed),
        missed(verdict),
        verdict.mutant.note,
    )


def study(number: int, folder: str, each: int) -> Studied:
    """Settle the mutants of the program with this number in FULL."""
    subject = FULL[number](Path(folder))
    judge = Judge(subject.program, subject.feeds)
    found = tuple(row(settle(judge, mutant)) for mutant in mutants(subject, each, number))
    sys.stdout.write(f"{subject.name}: {len(found)} mutants, {sum(r.missed for r in found)} missed\n")
    cores = len({command.core for command in subject.program.commands})
    return Studied(subject.name, len(subject.program.commands), len(subject.feeds), cores, found)


def page(studies: Sequence[Studied]) -> str:
    """The page's text."""
    rows = [r for each in studies for r in each.rows]
    counts = Counter(r.proof for r in rows if r.proof)
    least, most = min(s.inputs for s in studies), max(s.inputs for s in studies)
    lines = [
        _HEAD.format(
            programs=len(studies), mutants=len(rows), caught=_caught(rows), equivalent=sum(counts.values()),
            missed=sum(r.missed for r in rows), inputs=f"{least} to {most}", several=sum(s.cores > 1 for s in studies),
        )
    ]  # fmt: skip
    for mutator in MUTATORS:
        lines.append(_line(mutator.__name__, mutator.__doc__ or "", [r for r in rows if r.kind == mutator.__name__]))
    lines.append(_line("all", "", rows))
    lines.append(_CLAIMS)
    lines += [_claim(*claim, rows) for claim in CLAIMS]
    lines.append(_PROOFS)
    lines += [f"| {name} | {what} | {counts[name]} |\n" for name, what in PROOFS.items()]
    lines.append(_PARTS)
    parts = Counter(r.part for r in rows if r.part)
    lines += [f"| {part} | {count} |\n" for part, count in parts.most_common()]
    lines.append(_CORPUS)
    for each in studies:
        equivalent, lost = sum(bool(r.proof) for r in each.rows), sum(r.missed for r in each.rows)
        numbers = (each.commands, len(each.rows), _caught(each.rows), equivalent, lost)
        lines.append(f"| {each.name} | {' | '.join(str(n) for n in numbers)} |\n")
    return "".join(lines) + _OTHERS


def _caught(rows: Iterable[Row]) -> int:
    return sum(bool(r.caught) for r in rows)


def _claim(claim: str, by: str, classes: Sequence[str], rows: Sequence[Row]) -> str:
    wrong = [r for r in rows if r.kind in classes and not r.proof]
    found = sum("legality" in r.caught or "sanitizer" in r.caught for r in wrong)
    values = sum(r.caught == ("value",) for r in wrong)
    share = f"{found:,} ({100 * found // max(len(wrong), 1)} %)"
    return f"| {claim} | {by} | {', '.join(classes)} | {len(wrong):,} | {share} | {values:,} |\n"


def _line(name: str, doc: str, rows: Sequence[Row]) -> str:
    each = [sum(check in r.caught for r in rows) for check in CHECKS]
    first = [sum(r.caught[:1] == (check,) for r in rows) for check in CHECKS]
    proofs = Counter(r.proof for r in rows if r.proof)
    equivalent = ", ".join(f"{count} {proof}" for proof, count in proofs.most_common()) or "0"
    what = " ".join(doc.split()).rstrip(".")
    cells = (name, what, len(rows), *each, "/".join(map(str, first)), sum(r.fed for r in rows), equivalent)
    return f"| {' | '.join(str(cell) for cell in cells)} | {sum(r.missed for r in rows)} |\n"


def main(each: int) -> int:
    """Study every program in two processes and write the page; 1 if a mutant is missed."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2, mp_context=context) as pool:
        studies = list(pool.map(study, range(len(FULL)), [folder] * len(FULL), [each] * len(FULL)))
    PAGE.write_text(page(studies), encoding="utf-8")
    lost = [r for s in studies for r in s.rows if r.missed]
    for found in lost:
        sys.stdout.write(f"missed: {found.kind}: {found.note}\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else EACH))
