"""The registry: lazy entries, callbacks that wait, and what installed packages add, double or broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.w4a8 import W4A8
from compiling import to_canonical, to_tpu

from tpusim import chips, registry
from tpusim.canonicalize import canonicalize
from tpusim.cli import main
from tpusim.errors import ConfigError, ImportModelError
from tpusim.frontend import front_end
from tpusim.ir.formats import number_format
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module
from tpusim.ir.weights import WeightStore
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.ops import context
from tpusim.passes import parse_pipeline, print_pipeline
from tpusim.passes.lowering import ConvertTopToTpu
from tpusim.registry import CLI, DIALECTS, PATTERNS, Table
from tpusim.running.artefacts import RunConfig
from tpusim.running.asked import config_from, stated

pytestmark = pytest.mark.every
TABLES = [table for table in vars(registry).values() if isinstance(table, Table)]
ROOT = Path(__file__).resolve().parent.parent


def table(**shipped: object) -> Table[object]:
    return Table("thing", "tpusim.no_such_group", shipped)


def test_a_callback_waits_for_the_thing_to_load():
    things, calls = table(one="math:pi"), list[tuple[str, object]]()
    things.when_loaded("one", lambda thing: calls.append(("first", thing)))
    things.when_loaded("one", lambda thing: calls.append(("second", thing)))
    assert calls == [] and not things.is_loaded("one")
    assert things.get("one") == pytest.approx(3.14159, abs=1e-5)
    assert [name for name, _ in calls] == ["first", "second"]
    things.get("one")
    things.when_loaded("one", lambda thing: calls.append(("late", thing)))
    assert [name for name, _ in calls] == ["first", "second", "late"]


def test_a_callback_may_come_before_the_registration():
    things, calls = table(), list[object]()
    things.when_loaded("later", calls.append)
    things.add("later", marker := object())
    assert calls == [] and things.get("later") is marker and calls == [marker]


def test_one_name_stands_for_one_thing():
    things = table(one="math:pi")
    things.add("one", "math:pi")
    with pytest.raises(ConfigError, match=r"thing 'one' is registered already, as math:pi; choose another name"):
        things.add("one", "math:e")
    things.add("one", things.get("one"))
    things.add("one", "math:pi")
    with pytest.raises(ConfigError, match=r"thing 'one' is registered already, as 3\.14"):
        things.add("one", "math:e")


def test_a_name_that_nobody_has_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"thing: one of alpha, beta is required, got 'alhpa'; did you mean alpha\?"):
        table(alpha="math:pi", beta="math:e").get("alhpa")


# ---------------------------------------------------------------------------------------------------- what ships


@pytest.mark.parametrize("each", TABLES, ids=lambda table: table.group)
def test_all_that_ships_can_be_loaded(each: Table[object]) -> None:
    assert len({one.group for one in TABLES}) == len(TABLES)
    for name in each.entries:
        assert each.get(name) is not None


def in_a_new_process(code: str) -> dict[str, object]:
    """What `code` leaves in `found`."""
    program = f"import json, sys\nfound = {{}}\n{code}\nprint(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


READ = """
from tpusim.ir.text import parse_module
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.ops import context
from tpusim.registry import DIALECTS, when_loaded
calls = []
when_loaded("tpu", lambda dialect: calls.append(dialect.name))
ctx = context()
found["nothing"] = [name for name in DIALECTS if DIALECTS.is_loaded(name)]
parse_module('''module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "top.Input"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a : tensor<4xf32> } }''', ctx)
found["top"] = [name for name in DIALECTS if DIALECTS.is_loaded(name)]
found["in the context"] = sorted(dialect.name for dialect in ctx.loaded_dialects)
found["attached"] = list(calls)
parse_module('''module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "tpu.Cast"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a : tensor<4xf32> } }''', ctx)
found["tpu"] = [name for name in DIALECTS if DIALECTS.is_loaded(name)]
found["attached late"] = list(calls)
"""


def test_a_file_of_top_ops_loads_no_other_dialect() -> None:
    found = in_a_new_process(READ)
    assert found["nothing"] == [] and found["top"] == ["top"] and found["attached"] == []
    assert found["in the context"] == ["builtin", "func", "quant", "top"]
    assert found["tpu"] == ["top", "tpu"] and found["attached late"] == ["tpu"]


def test_an_attribute_loads_its_dialect() -> None:
    ctx = context()
    parse_module("module attributes {a = #tpu<rq_mode QDM>} {}", ctx)
    assert "tpu" in {dialect.name for dialect in ctx.loaded_dialects}


# -------------------------------------------------------------------------------------------------- what is installed


Install = Callable[..., None]

MODULE = """
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TopOp
from tpusim.ops.relu import TopRelu

