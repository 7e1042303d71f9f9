"""`tpusim debug`: the prompt, from a pipe; its page is a session that happened."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.debugged import changed, debugger, network
from end_to_end import digits_run, tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console

from tpusim.cli import main
from tpusim.cli.debugger.prompt import Prompt
from tpusim.cli.debugger.syntax import ALIASES, USAGE
from tpusim.isa.commands import Conv
from tpusim.isa.stream import save
from tpusim.simulator.debugger import Debugger

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "debugger.md"


@cache
def shared() -> Debugger:
    """For sessions that do not care what was before."""
    return debugger()


def session(one: Debugger, *lines: str, width: int = 100) -> str:
    out = io.StringIO()
    text = "\n".join(lines) + "\n"
    Prompt(one, Console(file=out, width=width), stdin=io.StringIO(text)).run()
    return out.getvalue()


def test_a_session_at_the_prompt() -> None:
    program, flat, _ = network(3, "bm1684x")
    one = debugger(reference=flat)
    op = next(c.op for c in program.commands if isinstance(c, Conv))
    lines = [f"b {op}", "c", "i", "info command", "p input", "s", "check", f"p {op}", f"p {op}[0, 0]", "l 3", "rs",
             f"x {program.inputs[0].name} 4", "info slices", "info ops",
             "info tensors", "info inputs", "d", "finish", "quit"]  # fmt: skip
    text = session(one, *lines)
    assert "Traceback" not in text and one.at_end
    assert all(f"(tpusim) {line}" in text for line in lines)
    for expected in (f"breakpoint 1: op {op}", "works on Conv", "right, 1 compared", f"slice of '{op}'", "=>",
                     "lane 0, local byte", "no breakpoints", "commands have run"):  # fmt: skip
        assert expected in text
    assert all(len(line) <= 100 for line in text.splitlines())


WRONG = """
bogus | b | b nothing | b op | b tiu 0 | b tiu x | b lmem | b lmem 5 4 | b lmem 0x0 0x10 lane 64 | b gmem 1 | b 0xzz
b 99999999999999999999999 | d 3 | enable | disable 7 | p nothing | p nothing[0] | p in[0,0,0,0,0,9] | p slice nothing
p tensor nothing | p [ | p out[1:2:0] | p out[a] | x | x lmem | x lmem 0x0 99999999 | x gmem 0 | x 0 lane 3 4 | info no
goto 10000000 | s -1 | s 1e9 | check | help nothing | ? b | !ls | ? ? | b a b c | p p p | x 0xffffffffffffffff
s 99999999999999999999 | p out[999999999999] | b lmem 0x10 0x20 write extra | x 0 0 | x 0 4 lane 999999999999999
"""


@pytest.mark.parametrize("line", [line.strip() for part in WRONG.strip().splitlines() for line in part.split("|")])
def test_errors_at_the_prompt_are_messages(line: str) -> None:
    """And leave the machine where it was."""
    one = shared()
    one.goto(1)
    text = session(one, line, "x 0 4")
    assert "Traceback" not in text and "4 bytes of lane 0" in text
    assert one.position == 1


def test_errors_name_what_is_wanted() -> None:
    one = shared()
    end = len(one.order)
    for line, message in (
        ("x", "x: an address or a tensor is required; for example x lmem 0x500 64 lane 3"),
        ("enable z", "the number of a breakpoint (info break lists them) is required, got 'z'"),
        ("disable", "the number of a breakpoint (info break lists them) is required"),
        ("delete -1", "the number of a breakpoint (info break lists them) is required, got '-1'"),
        ("goto -1", f"a position from 0 to {end} is required, got '-1'"),
        (f"goto {end + 1}", f"position {end + 1}: 0 to {end}, the number of commands, is required"),
    ):
        assert message in session(one, line).splitlines()


WORDS = """
b c s n p x i rs rc goto l d check in out lmem gmem 0x0 64 lane 3 [0] out[0,1] op tensor read write tiu 1 -1
# ' [ [/red] dma slices é ٣
"""


@given(st.lists(st.lists(st.sampled_from(WORDS.split()), max_size=5).map(" ".join), max_size=8))
@settings(max_examples=25)
def test_no_line_breaks_the_prompt(lines: list[str]) -> None:
    text = session(shared(), *lines)
    assert text.count("(tpusim)") >= len(lines) or any(line.startswith("q") for line in lines)


def test_bytes_of_a_tensor_by_its_name() -> None:
    """Of the newest slice where it begins, else of the tensor in global memory."""
    one = debugger()
    name = one.program.locations[0].tensor
    while not one.slices(name):
        one.step()
    found = one.slice(name)
    view = found.location.view
    assert repr(one.bytes("lmem", view.address, 4, view.lane)).splitlines()[1] in session(one, f"x {name} 4")
    stored = one.program.inputs[0]
    assert f"{stored.view.address:#010x}" in session(debugger(), f"x {stored.name} 4")


def test_every_command_has_help_and_completion() -> None:
    one = debugger()
    prompt = Prompt(one, Console(file=io.StringIO()), stdin=io.StringIO())
    commands = {name.removeprefix("do_") for name in dir(prompt) if name.startswith("do_")}
    assert commands == set(USAGE) and set(ALIASES.values()) <= commands
    text = session(one, "help", *(f"help {name}" for name in (*USAGE, "b")))
    assert all(usage in text for usage in USAGE.values())
    assert prompt.completenames("re") == ["restart"]
    name = one.program.locations[0].tensor
    assert name in prompt.complete_break(name[:2]) and name in prompt.complete_p(name[:1])
    assert prompt.complete_info("d") == ["dma"]


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Random inputs by default, wrong values by --check, a program that the sanitizer refuses."""
    program, flat, feeds = network(3, "bm1684x")
    save(program, tmp_path / "a.tpusim")
    np.savez(tmp_path / "in.npz", **feeds)  # type: ignore[arg-type]
    name = [n for n in dict.fromkeys(loc.tensor for loc in program.locations) if flat[n].dtype.itemsize == 1][-1]
    np.savez(tmp_path / "ref.npz", **changed(flat, name))  # type: ignore[arg-type]

    def run(lines: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert main(["debug", *arguments]) == 0
        return capsys.readouterr().out

    path = str(tmp_path / "a.tpusim")
    assert "inputs random, seed 3" in (text := run("finish\n", path, "--seed", "3")) and "have run" in text
    checked = ("--input", str(tmp_path / "in.npz"), "--check", str(tmp_path / "ref.npz"), "--dma", "late")
    text = run("c\ncheck\n", path, *checked)
    assert text.count("wrong: ") == 2 and f"tensor '{name}' is wrong" in text.replace("\n", " ")
    late = next(i for i, c in enumerate(program.commands) if c.engine == "tiu" and c.dep)
    commands = list(program.commands)
    commands[late] = structs.replace(commands[late], dep=0)
    save(structs.replace(program, commands=tuple(commands)), tmp_path / "race.tpusim")
    text = run("finish\n", str(tmp_path / "race.tpusim"))
    assert "the sanitizer refuses this program: " in text and "race" in text and "have run" in text
    assert "refuses" not in run("q\n", str(tmp_path / "race.tpusim"), "--no-sanitize")


@pytest.mark.slow
def test_at_a_terminal(tmp_path: Path) -> None:
    """Completion by Tab, repetition by an empty line, Ctrl-C, and the history of the session in a file."""
    program, _, _ = network(3, "bm1684x")
    save(program, tmp_path / "a.tpusim")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "100"}
    paths = [str(ROOT), str(ROOT / "kernels")]
    start = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # what a background job ignores
    call = (
        f"import signal, sys; {start}; sys.path[:0] = {paths}; from tpusim.cli import main; main(['debug', 'a.tpusim'])"
    )
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", call]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment)
    os.close(theirs)

    def answer(act: Callable[[], object], wanted: str) -> None:
        """`wanted` and then the prompt must be shown; as long as nothing is, act again every 10 seconds."""
        shown = ""
        for _ in range(6):
            act()
            while select.select([ours], [], [], 10)[0]:
                shown += os.read(ours, 4096).decode()
                if re.search(f"{wanted}.*{re.escape('(tpusim) ')}$", shown, re.DOTALL):
                    return
            if shown:
                break
        raise AssertionError(f"no {wanted!r} and prompt in {shown!r}")

    def typed(keys: bytes) -> Callable[[], object]:
        keys_once = iter([keys])
        return lambda: os.write(ours, next(keys_once, b""))

    try:
        answer(typed(b""), "0/")
        answer(typed(b"ste\t 3\n"), "3/")
        answer(typed(b"\n"), "6/")
        # Once is not always enough: a signal between the prompt and the wait for a key is lost on Python's input.
        answer(lambda: process.send_signal(signal.SIGINT), "interrupted; quit leaves")
        answer(typed(b"info d\t\n"), "tiu")
        os.write(ours, b"q\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    os.close(ours)
    assert (tmp_path / "tpusim" / "debug_history").read_text().splitlines()[:2] == ["step 3", "info dma"]


# ----------------------------------------------------------------------------------------------------------------- page


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_session_of_the_page(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    update_golden: bool,
) -> None:
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    monkeypatch.chdir(folder.parent)
    (shown,) = blocks("")
    lines = [line.removeprefix("(tpusim) ") for line in shown.splitlines() if line.startswith("(tpusim) ")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    capsys.readouterr()
    assert main(["debug", "out/7_model.tpusim", "--input", "out/inputs.npz", "--check", "out/tpu_outputs.npz"]) == 0
    text = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    if update_golden:
        PAGE.write_text(PAGE.read_text().replace(f"```\n{shown}```", f"```\n{text}```"))
    else:
        assert text == shown, "make this page's session anew with --update-golden if the change is meant"


def test_the_python_of_the_page(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    monkeypatch.chdir(folder.parent)
    (code,) = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["stop"].reason == "breakpoint" and len(names["waiting"]) == 2
    assert np.array_equal(names["logits"], tensors(folder / "local_outputs.npz")["logits_Gemm_f32"])


def test_patterns_counts_and_what_is_not_there_yet() -> None:
    """`break` takes patterns, `print` names the command, a motion that ends early and a tensor not stored say so."""
    one = debugger()
    output = one.program.outputs[0].name
    text = session(
        one, "break load_*", "info queues", f"print tensor {output}", "step 2", "back 5", "print in", "print nothing*"
    )
    assert re.search(r"breakpoint 1: op load_\* \(\d+ commands\)", text)
    assert "tiu: 0 of " in text and re.search(f"tensor '{output}': .*not stored yet,", text, re.DOTALL)
    assert "commands undone; the program begins here" in text and "of 5 commands" in text
    assert f"of the next command, {one.command.label if one.command else ''}" in text
    one.finish()
    text = session(one, "print", f"print tensor {output}", "step 3")
    assert f"written by the last command, {one.last.label if one.last else ''}" in text
    assert "0 of 3 commands executed" in text and "complete" in text
