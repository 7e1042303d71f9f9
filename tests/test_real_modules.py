"""Modules as TPU-MLIR writes them: read, printed back, computed as its interpreter computes them."""

import re
from pathlib import Path

import numpy as np
import pytest
from compiling import to_addressed
from rows import lowered as row
from xdsl.dialects.builtin import UnrankedTensorType

from tests.real_folders import CELLS, TRANSFORM, folder_of, lowered
from tpusim import ops
from tpusim.cli.opt import optimise
from tpusim.codegen.program import generate
from tpusim.errors import ImportModelError, UnsupportedError
from tpusim.inference import input_specs
from tpusim.inference.executor import run
from tpusim.ir import text
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.opaque import OpaqueOp, opaque_ops
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.ir.weights import WeightStore, save_weights
from tpusim.simulator import Simulator


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def computed(model: Model) -> dict[str, np.ndarray]:
    return run(model, arrays(TRANSFORM / "in.npz"))


@pytest.mark.parametrize("cell", CELLS)
def test_lowered_modules_compute_what_the_interpreter_computes(cell: str):
    """Integers exactly; floats within 1e-3 of the largest: the interpreter adds in another order."""
    model = load_model(lowered(cell), ops.context())
    types = {value_name(v): uniform_of(v) for op in model.module.walk() for v in op.results if is_tensor(v)}
    ours, theirs = computed(model), arrays(lowered(cell).parent / "tensors.npz")
    assert set(theirs) == set(ours)
    for name, real in theirs.items():
        quantised = types[name]
        if quantised is None:
            np.testing.assert_allclose(ours[name].astype(np.float32), real, atol=1e-3 * np.abs(real).max())
        else:
            stored = np.rint(real / quantised.scale.data) + quantised.zero_point.value.data
            np.testing.assert_array_equal(ours[name].astype(np.int64), stored.reshape(ours[name].shape))


def test_the_imported_module_computes_what_the_interpreter_computes():
    ours, theirs = computed(load_model(TRANSFORM / "m.mlir", ops.context())), arrays(TRANSFORM / "m_top_outputs.npz")
    assert set(theirs) <= set(ours)
    for name, real in theirs.items():
        np.testing.assert_allclose(ours[name], real.reshape(ours[name].shape), atol=1e-5)


def test_shapes_of_a_module_without_ranks_are_inferred():
    """`*_origin.mlir` states no shapes; the module after its passes has those of the network."""
    origin = load_model(TRANSFORM / "m_origin.mlir", ops.context())
    assert not any(isinstance(v.type, UnrankedTensorType) for op in origin.module.walk() for v in op.results)
    assert not list(opaque_ops(origin.module.walk()))
    canonical = load_model(TRANSFORM / "m.mlir", ops.context())
    assert origin.function.function_type.outputs == canonical.function.function_type.outputs
    np.testing.assert_allclose(
        next(reversed(computed(origin).values())), next(reversed(computed(canonical).values())), atol=1e-5
    )


ONE_OP = """module @m attributes {module.chip = "ALL", module.platform = "ONNX", module.state = "TOP_F32"} {
  func.func @main(%arg0: tensor<1x4x8xf32> loc(unknown)) -> RESULT {
    %0 = "top.None"() : () -> none loc(unknown)
    %1 = "top.Input"(%arg0) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
    %2 = "top.Scatter"(%1, %0) {mode = #tpu<run_mode TPU_STATIC>, n = 3 : si32} : (tensor<1x4x8xf32>, none) -> RESULT
    return %2 : RESULT loc(unknown)
  } loc(unknown)
} loc(unknown)
"""


def of_op(name: str, result: str = "tensor<1x4x8xf32>") -> str:
    named = f'{result} loc("y")\n'
    return ONE_OP.replace("-> RESULT\n", f"-> {named}").replace("RESULT", result).replace("top.Scatter", name)


