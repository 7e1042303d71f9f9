"""Every pair of a writer and a reader of bytecode, tpusim and real MLIR tools: files that print as the text does.

Modules are the stages of networks on chips, and a corpus of every attribute, type and location. Of each, tpusim writes
the files that each tool must read, each tool writes files in all of its versions, which tpusim reads, and each tool
reads what each other one wrote, where versions promise it. A reader passes if it prints the file exactly as it prints
the writer's text. A module whose text a tool refuses is left out for that tool and counted. What a release encodes
differently from all others makes another file, which the others must refuse: those are LLVM's incompatibilities.

All tools are optional. TPUSIM_UPSTREAM, or --tpuc-opt, names an environment with TPU-MLIR.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import msgspec
import tyro

from benchmarks.bytecode.cases import WHY_UNLIKE, Case, Corpus, stages
from benchmarks.bytecode.tools import Refused, Tool, found, printed
from tpusim.errors import TpusimError

NETWORKS = (
    "conv", "pool", "tables", "softmax", "norms", "logic", "residual", "detector", "unet", "vit", "bert", "segformer",
)  # fmt: skip
CHIPS = "bm1684x", "bm1688", "cv183x"
OURS = "tpusim"
Pair = tuple[str, str]


class Outcome(msgspec.Struct):
    """What one module came to: (writer, reader) of each file that was read right, and of each that was read wrong.

    refused: tools that do not take its text. unlike: (writer, reader) of files that cannot be read, and are not.
    """

    case: str
    right: list[Pair] = msgspec.field(default_factory=list)
    wrong: list[Pair] = msgspec.field(default_factory=list)
    refused: list[str] = msgspec.field(default_factory=list)
    unlike: list[Pair] = msgspec.field(default_factory=list)

    def count(self, pair: Pair, right: bool, what: str) -> None:
        """Count one file, and tell of a wrong one."""
        (self.right if right else self.wrong).append(pair)
        if not right:
            print(f"WRONG {pair[0]} -> {pair[1]}: {what}", file=sys.stderr, flush=True)


class Results:
    """The outcomes of modules. kept: the file to which each is appended, and which may have some of a former run."""

    def __init__(self, kept: Path | None) -> None:
        self.kept = kept
        lines = kept.read_bytes().splitlines() if kept and kept.exists() else []
        self.outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]

    def __contains__(self, case: Case) -> bool:
        """Whether a module has its outcome."""
        return any(outcome.case == case.name for outcome in self.outcomes)

    def add(self, outcome: Outcome) -> None:
        """One more module."""
        self.outcomes.append(outcome)
        if self.kept:
            with self.kept.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")

    @property
    def right(self) -> Counter[Pair]:
        """Files that were read right."""
        return Counter(chain.from_iterable(outcome.right for outcome in self.outcomes))

    @property
    def wrong(self) -> Counter[Pair]:
        """Files that were read wrong or not at all."""
        return Counter(chain.from_iterable(outcome.wrong for outcome in self.outcomes))

    def __str__(self) -> str:
        """How many modules, and how many files are right and wrong."""
        return f"{len(self.outcomes)} modules, {self.right.total():,} files right, {self.wrong.total():,} wrong"

    def table(self, names: Sequence[str]) -> str:
        """Markdown: a row per writer, a column per reader; files right of all."""
        right, wrong = self.right, self.wrong
        rows = [f"| written by | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
        for writer in names:
            cells = [_cell(right[writer, reader], wrong[writer, reader]) for reader in names]
            rows.append(f"| {writer} | {' | '.join(cells)} |")
        return "\n".join(rows)

    def others(self) -> list[str]:
        """Texts that tools refuse, and files that only their writer reads."""
        refused = Counter(chain.from_iterable(outcome.refused for outcome in self.outcomes))
        unlike = Counter(chain.from_iterable(outcome.unlike for outcome in self.outcomes))
        return [
            *(f"{name} refuses the text of {count} modules" for name, count in refused.items()),
            *(f"{pair[0]} -> {pair[1]}: refused as {WHY_UNLIKE}" for pair in unlike),
        ]


def _cell(right: int, wrong: int) -> str:
    return f"{right:,} of {right + wrong:,}" if right + wrong else "-"


def main(
    networks: tuple[str, ...] = NETWORKS, chips: tuple[str, ...] = CHIPS, between: str = NETWORKS[0],
    corpus: bool = True, llvm16: str = "", llvm19: str = "", llvm22: str = "", iree: str = "", torch_mlir: str = "",
    tpuc_opt: str = "", kept: Path | None = None,
) -> None:  # fmt: skip
    """Print a table of Markdown.

    networks: of tests/upstream/networks.py. between: the network, or one of its stages, of which each tool also reads
    the files of each other tool. corpus: of every attribute, type and location. llvm16, llvm19, llvm22: programs
    `mlir-opt`, by default mlir-opt-16, mlir-opt-19 and mlir-opt-22 of the PATH. iree, torch_mlir: the Python of
    environments with these bindings. kept: a file for the outcome of each module; its modules are not tried again.
    """
    try:
        tools = found(llvm16, llvm19, llvm22, iree, torch_mlir, tpuc_opt)
    except TpusimError as error:
        sys.exit(str(error))
    results = Results(kept)
    for case in (*([Corpus()] if corpus else []), *stages(networks, chips)):
        if case not in results:
            results.add(_outcome(case, tools, isinstance(case, Corpus) or case.name.startswith(between)))
            print(f"{case.name}: {results}", file=sys.stderr, flush=True)
    print(results.table([OURS, *[tool.name for tool in tools]]))
    print("\n".join(["", str(results), *results.others()]))
    if results.wrong:
        sys.exit(1)


def _outcome(case: Case, tools: Sequence[Tool], between: bool) -> Outcome:
    outcome = Outcome(case.name)
    _through(case, tools, outcome)
    if between:
        _between_tools(case, tools, outcome)
    return outcome


def _through(case: Case, tools: Sequence[Tool], outcome: Outcome) -> None:
    """One module from tpusim to each tool, and back."""
    for tool in tools:
        if not _has_text(case, tool):
            outcome.refused.append(tool.name)
            continue
        expected = printed(tool, case.text((tool,)))
        for release, versions in tool.reads:
            for version in versions:
                what = f"{case.name}, version {version} for {release.name}"
                data = case.encoded(tool, version, release)
                outcome.count((OURS, tool.name), _prints(tool, data, expected), what)
        for version in tool.writes:
            data = _written(tool, case.text((tool,)), version)
            what = f"{case.name}, version {version}"
            outcome.count((tool.name, OURS), _reads(case, tool, data), what)


def _between_tools(case: Case, tools: Sequence[Tool], outcome: Outcome) -> None:
    """One module from each tool to each other."""
    able = [tool for tool in tools if _has_text(case, tool)]
    for writer in able:
        for reader in able:
            if reader is not writer:
                _between(case, writer, reader, outcome)
                _unlike(case, writer, reader, outcome)


def _between(case: Case, writer: Tool, reader: Tool, outcome: Outcome) -> None:
    """The versions 0, 4 and 6 of one tool read by another."""
    if isinstance(case, Corpus) and writer.llvm > reader.llvm:  # a newer writer uses codes that it does not know
        return
    text = case.text((writer, reader))
    for version in writer.writes[::2]:
        if version != 2 and reader.takes(writer, version):
            expected = printed(reader, case.text_for(reader, printed(writer, text)))
            right = _prints(reader, _written(writer, text, version), expected)
            outcome.count((writer.name, reader.name), right, f"{case.name}, version {version}")


def _unlike(case: Case, writer: Tool, reader: Tool, outcome: Outcome) -> None:
    """What the two encode in different ways must be refused."""
    text = case.unlike(writer, reader)
    for version in writer.writes[:1] if text else ():
        pair, data = (writer.name, reader.name), _written(writer, text, version)
        if _prints(reader, data, printed(reader, text)):
            outcome.count(pair, False, f"{case.name}: read, though said to be {WHY_UNLIKE}")
        else:
            outcome.unlike.append(pair)


@lru_cache(maxsize=64)
def _written(tool: Tool, text: str, version: int) -> bytes:
    return tool.written(text, version)


@lru_cache(maxsize=64)
def _has_text(case: Case, tool: Tool) -> bool:
    try:
        printed(tool, case.text((tool,)))
    except Refused as refusal:
        print(f"{tool.name} refuses the text of {case.name}: {refusal}", file=sys.stderr)
        return False
    return True


def _prints(tool: Tool, data: bytes, expected: str) -> bool:
    try:
        return tool.printed(data) == expected
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return False


def _reads(case: Case, tool: Tool, data: bytes) -> bool:
    try:
        return case.reads(tool, data)
    except TpusimError as error:
        print(error, file=sys.stderr)
        return False


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
