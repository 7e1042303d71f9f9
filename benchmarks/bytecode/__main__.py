"""Every pair of a writer and a reader of bytecode, tpusim and real MLIR tools: files that print as the text does.

Modules are the stages of networks on chips, and a corpus of every attribute, type and location. Of each, tpusim writes
the files that each tool must read, each tool writes files in all of its versions, which tpusim reads, and each tool
reads what each other one wrote, where versions promise it. A reader passes if it prints the file exactly as it prints
the writer's text. A module whose text a tool refuses is left out for that tool and counted.

All tools are optional. TPUSIM_UPSTREAM, or --tpuc-opt, names an environment with TPU-MLIR.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import tyro

from benchmarks.bytecode.cases import Case, Corpus, stages
from benchmarks.bytecode.tools import Refused, Tool, found, printed
from tpusim.errors import TpusimError

NETWORKS = (
    "conv", "pool", "tables", "softmax", "norms", "logic", "residual", "detector", "unet", "vit", "bert", "segformer",
)  # fmt: skip
CHIPS = "bm1684x", "bm1688", "cv183x"
OURS = "tpusim"
Pair = tuple[str, str]


class Results:
    """Files that were read right, and wrong, by (writer, reader); texts that a tool refuses."""

    def __init__(self) -> None:
        self.right: Counter[Pair] = Counter()
        self.wrong: Counter[Pair] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, pair: Pair, right: bool, what: str) -> None:
        """Count one file, and tell of a wrong one."""
        (self.right if right else self.wrong)[pair] += 1
        if not right:
            print(f"WRONG {pair[0]} -> {pair[1]}: {what}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        """How many files are right and wrong."""
        return f"{self.right.total():,} right, {self.wrong.total():,} wrong"

    def table(self, names: Sequence[str]) -> str:
        """Markdown: a row per writer, a column per reader; files right of all."""
        rows = [f"| written by | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
        for writer in names:
            cells = [self._cell((writer, reader)) for reader in names]
            rows.append(f"| {writer} | {' | '.join(cells)} |")
        return "\n".join(rows)

    def _cell(self, pair: Pair) -> str:
        right, wrong = self.right[pair], self.wrong[pair]
        return f"{right:,} of {right + wrong:,}" if right + wrong else "-"


def main(
    networks: tuple[str, ...] = NETWORKS, chips: tuple[str, ...] = CHIPS, between: str = NETWORKS[0],
    corpus: bool = True, llvm16: str = "", llvm19: str = "", llvm22: str = "", iree: str = "", torch_mlir: str = "",
    tpuc_opt: str = "",
) -> None:  # fmt: skip
    """Print a table of Markdown.

    networks: of tests/upstream/networks.py. between: the network, or one of its stages, of which each tool also reads
    the files of each other tool. corpus: of every attribute, type and location. llvm16, llvm19, llvm22: programs
    `mlir-opt`, by default mlir-opt-16, mlir-opt-19 and mlir-opt-22 of the PATH. iree, torch_mlir: the Python of
    environments with these bindings.
    """
    try:
        tools = found(llvm16, llvm19, llvm22, iree, torch_mlir, tpuc_opt)
    except TpusimError as error:
        sys.exit(str(error))
    results, cases = Results(), 0
    for case in (*([Corpus()] if corpus else []), *stages(networks, chips)):
        cases += 1
        _through(case, tools, results)
        if isinstance(case, Corpus) or case.name.startswith(between):
            _between_tools(case, tools, results)
        print(f"{case.name}: {results}", file=sys.stderr, flush=True)
    print(results.table([OURS, *[tool.name for tool in tools]]))
    print(f"\n{cases} modules, files: {results}")
    for name, count in results.refused.items():
        print(f"{name} refuses the text of {count} modules")
    if results.wrong:
        sys.exit(1)


def _through(case: Case, tools: Sequence[Tool], results: Results) -> None:
    """One module through all pairs."""
    for tool in tools:
        if not _has_text(case, tool):
            results.refused[tool.name] += 1
            continue
        expected = printed(tool, case.text((tool,)))
        for release, versions in tool.reads:
            for version in versions:
                what = f"{case.name}, version {version} for {release.name}"
                data = case.encoded(tool, version, release)
                results.count((OURS, tool.name), _prints(tool, data, expected), what)
        for version in tool.writes:
            data = _written(tool, case.text((tool,)), version)
            what = f"{case.name}, version {version}"
            results.count((tool.name, OURS), _reads(case, tool, data), what)


def _between_tools(case: Case, tools: Sequence[Tool], results: Results) -> None:
    """One module from each tool to each other."""
    able = [tool for tool in tools if _has_text(case, tool)]
    for writer in able:
        for reader in able:
            if reader is not writer:
                _between(case, writer, reader, results)


def _between(case: Case, writer: Tool, reader: Tool, results: Results) -> None:
    """The versions 0, 4 and 6 of one tool read by another."""
    if isinstance(case, Corpus) and writer.llvm > reader.llvm:  # a newer writer uses codes that it does not know
        return
    text = case.text((writer, reader))
    for version in writer.writes[::2]:
        if version != 2 and reader.takes(writer, version):
            right = _prints(reader, _written(writer, text, version), printed(reader, printed(writer, text)))
            results.count((writer.name, reader.name), right, f"{case.name}, version {version}")


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
