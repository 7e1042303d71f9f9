"""`tpusim --help` and `tpusim COMMAND --help`, in groups."""

import argparse
import re
import warnings
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from tpusim.cli.words import from_docstrings, registry
from tpusim.registry import CLI

ABOUT = "Numerical simulator of the SOPHGO TPU and of the compiler in front of it."
LISTED: dict[str, dict[str, str]] = {
    "All the way": {
        "run": "all stages, from the model to verified commands",
    },
    "Before a run": {
        "check": "what becomes of every node on a chip; what is refused",
        "inspect": "what a program or a file of MLIR bytecode contains",
        "fit": "whether a network has room in the chip's memories",
        "verify": "whether the files that TPU-MLIR left fit each other",
        "chips": "the chips and what they are made of",
        "plugins": "what installed packages add to tpusim",
        "support": "which ops are exact, fall back to float or are refused",
        "zoo": "write one of nine classic networks as ONNX",
    },
    "One stage": {
        "import": "a model -> 1_top.mlir",
        "canonicalize": "1_top.mlir -> 2_canonical.mlir",
        "calibrate": "samples -> cali_table and 3_calibrated.mlir",
        "lower": "3_calibrated.mlir -> 4_tpu.mlir, for a chip and a mode",
        "group": "4_tpu.mlir -> 5_grouped.mlir; show or draw the groups",
        "assign": "5_grouped.mlir -> 6_final.mlir, with addresses",
        "codegen": "6_final.mlir -> 7_model.tpusim, the commands",
        "infer": "run any of these files flat, op by op",
        "simulate": "run the commands on the machine",
        "opt": "single passes, by the driver of xDSL",
    },
    "Why are the numbers bad": {
        "compare": "two files of tensors, with verdicts",
        "npz": "look into a file of tensors, or take some out",
        "why": "which ops lose how much, and what helps",
        "bisect": "the first op that is too far off, as a small network",
        "search-qtable": "the ops to run in float, at the fewest cycles",
        "search-threshold": "the best method of calibration",
        "correct-bias": "biases that make up for what integers lose",
    },
    "How fast is it": {
        "explore": "many chips, modes and strategies at once",
        "explore-group": "one layer group cut differently",
        "explore-diff": "two runs side by side",
        "explore-roofline": "what bounds every op and group",
        "bench": "the speed of this simulator next to ONNX Runtime",
    },
    "Programs": {
        "link": "several networks as one program with one weight store",
        "prove": "whether prefill, chunks and decode of a decoder agree",
        "debug": "execute a program command by command",
        "dis": "a program as text",
        "asm": "that text as a program",
        "export": "a lowered module as QDQ ONNX",
    },
}
"""Heading -> command -> its summary in one line."""

PLUGINS = "From installed packages"

GROUPS = {
    "model": "input-shapes input-values inputs outputs model table-of",
    "data and calibration": "data samples input sample test-data labels method tune-num table state also mean scale "
    "pixel-format channel-format resize-dims keep-aspect-ratio keep-ratio-mode pad-value pad-type preprocess-list jobs "
    "executor share",
    "numbers": "chip chips mode modes asymmetric qtable q-group-size q-symmetric quirks-off matmul-perchannel "
    "arithmetic high-precision fuse-preprocess quant-input quant-output customization-format aligned-input float-mode "
    "fast-f32",
    "grouping": "layer-group shape-secs-search-strategy strategies cores force timestep-moves in-place group-overlap "
    "timestep-combine wide-rows addr-mode",
    "verification": "dma seed sanitize check prove collect ulps tolerance compare-samples verify-passes local-samples "
    "max-drop",
    "passes": "dump-pass-pipeline print-ir-before print-ir-before-all print-ir-after print-ir-after-all "
    "print-ir-after-change print-ir-after-failure dump-before dump-after dump-after-change dump-form timing "
    "pattern-statistics crash-reproducer",
    "output": "out out-table out-qtable to from resume again keep bytecode one-file trace save csv report plot "
    "plot-over write-groups quiet verbose json help",
}
"""Heading -> options of any command, without dashes; all other options are specific to a command."""
OWN, GIVEN = "options", "arguments"
NO_DEFAULT = re.compile(r"\s*\((?:default: (?:None|False|''|)|required|repeatable)\)$")
LEFT = 30
"""The width of an option's name and value, if its description fits next to them."""


def parser_of(command: type) -> argparse.ArgumentParser:
    """The options of a command."""
    import tyro  # `opt` starts without it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # no other part of tyro lists them
        return cast("Any", tyro.extras).get_parser(command, config=from_docstrings(), registry=registry())


