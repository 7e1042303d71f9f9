"""Read an ONNX model, check it, and determine its inputs."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.inliner
from google.protobuf.message import DecodeError, EncodeError, Message
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

from tpusim.errors import ImportModelError, option
from tpusim.host.files import opened, real
from tpusim.ir.content import ONNX, is_stablehlo, what_it_is

PROTO_LIMIT = 2**31 - 1
"""Bytes that protobuf can serialise; the ONNX checker needs a serialised model."""
DEFAULT_DOMAINS = ("", "ai.onnx")
IDIOMS = "tpusim.idioms"
"""The domain of nodes that stand for sequences of nodes; no file has it."""
STABLEHLO = "tpusim from StableHLO"
"""The producer of models that are made of StableHLO."""
LARGE = 1 << 20
"""Tensors of more bytes are not copied for a check; also the bytes of a file that are read at a time."""
MOST_NODES = 1 << 18
"""The most nodes of a model with its functions inlined; networks of language models have some 10,000."""
LARGEST = 2**31 - 1
"""Elements of the largest input: more than 4 GB of any type but bytes, which is what the chips address."""
NUMBERS: dict[int, np.dtype] = {
    TensorProto.FLOAT: np.dtype(np.float32), TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(bfloat16), TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.BOOL: np.dtype(np.bool_), TensorProto.INT8: np.dtype(np.int8), TensorProto.INT16: np.dtype(np.int16),
    TensorProto.INT32: np.dtype(np.int32), TensorProto.INT64: np.dtype(np.int64), TensorProto.UINT8: np.dtype(np.uint8),
    TensorProto.UINT16: np.dtype(np.uint16), TensorProto.UINT32: np.dtype(np.uint32),
    TensorProto.UINT64: np.dtype(np.uint64),
    **{
        kind: helper.tensor_dtype_to_np_dtype(kind)
        for kind in (
            TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
            TensorProto.FLOAT4E2M1, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2,
        )
    },
}  # fmt: skip
"""ONNX element types that network inputs may have, and the NumPy types in which users give them."""
_UNREADABLE = (OSError, ValueError, RuntimeError, onnx.checker.ValidationError)
"""What reading a model raises; a RuntimeError is the file system's."""
AXES = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
"""Names for free dims without a name, by rank."""
WORD = r"(?!x)[A-Za-z][A-Za-z0-9_]*"
"""Names of free dims that are repeated as they are; not the x between extents, nor terms such as `s0 + 1`."""
Source = str | os.PathLike[str] | onnx.ModelProto
Callee = tuple[str, str, str]
"""Domain, name and overload of a function."""


def platform_of(model: onnx.ModelProto) -> str:
    """The framework that a model comes from, as in `module.platform`; a file of ONNX says ONNX, whoever made it."""
    return "STABLEHLO" if model.producer_name == STABLEHLO else "ONNX"


