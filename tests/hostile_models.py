"""ONNX models that nobody should be able to break tpusim with; each ends in a TpusimError that names what is wrong.

`python -m hostile_models` compiles every one of them in this process and prints, as JSON, what became of it: CPU
seconds, the error's class and its message; and the largest memory the process had. `words` must stand in the message.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.errors import TpusimError

HUGE = 2**40
FLOATS = np.ones((1, 4, 8, 8), np.float32)
Nodes = Sequence[onnx.NodeProto]


@dataclass(frozen=True)
class Hostile:
    """A model, as an object or as the content of a file, and what its refusal must name."""

    words: tuple[str, ...]
    make: Callable[[], onnx.ModelProto | bytes]


def node(op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"the_{op}", domain=domain, **attributes)


def model(
    *nodes: onnx.NodeProto, shape: Sequence[int] = FLOATS.shape, kind: int = TensorProto.FLOAT, opset: int = 20,
    domains: Sequence[str] = (), functions: Sequence[onnx.FunctionProto] = (), **weights: np.ndarray,
) -> onnx.ModelProto:  # fmt: skip
    """A network from x to y, neither of them checked."""
    given = helper.make_tensor_value_info("x", kind, shape)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", [given], [onnx.ValueInfoProto(name="y")], tensors)
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def with_initializer(**fields: object) -> onnx.ModelProto:
    """A sum with w, which states what its data are not."""
    made = model(node("Add", "x w", "y"))
    made.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, **fields))  # type: ignore[arg-type]
    return made


def external(location: str) -> onnx.ModelProto:
    made = with_initializer(dims=[4], data_location=TensorProto.EXTERNAL)
    made.graph.initializer[0].external_data.add(key="location", value=location)
    return made


def doubled(times: int) -> onnx.ModelProto:
    names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
    return model(*(helper.make_node("Concat", [a, a], [b], axis=0, name=f"the_{b}") for a, b in zip(names, names[1:])))  # noqa: B905, RUF007


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If, each on a constant."""
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "g", [], [onnx.ValueInfoProto(name="r")])
    for level in range(depth):
        choose = helper.make_node("If", ["c"], [f"r{level}"], then_branch=inner, else_branch=inner if level < 4 else
                                  helper.make_graph([helper.make_node("Abs", ["x"], ["a"])], "e", [],
                                                    [onnx.ValueInfoProto(name="a")]))  # fmt: skip
        inner = helper.make_graph([choose], "g", [], [onnx.ValueInfoProto(name=f"r{level}")])
    made = model(node("Sin", "x", "y"), c=np.array(1.0))  # a condition that is no bool
    made.graph.node[0].CopyFrom(helper.make_node("If", ["c"], ["y"], name="the_If", then_branch=inner,
                                                 else_branch=inner))  # fmt: skip
    return made


def buried(depth: int) -> bytes:
    """Graphs in attributes of nodes in graphs, as they lie in a file: deeper than protobuf reads."""
    content = b""
    for _ in range(depth):
        for field in (6, 5, 1):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            content = bytes([field << 3 | 2]) + _varint(len(content)) + content
    opset = helper.make_opsetid("", 20).SerializeToString()
    parts = {7: content, 8: opset}  # ModelProto.graph, opset_import
    return b"".join(bytes([field << 3 | 2]) + _varint(len(part)) + part for field, part in parts.items())


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def recursive(*names: str) -> onnx.ModelProto:
    """Local functions that call each other in a ring."""
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 20)]
    ring = [
        helper.make_function("own", a, ["x"], ["y"], [helper.make_node(b, ["x"], ["y"], domain="own")], opsets)
        for a, b in zip(names, (*names[1:], names[0]), strict=True)
    ]
    return model(node(names[0], "x", "y", domain="own"), domains=["own"], functions=ring)