def flags_of(command: type) -> list[str]:
    """All options of a command, as they are typed."""
    return [flag for action in parser_of(command)._actions for flag in action.option_strings]  # noqa: SLF001


def positionals_of(command: type) -> list[str]:
    """The positional arguments of a command, as in its help."""
    return [str(action.metavar) for action in parser_of(command)._actions if not action.option_strings]  # noqa: SLF001


def show_commands(console: Console) -> None:
    """Print all commands, one per line."""
    console.print("usage: tpusim COMMAND [OPTIONS], or tpusim COMMAND --help", markup=False, highlight=False)
    console.print(Text(f"\n{ABOUT}"))
    added = {name: f"of the package {CLI.package_of(name)}" for name in CLI.plugins}
    groups = LISTED | {PLUGINS: added} if added else LISTED
    longest = max(len(name) for group in groups.values() for name in group)
    for heading, group in groups.items():
        console.print(Text(f"\n{heading}", "bold"))
        for name, says in group.items():
            for line in _under(f"  {name:<{longest}}  ", says, console.width):
                console.print(line, markup=False, highlight=False)
    last = "With every command: --debug shows where an error comes from. tpusim --version prints the version."
    console.print()
    for line in wrap(last, console.width):
        console.print(line, markup=False, highlight=False)


def show_options(console: Console, name: str, command: type) -> None:
    """Print the description of a command and its options, in groups."""
    width = min(console.width, 100)
    actions = [action for action in parser_of(command)._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
    given = " ".join(str(action.metavar) for action in actions if not action.option_strings)
    console.print(f"usage: tpusim {name} [OPTIONS] {given}".rstrip(), markup=False, highlight=False, soft_wrap=True)
    for part in re.split(r"\n\s*\n", (command.__doc__ or "").strip()):
        console.print()
        for line in wrap(" ".join(part.split()), width):
            console.print(line, markup=False, highlight=False)
    for heading, members in _grouped(actions).items():
        console.print(Text(f"\n{heading}", "bold"))
        for action in members:
            for line in _lines(action, width):
                console.print(line, markup=False, highlight=False, soft_wrap=True)


def _grouped(actions: Sequence[argparse.Action]) -> dict[str, list[argparse.Action]]:
    """Options by heading: those specific to the command first, then in the order of GROUPS; no empty headings."""
    found: dict[str, list[argparse.Action]] = {GIVEN: [], OWN: [], **{heading: [] for heading in GROUPS}}
    for action in actions:
        found[_heading(action)].append(action)
    for heading, names in GROUPS.items():
        order = names.split()
        found[heading].sort(key=lambda action: order.index(_name(action)))
    return {heading: members for heading, members in found.items() if members}


def _name(action: argparse.Action) -> str:
    return next(flag for flag in action.option_strings if flag.startswith("--")).removeprefix("--")


def _heading(action: argparse.Action) -> str:
    if not action.option_strings:
        return GIVEN
    return next((heading for heading, names in GROUPS.items() if _name(action) in names.split()), OWN)


def _lines(action: argparse.Action, width: int) -> Iterator[str]:
    says = " ".join(NO_DEFAULT.sub("", action.help or "").split())
    if not action.option_strings:
        says = "" if says == action.dest.replace("-", "_") else says
    return _under(f"  {_typed(action):<{LEFT - 4}}  ", says, width)


def _typed(action: argparse.Action) -> str:
    """An option with its value, as it is typed."""
    value: Any = action.metavar
    if not action.option_strings:
        return str(value)
    shown = re.sub(r"\[(\S+) \[\1 \.\.\.\]\]", r"\1 ...", str(value or "").replace("{None}|", ""))
    return " ".join(filter(None, (", ".join(action.option_strings), shown)))


def _under(lead: str, text: str, width: int) -> Iterator[str]:
    """`lead` with the text next to it, or below it if the lead is long."""
    if len(lead.rstrip()) > width:  # many choices
        yield from wrap(lead.replace(",", ", "), width, initial_indent="  ", subsequent_indent="    ")
        yield from _under(" " * len(lead[: LEFT - 2]), text, width) if text else ()
        return
    if not text:
        yield lead.rstrip()
        return
    indent = min(LEFT, len(lead)) if width >= 2 * LEFT else 6
    lines = wrap(text, width - indent, break_on_hyphens=False)
    if len(lead.rstrip()) + 2 <= indent:
        yield f"{lead.rstrip():<{indent}}{lines[0]}"
        lines = lines[1:]
    else:
        yield lead.rstrip()
    yield from (" " * indent + line for line in lines)
