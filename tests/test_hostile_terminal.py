"""Names with escape sequences and line breaks: no command sends them to the terminal, and no line is forged."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.text import Text

from tpusim.cli import main
from tpusim.cli.output import Output, Terminal
from tpusim.errors import ConfigError, TpusimError
from tpusim.frontend.onnx.problems import Problems
from tpusim.host.labels import one_line, printable
from tpusim.host.tables import Table
from tpusim.verify.npz import save_tensors

pytestmark = pytest.mark.every

EVIL = "\x1b[2J\x1b]0;pwned\x07\x9b31m\nPASSED\r\b\u202e\u2028\u200b\x7f"
SPELLED = r"\x1b[2J\x1b]0;pwned\x07\x9b31m\nPASSED\r\x08\u202e\u2028\u200b\x7f"
SHAPE = (1, 4, 6, 5)


def test_what_a_terminal_obeys_is_spelled():
    assert one_line(EVIL) == SPELLED
    assert printable(EVIL) == SPELLED.replace(r"\n", "\n")
    for text in (
        "größe",
        "张量",
        "😀",
        "a\u00a0b",
        "e\u0301",
        "\\n",
        "می\u200cخواهم",
        "👩\u200d💻",
        "\u2588",
        "\ue0b0",
    ):
        assert one_line(text) == text
    for code in [*range(32), *range(127, 160), 0xAD, 0x61C, 0x200E, 0x2066, 0xFEFF, 0xE0041, 0xD800]:
        assert unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs")
        assert one_line(f"a{chr(code)}b").isascii()


def printed(how: Callable[[Output], None], *, terminal: bool) -> str:
    """What a command writes."""
    output = Output()
    output.file = io.StringIO()
    output._force_terminal, output.legacy_windows = terminal, False
    how(output)
    return output.file.getvalue()


def as_cells(output: Output) -> None:
    table = Table(f"title {EVIL}").names("name").words("word").prose("why")
    table.row(EVIL, Text(EVIL, "red"), [f"because {EVIL}", "and"])
    output.print(table)


WAYS: dict[str, Callable[[Output], None]] = {
    "tell": lambda output: output.tell(f"op {EVIL}", "red"),
    "note": lambda output: output.note(EVIL),
    "print": lambda output: output.print(f"op {EVIL}", markup=False),
    "text": lambda output: output.print(Text(f"op {one_line(EVIL)}", "bold")),
    "wrote": lambda output: output.wrote(f"out/{EVIL}.npz", EVIL),
    "table": as_cells,
}


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_print(way: str, terminal: bool):
    """On a terminal the only escape sequences are those of styles: what they are without the name."""
    found = printed(WAYS[way], terminal=terminal)
    for style in ("\x1b[31m", "\x1b[1m", "\x1b[3m", "\x1b[0m"):
        found = found.replace(style, "")
    assert not [letter for letter in found if letter != "\n" and one_line(letter) != letter]
    assert not any(line.startswith("PASSED") for line in found.splitlines())
    assert r"\x1b[2J" in found and "because" in found or way != "table"


def test_escape_sequences_of_a_rendered_text_are_spelled():
    """Whatever comes to a console as a text of rich: its line breaks are intended, its escape sequences are not."""
    assert r"\x1b[2J" in printed(lambda output: output.print(Text("\x1b[2J\nnext")), terminal=True)
    assert "\x1b[2J" not in printed(lambda output: output.lines("\x1b[2J\nnext"), terminal=True)


def test_errors_have_the_lines_that_they_were_made_of():
    assert str(TpusimError("first", f"  {EVIL}", "last")) == f"first\n  {SPELLED}\nlast"
    assert str(ConfigError(f"op '{EVIL}'")) == f"op '{SPELLED}'"
    problems = Problems(EVIL)
    problems.of_model(EVIL)
    problems.of_node("Conv", EVIL, EVIL, f"'{EVIL}' is wrong")
    lines = str(problems.refusal(frozenset({EVIL}), small=True)).splitlines()
    assert len(lines) == 4 and all(one_line(line) == line for line in lines)


def evil_model() -> onnx.ModelProto:
    """Every name says PASSED to the terminal."""
    x, a, y = (f"{letter}{EVIL}" for letter in "xay")
    nodes = [helper.make_node("Relu", [x], [a], name=f"n{EVIL}"), helper.make_node("Add", [a, x], [y], name=f"m{EVIL}")]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in (x, y)]
    graph = helper.make_graph(nodes, f"net{EVIL}", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_no_command_lets_a_name_speak(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    """All that show names, on what a float compilation of such a network leaves; and what refuses it."""
    monkeypatch.chdir(tmp_path)
    model, out = tmp_path / "net.onnx", tmp_path / "out"
    model.write_bytes(evil_model().SerializeToString())
    save_tensors(tmp_path / "x.npz", {f"x{EVIL}": np.ones(SHAPE, np.float32)})
    save_tensors(tmp_path / "other.npz", {f"y{EVIL}": np.ones(SHAPE, np.float32)})
    program, flat = str(out / "7_model.tpusim"), str(out / "tpu_outputs.npz")
    float_mode = ["--chip", "bm1684x", "--mode", "f32"]
    lines = [
        ["run", str(model), *float_mode, "--data", str(tmp_path / "x.npz"), "--out", str(out)],
        ["run", str(model), "--data", str(tmp_path / "x.npz"), "--out", str(tmp_path / "int8")],
        ["check", str(model), *float_mode],
        ["group", str(out / "4_tpu.mlir"), "--show", "--out", str(tmp_path / "g.mlir")],
        ["dis", program],
        ["simulate", program, "--input", str(out / "inputs.npz"), "--check", flat, "--out", str(tmp_path / "s.npz")],
        ["simulate", program, "--input", str(tmp_path / "other.npz"), "--out", str(tmp_path / "s.npz")],
        ["compare", flat, str(tmp_path / "other.npz")],
        ["compare", flat, flat, "--verbose"],
        ["npz", "list", flat],
        ["npz", "show", flat, f"z{EVIL}"],
        ["what-if", program],
        ["fidelity", str(out / "4_tpu.mlir")],
        ["opt", str(out / "4_tpu.mlir")],
    ]
    seen = 0
    for words in lines:
        try:
            main(words)
        except SystemExit:
            pass
        except BaseException as error:
            raise AssertionError(words) from error
        captured = capsys.readouterr()
        for text in captured:
            wrong = [letter for letter in text if letter != "\n" and one_line(letter) != letter]
            assert not wrong, (words, text)
            assert not any(line.lstrip().startswith("PASSED\\r") for line in text.splitlines()), (words, text)
        seen += SPELLED[:7] in captured.out + captured.err
    assert seen >= 6
    assert isinstance(Output(), Terminal)
