"""Bytecode compared with text: bytes and CPU seconds of the stages of ResNet-50, one file, one function of many.

Both forms are of the module as files have it, with all operands of TPU-MLIR's ops. The works that are compared take
turns, so that all meet the same load, and each time is the least of several. `check` is what verifying a module takes
after either form was read. LLVM's bytes are those of `mlir-opt` 22 in version 6, if --llvm22 names it. The last lines
are of the lowered module with its weights in one file, and of a module of 24 functions of 40 ops.
"""

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tyro

from benchmarks.bytecode.cases import models
from benchmarks.bytecode.tools import Program
from tpusim import zoo
from tpusim.frontend import import_onnx
from tpusim.ir.bytecode import Bytecode, encode
from tpusim.ir.module import Model, name_weights, save_model, save_one_file
from tpusim.ir.one_file import encode_module
from tpusim.ir.text import ModuleParser, parse_module, print_module
from tpusim.ir.upstream.final import written
from tpusim.ops import context

CHIP = "bm1684x"
FUNCTIONS, OPS = 24, 40


def main(network: str = "resnet50", llvm22: str = "") -> None:
    """Print a table of Markdown. network: of the zoo; llvm22: the program `mlir-opt` of LLVM 22."""
    llvm = Program("mlir-opt 22", 22, (), command=(llvm22,)) if llvm22 else None
    print("| module | text | bytecode | LLVM's | parse text | read | ratio | check | print text | write |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    last: dict[str, Model] = {}
    for stage, model in models(import_onnx(zoo.build(network), name=network), (CHIP,)):
        last[stage] = model
        print(_row(stage.rpartition("/")[2], model, llvm), flush=True)
    _one_file(last[f"{CHIP}/tpu"])
    _one_function()


def _seconds(*works: Callable[[], object], times: int = 9) -> list[float]:
    """The least CPU seconds of each work; none collects what another one left."""
    least = [float("inf")] * len(works)
    for _ in range(times):
        for i, work in enumerate(works):
            gc.collect()
            begin = time.process_time()
            work()
            least[i] = min(least[i], time.process_time() - begin)
    return least


def _row(stage: str, model: Model, llvm: Program | None) -> str:
    text = print_module(written(model.module))
    module = written(parse_module(text, context(), stage))
    data = encode_module(module)
    theirs = f"{len(llvm.written(text, 6)):,}" if llvm else "-"
    parse, checked, read, shown, write = _seconds(
        lambda: ModuleParser(context(), text, stage).parse_module(),
        lambda: parse_module(text, context(), stage),
        lambda: Bytecode(data, context()).module(),
        lambda: print_module(module),
        lambda: encode_module(module),
    )
    times = f"{parse:.3f} | {read:.3f} | {parse / read:.1f} | {checked - parse:.3f} | {shown:.3f} | {write:.3f}"
    return f"| {stage} | {len(text):,} | {len(data):,} | {theirs} | {times} |"


def _one_file(model: Model) -> None:
    with tempfile.TemporaryDirectory() as place:
        whole, text = Path(place) / "one.mlirbc", Path(place) / "module.mlir"
        save_one_file(model.clone(), whole)
        name_weights(model, "weights.npz", "text")
        save_model(model, text)
        size, apart = whole.stat().st_size, (Path(place) / "weights.npz").stat().st_size
        both = apart + text.stat().st_size
        ctx = context()
        (opened,) = _seconds(lambda: Bytecode.open(whole, ctx))
    more = size / both - 1
    print(f"\none file: {size:,} bytes, the npz {apart:,}, {more:+.2%} to npz and text; opens in {opened:.4f} s")


def _one_function() -> None:
    ctx = context()
    ctx.allow_unregistered = True
    data = encode(ModuleParser(ctx, f"builtin.module {{{''.join(map(_function, range(FUNCTIONS)))}}}").parse_module())
    whole, one = _seconds(
        lambda: Bytecode(data, ctx).module(), lambda: Bytecode(data, ctx).function(f"block{FUNCTIONS // 2}")
    )
    print(f"one function of {FUNCTIONS}: {one:.4f} s, all {whole:.4f} s, {one / whole:.1%}")


def _function(number: int) -> str:
    ops = "".join(
        f'%{op + 1} = "t.op"(%{op}) {{k = [{op} : i64, 3 : i64], n = "b{number}_{op}"}} : (tensor<4xf32>) -> '
        f'tensor<4xf32> loc("l{number}_{op}")\n'
        for op in range(OPS)
    )
    return (
        f"func.func @block{number}(%0: tensor<4xf32>) -> tensor<4xf32> {{ {ops} func.return %{OPS} : tensor<4xf32> }}\n"
    )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