@dataclass(frozen=True)
class GraphInput:
    """One network input: ONNX element type and dims; an unknown dim is its symbol or "?", an unknown rank None."""

    name: str
    elem_type: int
    dims: tuple[int | str, ...] | None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The static shape, None if a dim is unknown."""
        if self.dims is None:
            return None
        shape = tuple(d for d in self.dims if isinstance(d, int))
        return shape if len(shape) == len(self.dims) else None


def model_label(source: Source) -> str:
    """The name of the model in messages: its path, or the name of its graph."""
    if isinstance(source, onnx.ModelProto):
        return source.graph.name or "(in memory)"
    return os.fspath(source)


def read_onnx(source: Source, *, whole: bool = True) -> onnx.ModelProto:
    """A checked model with its local functions inlined; `source` itself is not changed.

    whole: read all numbers; otherwise large initializers stay in external files, from which `Numbers` reads them.
    Raises ImportModelError that names the file and the reason: missing, not a protobuf, truncated, invalid ONNX.
    """
    model = source if isinstance(source, onnx.ModelProto) else _load(source, whole=whole)
    label = model_label(source)
    _require_text(model, label)
    _require_opset(model, label)
    if not model.graph.output:
        raise ImportModelError(
            f"model '{label}': it has no outputs, so it computes nothing; export it with at least one"
        )
    if not _names_unknown_op(model):
        _check(model, label)
    if not model.functions:
        return model
    _require_few_nodes(model, label)
    return onnx.inliner.inline_local_functions(model)


def _require_text(model: onnx.ModelProto, label: str) -> None:
    """Raise ImportModelError for a name or another text that is not UTF-8; protobuf gives it as bytes."""
    for place, found in _texts(model):
        if not isinstance(found, str):
            raise ImportModelError(
                f"model '{label}': a text of UTF-8 is required as {place}, got {ascii(found)[:80]}; the file is damaged"
            )


def _texts(message: Any) -> Iterator[tuple[str, object]]:
    """Every text of a message and of those inside it, with the name of its field."""
    for field, value in message.ListFields():
        parts = (value,) if isinstance(value, str | bytes | Message) else value
        if field.type == field.TYPE_STRING:
            yield from ((f"{message.DESCRIPTOR.name}.{field.name}", part) for part in parts)
        elif field.type == field.TYPE_MESSAGE:
            for part in parts:
                yield from _texts(part)


def _require_few_nodes(model: onnx.ModelProto, label: str) -> None:
    """Raise ImportModelError if the model's functions, which may call each other, stand for too many nodes."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    counts: dict[Callee, int] = {}

    def nodes_of(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(
            counts.get(_callee(node), 1)
            + sum(nodes_of(graph.node) for a in node.attribute for graph in (a.g, *a.graphs))
            for node in nodes
        )

    for key in _called_first(bodies):
        counts[key] = nodes_of(bodies[key])
    total = nodes_of(model.graph.node)
    if total > MOST_NODES:
        raise ImportModelError(
            f"model '{label}': at most {MOST_NODES:,} nodes are read, its functions stand for {total:,}; export the "
            "model without them"
        )


def _callee(node: onnx.NodeProto) -> Callee:
    return node.domain, node.op_type, node.overload


def _called_first(bodies: Mapping[Callee, Sequence[onnx.NodeProto]]) -> list[Callee]:
    """Functions, each after the functions that it calls; without rings of calls, which the inliner refuses."""
    calls = {key: set[Callee]().union(*map(_calls, nodes)) & bodies.keys() for key, nodes in bodies.items()}
    order: list[Callee] = []
    while ready := [key for key, called in calls.items() if called <= set(order)]:
        order += ready
        calls = {key: called for key, called in calls.items() if key not in ready}
    return order


def _calls(node: onnx.NodeProto) -> set[Callee]:
    """The ops of a node and of the graphs in it."""
    inner = (n for a in node.attribute for graph in (a.g, *a.graphs) for n in graph.node)
    return {_callee(node)}.union(*map(_calls, inner))


def _require_opset(model: onnx.ModelProto, label: str) -> None:
    """Check that the model states its ONNX operator set, and that this version of onnx knows it."""
    version, newest = opset_version(model), onnx.defs.onnx_opset_version()
    if version > newest:
        raise ImportModelError(
            f"model '{label}': an opset of at most {newest} is required (onnx {onnx.__version__}), got {version}; "
            "export the model with another, or install a newer onnx"
        )
    if version < 1 and any(node.domain in DEFAULT_DOMAINS for node in model.graph.node):
        raise ImportModelError(
            f"model '{label}': opset_import must name an opset of ONNX's own ops, got none; export it again"
        )


def _load(path: str | os.PathLike[str], *, whole: bool) -> onnx.ModelProto:
    if os.fspath(path).endswith(".tflite"):
        from tpusim.frontend.tflite import onnx_of_tflite  # rarely needed

        return onnx_of_tflite(path)
    if is_stablehlo(Path(path)):
        from tpusim.frontend.stablehlo import onnx_of_stablehlo_file

        return onnx_of_stablehlo_file(path)
    try:
        with opened(path) as file:
            model = onnx.load(file, "protobuf", load_external_data=False)
        _load_numbers(model, Path(path).parent, whole=whole)
    except DecodeError as error:
        found = what_it_is(path) or f"not an ONNX protobuf or is cut off ({first_line(error)}); export it again"
        if found.startswith(ONNX):
            found = f"{ONNX}, but cut off or damaged ({first_line(error)}); export or download it again"
        raise ImportModelError(f"model '{os.fspath(path)}' is {found}") from error
    except IsADirectoryError as error:
        raise ImportModelError(f"model '{os.fspath(path)}' is {what_it_is(path)}") from error
    except _UNREADABLE as error:
        raise ImportModelError(f"model '{os.fspath(path)}' cannot be read: {first_line(error)}") from error
    if not model.ListFields():
        raise ImportModelError(f"model '{os.fspath(path)}' is {what_it_is(path)}")
    return model


def _load_numbers(model: onnx.ModelProto, folder: Path, *, whole: bool) -> None:
    """Read external initializers; not whole: large ones only if their file cannot be read later."""
    whole = whole or any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node)
    later = [] if whole else [t for t in model.graph.initializer if _is_outside(t) and (folder / _place(t)).is_file()]
    for tensor in later:
        tensor.data_location = TensorProto.DEFAULT
    onnx.load_external_data_for_model(model, os.fspath(folder))
    for tensor in later:
        tensor.data_location = TensorProto.EXTERNAL


