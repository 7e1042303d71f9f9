"""Tiny TFLite files, written with the schema of the package `tflite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {np.dtype(v): getattr(tflite.TensorType, k) for k, v in {
    "FLOAT32": np.float32, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "INT16": np.int16,
    "FLOAT16": np.float16, "INT64": np.int64, "BOOL": np.bool_,
}.items()}  # fmt: skip


@dataclass(frozen=True)
class T:
    """A tensor; scale and zero may be lists, along `axis`."""

    name: str
    shape: Sequence[int]
    dtype: Any = np.int8
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    data: np.ndarray | None = None


@dataclass(frozen=True)
class Op:
    """An op; options: fields of its table by name, as `OPTIONS` lists the table."""

    kind: str
    inputs: Sequence[str]
    output: str | Sequence[str]
    options: Mapping[str, Any] | None = None

    @property
    def outputs(self) -> Sequence[str]:
        """All results."""
        return [self.output] if isinstance(self.output, str) else self.output


OPTIONS = {
    "CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions", "ADD": "AddOptions", "MUL": "MulOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions", "AVERAGE_POOL_2D": "Pool2DOptions", "MAX_POOL_2D": "Pool2DOptions",
    "SOFTMAX": "SoftmaxOptions", "CONCATENATION": "ConcatenationOptions", "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions", "L2_POOL_2D": "Pool2DOptions", "GATHER": "GatherOptions",
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "ReducerOptions"),
    "STRIDED_SLICE": "StridedSliceOptions", "MIRROR_PAD": "MirrorPadOptions", "PACK": "PackOptions",
    "UNPACK": "UnpackOptions", "SPLIT": "SplitOptions", "SPLIT_V": "SplitVOptions", "CAST": "CastOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions", "LEAKY_RELU": "LeakyReluOptions", "DIV": "DivOptions",
    "SUB": "SubOptions", "DEPTH_TO_SPACE": "DepthToSpaceOptions", "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "BATCH_MATMUL": "BatchMatMulOptions", "ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions",
    "L2_NORMALIZATION": "L2NormOptions", "LOCAL_RESPONSE_NORMALIZATION": "LocalResponseNormalizationOptions",
    "CUMSUM": "CumsumOptions", "ONE_HOT": "OneHotOptions", "GELU": "GeluOptions", "SHAPE": "ShapeOptions",
}  # fmt: skip


def written(tensors: Sequence[T], ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The bytes of a file of one subgraph."""
    b = flatbuffers.Builder(1024)
    numbers = {t.name: i for i, t in enumerate(tensors)}
    buffers = [_buffer(b, None), *(_buffer(b, t.data) for t in tensors)]
    made = [_tensor(b, t, i + 1) for i, t in enumerate(tensors)]
    kinds = list(dict.fromkeys(op.kind for op in ops))
    operators = [_operator(b, op, kinds, numbers) for op in ops]
    fields = [
        _table(b, tflite.SubGraphStartTensorsVector, made), _ints(b, [numbers[n] for n in inputs]),
        _ints(b, [numbers[n] for n in outputs]), _table(b, tflite.SubGraphStartOperatorsVector, operators),
    ]  # fmt: skip
    tflite.SubGraphStart(b)
    for add, field in zip((tflite.SubGraphAddTensors, tflite.SubGraphAddInputs, tflite.SubGraphAddOutputs,
                           tflite.SubGraphAddOperators), fields, strict=True):  # fmt: skip
        add(b, field)
    graph = tflite.SubGraphEnd(b)
    codes = [_code(b, kind) for kind in kinds]
    parts = [_table(b, start, items) for start, items in (
        (tflite.ModelStartSubgraphsVector, [graph]), (tflite.ModelStartOperatorCodesVector, codes),
        (tflite.ModelStartBuffersVector, buffers))]  # fmt: skip
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    for add, part in zip(
        (tflite.ModelAddSubgraphs, tflite.ModelAddOperatorCodes, tflite.ModelAddBuffers), parts, strict=True
    ):
        add(b, part)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def _table(b: Any, start: Any, items: Sequence[int]) -> int:
    start(b, len(items))
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return b.EndVector()


def _ints(b: Any, numbers: Sequence[int]) -> int:
    return b.CreateNumpyVector(np.asarray(numbers, np.int32))


def _buffer(b: Any, data: np.ndarray | None) -> int:
    content = None if data is None else b.CreateNumpyVector(np.frombuffer(data.tobytes(), np.uint8))
    tflite.BufferStart(b)
    if content is not None:
        tflite.BufferAddData(b, content)
    return tflite.BufferEnd(b)


def _tensor(b: Any, t: T, buffer: int) -> int:
    name, shape, params = b.CreateString(t.name), _ints(b, t.shape), None
    if t.scale is not None:
        scales = b.CreateNumpyVector(np.atleast_1d(np.asarray(t.scale, np.float32)))
        zeros = b.CreateNumpyVector(np.broadcast_to(np.asarray(t.zero, np.int64), np.atleast_1d(t.scale).shape).copy())
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scales)
        tflite.QuantizationParametersAddZeroPoint(b, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(b, t.axis)
        params = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddName(b, name)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, TYPES[np.dtype(t.dtype)])
    tflite.TensorAddBuffer(b, buffer)
    if params is not None:
        tflite.TensorAddQuantization(b, params)
    return tflite.TensorEnd(b)


def _code(b: Any, kind: str) -> int:
    number = {name: n for n, name in tflite.BUILTIN_OPCODE2NAME.items()}[kind]
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(b, number)
    tflite.OperatorCodeAddVersion(b, 2 if kind == "BROADCAST_TO" else 1)
    return tflite.OperatorCodeEnd(b)


def _operator(b: Any, op: Op, kinds: Sequence[str], numbers: Mapping[str, int]) -> int:
    inputs, outputs = _ints(b, [numbers.get(n, -1) for n in op.inputs]), _ints(b, [numbers[n] for n in op.outputs])
    table = OPTIONS.get(op.kind) if op.options is not None else None
    options = None
    if table is not None:
        getattr(tflite, f"{table}Start")(b)
        for key, value in (op.options or {}).items():
            getattr(tflite, f"{table}Add{key}")(b, value)
        options = getattr(tflite, f"{table}End")(b)
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, kinds.index(op.kind))
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, table))
        tflite.OperatorAddBuiltinOptions(b, options)
    return tflite.OperatorEnd(b)
