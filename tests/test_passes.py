"""Passes, their text form, and the manager: what a text means, what is refused, and that pipelines give the program."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from compiling import to_reordered, to_tpu
from end_to_end import DIGITS, digits_run

from tpusim import chips
from tpusim.canonicalize import canonicalize
from tpusim.chips import files
from tpusim.cli import main
from tpusim.errors import ConfigError, ImportModelError
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import texts_attr
from tpusim.ir.bytecode import encode
from tpusim.ir.formats import number_format
from tpusim.ir.module import load_model, save_model
from tpusim.ir.text import parse_module, print_module
from tpusim.isa.stream import load
from tpusim.layer_group import ForcedGroup, LayerGroupConfig, group_layers
from tpusim.layer_group.files import Counts
from tpusim.ops import context
from tpusim.passes import Pass, PassContext, PassManager, Pipeline, parse_pipeline, pass_of, print_pipeline
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.codegen import Codegen
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import STEPS, ConvertTopToTpu
from tpusim.passes.pipelines import DEPLOY
from tpusim.registry import PASSES, PIPELINES

WEIGHTS = "module.weight_file"

# --- the text form


def other(value: Any) -> Any:
    """Another value of the same type, awkward to write where it is a text."""
    match value:
        case bool():
            return not value
        case int():
            return value + 7
        case float():
            return value + 0.1
        case str():
            return 'a, b="{c}" \\ \n ü'
        case None:
            return "op:F16,other:BF16"
        case ():
            return ("x", "y z", "")
        case tuple():
            return tuple(map(other, value))  # type: ignore[reportUnknownVariableType]
        case _:
            raise AssertionError(value)


SPECIAL: dict[str, Any] = {
    "force": (ForcedGroup("a b", "c", "3D", Counts(h=4)), ForcedGroup("d", "d", "GLOBAL", None, ("d",))),
    "shape_secs_search_strategy": "1", "mode": "w4f16", "pixel_format": "gray", "channel_format": "nhwc",
    "keep_ratio_mode": "short_side_scale", "pad_type": "normal", "resize_dims": (64, 48), "inputs": (1, 2),
    "q_group_size": 32, "arithmetic": "interpreter",
}  # fmt: skip


def changed(cls: type[Pass]) -> Pass:
    """The pass with every option changed."""
    options = {f.name: SPECIAL.get(f.name, other(getattr(cls(), f.name))) for f in fields(cls) if f.name != "frame"}
    return cls(**options)


@pytest.mark.every
@pytest.mark.parametrize("name", PASSES.names())
def test_every_option_survives_as_text(name: str):
    cls = PASSES.get(name)
    assert cls.name == name and name not in PIPELINES
    for step in (cls(), changed(cls)):
        text = print_pipeline(step)
        (found,) = parse_pipeline(text).steps
        assert found == step and type(found) is cls and print_pipeline(found) == text
    assert print_pipeline(cls()) == name


def test_a_chip_that_does_not_ship_survives_as_text(tmp_path: Path):
    mine = files.changed(chips.load("bm1688"), "mine", {"search_gbs": 9.5})
    (found,) = parse_pipeline(print_pipeline(ConvertTopToTpu(mine))).steps
    assert isinstance(found, ConvertTopToTpu) and found.chip == mine
    with pytest.raises(
        ConfigError, match="mode of a pipeline's text is a name, one of .*, got the NumberFormat 'mine'"
    ):
        print_pipeline(ConvertTopToTpu(mode=replace(number_format("int8"), name="mine")))


@pytest.mark.every
@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", ()),
        ("canonicalize", (Canonicalize(),)),
        ("builtin.module(canonicalize)", (Canonicalize(),)),
        ("func.func(canonicalize),codegen", (Pipeline((Canonicalize(),), "func.func"), Codegen())),
        ("builtin.module( func.func( canonicalize ), codegen )", (Pipeline((Canonicalize(),), "func.func"), Codegen())),
        ("codegen{model_file=a/b-c.tpusim  cores=2}", (Codegen("a/b-c.tpusim", 2),)),
        ('codegen{model-file="a b,c{.x"}', (Codegen("a b,c{.x"),)),
        ("codegen{cores=0}", (Codegen(),)),
        ("layer-group{opt=1 in_place=False wide_rows}", (LayerGroup(opt="1", in_place=False, wide_rows=True),)),
        ("convert-top-to-tpu{mode=INT8 chip=BM1688 asymmetric}", (ConvertTopToTpu("bm1688", asymmetric=True),)),
        ("convert-top-to-tpu{quirks_off=a,b}", (ConvertTopToTpu(quirks_off=("a", "b")),)),
        ("convert-top-to-tpu{quirks_off=a}", (ConvertTopToTpu(quirks_off=("a",)),)),
        ("deploy", DEPLOY.steps),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, meaning: tuple[Pass, ...]):
    found = parse_pipeline(text)
    steps = found.steps[0].steps if len(found.steps) == 1 and isinstance(found.steps[0], Pipeline) else found.steps
    assert steps == meaning


def test_a_text_may_have_lines():
    lines = "canonicalize,\n  convert-top-to-tpu{chip=bm1688\n\tmode=f16}"
    assert parse_pipeline(lines) == parse_pipeline("canonicalize,convert-top-to-tpu{chip=bm1688 mode=f16}")


def test_options_of_a_pipeline_go_to_its_passes():
    found = list(parse_pipeline("deploy{chip=bm1688 asymmetric file=t opt=off model_file=x}").flat())
    steps = {step.name: step for step in found}
    assert print_pipeline(steps["import-calibration-table"]) == "import-calibration-table{file=t asymmetric=true}"
    assert print_pipeline(steps["convert-top-to-tpu"]) == "convert-top-to-tpu{chip=bm1688 asymmetric=true}"
    assert steps["layer-group"] == LayerGroup(opt="off") and steps["codegen"] == Codegen("x")


@pytest.mark.every
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no-such-pass", "no pass is called 'no-such-pass'"),
        ("canonicalise", "canonicalize"),
        ("canonicalize{also}", "also=VALUE is required"),
        ("canonicalize{", "} is required at the end"),
        ("canonicalize}", "closes nothing"),
        ("canonicalize(", ") is required at the end"),
        ('codegen{model_file="a}', "is required at the end"),
        ("canonicalize,,codegen", "a pass is required between commas"),
        (",", "a pass is required between commas"),
        ("canonicalize codegen", "NAME or NAME{OPTION=VALUE ...} is required"),
        ("codegen{model_fil=a}", "its options are cores, model_file"),
        ("codegen{=a}", "OPTION=VALUE is required"),
        ("codegen{cores=a}", "cores requires int, got 'a'"),
        ("codegen{cores=1,2}", "one value of cores is required"),
        ("codegen{cores=}", "cores requires int"),
        ("layer-group{shape_secs_search_strategy=2}", "requires 0, 1, got '2'"),
        ("layer-group{in_place=maybe}", "requires bool, got 'maybe'"),
        ("layer-group{force=[]x}", "force"),
        ("layer-group{force=absent.toml}", "absent.toml"),
        ("convert-top-to-tpu{chip={}}", "chip: a name"),
        ("module(canonicalize)", "one of builtin.module, func.func"),
        ("func.func(codegen)", "put it outside func.func"),
        ("func.func(builtin.module(canonicalize))", "put it outside func.func"),
        ("deploy{chips=bm1688}", "no option is called 'chips'"),
    ],
)
def test_refused_texts(text: str, says: str):
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text)
    assert says in str(caught.value)


def test_a_pass_in_the_spelling_of_tpu_mlir():
    assert pass_of("layer-group", "opt=2 cores=1") == LayerGroup()
    with pytest.raises(ConfigError, match="no option is called 'opts'.*opt"):
        pass_of("layer-group", "opts=2")


# --- the manager


def test_a_module_is_copied_and_its_state_checked(tmp_path_factory: pytest.TempPathFactory):
    top = import_onnx(DIGITS / "digits.onnx")
    before, ctx = print_module(top.module), PassContext()
    found = PassManager("canonicalize").run(top, ctx)
    expected, patterns = canonicalize(top)
    assert print_module(top.module) == before and print_module(found.module) == print_module(expected.module)
    assert set(found.weights) == set(expected.weights) and dict(ctx.patterns) == patterns
    for steps in ("layer-group", "canonicalize,address-assign", "func.func(canonicalize),weight-reorder"):
        name = steps.rpartition(",")[2]
        with pytest.raises(ImportModelError, match=f"pass {name}: a module in state TPU_.* is required, .* TOP_F32"):
            PassManager(steps).run(top)


def test_a_pass_that_leaves_an_invalid_module_is_named():
    class Breaks(Canonicalize):
        def rewrite(self, model: Any, ctx: PassContext) -> Any:
            next(op for op in model.ops if op.name == "top.Conv").attributes.pop("strides")
            return model

    with pytest.raises(ImportModelError, match="after canonicalize"):
        PassManager([Breaks()]).run(import_onnx(DIGITS / "digits.onnx"))


def test_a_pass_that_returns_no_module_is_named():
    class Forgetful(Canonicalize):
        name = "forgetful"

        def rewrite(self, model: Any, ctx: PassContext) -> Any:
            return None

    with pytest.raises(ConfigError, match=r"pass forgetful: a Model is required of its rewrite, got None"):
        PassManager(Forgetful()).run(import_onnx(DIGITS / "digits.onnx"))


# --- the program of a run


def test_deploy_gives_the_program_of_a_run(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path):
    """By its text from the model, in TPU-MLIR's spelling from the module, and in Python."""
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    expected = (folder / "7_model.tpusim").read_bytes()
    table, one, two = folder / "cali_table", tmp_path / "one.tpusim", tmp_path / "two.tpusim"
    text = print_pipeline(parse_pipeline(f"deploy{{file={table} model_file={one}}}"))
    assert text.startswith("builtin.module(func.func(canonicalize),import-calibration-table{file=")
    assert main(["opt", str(DIGITS / "digits.onnx"), "-p", text, "-o", str(tmp_path / "x.mlir")]) == 0
    assert one.read_bytes() == expected
    words = (
        *("--canonicalize", f"--import-calibration-table=file={table} asymmetric=false"),
        *("--convert-top-to-tpu=mode=INT8 chip=bm1684x", "--processor-tpu-optimize", "--weight-reorder"),
        *("--layer-group=opt=2", "--address-assign", f"--codegen=model_file={two}", "-o", str(tmp_path / "y.mlir")),
    )
    assert main(["opt", str(folder / "1_top.mlir"), *words]) == 0
    assert two.read_bytes() == expected
    final = load_model(tmp_path / "y.mlir", context())
    assert final.state == "TPU_ADDRESSED" and set(final.weights) == set(
        load_model(folder / "6_final.mlir", context()).weights
    )
    ctx = PassContext()
    PassManager(parse_pipeline(f"deploy{{file={table}}}")).run(load_model(folder / "1_top.mlir", context()), ctx)
    assert ctx.program is not None and ctx.program.commands == load(one).commands
    assert PassManager(Codegen()).program(final).commands == load(one).commands
    with pytest.raises(ConfigError, match=r"pipeline builtin\.module\(canonicalize.*: it generates no program; end it"):
        PassManager("canonicalize").program(load_model(folder / "1_top.mlir", context()))


