"""A TFLite flatbuffer as plain data; all of its content is checked."""

# the generated readers of the package are not annotated:
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tpusim.errors import ConfigError, ImportModelError, first_line
from tpusim.host import files
from tpusim.ir.content import what_it_is

IDENTIFIER = b"TFL3"
TYPES: Mapping[str, Any] = {
    "FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16,
    "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, KeyError, OverflowError, UnicodeError)
"""Exceptions that reading a damaged file may raise."""


@dataclass(frozen=True)
class Tensor:
    """data: of a constant; scales: none, one, or one for each index of `axis`."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data: np.ndarray | None
    scales: np.ndarray
    zero_points: np.ndarray
    axis: int


@dataclass(frozen=True)
class Operator:
    """An op. inputs: numbers of tensors, -1 if absent; options: the reader of the op's options table, or None."""

    kind: str
    options: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def option(self, name: str, default: Any) -> Any:
        """A field of the op's options table; default: its value if the file has no such table."""
        return default if self.options is None else getattr(self.options, name)()


@dataclass(frozen=True)
class Graph:
    """The first subgraph of a file."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read_tflite(path: str | os.PathLike[str]) -> Graph:
    """Read a file. Raises ConfigError without the package `tflite`, ImportModelError for a damaged file."""
    try:
        import tflite  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            f"model '{os.fspath(path)}': TFLite files need the package tflite: pip install 'tpusim[tflite]'"
        ) from error
    try:
        content = files.content(path)
    except IsADirectoryError as error:
        raise ImportModelError(f"model '{os.fspath(path)}' is {what_it_is(path)}") from error
    except OSError as error:
        raise ImportModelError(f"model '{os.fspath(path)}' cannot be read: {error.strerror or error}") from error
    if content[4:8] != IDENTIFIER:
        found = what_it_is(path) or "no TFLite file, its bytes 4 to 8 must be TFL3"
        raise ImportModelError(f"model '{os.fspath(path)}' is {found}")
    try:
        return _Reader(tflite, content).graph()
    except DAMAGE as error:
        raise ImportModelError(
            f"model '{os.fspath(path)}' is damaged or cut off ({first_line(error)}); convert it again"
        ) from error


def _names(enumeration: Any) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


class _Reader:
    """Reads the tables of one TFLite file."""

    def __init__(self, schema: Any, content: bytes) -> None:
        self._schema, self._size = schema, len(content)
        self._model = schema.Model.GetRootAs(content, 0)
        self._types, self._options = _names(schema.TensorType), _names(schema.BuiltinOptions)

    def graph(self) -> Graph:
        """The subgraph, every number in it within the file."""
        if self._model.SubgraphsLength() != 1:
            raise ValueError(f"one subgraph is required, it has {self._model.SubgraphsLength()}")
        graph = self._model.Subgraphs(0)
        tensors = tuple(self._tensor(graph.Tensors(i), i) for i in range(self._counted(graph.TensorsLength())))
        operators = tuple(self._operator(graph.Operators(i)) for i in range(self._counted(graph.OperatorsLength())))
        found = Graph(tensors, operators, self._numbers(graph.InputsAsNumpy()), self._numbers(graph.OutputsAsNumpy()))
        self._require_known(found)
        return found

    def _require_known(self, found: Graph) -> None:
        used = [n for op in found.operators for n in (*op.inputs, *op.outputs) if n != -1]
        wrong = [n for n in (*used, *found.inputs, *found.outputs) if not 0 <= n < len(found.tensors)]
        if wrong:
            raise ValueError(f"tensor number {wrong[0]} is used, but there are only {len(found.tensors)} tensors")
        names = [t.name for t in found.tensors]
        if len(set(names)) != len(names) or "" in names:
            raise ValueError("each tensor must have a name, and no two the same")

    def _counted(self, number: int) -> int:
        if number > self._size:
            raise ValueError(f"a list declares {number} entries, the file has only {self._size} bytes")
        return number

    def _numbers(self, found: Any) -> tuple[int, ...]:
        return () if isinstance(found, int) else tuple(int(n) for n in found)

    def _tensor(self, found: Any, number: int) -> Tensor:
        shape = self._numbers(found.ShapeAsNumpy())
        name = "_".join(found.Name().decode().split())
        kind = self._types.get(found.Type(), f"type {found.Type()}")
        if kind not in TYPES or any(n < 1 for n in shape):
            raise ValueError(
                f"tensor {number} '{name}': {', '.join(TYPES)} of 1 and more are required, got {kind} {shape}"
            )
        dtype = np.dtype(TYPES[kind])
        scales, zeros, axis = self._quantisation(found.Quantization())
        return Tensor(name, shape, dtype, self._data(found.Buffer(), shape, dtype), scales, zeros, axis)

    def _data(self, buffer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray | None:
        data = self._model.Buffers(buffer).DataAsNumpy() if buffer else 0
        if isinstance(data, int):
            return None
        if len(data) != prod(shape) * dtype.itemsize:
            raise ValueError(f"a buffer of {prod(shape) * dtype.itemsize} bytes is required, got {len(data)}")
        return np.frombuffer(data.tobytes(), dtype).reshape(shape)

    def _quantisation(self, found: Any) -> tuple[np.ndarray, np.ndarray, int]:
        if found is None or not found.ScaleLength():
            return np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        scales = np.asarray(found.ScaleAsNumpy(), np.float32)
        zeros = (
            np.asarray(found.ZeroPointAsNumpy(), np.int64) if found.ZeroPointLength() else np.zeros(len(scales), int)
        )
        if len(zeros) != len(scales) or not (np.isfinite(scales) & (scales > 0)).all():
            raise ValueError(f"scales above 0, each with a zero point, are required, got {scales[:4]} and {zeros[:4]}")
        return scales, zeros, int(found.QuantizedDimension())

    def _operator(self, found: Any) -> Operator:
        code = self._model.OperatorCodes(found.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = self._schema.BUILTIN_OPCODE2NAME.get(number, f"operator {number}")
        if kind == "CUSTOM" and code.CustomCode():
            kind = f"CUSTOM {code.CustomCode().decode()}"
        options, table = None, found.BuiltinOptions()
        name = self._options.get(found.BuiltinOptionsType(), "NONE")
        if table is not None and name != "NONE":
            options = getattr(self._schema, name)()
            options.Init(table.Bytes, table.Pos)
        inputs, outputs = (self._numbers(n) for n in (found.InputsAsNumpy(), found.OutputsAsNumpy()))
        return Operator(kind, options, inputs, outputs)