@irdl_op_definition
class Same(TopOp):
    name = "acme.Same"
    input = operand_def()
    output = result_def()

    def infer(self):
        return (shape_of(self.input),)

Acme = Dialect("acme", [Same], [])
Strange = Dialect("strange", [TopRelu], [])
number = 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Packages as pip leaves them: `install("acme", "tpusim.dialects", acme="acme_ops:Acme")`."""
    (tmp_path / "acme_ops.py").write_text(MODULE)
    (tmp_path / "broken_ops.py").write_text("raise RuntimeError('no licence')")
    for each in TABLES:
        monkeypatch.setattr(each, "entries", dict(each.entries))
        monkeypatch.setattr(each, "_loaded", set[str](each._loaded))  # noqa: SLF001

    def package(name: str, group: str, **entries: str) -> None:
        info = tmp_path / f"{name}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        lines = "".join(f"{key} = {value}\n" for key, value in entries.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        registry.installed.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    registry.installed.cache_clear()
    sys.modules.pop("acme_ops", None)


def module_of(op: str) -> str:
    return f"""module {{ func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {{
      %a = "top.Input"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %b = "{op}"(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      func.return %b : tensor<1x4xf32> }} }}"""


def test_a_dialect_is_found_by_its_name_and_imported_when_a_module_names_it(install: Install) -> None:
    install("acme", "tpusim.dialects", acme="acme_ops:Acme")
    ctx = context()
    parse_module(module_of("top.Relu"), ctx)
    assert DIALECTS.names() == ("top", "tpu", "acme") and "acme_ops" not in sys.modules
    module = parse_module(module_of("acme.Same"), ctx)
    assert "acme_ops" in sys.modules and "acme.Same" in str(module)


def test_what_was_attached_before_the_dialect_was_loaded_takes_effect(install: Install) -> None:
    install("acme", "tpusim.dialects", acme="acme_ops:Acme")
    attached: list[str] = []
    registry.when_loaded("acme", lambda dialect: attached.extend(op.name for op in dialect.operations))
    parse_module(module_of("top.Relu"), context())
    assert attached == []
    parse_module(module_of("acme.Same"), context())
    parse_module(module_of("acme.Same"), context())
    assert attached == ["acme.Same"]


def refusal(op: str) -> str:
    with pytest.raises((ConfigError, ImportModelError)) as error:
        parse_module(module_of(op), context(), "m.mlir")
    return str(error.value)


@pytest.mark.parametrize("op", ["acme.Same", "acme.deep.Same"])
def test_without_its_package_the_namespace_is_named(op: str) -> None:
    said = refusal(op)
    assert "m.mlir" in said and "line 3" in said and "the dialect 'acme' is required" in said
    assert "the registered ones are builtin, func, quant, top, tpu" in said and "tpusim.dialects" in said


@pytest.mark.parametrize("text", ["#acme.level<3>", "#acme<level 3>", "!acme.sparse"])
def test_the_same_of_attributes_and_types(text: str) -> None:
    with pytest.raises(ImportModelError, match="the dialect 'acme' is required"):
        parse_module(f"module attributes {{a = {text}}} {{}}", context())


def test_an_op_that_a_known_dialect_does_not_have_needs_no_package() -> None:
    said = refusal("top.Rleu")
    assert "Operation top.Rleu is not registered" in said and "install" not in said


def test_two_packages_of_one_namespace_are_refused_when_it_is_used(install: Install) -> None:
    install("acme", "tpusim.dialects", acme="acme_ops:Acme")
    install("other", "tpusim.dialects", acme="acme_ops:number")
    parse_module(module_of("top.Relu"), context())
    said = refusal("acme.Same")
    assert "dialect 'acme': one registration is required" in said
    assert "acme_ops:Acme of acme 0.1" in said and "acme_ops:number of other 0.1" in said


def test_a_package_cannot_take_a_namespace_that_ships(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DIALECTS, "_loaded", set[str]())
    install("acme", "tpusim.dialects", top="acme_ops:Acme")
    said = refusal("top.Relu")
    assert "dialect 'top': one registration is required" in said and "of tpusim and acme_ops:Acme of acme 0.1" in said


def test_a_namespace_is_not_registered_again_for_another_dialect(install: Install) -> None:
    install("acme", "tpusim.dialects", acme="acme_ops:Acme")
    for name, present in (("top", "Dialect"), ("acme", "acme 0.1")):
        with pytest.raises(ConfigError, match=f"dialect '{name}' is registered already, as .*{present}"):
            DIALECTS.add(name, object())
    DIALECTS.add("top", "tpusim.ops:Top")


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("broken_ops:Acme", "could not be imported, RuntimeError: no licence; repair or uninstall its package"),
        ("no_such_module:Acme", "could not be imported, ModuleNotFoundError"),
        ("acme_ops:Nothing", "could not be imported, AttributeError"),
        ("acme_ops:number", "an xdsl.ir.Dialect of that name is required, got int"),
        ("acme_ops:Strange", "an xdsl.ir.Dialect of that name is required, got one called 'strange'"),
    ],
)
def test_a_wrong_dialect_is_refused_by_its_name(install: Install, entry: str, says: str) -> None:
    install("acme", "tpusim.dialects", acme=entry)
    parse_module(module_of("top.Relu"), context())
    said = refusal("acme.Same")
    assert said.startswith("dialect 'acme': ") and says in said


def test_a_dialect_holds_ops_of_its_namespace_alone(install: Install) -> None:
    install("acme", "tpusim.dialects", strange="acme_ops:Strange")
    assert "ops named 'strange.NAME' are required, got top.Relu" in refusal("strange.Relu")


def test_a_pattern_of_a_package_that_makes_none_is_refused(install: Install) -> None:
    install("acme", "tpusim.patterns", nothing="acme_ops:number")
    assert "nothing" in PATTERNS
    model = Model(parse_module(module_of("top.Relu"), context()), WeightStore())
    model.set(name="m", state="TOP_F32")
    with pytest.raises(ConfigError, match="pattern 'nothing': a function of the weights .* is required, got int"):
        canonicalize(model, ["nothing"])


# ---------------------------------------------------------------------------------------------------- number formats


def test_a_format_of_a_package_is_a_mode_like_any_other(install: Install) -> None:
    """By name in a configuration, a quantisation table, and a run that is repeated."""
    install("acme", "tpusim.formats", w4a8="builders.w4a8:W4A8", odd="acme_ops:number")
    config = LoweringConfig(mode="W4A8")
    assert config.format is W4A8 and config.mode is W4A8
    assert read_qtable("a:W4A8,b:F16") == {"a": "w4a8", "b": "f16"}
    assert config_from(stated(RunConfig(Path("m.onnx"), lowering=config)), Path("r")).lowering.format is W4A8
    (step,) = parse_pipeline(print_pipeline(ConvertTopToTpu(mode="w4a8"))).steps
    assert isinstance(step, ConvertTopToTpu) and step.format is W4A8
    with pytest.raises(ConfigError, match=r"mode 'odd': a tpusim.ir.formats.NumberFormat is required, got int"):
        number_format("odd")
    with pytest.raises(
        ConfigError,
        match="mode 'w4': one of f32, f16, bf16, int8, w4f16, .*, w8bf16, .*, odd, w4a8, or a .*did you mean w4a8",
    ):
        number_format("w4")


# -------------------------------------------------------------------------------------------------------- subcommands


def test_help_names_the_subcommands_of_packages(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", "tpusim.cli", hello="broken_ops:Hello", number="acme_ops:number")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.search(r"From installed packages\n  hello +of the package acme 0.1\n", capsys.readouterr().out)
    assert main(["chips"]) == 0
    assert main(["hello"]) == 1 and "broken_ops:Hello of acme 0.1 could not be imported" in capsys.readouterr().err
    assert main(["number"]) == 1
    assert "subcommand 'number': a dataclass with a method `execute` is required, got 3" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["helo"])
    assert "did you mean hello" in capsys.readouterr().err


def test_a_package_cannot_take_a_subcommand_that_ships(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    CLI.remove("chips")
    CLI.entries["chips"] = "tpusim.cli.chips:Chips"
    install("acme", "tpusim.cli", chips="broken_ops:Chips")
    assert main(["chips"]) == 1
    said = capsys.readouterr().err
    assert "tpusim.cli.chips:Chips of tpusim and broken_ops:Chips of acme 0.1; uninstall a package" in said


# --------------------------------------------------------------------------------- front ends, passes, chips, targets


def test_a_wrong_front_end_is_refused_for_its_files_alone(install: Install, tmp_path: Path) -> None:
    install("acme", "tpusim.frontends", odd="acme_ops:number", broken="broken_ops:FRONT_END")
    assert front_end(Path("m.onnx")) is front_end(Path("m.tflite")) is front_end(Path("m.unknown"))
    with pytest.raises(ConfigError, match=r"front end 'odd': a tpusim.frontend.FrontEnd is required, got 3"):
        front_end(Path("m.odd"))
    with pytest.raises(
        ConfigError, match=r"front end 'broken': broken_ops:FRONT_END of acme 0.1 could not be imported"
    ):
        front_end(Path("m.broken"))


def test_a_wrong_pass_or_pipeline_is_refused_when_a_pipeline_names_it(install: Install) -> None:
    install("acme", "tpusim.passes", odd="acme_ops:number", broken="broken_ops:Broken", other="acme_ops:Same")
    assert parse_pipeline("canonicalize")
    for name, says in (
        ("odd", "a subclass of tpusim.passes.Pass of that name is required, got 3"),
        ("other", "a subclass of tpusim.passes.Pass of that name is required"),
        ("broken", "broken_ops:Broken of acme 0.1 could not be imported, RuntimeError: no licence"),
    ):
        with pytest.raises(ConfigError, match=f"pass '{name}': ") as error:
            parse_pipeline(name)
        assert says in str(error.value)
    install("line", "tpusim.pipelines", line="acme_ops:number")
    with pytest.raises(ConfigError, match=r"pipeline 'line': a tpusim.passes.Pipeline is required, got 3"):
        parse_pipeline("line{mode=f32}")


def test_chips_of_packages(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name like those that ship, whose names no package takes; a target of another package may answer for them."""
    (tmp_path / "acme_chips.py").write_text(
        "from pathlib import Path\nACME1 = Path(__file__).with_name('acme1.toml')\nBM1688 = Path('bm1688.toml')\n"
        "from tpusim.interfaces import Target\nTARGET = Target('acme')\n"
    )
    (tmp_path / "acme1.toml").write_text("extends = 'bm1688'\nfamily = 'acme'\ncores = 1\n")
    install("acme", "tpusim.chips", acme1="acme_chips:ACME1", bm1688="acme_chips:BM1688", odd="acme_ops:number")
    with pytest.raises(ConfigError, match=r"family: one of bm1684x.* is required, got 'acme'; install the package"):
        chips.load("acme1")
    install("targets", "tpusim.targets", acme="acme_chips:TARGET")
    assert (chips.load("ACME1").name, chips.load("acme1").cores, chips.load("acme1").family) == ("acme1", 1, "acme")
    assert LoweringConfig("Acme1").chip in ("acme1", "Acme1")
    with pytest.raises(ConfigError, match="chip 'bm1688': ships with tpusim, and acme 0.1 registers another"):
        chips.load("bm1688")
    with pytest.raises(ConfigError, match="chip 'odd': the path of a file odd.toml is required, got 3"):
        chips.load("odd")
    with pytest.raises(ConfigError, match=r"unknown chip 'acme2': expected one of .*acme1.*did you mean acme1"):
        chips.load("acme2")


FAULTY = {
    "broken": ("broken_ops:PATH", "chip 'broken': broken_ops:PATH of acme 0.1 could not be imported, RuntimeError: no"),
    "leaves": ("leaves_ops:PATH", "chip 'leaves': leaves_ops:PATH of acme 0.1 could not be imported, SystemExit: 3"),
    "absent": ("no_such_module:PATH", "could not be imported, ModuleNotFoundError"),
    "number": ("acme_ops:number", "the path of a file number.toml is required, got 3"),
    "gone": ("faulty_chips:GONE", "gone.toml: cannot be read, No such file or directory"),
    "narrow": ("faulty_chips:NARROW", "narrow.toml: lanes: from 1 to 4,096 is required, got 0"),
    "orphan": ("faulty_chips:ORPHAN", "orphan.toml: family: one of bm1684x, "),
    "bm1688": ("faulty_chips:GONE", "chip 'bm1688': ships with tpusim, and acme 0.1 registers another"),
}


def test_chips_are_listed_without_those_of_faulty_packages(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says which package has which fault; all other chips are as before."""
    (tmp_path / "leaves_ops.py").write_text("raise SystemExit(3)")
    (tmp_path / "faulty_chips.py").write_text(
        "from pathlib import Path\n"
        "names = ('gone', 'narrow', 'orphan', 'Wide')\n"
        "GONE, NARROW, ORPHAN, Wide = (Path(__file__).with_name(f'{name}.toml') for name in names)\n"
    )
    (tmp_path / "narrow.toml").write_text("extends = 'bm1684x'\nlanes = 0\n")
    (tmp_path / "orphan.toml").write_text("extends = 'bm1684x'\nfamily = 'nobodys'\n")
    (tmp_path / "Wide.toml").write_text("extends = 'bm1684x'\nlanes = 128\n")
    entries = {name: entry for name, (entry, _) in FAULTY.items()}
    install("acme", "tpusim.chips", **entries, Wide="faulty_chips:Wide")
    assert main(["chips"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (_, says) in FAULTY.items():
        (line,) = (line for line in lines if line.startswith(f"{name}: "))
        assert line.startswith(f"{name}: acme 0.1: ") and says in line
    assert [line.split(":")[0] for line in lines if " lanes x " in line] == [
        *(name for name in chips.available() if name != "bm1688"),
        "Wide",
    ]
    assert main(["chips", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faulty"].keys() == FAULTY.keys()
    assert main(["chips", "show", "narrow"]) == 1 and chips.load("wide").lanes == 128


def test_a_faulty_entry_of_a_package_stops_nothing_else(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every kind: help, chips, completion, and a lowering that does not use it."""
    for each in TABLES:
        install(each.group, each.group, broken="broken_ops:Broken")
    model = Model(parse_module(module_of("top.Relu"), context()), WeightStore())
    model.set(name="m", state="TOP_F32")
    lowered = to_tpu(to_canonical(model), "bm1688", "f32")
    assert "tpu.Relu" in str(lowered.module)
    assert main(["chips"]) == 0
    for words in (["--help"], ["opt", "--help"], ["--tyro-print-completion", "bash"]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert not left.value.code, words
    said = capsys.readouterr()
    assert "bm1688: 2 cores" in said.out and said.err.count("no licence") == said.err.count("subcommand 'broken'") == 1
    for each in TABLES:
        with pytest.raises(
            ConfigError, match=f"^{each.noun} 'broken': broken_ops:Broken of {each.group} 0.1 could not"
        ):
            each.get("broken")


HARDWARE = """
from msgspec.structs import replace
from tpusim.chips import Hardware
from tpusim.interfaces import Target
from tpusim.registry import TARGETS
TARGET = Target("deeper", extends=Target("deep", extends=TARGETS.get("cv18xx")))
WIDE = replace(Hardware(), scale_bits=16)
ODD = replace(Hardware(), requant="guess")
TORN = replace(Hardware(), requant="qdm")
"""


def test_the_hardware_of_a_package_s_family(install: Install, tmp_path: Path) -> None:
    """It is what the package registers, else that of the family which its target extends, over several targets."""
    (tmp_path / "acme_hardware.py").write_text(HARDWARE)
    targets = dict.fromkeys(("fa_extends", "fb_own", "fc_number", "fd_odd", "fe_torn"), "acme_hardware:TARGET")
    install("targets", "tpusim.targets", **targets)
    install(
        "hardware", "tpusim.families",
        fb_own="acme_hardware:WIDE", fc_number="acme_ops:number",
        fd_odd="acme_hardware:ODD", fe_torn="acme_hardware:TORN",
    )  # fmt: skip
    base = chips.load("cv183x")
    assert base.replace("a", family="fa_extends").hardware == base.hardware
    assert chips.load("bm1688").replace("b", family="fb_own").hardware == chips.Hardware(scale_bits=16)
    with pytest.raises(ConfigError, match="^family 'fc_number': a tpusim.chips.Hardware is required, got 3"):
        base.replace("c", family="fc_number")
    with pytest.raises(ConfigError, match=r"^family 'fd_odd': Invalid enum value 'guess' - at `\$.requant`; compare"):
        base.replace("d", family="fd_odd")
    with pytest.raises(ConfigError, match='^family .fe_torn.: coefficients "merged": requant "multiplier" is required'):
        base.replace("e", family="fe_torn")


# ------------------------------------------------------------------------------------- encodings, universes, listing

FORMATS_OF_ACME = """
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Dialect, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, irdl_op_definition, IRDLOperation, operand_def, result_def
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from tpusim.ir.bytecode import DialectCodes, Form
from tpusim.ir.bytecode.forms import TEXT

@irdl_attr_definition
class Label(ParametrizedAttribute):
    name = "far.label"
    label: StringAttr

@irdl_op_definition
class Twice(IRDLOperation):
    name = "far.twice"
    input = operand_def()
    output = result_def()

class Forget(ModulePass):
    name = "forget"

    def apply(self, ctx, op):
        op.attributes.pop("a", None)

Far = Dialect("far", [Twice], [Label])
FAR = Universe(all_dialects={"far": lambda: Far}, all_passes={"forget": lambda: Forget})
CODES = DialectCodes("far", (Form(0, Label, (TEXT,), lambda a: (a.label.data,), lambda t: Label(StringAttr(t))),), ())
"""
WITH_LABEL = """module attributes {a = #far.label<"here">} {
  func.func @f(%x: i32) { %y = "far.twice"(%x) : (i32) -> i32 func.return }
}"""


@pytest.fixture
def far(install: Install, tmp_path: Path) -> Iterator[Path]:
    """A package with a universe and an encoding, and a module of its dialect."""
    (tmp_path / "far_ops.py").write_text(FORMATS_OF_ACME)
    install("far", "xdsl.universe", far="far_ops:FAR")
    install("farcodes", "tpusim.bytecode", far="far_ops:CODES")
    source = tmp_path / "net.mlir"
    source.write_text(WITH_LABEL)
    yield source
    sys.modules.pop("far_ops", None)


def test_dialects_passes_and_encodings_of_packages(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, other = far.with_suffix(".bc"), far.with_name("other.mlir")
    assert main(["opt", str(far), "--emit-bytecode", "-o", str(stored)]) == 0
    assert b"far.label" not in stored.read_bytes(), "by its code, not as text"
    assert main(["opt", str(far), "--bytecode-for", "llvm22", "-o", str(other)]) == 0
    assert b"far.label" in other.read_bytes(), "as text: no release of MLIR has the package's codes"
    assert main(["opt", str(stored)]) == 0
    assert '#far.label<"here">' in capsys.readouterr().out
    assert main(["opt", str(far), "-p", "builtin.module(forget,canonicalize)"]) == 0
    assert "far.label" not in capsys.readouterr().out
    other.write_text("func.func @f(%x: i32) -> i32 { %y = arith.addi %x, %x : i32 func.return %y : i32 }")
    assert main(["opt", str(other), "-p", "cse"]) == 0


BROKEN_HOOKS = {
    "write_version": ("write_version=lambda: 1", "write_version failed, "),
    "read_version": ("write_version=lambda: b'', read_version=lambda data: data[0]", "read_version failed, index out"),
    "upgrade": ("write_version=lambda: b'1', upgrade=lambda module, version: 1 / 0", "upgrade failed, division by"),
}


@pytest.mark.parametrize("hook", BROKEN_HOOKS)
def test_a_hook_that_fails_is_told_with_its_package(
    far: Path, install: Install, capsys: pytest.CaptureFixture[str], hook: str
) -> None:
    given, told = BROKEN_HOOKS[hook]
    source = far.with_name("far_ops.py")
    source.write_text(FORMATS_OF_ACME.replace("),), ())\n", f"),), (), {given})\n"))
    stored = far.with_suffix(".bc")
    assert main(["opt", str(far), "--emit-bytecode", "-o", str(stored)]) == (hook == "write_version")
    assert hook == "write_version" or main(["opt", str(stored)]) == 1
    assert f"encoding 'far' of farcodes 0.1: {told}" in capsys.readouterr().err


@pytest.mark.parametrize(("parts", "told"), [("(len(a.label.data) - 9,)", "0 or more"), ("()", "shorter")])
def test_a_form_that_cannot_write_is_told(far: Path, capsys: pytest.CaptureFixture[str], parts: str, told: str) -> None:
    source = FORMATS_OF_ACME.replace("TEXT", "VARINT").replace("(a.label.data,)", parts)
    far.with_name("far_ops.py").write_text(source)
    assert main(["opt", str(far), "--emit-bytecode", "-o", str(far.with_suffix(".bc"))]) == 1
    error = capsys.readouterr().err
    assert "code 0 of dialect 'far' cannot write" in error and told in error


def test_without_plugins(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", str(far), "--no-plugins"]) == 1
    assert "the dialect 'far' is required" in capsys.readouterr().err
    assert main(["plugins", "--no-plugins"]) == 0 and "far" not in capsys.readouterr().out
    assert main(["opt", str(far)]) == 0, "the switch is of one command"


def test_plugins_are_listed_with_their_state(far: Path, install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("bad", "tpusim.dialects", bad="broken_ops:Bad")
    install("worse", "xdsl.universe", worse="broken_ops:WORSE")
    assert main(["plugins", "--json"]) == 1
    found = {(one["name"], one["package"]): one for one in json.loads(capsys.readouterr().out)["plugins"]}
    assert found["far", "far 0.1"]["state"] == found["far", "farcodes 0.1"]["state"] == "ok"
    assert found["far", "far 0.1"]["kind"] == "universe" and found["far", "farcodes 0.1"]["kind"] == "encoding"
    for name in ("bad", "worse"):
        state = found[name, f"{name} 0.1"]["state"]
        assert "could not be imported, RuntimeError: no licence" in state and "\n" not in state


def test_a_broken_plugin_breaks_only_what_asks_for_it(
    far: Path, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("bad", "tpusim.bytecode", bad="broken_ops:CODES")
    install("worse", "xdsl.universe", worse="broken_ops:WORSE", a_first_one="broken_ops:WORSE")
    assert main(["opt", str(far), "--emit-bytecode", "-o", str(far.with_suffix(".bc"))]) == 0
    assert main(["inspect", str(far.with_suffix(".bc"))]) == 0
    capsys.readouterr()
    far.write_text('func.func @f(%x: i32) { %y = "nobody.twice"(%x) : (i32) -> i32 func.return }')
    assert main(["opt", str(far)]) == 1
    error = capsys.readouterr().err
    assert "worse 0.1 could not be imported" in error and error.count("\n") == 1
    assert main(["opt", str(far), "--allow-unregistered-dialect"]) == 0
