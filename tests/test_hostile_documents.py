"""Texts that are nested so deeply that their parsers give up, or so long that they fill the memory: refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tpusim import chips
from tpusim.errors import ConfigError, ImportModelError, TpusimError
from tpusim.host import documents
from tpusim.ir import text
from tpusim.layer_group import read_forced
from tpusim.ops import context
from tpusim.running.asked import again
from tpusim.running.persistence import require_kept
from tpusim.running.store import MANIFEST, Manifest
from tpusim.studies.explore import diff, results
from tpusim.studies.explore.space import parse_setting
from tpusim.verify.schema import read_report

pytestmark = pytest.mark.every
DEEP = 100_000
ARRAYS, OBJECTS = "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP
TOMLS = {
    "arrays": f"x = {ARRAYS}",
    "tables": "x = " + "{a = " * DEEP + "1" + "}" * DEEP,
    "dotted key": "a" + ".a" * DEEP + " = 1",
    "dotted table": "[a" + ".a" * DEEP + "]",
    "inner key": "x = {a" + ".'a'" * DEEP + " = 1}",
    "spaced key": "a" + " . a" * DEEP + " = 1",
}
MLIRS = {
    "arrays": f"module attributes {{a = {ARRAYS}}} {{}}",
    "tables": "module attributes " + "{a = " * DEEP + "1 : i64" + "}" * DEEP + " {}",
    "regions": "module {" * DEEP + "}" * DEEP,
    "types": "module { func.func @main() -> " + "tuple<" * DEEP + ">" * DEEP + " }",
    "locations": "module {} loc(" + "fused[" * DEEP + "unknown" + "]" * DEEP + ")",
    "just too deep": "module {" * (text.DEEPEST + 1) + "}" * (text.DEEPEST + 1),
}


@pytest.mark.parametrize("kind", TOMLS)
def test_toml(tmp_path: Path, kind: str):
    path = tmp_path / "x.toml"
    path.write_text(TOMLS[kind])
    for read in (chips.load, read_forced):
        with pytest.raises(ConfigError, match=r"x\.toml.*(nested too deeply|at most 32 parts)"):
            read(path)  # type: ignore[operator]


def test_toml_of_today_is_read(tmp_path: Path):
    """Many dots are no dotted key: numbers, names of tensors, comments."""
    tables = documents.parse_toml(f"x = [{'1.5, ' * 100}]  # {'a, ' * 50}\n[a.b.c]\ny = {{d.e = '{'a.b.' * 7}'}}")
    assert len(tables["x"]) == 100 and tables["a"]["b"]["c"]["y"]["d"]["e"] == "a.b." * 7


READERS: dict[str, Callable[[Path], object]] = {
    "report": read_report,
    "diff": diff.read_report,
    "again": again,
    "results": results.read_rows,
    "groups": read_forced,
}


@pytest.mark.parametrize("content", [ARRAYS, OBJECTS, f'[{{"model": {ARRAYS}}}]'], ids=["arrays", "objects", "inside"])
@pytest.mark.parametrize("reader", READERS)
def test_json(tmp_path: Path, reader: str, content: str):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"x\.json.*(nested too deeply|Expected `\w+`, got `\w+`)"):
        READERS[reader](path)


def test_json_in_other_places(tmp_path: Path):
    """A manifest, a chip in a module, a setting of an exploration, any other type."""
    (tmp_path / MANIFEST).write_text(f'{{"tpusim": "1", "config": {{"x": {ARRAYS}}}}}')
    assert Manifest.read(tmp_path) is None
    with pytest.raises(ConfigError, match=r"chip 'x': .*nested too deeply"):
        chips.resolve("x", OBJECTS)
    assert parse_setting(f"lmem_bytes={ARRAYS}") == ("lmem_bytes", (ARRAYS,))
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        documents.decode(f'{{"unknown": {ARRAYS}}}', Manifest)


@pytest.mark.parametrize("kind", MLIRS)
def test_mlir(kind: str):
    with pytest.raises(ImportModelError, match="line 1: at most 64 brackets in one another are read"):
        text.parse_module(MLIRS[kind], context(), "x.mlir")


@pytest.mark.parametrize(("first", "rest"), [("#a0 = 1", "#a{} = [#a{}]"), ("!a0 = i8", "!a{} = tuple<!a{}>"),
                                             ("#a0 = loc(unknown)", '#a{} = loc("n"(#a{}))')])  # fmt: skip
def test_aliases_of_aliases(first: str, rest: str):
    """Each is flat, and what the last stands for is a thousand levels deep."""
    lines = [first, *[rest.format(number, number - 1) for number in range(1, 1000)]]
    with pytest.raises(ImportModelError, match="at most 64 levels of attributes are read, the alias .a"):
        text.parse_module("\n".join([*lines, "module {}"]), context())


def test_aliases_that_stand_for_terabytes():
    lines = ["#a0 = 1", *[f"#a{number} = [#a{number - 1}, #a{number - 1}]" for number in range(1, 40)]]
    with pytest.raises(ImportModelError, match="line 27: at most 134,217,728 attributes are read, the alias #a25"):
        text.parse_module("\n".join([*lines, "module attributes {a = #a39} {}"]), context())


def test_locations_that_name_one_another():
    lines = ["module {} loc(#a0)", *[f'#a{number} = loc("n"(#a{number + 1}))' for number in range(1000)]]
    with pytest.raises(ImportModelError, match="at most 64 location aliases"):
        text.parse_module("\n".join([*lines, "#a1000 = loc(unknown)"]), context())


def test_modules_that_are_nested_as_deeply_as_allowed():
    """Parsed and printed; brackets in strings and comments, arrows and comparisons are none."""
    for content in (
        "module {" * text.DEEPEST + "}" * text.DEEPEST,
        f'module attributes {{a = "{"([{<" * 200}\\"("}} {{}}',
        f"// {'[' * 200}\nmodule {{\n}} // {'<' * 200}",
        "module {" + "".join(f"func.func private @f{i}() -> i64 " for i in range(200)) + "}",
    ):
        assert text.print_module(text.parse_module(content, context())).startswith("builtin.module")


@pytest.mark.parametrize("source", ["/dev/zero", "/dev/urandom"])
def test_files_that_do_not_end(monkeypatch: pytest.MonkeyPatch, source: str):
    monkeypatch.setattr(documents, "LONGEST_TOML", 1 << 16)
    monkeypatch.setattr(documents, "LONGEST_JSON", 1 << 16)
    for read in (chips.load, read_forced, read_report, diff.read_report):
        with pytest.raises(TpusimError, match=source):
            read(Path(source))  # type: ignore[operator]


def test_a_chip_in_a_module_names_no_file(tmp_path: Path):
    (tmp_path / "base.toml").write_text('extends = "bm1684x"\n')
    with pytest.raises(ConfigError, match=r"extends '.*base.toml', expected one of"):
        chips.resolve("x", json.dumps({"extends": str(tmp_path / "base.toml")}))


OLD = {"model": "x.onnx", "lowering": "LoweringConfig(mode='int8')"}


@pytest.mark.parametrize(
    "config",
    [
        {"model": 7, "lowering": 3},
        {"model": "x", "lowering": []},
        {**OLD, "lowering": "LoweringConfig(("},
        {**OLD, "lowering": "(" * 5000},
        {**OLD, "lowering": "-" * DEEP + "1"},
        {**OLD, "lowering": "7"},
        {**OLD, "calibration": "1 + "},
        {**OLD, "calibration": "a.b.c"},
        {**OLD, "calibration": "\0"},
        {"model": "x", "lowering": {"chip": {"name": ["bm1684x"]}, "mode": ["int8"]}},
    ],
    ids=lambda config: str(config)[:60],
)
def test_options_of_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, object]):
    """Whatever stands there is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps({"tpusim": "0.1", "config": config}))
    with pytest.raises(ConfigError, match=r"manifest\.json|again"):
        again(tmp_path)


def test_options_of_a_manifest_are_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config = {**OLD, "calibration": "__import__('os').system('touch sprung')"}
    (tmp_path / MANIFEST).write_text(json.dumps({"tpusim": "0.1", "config": config}))
    again(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("keep", [{}, {"asked": 7}, {"asked": [7]}, {"asked": [[]]}, 7, ["all"], {"asked": None}])
def test_a_manifest_that_says_nonsense_of_kept_tensors(tmp_path: Path, keep: object):
    stage = {"key": "k", "seconds": 1.0, "files": []}
    manifest = {"tpusim": "1", "config": {"keep": keep}, "stages": {"infer": stage}}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    assert require_kept(tmp_path / "tpu_outputs.npz") == tmp_path / "tpu_outputs.npz"  # as if nothing was left out