def multiplied(width: int, depth: int) -> onnx.ModelProto:
    """Functions of `width` calls of the next one each: a short file that stands for width ** depth nodes."""
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 20)]
    names = ["x", *(f"t{i}" for i in range(width - 1)), "y"]
    made: list[onnx.FunctionProto] = []
    for level in range(depth):
        called = {"op_type": f"F{level + 1}", "domain": "own"} if level < depth - 1 else {"op_type": "Relu"}
        nodes = [helper.make_node(inputs=[a], outputs=[b], **called) for a, b in zip(names, names[1:])]  # noqa: B905, RUF007
        made.append(helper.make_function("own", f"F{level}", ["x"], ["y"], nodes, opsets))
    return model(node("F0", "x", "y", domain="own"), domains=["own"], functions=made)


def swollen(times: int) -> onnx.ModelProto:
    """A constant that is doubled again and again, each time one small step."""
    names = ["c", *(f"t{i}" for i in range(times))]
    steps = [helper.make_node("Concat", [a, a], [b], axis=0, name=f"the_{b}") for a, b in zip(names, names[1:])]  # noqa: B905, RUF007
    rest = node("ReduceSum", names[-1], "s"), node("Add", "x s", "y")
    return model(*steps, *rest, c=np.ones((1 << 20,), np.float32))