@pytest.mark.parametrize("name", ["top.Yuv2rgbFormula", "top.Csc", "top.RoiAlign", "top.Trilu", "top.MaskedFill"])
def test_an_op_without_arithmetic_is_kept_and_named(name: str):
    module = text.parse_module(of_op(name), ops.context())
    kept = next(opaque_ops(module.walk()))
    assert isinstance(kept, OpaqueOp) and (kept.name, op_name(kept)) == (name, "y")
    printed = text.print_module(module)
    assert f'"{name}"(' in printed and "#tpu<run_mode TPU_STATIC>" in printed and "n = 3 : si32" in printed
    assert text.print_module(text.parse_module(printed, ops.context())) == printed
    model = Model(module, load_model(TRANSFORM / "m.mlir", ops.context()).weights)
    with pytest.raises(UnsupportedError, match=f"inference of module 'm'.*{name} 'y'"):
        run(model, {"x": np.zeros((1, 4, 8), np.float32)})
    with pytest.raises(UnsupportedError, match=f"canonicalize, module 'm'.*{name} 'y'"):
        model.require_state("TOP_F32", stage="canonicalize")


def test_a_name_that_nobody_has_is_an_error():
    with pytest.raises(ImportModelError, match=r"Operation top\.Scatterr is not registered"):
        text.parse_module(of_op("top.Scatterr"), ops.context())


def test_ops_after_an_unknown_shape_are_named():
    source = of_op("top.Csc", "tensor<*xf32>").replace(
        "    return %2", '    %3 = "top.Relu"(%2) : (tensor<*xf32>) -> tensor<*xf32> loc("z")\n    return %3'
    )
    module = text.parse_module(source, ops.context())
    assert [(op.name, op.why) for op in opaque_ops(module.walk())][1] == (
        "top.Relu",
        "the shape of its operand 'y' is not known",
    )
    assert "tensor<*xf32>" in text.print_module(module)


@pytest.mark.parametrize(
    ("stated", "result", "why"),
    [
        ('"top.Relu"(%1) {relu_limit = -1.0 : f64}', "tensor<1x4x9xf32>", "result shapes"),
        ('"top.Softmax"(%1) {axis = 1 : si32, beta = 0.5 : f64}', "tensor<1x4x8xf32>", "beta requires 1"),
        ('"top.Slice"(%1, %0, %0, %0) {offset = [9], steps = [1], ends = [12]}', "tensor<3xf32>", "an offset, step"),
    ],
)
def test_what_a_class_refuses_is_printed_back_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stated: str, result: str, why: str
):
    source = of_op("top.Csc", result).splitlines()
    source[4] = f'    %2 = {stated} : (tensor<1x4x8xf32>{", none" * stated.count("%0")}) -> {result} loc("y")'
    (tmp_path / "a.mlir").write_text("\n".join(source))
    with pytest.raises((ImportModelError, UnsupportedError), match=why):
        load_model(tmp_path / "a.mlir", ops.context())
    assert optimise([str(tmp_path / "a.mlir")]) == 0
    assert stated.partition("(")[0] in capsys.readouterr().out
    with pytest.raises((ImportModelError, UnsupportedError), match=why):
        optimise([str(tmp_path / "a.mlir"), "-p", "canonicalize"])


def test_a_module_without_its_weights_is_printed_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "m.mlir").write_text((TRANSFORM / "m.mlir").read_text())
    with pytest.raises(ImportModelError, match=r"m_top_f32_all_weight\.npz"):
        load_model(tmp_path / "m.mlir", ops.context())
    assert optimise([str(tmp_path / "m.mlir")]) == 0
    assert '"top.Conv"' in capsys.readouterr().out
    assert optimise([str(tmp_path / "m.mlir"), "-o", str(tmp_path / "out.mlir")]) == 0
    assert 'module.weight_file = "m_top_f32_all_weight.npz"' in (tmp_path / "out.mlir").read_text()
    assert not list(tmp_path.glob("*.npz"))