def _place(tensor: TensorProto) -> str:
    """The external file of an initializer, relative to the model's folder."""
    return next((e.value for e in tensor.external_data if e.key == "location"), "")


class Numbers:
    """Reads initializers, external ones from their files, one at a time; none is kept.

    mapped: their arrays are memory-mapped pages of the files, which must not change as long as the arrays are used.
    """

    def __init__(self, source: Source, *, mapped: bool = False) -> None:
        self._folder = "" if isinstance(source, onnx.ModelProto) else os.fspath(Path(source).parent)
        self._label, self._mapped = model_label(source), mapped

    def of(self, tensor: TensorProto) -> np.ndarray:
        """The array. Raises ImportModelError if its file does not have it."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        array = self._pages(tensor) if self._mapped else None
        if array is not None:
            return array
        loaded = TensorProto()
        loaded.CopyFrom(tensor)
        try:
            onnx.external_data_helper.load_external_data_for_tensor(loaded, self._folder)
            return numpy_helper.to_array(loaded)
        except _UNREADABLE as error:
            raise ImportModelError(
                f"model '{self._label}': initializer '{tensor.name}' cannot be read: {first_line(error)}"
            ) from error

    def _pages(self, tensor: TensorProto) -> np.ndarray | None:
        """The array in its file; None for a file or a type that `of` examines and reads."""
        file, given = Path(self._folder, _place(tensor)), {e.key: e.value for e in tensor.external_data}
        begin, size = int(given.get("offset") or 0), _size(tensor)
        inside = real(file) == real(self._folder) / _place(tensor)
        if not inside or tensor.data_type != TensorProto.FLOAT or int(given.get("length") or size) != size:
            return None
        if begin % 4 or begin < 0 or begin + size > file.stat().st_size:
            return None
        return np.memmap(file, np.float32, "r", begin, tuple(tensor.dims))


def _check(model: onnx.ModelProto, label: str) -> None:
    """Run the ONNX checker, without the numbers of large tensors, unless the rest is too large to be serialised."""
    light = _without_numbers(model)
    if proto_bytes(light) > PROTO_LIMIT:
        return
    try:
        onnx.checker.check_model(_with_shapes(light))
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ImportModelError(f"model '{label}' is not valid ONNX: {first_line(error)}") from error


def _without_numbers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with empty tensors in place of large well-formed ones: the checker needs twice the memory of its input."""
    light, graph = onnx.ModelProto(), model.graph
    for whole, part, left_out in ((model, light, "graph"), (graph, light.graph, "initializer")):
        for field, value in whole.ListFields():
            if field.name == left_out:
                continue
            if isinstance(value, int | float | str | bytes):
                setattr(part, field.name, value)
            elif isinstance(value, Message):
                getattr(part, field.name).CopyFrom(value)
            else:
                getattr(part, field.name).extend(value)
    for tensor in graph.initializer:
        if _is_large(tensor):
            light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b"")
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light


def _is_large(tensor: TensorProto) -> bool:
    """Whether a tensor is worth leaving out, and has exactly the bytes that its shape and type say."""
    if _is_outside(tensor):
        return True
    size = _size(tensor)
    return size >= LARGE and tensor.HasField("raw_data") and len(tensor.raw_data) == size


def _is_outside(tensor: TensorProto) -> bool:
    """Whether a tensor is large and in another file."""
    return tensor.data_location == TensorProto.EXTERNAL and _size(tensor) >= LARGE