def test_a_lowering_spelled_out_step_by_step(tmp_path_factory: pytest.TempPathFactory):
    """The steps of convert-top-to-tpu as passes of a pipeline give its module; alone they say what they need."""
    model = load_model(digits_run(tmp_path_factory, "bm1684x", "int8") / "3_calibrated.mlir", context())
    steps = ",".join(("processor-assign{chip=bm1688 mode=int8}", *(step.name for step in STEPS)))
    whole, one, other = "convert-top-to-tpu{chip=bm1688 mode=int8}", PassContext(), PassContext()
    spelled, expected = PassManager(steps).run(model, one), PassManager(whole).run(model, other)
    texts = {print_module(one.module) for one in (spelled, expected, to_tpu(model, "bm1688"))}
    assert len(texts) == 1
    assert {n: a.tobytes() for n, a in spelled.weights.items()} == {n: a.tobytes() for n, a in expected.weights.items()}
    assert one.fallbacks == other.fallbacks and other.conversion is None
    with pytest.raises(ConfigError, match="pass propagate-ranges: .* processor-assign is required before it"):
        PassManager("propagate-ranges").run(model)


GROUPINGS: list[tuple[str, dict[str, Any]]] = [
    ("bm1684x", {}),
    ("bm1684x", {"opt": "1", "timestep_combine": False}),
    ("bm1684x", {"opt": "off", "in_place": False}),
    ("bm1684x", {"wide_rows": True, "group_overlap": False, "shape_secs_search_strategy": "1"}),
    ("bm1684", {"everywhere": True}),
    ("cv183x", {"timestep_moves": False}),
    ("bm1688", {"cores": 2}),
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("chip", "options"), GROUPINGS, ids=str)
def test_layer_groups_step_by_step(
    chip: str, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
):
    """The steps give the module of the stage, also if each reads what the one before printed."""
    model = to_reordered(load_model(digits_run(tmp_path_factory, chip, "int8") / "4_tpu.mlir", context()))
    expected, found = group_layers(model, LayerGroupConfig(**options)), model
    whole = PassManager([LayerGroup(**options)]).run(model)
    for step in LayerGroup(**options).steps:
        save_model(PassManager([step]).run(found), tmp_path / "step.mlir", weight_file=model.attribute(WEIGHTS))
        found = load_model(tmp_path / "step.mlir", context())
    assert print_module(whole.module) == print_module(found.module) == print_module(expected.module)
    for one in (whole, found):
        assert {n: a.tobytes() for n, a in one.weights.items()} == {n: a.tobytes() for n, a in expected.weights.items()}


