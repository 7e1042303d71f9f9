"""Chips from files: what a user's chip extends, what is refused, and that it is stored with compiled modules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from compiling import to_canonical, to_groups, to_tpu, to_tpu_with_fallbacks
from end_to_end import report_of
from rotation import marks
from rows import calibrated, tpu_ops

import tpusim
from tpusim import chips, zoo
from tpusim.chips.removed import REMOVED
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.module import Model, load_model, save_model
from tpusim.isa import stream
from tpusim.ops import context, interfaces

ROOT = Path(__file__).resolve().parent.parent
SMALL = 'extends = "bm1684x"\nlmem_bytes = 131072\n[bandwidth]\ns2l = 10.0\n'


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_file_is_the_chip_it_extends_but_for_what_it_says(small: Path) -> None:
    found, base = chips.load(small), chips.load("bm1684x")
    assert (found.name, found.extends, found.lmem_bytes, found.bandwidth.s2l) == ("small", "bm1684x", 131072, 10.0)
    assert found.bandwidth.l2s == base.bandwidth.l2s
    assert found.replace("bm1684x", lmem_bytes=base.lmem_bytes, bandwidth={"s2l": base.bandwidth.s2l}) == base


def test_a_file_extends_another_file(small: Path) -> None:
    path = small.with_name("smaller.toml")
    path.write_text('extends = "small.toml"\nname = "tiny"\nlanes = 16\n')
    found = chips.load(path)
    assert (found.name, found.extends, found.lanes, found.lmem_bytes) == ("tiny", "bm1684x", 16, 131072)


def test_a_shipped_chip_may_extend_one_and_keeps_its_own_name() -> None:
    assert all(chips.load(name).name == name and chips.load(name).extends == "" for name in chips.available())
    assert (chips.load("cv180x").lanes, chips.load("cv180x").hardware.requant) == (2, "qdm")


def test_a_definition_makes_the_same_chip_again(small: Path) -> None:
    found = chips.load(small)
    assert chips.resolve(found.name, chips.define(found)) == found
    assert '"lmem_bytes": 131072' in chips.define(found) and "lanes" not in chips.define(found)
    assert chips.define(chips.load("bm1690")) == ""
    scratch = found.replace("scratch", extends="")
    assert chips.resolve("scratch", chips.define(scratch)) == scratch


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extends = "bm1684y"', "extends 'bm1684y', expected one of"),
        ('extends = "bad.toml"', "extends itself"),
        ('extends = "none.toml"', "No such file"),
        ('extends = "circle.toml"', "Too many levels of symbolic links"),
        ('extends = "a\\u0000b.toml"', "null byte"),
        (
            'extends = "bm1688"\nrequant = "qdm"',
            "requant: family 'bm1684x' decides it now .Hardware.requant., got 'qdm'",
        ),
        ('extends = "bm1688"\nrequant_words = 0', "requant_words: 2 or 3 is required in family bm1684x, got 0"),
        (
            'extends = "bm1688"\n[integers]\nscaling = "right_shift"',
            "integers.scaling: family 'bm1684x' decides it now .Hardware.scaling., got 'right_shift'",
        ),
        ('extends = "bm1684"\nasymmetric = true', "asymmetric: family 'bm1684' decides it now"),
        (
            'extends = "bm1684"\n[integers]\nreductions = true',
            "integers.reductions: family 'bm1684' decides",
        ),
        ('extends = "bm1688"\nsymmetric_ranges = true', "symmetric_ranges: family 'bm1684x' decides"),
        ('extends = "bm1688"\n[local]\nvolumes = "few"', "local.volumes: family 'bm1684x' decides"),
        ('extends = "bm1688"\nlanez = 3', "unknown field `lanez`"),
        ('extends = "bm1688"\nfamily = "bm1699"', "family: one of bm1684x, .* is required, got 'bm1699'"),
        (
            'extends = "bm1688"\n[forms]\nwide_windows = "rewritten"',
            "forms.wide_windows: family 'bm1684x' decides it now",
        ),
        *((f"extends = 'bm1688'\nname = '{n}'", "can name a folder") for n in ("../x", "/tmp/x", "a/b", "..\\x", "..")),
        ('extends = "bm1688"\nlanes = 0', "lanes: from 1 to 4,096 is required, got 0"),
        ('extends = "bm1688"\nlmem_bytes = 1000', "lmem_bytes: a multiple of lmem_banks"),
        ('extends = "bm1688"\nlanes = "many"', "Expected `int`, got `str`"),
        ('extends = "bm1688"\nname = "bm1684x"', "bm1684x is a shipped chip with other figures"),
        ("lanes = 3", "missing required field"),
        ("lanes =", "TOML is required"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    (tmp_path / "circle.toml").symlink_to("circle.toml")
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        chips.load(path)


KNOWN = ("ByteTable", "ChipSpec", "Hardware")
FAMILIES = {"bm1688": "bm1684x", "bm1690": "bm1690", "bm1684": "bm1684", "cv182x": "cv18xx"}


def in_table(field: str, value: object) -> dict[str, Any]:
    table, _, key = field.rpartition(".")
    return {table: {key: value}} if table else {key: value}


@pytest.mark.every
@pytest.mark.parametrize("field", REMOVED)
def test_a_removed_field_may_say_what_the_family_does(field: str) -> None:
    """Files of 0.2.0 load as before; a field with another value is refused, and the error names what decides now."""
    removed = REMOVED[field]
    for chip, family in FAMILIES.items():
        spec, value = chips.load(chip), removed.of(family)
        assert field not in chips.flattened(spec)
        assert spec.replace(spec.name, **in_table(field, value)) == spec
        others = {json.dumps(v): v for v in (*map(removed.of, FAMILIES.values()), "another") if v != value}
        for other in others.values():
            with pytest.raises(ConfigError, match=f"^odd: {field}: family '{family}' decides it now"):
                spec.replace("odd", **in_table(field, other))
    named = re.sub(r"( of |\.).*", "", removed.question)
    assert all(one in KNOWN or hasattr(interfaces, one) for one in re.split(r", | and ", named))


@pytest.mark.every
@pytest.mark.parametrize("name", ["bm1688", "bm1690", "bm1684", "cv183x"])
def test_a_file_may_name_the_ops_of_its_family(name: str) -> None:
    """As files of 0.2.0 do; ops that it names in addition remain."""
    spec = chips.load(name)
    family = msgspec.to_builtins(spec.hardware)
    more = {"op": "top.Add", "why": "no adder"}
    stated = {
        "integers": {"float_only": family["float_only"]},
        "forms": {"on_host": family["on_host"]},
        "local": {"global_only": family["global_only"]},
    }
    assert spec.replace(name, **stated) == spec
    other = spec.replace("odd", **stated | {"integers": {"float_only": [more, *family["float_only"]]}})
    assert [rule.op for rule in other.integers.float_only] == ["top.Add"]
    assert (other.forms, other.local) == (spec.forms, spec.local)


def test_what_a_family_has_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Of one chip, and where two chips differ."""
    assert main(["chips", "show", "cv181x"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {'family = "cv18xx"', 'hardware.requant = "qdm"', "hardware.bf16_unit = true", "lanes = 8"} <= set(shown)
    assert main(["chips", "diff", "bm1684x", "bm1684"]) == 0
    assert 'hardware.requant: "multiplier" | "shift"' in capsys.readouterr().out.splitlines()
    assert main(["chips", "diff", "cv181x", "cv183x"]) == 0 and "hardware" not in capsys.readouterr().out


def test_a_name_that_is_neither() -> None:
    with pytest.raises(ConfigError, match="unknown chip 'bm16': expected one of bm1684, .* or a TOML file"):
        chips.load("bm16")
    with pytest.raises(ConfigError, match="cannot be read"):
        chips.load("nowhere/chip.toml")


def digits() -> Model:
    return to_canonical(tpusim.load(ROOT / "examples/digits/digits.onnx"))


def test_module_and_program_carry_a_chip_that_is_not_shipped(tmp_path: Path) -> None:
    """Compiled, saved and read again where the file is gone: grouped for its memory, simulated with it."""
    chip = tpusim.Chip.load("bm1684x").replace("narrow", lmem_bytes=16384)
    top = digits()
    model = to_tpu(top, chip, "f32")
    save_model(model, tmp_path / "tpu.mlir")
    assert chips.of(load_model(tmp_path / "tpu.mlir", context())) == chip
    program = tpusim.compile(top, chip=chip, mode="f32").program
    stream.save(program, tmp_path / "m.tpusim")
    again = stream.load(tmp_path / "m.tpusim", "narrow")
    assert again.header.chip_spec == chip
    wide = tpusim.compile(top, chip="bm1684x", mode="f32").program
    assert max(g.lmem_peak_bytes for g in again.groups) <= 16384 < max(g.lmem_peak_bytes for g in wide.groups)
    inputs = {e.name: np.zeros(e.shape or e.view.shape, np.float32) for e in again.inputs}
    assert set(tpusim.simulate(again, inputs).tensors) >= {e.name for e in again.outputs}


def test_a_shipped_chip_leaves_no_definition() -> None:
    model = to_tpu(digits(), "bm1688", "f32")
    assert "module.chip_definition" not in model.module.attributes


def test_rules_of_a_file_are_kept_by_the_compiler(tmp_path: Path) -> None:
    """One op in float only and one in global memory only; all other rules are those of the extended chip."""
    path = tmp_path / "strict.toml"
    only = '[integers]\nfloat_only = [{ op = "top.Add", why = "no adder of bytes", decisions = ["DN-13"] }]\n'
    path.write_text(f'extends = "cv183x"\n{only}[local]\nglobal_only = ["tpu.Add"]\n')
    chip, base = chips.load(path), chips.load("cv183x")
    assert chip.replace("cv183x", integers=base.integers, local=base.local) == base
    assert chip.hardware.scaling == "small_multiplier"
    model, fallbacks = to_tpu_with_fallbacks(calibrated("add"), chip, "int8")
    (add,) = (op for op in tpu_ops(to_groups(model)) if op.name == "tpu.Add")
    assert [f.why for f in fallbacks] == ["no adder of bytes"]
    assert (
        str(add.attributes["tpusim.fallback"]) == '"no adder of bytes"'
        and str(add.attributes["tpusim.decisions"]) == '["DN-13"]'
    )
    assert str(add.attributes["tpusim.global_reason"]) == '"tpu.Add has no form in local memory"'


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"integers": {"float_only": [{"op": "tpu.Add", "why": "x"}]}}, "integers.float_only"),
        ({"local": {"global_only": ["tpu.Sbu"]}}, "local.global_only"),
        ({"forms": {"on_host": ["top.InstanceNrm"]}}, "forms.on_host"),
        ({"float_exceptions": [{"op": "Add"}]}, "float_exceptions"),
    ],
)
def test_rules_for_ops_that_do_not_exist(rules: dict[str, object], field: str) -> None:
    chip = chips.load("bm1684x").replace("odd", **rules)
    with pytest.raises(ConfigError, match=f"chip odd: {field}: an op of the t.. dialect is required, got "):
        to_tpu(digits(), chip, "f32")