def test_files_of_several_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each part may give an alias another meaning."""
    parts = [f'#loc = loc("{name}")\n' + of_op("top.Csc").replace('loc("x")', "loc(#loc)") for name in ("a", "b")]
    (tmp_path / "two.mlir").write_text("\n// -----\n".join(parts))
    with pytest.raises(ImportModelError, match=r"one module is required, the file has 2.*--split-input-file"):
        load_model(tmp_path / "two.mlir", ops.context())
    assert optimise([str(tmp_path / "two.mlir"), "--split-input-file"]) == 0
    printed = capsys.readouterr().out.split("// -----")
    assert ['loc("a")' in printed[0], 'loc("b")' in printed[1], len(printed)] == [True, True, 2]


def test_weights_are_stored_flat_and_16_bit_floats_as_integers(tmp_path: Path):
    model = load_model(lowered("bm1684x-BF16"), ops.context())
    stored = arrays(next((lowered("bm1684x-BF16").parent).glob("m_*tpu_weights.npz")))
    assert np.dtype(np.uint16) in {a.dtype for a in stored.values()} and 1 in {a.ndim for a in stored.values()}
    assert {a.dtype.name for a in model.weights.values()} == {"bfloat16", "float32"}
    place = folder_of("bm1684x-BF16", tmp_path)
    file = next(place.glob("m_*tpu_weights.npz"))
    name = next(name for name, array in stored.items() if array.ndim == 1)
    save_weights({**stored, name: stored[name][:-1]}, file)
    with pytest.raises(ImportModelError, match=f"'{name}' is"):
        load_model(next(place.glob("m_*_tpu.mlir")), ops.context())


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ('"top.Reshape"(%1) {shape = "a"}', "should be of base attribute array"),
        ('"top.Slice"(%1) {offset = "a", steps = [1], ends = [2]}', "should be of base attribute array"),
        ('"top.Softmax"(%1) {axis = -99 : si32}', "an axis in [0, 3) is required, got -96"),
        ('"tpu.GenericCpu"(%1)', "attribute 'cpu_op_name' expected"),
        ('"tpu.Softmax"(%1) {axis = 1 : si32}', "Expected at least 2 operands, but got 1"),
        ('"tpu.Scale"(%1)', "Expected 4 operands, but got 1"),
        ('"top.Flatten"(%1) {start_dim = "a", end_dim = 7 : i64}', "should be of base attribute integer"),
        (
            '"top.Flatten"(%1) {start_dim = 1, end_dim = 3}',
            "axes start_dim to end_dim of 3 axes are required, got 1 to 3",
        ),
    ],
)
def test_ops_without_what_their_class_requires_are_refused(op: str, words: str):
    source = of_op("top.Csc").splitlines()
    source[4] = f'    %2 = {op} : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("y")'
    with pytest.raises(ImportModelError, match=re.escape(words)):
        text.parse_module("\n".join(source), ops.context())


QUANT = [
    "!quant.uniform<i8<-127:127>:f32, 0.5>",
    "!quant.uniform<u8<0:15>:f32:0, {0.5:1,0.25}>",
    "!quant.any<i8<-16:15>:f32>",
    "!quant.any<i8>",
    "!quant.uniform<i8:f32:{0:1,1:4}, {{0.5:1, 2.0}, {0.25, 1.0:-3}}>",
]


@pytest.mark.parametrize("element", QUANT)
def test_quant_types_of_mlir_are_kept_and_named(element: str):
    kind = f"tensor<2x8x{element}>"
    source = of_op("top.Relu", kind).replace("1x4x8xf32", f"2x8x{element}").replace("(%1, %0)", "(%1)")
    source = re.sub(r" \{mode = [^}]*\}", "", source.replace(", none)", ")"))
    module = text.parse_module(source, ops.context())
    printed = text.print_module(module)
    assert kind in printed and text.print_module(text.parse_module(printed, ops.context())) == printed
    with pytest.raises(UnsupportedError, match="does not compute with the type !quant"):
        run(Model(module, WeightStore()), {"x": np.zeros((2, 8), np.float32)})


@pytest.mark.parametrize("element", ["!quant.uniform<i64<0:1>:f32, 0.5>", "!quant.uniform<i8:f32:{0:1}, {{0.5}, 0.5}>"])
def test_wrong_quant_types_are_refused(element: str):
    source = of_op("top.Relu").replace("1x4x8xf32", f"2x8x{element}")
    with pytest.raises(ImportModelError, match="does not parse"):
        text.parse_module(source, ops.context())


@pytest.mark.parametrize("place", ['loc("f.py":1:2 to 3:4)', 'loc("f.py":1:2 to :4)', 'loc("y"("f.py":1:2 to 3:4))'])
def test_places_with_an_end_are_kept(place: str):
    module = text.parse_module(of_op("top.Csc").replace('loc("y")', place), ops.context())
    assert place in text.print_module(module)


def test_resources_of_tools_are_read_over():
    more = '{-#\n external_resources: {\n  mlir_reproducer: {\n   pipeline: "x()",\n   n: false\n  }\n }\n#-}\n'
    module = text.parse_module(of_op("top.Csc") + more, ops.context())
    assert [op.name for op in opaque_ops(module.walk())] == ["top.Csc"]


def test_bools_of_lowered_modules_are_computed():
    """TPU-MLIR states them with a range of two values."""
    source = """module @m attributes {module.chip = "bm1684x", module.mode = "INT8", module.state = "TPU_LOWERED"} {
  func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = "top.Input"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %1 = "tpu.Cast"(%0) : (tensor<2x4xf32>) -> tensor<2x4x!quant.uniform<u8<0:1>:f32, 1.0>> loc("y")
    %2 = "tpu.Cast"(%1) : (tensor<2x4x!quant.uniform<u8<0:1>:f32, 1.0>>) -> tensor<2x4xf32> loc("z")
    return %2 : tensor<2x4xf32>
  }
}
"""
    model = Model(text.parse_module(source, ops.context()), WeightStore())
    x = np.array([[0, 1, 1, 0], [1, 0, 0, 1]], np.float32)
    np.testing.assert_array_equal(run(model, {"x": x})["z"], x)


FORMS: dict[str, tuple[str, str, str, str, tuple[int, ...]]] = {
    "a window over one axis": (
        "1x4x9",
        '"top.AvgPool"(%1) {kernel_shape = [3], strides = [2], pads = [1, 1], count_include_pad = false}',
        "1x4x5",
        "",
        (),
    ),
    "a filter over one axis": (
        "1x4x9",
        '"top.Conv"(%1, %2, %0) {kernel_shape = [2], strides = [1], pads = [0, 1], dilations = [1], group = 1}',
        "1x3x9",
        "3x4x2",
        (3, 4, 2),
    ),
    "a filter of two axes over one": (
        "1x4x9",
        '"top.Conv"(%1, %2, %0) {kernel_shape = [2, 1], strides = [1, 1], pads = [0, 0, 1, 0], group = 1}',
        "1x3x9",
        "3x4x2x1",
        (3, 4, 2),
    ),
    "slopes with the input's axes": ("2x4x3x1", '"top.PRelu"(%1, %2)', "2x4x3x1", "1x4x1x1", (4, 1, 1)),
    "a scale with the input's axes": ("2x4x3x1", '"top.Scale"(%1, %2, %2)', "2x4x3x1", "1x4x1x1", (1, 4, 1, 1)),
    "a part along some axes": (
        "2x9",
        '"top.Slice"(%1, %0, %0, %0) {axes = [-1], offset = [1], ends = [-1], steps = [3]}',
        "2x3",
        "",
        (),
    ),
    "a part to the end": (
        "2x9",
        '"top.Slice"(%1, %0, %0, %0) {offset = [0, 1], ends = [-1, -1], steps = [1, 1]}',
        "2x8",
        "",
        (),
    ),
    "sums along an axis that an operand repeats": ("2x9", '"top.CumSum"(%1, %2) {axis = 1}', "2x9", "1", (1,)),
    "sums of the host along an axis": (
        "2x9",
        '"tpu.GenericCpu"(%1, %2) {cpu_op_name = "cumsum", param = {axis = 1 : i32}}',
        "2x9",
        "1",
        (1,),
    ),
    "a new axis": ("2x9", '"tpu.Unsqueeze"(%1) {axes = [1]}', "2x1x9", "", ()),
    "an axis less": ("2x1x9", '"tpu.Squeeze"(%1) {axes = [1]}', "2x9", "", ()),
    "a window over one axis of a chip": (
        "1x4x9",
        '"tpu.Pool1D"(%1) {kernel_shape = [3], strides = [2], pads = [1, 1], pool_mode = #tpu<pool_mode Avg>}',
        "1x4x5",
        "",
        (),
    ),
}
"""What TPU-MLIR states -> the input, the op, its result, the constant, and the shape in which the npz has it."""
TOP = 'module.chip = "ALL", module.state = "TOP_F32"'
LOWERED = 'module.chip = "bm1684x", module.mode = "F32", module.state = "TPU_LOWERED"'


def form_by_numpy(what: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What an op of FORMS computes."""
    if "window" in what:
        windows = [x[..., max(2 * i - 1, 0) : 2 * i + 2].mean(-1) for i in range(5)]
        return np.stack(windows, -1)
    if "filter" in what:
        padded = np.pad(x, ((0, 0), (0, 0), (0, 1)))
        return np.einsum("nilk,oik->nol", np.stack([padded[..., :9], padded[..., 1:]], -1), w)
    if "sums" in what:
        return x.cumsum(1)
    if " axis" in what and "some" not in what:
        return x[:, None] if "new" in what else x[:, 0]
    channels = w.reshape(1, -1, 1, 1) if w.size else w
    if "slopes" in what:
        return np.where(x > 0, x, channels * x)
    if "scale" in what:
        return x * channels + channels
    return x[:, 1:-1:3] if "some axes" in what else x[:, 1:]