def _size(tensor: TensorProto) -> int:
    """Bytes according to shape and type; 0 if these are unknown."""
    if tensor.data_type not in NUMBERS or min(tensor.dims, default=0) <= 0:
        return 0
    return prod(tensor.dims) * NUMBERS[tensor.data_type].itemsize


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy with a shape at every input and output: the checker needs it, exporters omit it."""
    if all(v.type.tensor_type.HasField("shape") for v in (*model.graph.input, *model.graph.output)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy


def proto_bytes(model: onnx.ModelProto) -> int:
    """The serialised size; more than PROTO_LIMIT if protobuf cannot serialise it. Needs as much memory."""
    try:
        return model.ByteSize()
    except (EncodeError, ValueError):
        return PROTO_LIMIT + 1


def weight_bytes(graph: onnx.GraphProto) -> int:
    """Bytes of the initializers according to shapes and types; strings count as 0."""
    tensors = [t for t in graph.initializer if t.data_type in NUMBERS]
    return sum(prod(t.dims) * NUMBERS[t.data_type].itemsize for t in tensors)


def external_files(path: Path) -> list[Path]:
    """The external files with weights of an ONNX model; none for a file that is no model."""
    if path.suffix == ".tflite" or not _mentions(path, b"location"):
        return []
    try:
        with opened(path) as file:
            model = onnx.load(file, "protobuf", load_external_data=False)
    except (DecodeError, OSError):
        return []
    names = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    return [file for name in sorted(names) if (file := _weights_file(path.parent, name)) is not None]


def _weights_file(folder: Path, location: str) -> Path | None:
    """The file of a model's weights; None for a place that ONNX does not allow: outside the folder, or no file."""
    with suppress(ValueError, OSError):
        file = folder / location
        if real(file).is_relative_to(real(folder)) and file.is_file():
            return file
    return None


def _mentions(path: Path, word: bytes) -> bool:
    """Whether a file contains a word, read in small pieces; False if it cannot be read."""
    end = b""
    try:
        with opened(path) as file:
            while block := file.read(LARGE):
                if word in end + block:
                    return True
                end = block[1 - len(word) :]
    except OSError:
        return False
    return False


def save_external(model: onnx.ModelProto, path: Path) -> None:
    """Write a model whose tensors are too large for one protobuf, with the tensors in an external file."""
    onnx.save_model(model, path, save_as_external_data=True, location="weights")


def _names_unknown_op(model: onnx.ModelProto) -> bool:
    """Whether ONNX itself does not know an op: the checker would name the first, the importer names all."""
    functions = {(f.domain, f.name) for f in model.functions}
    version = opset_version(model)
    return any(
        node.domain in DEFAULT_DOMAINS
        and (node.domain, node.op_type) not in functions
        and not onnx.defs.has(node.op_type, version, "")
        for node in model.graph.node
    )