@pytest.mark.parametrize("words", [("show", "odd.toml"), ("diff", "bm1684x", "odd.toml")])
def test_chips_are_shown_only_with_ops_that_exist(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.toml").write_text('extends = "bm1684x"\n[local]\nglobal_only = ["tpu.Sbu"]\n')
    assert main(["chips", *words]) == 1
    assert "local.global_only: an op of the tpu dialect is required, got tpu.Sbu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("base", "family", "told"),
    [
        ("bm1688", "cv18xx", "requant_words: 0 is required in family cv18xx, got 2"),
        ("bm1684x", "bm1684", "requant_words: 0 is required in family bm1684, got 3"),
        ("bm1684", "bm1684x", "requant_words: 2 or 3 is required in family bm1684x, got 0"),
        ("cv183x", "bm1684", "ic_parallel_bytes: at least 4 is required in family bm1684, got 0"),
        ("cv181x", "bm1690", "requant_words: 2 or 3 is required in family bm1690, got 0"),
    ],
)
def test_a_chip_fits_its_family(base: str, family: str, told: str) -> None:
    """The figures are possible on the hardware of the family."""
    with pytest.raises(ConfigError, match=f"^odd: {told}"):
        chips.load(base).replace("odd", family=family)


def runs_with_more_memory(model: Path, folder: Path) -> None:
    """`tpusim run` with a chip file that changes one number: compiled for it and exact on its machine."""
    chip = folder / "my_chip.toml"
    chip.write_text('extends = "bm1684x"\nlmem_bytes = 524288\n')
    status = main(
        ["run", str(model), "--chip", str(chip), "--data", "random:1", "--tune-num", "0", "--out", str(folder / "out")]
    )
    report = report_of(folder / "out")
    machine = report["compare"]["local_vs_tpu"]
    assert report["chip"] == "my_chip" and {g["lmem_bytes"] for g in report["groups"]} == {524288}
    assert machine["bit_exact"] and machine["missing"] == 0 and machine["compared"] > 5
    assert status == 0


def test_a_chip_file_with_more_memory_runs_from_the_command_line(tmp_path: Path) -> None:
    runs_with_more_memory(ROOT / "examples/digits/digits.onnx", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(n == "squeezenet")) for n in zoo.ZOO])
def test_a_chip_file_with_more_memory_runs_the_zoo(tmp_path: Path, name: str) -> None:
    zoo.save(name, tmp_path / f"{name}.onnx")
    runs_with_more_memory(tmp_path / f"{name}.onnx", tmp_path)


@pytest.mark.every
def test_no_field_stands_for_a_family() -> None:
    """A switch or list that all chips of each family share is the family's, in `Hardware` or a target's rules."""
    values: dict[str, dict[str, set[str]]] = {}
    for name in chips.available():
        spec = chips.load(name)
        for field, value in chips.flattened(spec).items():
            if isinstance(value, bool | str | list | tuple):
                values.setdefault(field, {}).setdefault(spec.family, set()).add(json.dumps(value))
    shared = {field: by for field, by in values.items() if all(len(one) == 1 for one in by.values())}
    by_family = {field for field, by in shared.items() if len({min(one) for one in by.values()}) > 1}
    assert by_family == {"family", "modes"}  # a chip may have fewer modes than its family