BY_TYPE = {what for what, (_, op, *_) in FORMS.items() if '"tpu.' in op} | {"a part to the end"}
"""Forms whose result only its type describes."""


@pytest.mark.parametrize(
    ("what", "keeps"), [(what, keeps) for what in FORMS for keeps in (True, False) if keeps or what not in BY_TYPE]
)
def test_forms_that_the_real_compiler_states_are_computed(tmp_path: Path, what: str, keeps: bool):
    """keeps: the type of the result is stated; without it, as in `*_origin.mlir`, it is inferred."""
    given, op, result, constant, stored = FORMS[what]
    lowered = '"tpu.' in op
    kinds = ", ".join(
        {"%0": "none", "%1": f"tensor<{given}xf32>", "%2": f"tensor<{constant}xf32>"}[name]
        for name in re.findall(r"%\d", op)
    )
    weight = f'    %2 = "top.Weight"() : () -> tensor<{constant}xf32> loc("w")\n' if constant else ""
    kind = f"tensor<{result if keeps else '*'}xf32>"
    (tmp_path / "m.mlir").write_text(
        f'module @m attributes {{{LOWERED if lowered else TOP}, module.weight_file = "w.npz"}} {{\n'
        f"  func.func @main(%arg0: tensor<{given}xf32>) -> {kind} {{\n"
        '    %0 = "top.None"() : () -> none\n'
        f'    %1 = "top.Input"(%arg0) : (tensor<{given}xf32>) -> tensor<{given}xf32> loc("x")\n{weight}'
        f'    %3 = {op} : ({kinds}) -> {kind} loc("y")\n    return %3 : {kind}\n  }}\n}}\n'
    )
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (tuple(map(int, given.split("x"))), stored))
    np.savez(tmp_path / "w.npz", w=w)
    computed = run(load_model(tmp_path / "m.mlir", ops.context()), {"x": x})
    wanted = form_by_numpy(what, x, w if stored else np.empty(0))
    np.testing.assert_allclose(computed["y"], wanted, atol=1e-5)
    assert computed["y"].shape == tuple(map(int, result.split("x")))


@pytest.mark.parametrize("case", ["layernorm", "layernorm-wide", "rmsnorm-op"])
def test_weight_and_bias_of_a_norm_may_lack_the_axes_before(case: str, tmp_path: Path):
    """TPU-MLIR gives them the axes of the norm alone, so that in local memory they lie one after another along n."""
    final = to_addressed(row(case, "bm1684x", "f16")[0])
    feeds = {name: np.random.default_rng(1).normal(size=shape) for name, (shape, _) in input_specs(final).items()}
    wanted = Simulator(generate(final)).run(feeds).tensors
    save_model(final, tmp_path / "final.mlir")
    lines = (tmp_path / "final.mlir").read_text().replace("tensor<1x1x6xf16", "tensor<6xf16").splitlines()
    for i, line in enumerate(lines):
        if "tpu.Load" in line and "tensor<6xf16" in line:
            lines[i] = line.replace("n_slice = [1]", "n_slice = [6]").replace("h_slice = [6]", "h_slice = [1]")
    (tmp_path / "final.mlir").write_text("\n".join(lines))
    found = Simulator(generate(load_model(tmp_path / "final.mlir", ops.context()))).run(feeds).tensors
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