def test_merged_transfers_are_not_refined(tmp_path_factory: pytest.TempPathFactory):
    model = load_model(digits_run(tmp_path_factory, "bm1684x", "int8") / "5_grouped.mlir", context())
    assert print_module(PassManager("merge-moves").run(model).module) == print_module(model.module)
    load = next(op for op in model.module.walk() if op.name == "tpu.Load")
    load.attributes["tpusim.moved"] = texts_attr(["permute"])
    for name in ("combine-timesteps", "overlap-groups", "choose-cores"):
        with pytest.raises(ConfigError, match="refine groups before merge-moves"):
            PassManager(name).run(model)


def test_a_run_dumps_its_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked = (
        *("run", str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "calibration.npz"), "--samples", "2"),
        *("--chip", "bm1688", "--mean", "0", "--scale", "0.00392157", "--pixel-format", "gray", "--fuse-preprocess"),
        *("--to", "codegen", "--out", str(tmp_path / "out")),
    )
    assert main([*asked, "--dump-pass-pipeline"]) == 0
    text = capsys.readouterr().out.strip()
    assert not (tmp_path / "out").exists()
    names = [step.name for step in parse_pipeline(text).flat()]
    assert names[:4] == ["set-preprocess", "canonicalize", "calibrate", "import-calibration-table"]
    assert names[4:6] == ["fuse-preprocess", "convert-top-to-tpu"]
    assert main(list(asked)) == 0
    program = tmp_path / "out" / "7_model.tpusim"
    expected = program.read_bytes()
    program.unlink()
    assert main(["opt", str(DIGITS / "digits.onnx"), "-p", text, "-o", str(tmp_path / "x.mlir")]) == 0
    assert program.read_bytes() == expected