def opset_version(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of an operator set that the model imports, 0 if it does not."""
    wanted = DEFAULT_DOMAINS if domain in DEFAULT_DOMAINS else (domain,)
    return next((o.version for o in model.opset_import if o.domain in wanted), 0)


def default_name(source: Source) -> str:
    """A name for the module: the file's stem, or the graph's name."""
    return source.graph.name or "model" if isinstance(source, onnx.ModelProto) else Path(source).stem


def live_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that the graph's outputs depend on, in order."""
    return live_nodes_of(graph.node, {output.name for output in graph.output})


def live_nodes_of(nodes: Sequence[onnx.NodeProto], names: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that tensors depend on, in order."""
    needed = set(names)
    live: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(reads(node))
            live.append(node)
    return live[::-1]


def reads(node: onnx.NodeProto) -> set[str]:
    """Names a node reads, those its subgraphs take from outside included."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                found |= reads(inner)
    return found


def graph_inputs(
    graph: onnx.GraphProto, input_shapes: Mapping[str, Sequence[int]] | None, label: str
) -> list[GraphInput]:
    """The inputs that are no initializers, with `input_shapes` in place of the declared shapes.

    Raises ImportModelError for a name that is no input, a wrong rank or a dim below 1.
    """
    initializers = {t.name for t in graph.initializer}
    found = {v.name: _graph_input(v) for v in graph.input if v.name not in initializers}
    for name, shape in (input_shapes or {}).items():
        if name not in found:
            raise ImportModelError(f"model '{label}': no input '{name}', its inputs are {', '.join(found) or '(none)'}")
        dims = found[name].dims
        if dims is not None and len(dims) != len(shape):
            raise ImportModelError(
                f"model '{label}': input '{name}' has rank {len(dims)} {dims_text(dims)}, got {dims_text(shape)}"
            )
        if any(size < 1 for size in shape):
            raise ImportModelError(f"model '{label}': input '{name}': dims of 1 or more are required, got {shape}")
        found[name] = GraphInput(name, found[name].elem_type, tuple(int(size) for size in shape))
    return list(found.values())


def _graph_input(value: onnx.ValueInfoProto) -> GraphInput:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return GraphInput(value.name, tensor.elem_type, None)
    dims = tuple(d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in tensor.shape.dim)
    return GraphInput(value.name, tensor.elem_type, dims)


def check_inputs(inputs: Iterable[GraphInput], label: str) -> None:
    """Check that all inputs are static and of numbers or bools; one ImportModelError names all others."""
    inputs = list(inputs)
    wrong = [f"'{i.name}' is {type_text(i.elem_type)}" for i in inputs if i.elem_type not in NUMBERS]
    if wrong:
        raise ImportModelError(
            f"model '{label}': inputs of floats, integers or bools are required, got {', '.join(wrong)}; export the "
            "model with others"
        )
    dynamic = [i for i in inputs if i.shape is None]
    if dynamic:
        got = ", ".join(f"'{i.name}' has shape {dims_text(i.dims)}" for i in dynamic)
        example = {i.name: _suggested(i.dims) for i in dynamic}
        asked = list(dict.fromkeys(d for shape in example.values() for d in shape if isinstance(d, str)))
        typed = " ".join(shlex.quote(f"{name}={'x'.join(map(str, shape))}") for name, shape in example.items())
        written = ", ".join(f"{name!r}: {dims_text(shape)}" for name, shape in example.items())
        numbers = f" with numbers for {', '.join(asked)}" if asked else ""
        raise ImportModelError(
            f"model '{label}': static input shapes are required, got {got}; give them as "
            f"{option('input_shapes', written=f'{{{written}}}', typed=typed)}{numbers}"
        )
    large = [f"'{i.name}' has shape {dims_text(i.dims)}" for i in inputs if prod(i.shape or ()) > LARGEST]
    if large:
        raise ImportModelError(
            f"model '{label}': inputs of at most {LARGEST:,} elements are required, got {', '.join(large)}; give "
            f"others with {option('input_shapes')}"
        )


def _suggested(dims: Sequence[int | str] | None) -> list[int | str]:
    """A suggested shape for the command line: a batch of 1, a placeholder for every other unknown dim."""
    if dims is None:
        return ["EXTENTS"]
    letters = AXES.get(len(dims), tuple(f"D{axis}" for axis in range(len(dims))))
    words = (d if isinstance(d, int) or re.fullmatch(WORD, d) else x for d, x in zip(dims, letters, strict=True))
    return [1 if axis == 0 and isinstance(word, str) else word for axis, word in enumerate(words)]


def declare_inputs(graph: onnx.GraphProto, inputs: Sequence[GraphInput]) -> None:
    """Leave only `inputs` (and initializers) as graph inputs, with their shapes; drop every shape that follows."""
    shapes = {i.name: i for i in inputs}
    initializers = {t.name for t in graph.initializer}
    kept = [v for v in graph.input if v.name in initializers]
    made = [helper.make_tensor_value_info(i.name, i.elem_type, i.shape) for i in shapes.values()]
    del graph.input[:], graph.value_info[:]
    graph.input.extend([*made, *kept])
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")


def dims_text(dims: Sequence[int | str] | None) -> str:
    """Dims in parentheses, a free one by its symbol."""
    return "of unknown rank" if dims is None else f"({', '.join(map(str, dims))})"


def type_text(elem_type: int) -> str:
    """An ONNX element type as ONNX calls it."""
    return TensorProto.DataType.Name(elem_type).lower() if elem_type else "no tensor"  # type: ignore[arg-type]


def first_line(error: Exception) -> str:
    """The first line of a message that may go on with a dump of the proto."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