def endless() -> onnx.ModelProto:
    """A Loop of 2**62 rounds."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["more"]), helper.make_node("Relu", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, None),
        ],
    )
    return model(node("Loop", "n c x", "y", body=body), n=np.array(2**62), c=np.array(True))


def twice_made() -> onnx.ModelProto:
    return model(node("Relu", "x", "y"), node("Abs", "x", "y"))


def no_opset() -> onnx.ModelProto:
    made = model(node("Relu", "x", "y"))
    del made.opset_import[:]
    return made


def no_results() -> onnx.ModelProto:
    made = model(node("Relu", "x", "y"))
    del made.graph.output[:]
    return made


def no_type() -> onnx.ModelProto:
    made = model(node("Relu", "x", "y"))
    made.graph.input[0].type.Clear()
    return made


def sequence() -> onnx.ModelProto:
    made = model(node("SequenceAt", "x i", "y"), i=np.array(0))
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    return made


def conv(**attributes: Any) -> onnx.ModelProto:
    return model(node("Conv", "x w", "y", **attributes), w=np.ones((4, 4, 3, 3), np.float32))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


MODELS: dict[str, Hostile] = {
    "cycle": Hostile(
        ("input 'b'",), lambda: model(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Abs", "b", "y"))
    ),
    "itself": Hostile(("y",), lambda: model(node("Add", "x y", "y"))),
    "missing-input": Hostile(("nowhere",), lambda: model(node("Add", "x nowhere", "y"))),
    "missing-output": Hostile(("y",), lambda: model(node("Relu", "x", "z"))),
    "no-nodes": Hostile(("y",), model),
    "no-results": Hostile(("no outputs",), no_results),
    "twice-made": Hostile(("y",), twice_made),
    "no-opset": Hostile(("opset",), no_opset),
    "future-opset": Hostile(("999",), lambda: model(node("Relu", "x", "y"), opset=999)),
    "negative-opset": Hostile(("opset",), lambda: model(node("Relu", "x", "y"), opset=-5)),
    **{
        f"no-text-{what}": Hostile(
            (where, "UTF-8"),
            lambda old=old: model(node("Relu", "x", "y")).SerializeToString().replace(old, b"\xff" * len(old)),
        )
        for what, where, old in (
            ("op", "NodeProto", b"Relu"),
            ("name", "NodeProto.name", b"the_Relu"),
            ("input", "NodeProto.input", b"x"),
        )
    },
    "unknown-op": Hostile(("the_Frobnicate",), lambda: model(node("Frobnicate", "x", "y"))),
    "unknown-domain": Hostile(
        ("the_Relu", "evil"), lambda: model(node("Relu", "x", "y", domain="evil"), domains=["evil"])
    ),
    "domain-not-imported": Hostile(("evil",), lambda: model(node("Relu", "x", "y", domain="evil"))),
    "no-op-type": Hostile(("the_", "no such op"), lambda: model(node("", "x", "y"))),
    "mixed-types": Hostile(("the_Add",), lambda: model(node("Add", "x w", "y"), w=ints(1))),
    "text-input": Hostile(("'x'", "string"), lambda: model(node("Identity", "x", "y"), kind=TensorProto.STRING)),
    "no-type": Hostile(("name: x",), no_type),
    "sequence-input": Hostile(("'x'",), sequence),
    "attribute-type": Hostile(("the_Conv",), lambda: conv(pads=[0.5] * 4)),
    "negative-dims": Hostile(("'x'",), lambda: model(node("Relu", "x", "y"), shape=(1, -5))),
    "no-elements": Hostile(("'x'",), lambda: model(node("Relu", "x", "y"), shape=(1, 0))),
    "huge-input": Hostile(("'x'",), lambda: model(node("Relu", "x", "y"), shape=(HUGE, HUGE))),
    "short-data": Hostile(("w",), lambda: with_initializer(dims=[100], raw_data=b"1234")),
    "huge-dims": Hostile(("w",), lambda: with_initializer(dims=[HUGE, HUGE], raw_data=b"1234")),
    "negative-data": Hostile(("w",), lambda: with_initializer(dims=[-4], raw_data=b"1234")),
    "no-data": Hostile(("w",), lambda: with_initializer(dims=[4], data_location=TensorProto.EXTERNAL)),
    "file-outside": Hostile(("w",), lambda: external("../../../../etc/hostname")),
    "file-missing": Hostile(("w",), lambda: external("weights.bin")),
    "huge-constant": Hostile(
        ("the_ConstantOfShape",),
        lambda: model(node("ConstantOfShape", "n", "k"), node("Add", "x k", "y"), n=ints(HUGE, 4)),
    ),
    "large-constant": Hostile(
        ("the_ConstantOfShape",),
        lambda: model(
            node("ConstantOfShape", "n", "k"),
            node("ReduceSum", "k", "s"),
            node("Add", "x s", "y"),
            n=ints(2**18, 2**14),
        ),
    ),
    "negative-constant": Hostile(
        ("the_ConstantOfShape",), lambda: model(node("ConstantOfShape", "n", "k"), node("Add", "x k", "y"), n=ints(-3))
    ),
    "huge-range": Hostile(
        ("the_Range",),
        lambda: model(
            node("Range", "a b c", "r"),
            node("Size", "r", "k"),
            node("Cast", "k", "f", to=1),
            node("Add", "x f", "y"),
            a=np.array(0),
            b=np.array(HUGE),
            c=np.array(1),
        ),
    ),
    "huge-onehot": Hostile(
        ("the_OneHot",),
        lambda: model(
            node("OneHot", "i d v", "k"),
            node("Add", "x k", "y"),
            i=ints(1),
            d=ints(HUGE),
            v=np.array([0, 1], np.float32),
        ),
    ),
    "huge-expand": Hostile(("the_Expand",), lambda: model(node("Expand", "x n", "y"), n=ints(HUGE, 4, 8, 8))),
    "huge-tile": Hostile(("the_Tile",), lambda: model(node("Tile", "x n", "y"), n=ints(1, 1, HUGE, HUGE))),
    "huge-pad": Hostile(("the_Pad",), lambda: model(node("Pad", "x p", "y"), p=ints(0, 0, HUGE, 0, 0, 0, 0, 0))),
    "huge-resize": Hostile(
        ("the_Resize",),
        lambda: model(
            node("Resize", "x none s", "y"), none=np.array([], np.float32), s=np.array([1, 1, 1e12, 1e12], np.float32)
        ),
    ),
    "huge-dilation": Hostile(("the_Conv",), lambda: conv(dilations=[HUGE, HUGE])),
    "huge-pads": Hostile(("the_Conv",), lambda: conv(pads=[HUGE] * 4)),
    "negative-pads": Hostile(("the_Conv",), lambda: conv(pads=[-9] * 4)),
    "zero-strides": Hostile(("the_Conv",), lambda: conv(strides=[0, 0])),
    "wrong-channels": Hostile(
        ("the_Conv",), lambda: model(node("Conv", "x w", "y"), w=np.ones((4, 3, 3, 3), np.float32))
    ),
    "wrong-group": Hostile(("the_Conv",), lambda: conv(group=3)),
    "zero-group": Hostile(("the_Conv",), lambda: conv(group=0)),
    "wrong-product": Hostile(("the_MatMul",), lambda: model(node("MatMul", "x w", "y"), w=np.ones((7, 2), np.float32))),
    "wrong-reshape": Hostile(("the_Reshape",), lambda: model(node("Reshape", "x n", "y"), n=ints(7, -1))),
    "two-unknowns": Hostile(("the_Reshape",), lambda: model(node("Reshape", "x n", "y"), n=ints(-1, -1))),
    "wrong-axis": Hostile(("the_Concat",), lambda: model(node("Concat", "x x", "y", axis=9))),
    "wrong-perm": Hostile(("the_Transpose",), lambda: model(node("Transpose", "x", "y", perm=[0, 1, 1, 9]))),
    "wrong-parts": Hostile(("the_Split",), lambda: model(node("Split", "x n", "y z", axis=1), n=ints(1, 1))),
    "wrong-indices": Hostile(("the_Gather",), lambda: model(node("Gather", "x i", "y", axis=1), i=ints(99))),
    "endless-doubling": Hostile(("the_t",), lambda: doubled(80)),
    "endless-loop": Hostile(("the_Loop",), endless),
    "own-recursion": Hostile(("own",), lambda: recursive("F")),
    "ring-of-functions": Hostile(("own",), lambda: recursive("F", "G", "H")),
    "deep-graphs": Hostile(("the_If",), lambda: nested(20)),
    "deeper-graphs": Hostile(("protobuf",), lambda: buried(500)),
    "billion-laughs": Hostile(("262,144 nodes", "1,152,921,504,606,846,976"), lambda: multiplied(2, 60)),
    "wide-laughs": Hostile(("262,144 nodes", "10,000,000,000"), lambda: multiplied(100, 5)),
    "resize-to-millions": Hostile(
        ("the_Resize", "2,147,483,647"),
        lambda: model(
            node("Resize", "x none none n", "y"), none=np.array([], np.float32), n=ints(1, 4, 4_000_000, 4_000_000)
        ),
    ),
    "cubic-resize-to-millions": Hostile(
        ("the_Resize",),
        lambda: model(
            node("Resize", "x none none n", "y", mode="cubic"),
            none=np.array([], np.float32),
            n=ints(1, 4, 8, 50_000_000),
        ),
    ),
    "long-transform": Hostile(
        ("the_DFT", "4,194,304"), lambda: model(node("DFT", "x", "y", axis=1), shape=(1, 50_000, 1), opset=17)
    ),
    "truncated": Hostile(("protobuf",), lambda: conv().SerializeToString()[:-200]),
    "noise": Hostile(("protobuf",), lambda: np.random.default_rng(1).bytes(5000)),
    "nothing": Hostile(("net.onnx",), lambda: b""),
}


def tried(hostile: Hostile, folder: Path) -> tuple[float, str, str]:
    """(CPU seconds, class of the error, "" if there is none, its message)."""
    made = hostile.make()
    path = folder / "net.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    begin = process_time()
    try:
        tpusim.compile(path, mode="f32")
    except TpusimError as error:
        return process_time() - begin, "TpusimError", str(error)
    except BaseException as error:  # noqa: BLE001  that is what is looked for
        return process_time() - begin, type(error).__name__, str(error)
    return process_time() - begin, "", ""


def main() -> None:
    """Print what became of all."""
    warnings.simplefilter("ignore")
    chosen = {name: MODELS[name] for name in sys.argv[1:]} or MODELS
    with tempfile.TemporaryDirectory() as folder:
        found = {name: tried(hostile, Path(folder)) for name, hostile in chosen.items()}
    sys.stdout.write(json.dumps({"models": found, "kibibytes": peak()}))


def peak() -> int:
    """The most memory that this process had, in KiB; `ru_maxrss` counts what its parent had before the exec, too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