GROUPS = ["weight-reorder", "layer-group", "outline-host-functions"]
LOWERS = ["canonicalize", "calibrate", "import-calibration-table", "convert-top-to-tpu", "processor-tpu-optimize"]


@pytest.mark.every
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--to", "import"], []),
        (["--to", "canonicalize"], LOWERS[:1]),
        (["--to", "lower"], LOWERS),
        (["--to", "verify"], [*LOWERS, *GROUPS, "address-assign", "codegen"]),
        (["--from", "group", "--to", "assign"], [*GROUPS, "address-assign"]),
        (["--from", "codegen"], ["codegen"]),
        (["--from", "infer"], []),
    ],
)
def test_the_dumped_pipeline_is_that_of_the_stages(
    words: list[str], names: list[str], tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
):
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    capsys.readouterr()
    assert main(["run", str(DIGITS / "digits.onnx"), *words, "--out", str(folder), "--dump-pass-pipeline"]) == 0
    found = list(parse_pipeline(capsys.readouterr().out.strip()).flat())
    assert [step.name for step in found] == names
    assert all(step.model_file == str(folder / "7_model.tpusim") for step in found if isinstance(step, Codegen))


@pytest.mark.every
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["absent.onnx"], "absent.onnx, which the passes begin with, cannot be read"),
        ([str(DIGITS)], "got a folder of no run"),
        ([str(DIGITS / "digits.onnx"), "--from", "group", "--out", "absent"], "absent/4_tpu.mlir, which the passes"),
        ([str(DIGITS / "digits.onnx"), "--data", "absent.npz"], "absent.npz is neither a file nor a folder"),
        ([str(DIGITS / "digits.onnx"), "--table", "absent"], "absent"),
        ([str(DIGITS / "digits.onnx"), "--resume"], "which stages are left depends on the folder"),
        ([str(DIGITS / "digits.onnx"), "--from", "group", "--to", "lower"], "a stage up to --to lower is required"),
    ],
)
def test_a_pipeline_of_no_run_is_not_dumped(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", *words, "--dump-pass-pipeline"]) == 1
    said = capsys.readouterr()
    assert says in said.err and not said.out


TYPED = """func.func @main(%in: tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> {
  %x = "top.Input"(%in) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("x")
  %y = "top.Sin"(%x) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("y")
  func.return %y : tensor<1x3x8x8xf32>
}
"""
CONSTANT = """func.func @main(%in: tensor<2xf32>) -> tensor<2xf32> {
  %x = "top.Input"(%in) : (tensor<2xf32>) -> tensor<2xf32> loc("x")
  %y = "top.Weight"() : () -> tensor<2xf32> loc("y")
  func.return %y : tensor<2xf32>
}
"""


@pytest.mark.every
@pytest.mark.parametrize(
    ("given", "words", "says"),
    [
        (b"", ["-p", "canonicalize"], "standard input: a module is required, it is empty; name a file"),
        (b" \n", ["-"], "standard input: a module is required, it is empty; name a file"),
        (b"\xff\xfe", ["-p", "canonicalize"], "standard input: a module as text or bytecode is required"),
        (b"hello", ["-p", "canonicalize"], "module 'standard input' does not parse"),
        (
            CONSTANT.encode(),
            ["-p", "canonicalize"],
            "a module without weights is required, the data of y",
        ),
        (TYPED.encode(), ["--run-reproducer"], "the file that --crash-reproducer wrote is required, got none"),
        (TYPED.encode(), ["-p", "codegen"], "pass codegen: a module in state TPU_ADDRESSED is required"),
    ],
)
def test_what_standard_input_may_not_be(
    given: bytes, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given)))
    assert main(["opt", *words]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [(TYPED, ["-p", "canonicalize"]), (TYPED, ["-p", "canonicalize", "-"]), (CONSTANT, ["-"]), (CONSTANT, [])],
    ids=str,
)
def test_a_module_comes_from_standard_input(
    given: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given.encode())))
    assert main(["opt", *words]) == 0
    assert 'module.state = "TOP_F32"' in capsys.readouterr().out


def test_bytecode_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(encode(parse_module(TYPED, context())))))
    assert main(["opt", "-p", "canonicalize"]) == 0
    assert 'module.state = "TOP_F32"' in capsys.readouterr().out


def test_an_option_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["opt", "--nothing"])
    assert capsys.readouterr().err.splitlines() == [
        "tpusim opt: unrecognized arguments: --nothing; `tpusim opt --help` lists what there is"
    ]


def test_the_registry_loads_no_pass():
    code = "import sys, tpusim.registry as r; list(r.PASSES); print([m for m in sys.modules if 'passes' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--canonicalize", "-p", "layer-group"], "one pipeline is required"),
        (["-p", "layer-group", "-p", "canonicalize"], "one pipeline is required"),
        (["--run-reproducer", "-p", "canonicalize"], "one pipeline is required"),
        (["--split-input-file", "-p", "canonicalize"], "a named file, no pass and no -o are required"),
        (["-pnothing", "--passes=canonicalize"], "one pipeline is required"),
        (["--verify-diagnostics"], "leave the option out"),
        (["-o", ""], "a file is required"),
        (["--time-passes", "-p", "canonicalize"], "use --timing"),
        (["--print-between-passes", "-p", "canonicalize"], "use --print-ir-after-all"),
        (["-p", "canonicalize", "--print-ir-after", "canonicalise"], "got 'canonicalise'; did you mean canonicalize?"),
        (["-p", "convert-top-to-tpu{mode=f32 mode=f16}"], "each option once is required"),
        (["-p", "canonicalize", "--emit-bytecode=6", "--bytecode-for=llvm16"], "leave --emit-bytecode"),
        (["-p", "func.func(" * 1500 + "canonicalize" + ")" * 1500], "at most 100 brackets are required"),
        (["-p", "processor-assign{chip=bm1688 mode=f32},convert-ops"], "choose-formats gives them"),
        (
            ["-p", "processor-assign{mode=f32},choose-formats,func.func(canonicalize),convert-ops"],
            "choose-formats gives",
        ),
    ],
)
def test_opt_drops_nothing_in_silence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    assert main(["opt", str(DIGITS / "digits.onnx"), *words]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--input-shapes", "image=4x1x8x8"], ["--outputs", "mix_Relu"]])
def test_a_pipeline_has_no_options_of_the_import(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(DIGITS / "digits.onnx"), *words, "--dump-pass-pipeline"]) == 1
    assert "run `tpusim import` with these options" in capsys.readouterr().err


def test_a_run_takes_a_module_of_bytecode(tmp_path: Path):
    module, code = tmp_path / "1_top.mlir", tmp_path / "top.mlirbc"
    assert main(["import", str(DIGITS / "digits.onnx"), "--out", str(module)]) == 0
    assert main(["opt", str(module), "--one-file", "-o", str(code)]) == 0
    words = ["--data", "random:1", "--method", "max", "--to", "lower", "--out"]
    assert main(["run", str(code), *words, str(tmp_path / "a")]) == 0
    assert main(["run", str(module), *words, str(tmp_path / "b")]) == 0
    same = [(tmp_path / one / "4_tpu.mlir").read_text() for one in "ab"]
    assert same[0] == same[1]
