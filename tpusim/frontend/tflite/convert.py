"""The ONNX nodes of each TFLite op; `onnx_of_tflite` converts a whole file."""

import os
from collections.abc import Callable

import onnx

from tpusim.errors import ImportModelError, UnsupportedError, first_line
from tpusim.frontend.tflite import arithmetic, moves, windows
from tpusim.frontend.tflite.activation import CLIPS, FUNCTIONS
from tpusim.frontend.tflite.constants import with_constants
from tpusim.frontend.tflite.file import DAMAGE, Graph, Operator, read_tflite
from tpusim.frontend.tflite.writer import Writer


def onnx_of_tflite(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The network of a file as a QDQ model.

    Raises ConfigError without the package `tflite`, ImportModelError for a damaged file, UnsupportedError with one line
    per kind of unsupported op.
    """
    label = f"model '{os.fspath(path)}'"
    try:
        return _written(with_constants(read_tflite(path)), label)
    except DAMAGE as error:
        raise ImportModelError(f"{label}: an op lacks operands, results or options ({first_line(error)})") from error


def _written(graph: Graph, label: str) -> onnx.ModelProto:
    refused: dict[str, list[str]] = {}
    writer = Writer(graph)
    for op in graph.operators:
        if why := _tried(writer, op):
            refused.setdefault(f"{op.kind}: {why}", []).append(graph.tensors[op.outputs[0]].name)
    if not refused:
        return writer.model()
    lines = [f"  {why} ({len(names)}, first '{names[0]}')" for why, names in refused.items()]
    raise UnsupportedError(f"{label}: {len(lines)} kinds of op are not supported:", *lines)


def _tried(writer: Writer, op: Operator) -> str:
    """Write an op and return "", or the reason why it is refused; later ops are examined as well."""
    why = "tpusim has no such op"
    try:
        if op.kind in OPS:
            OPS[op.kind](writer, op)
            return ""
    except UnsupportedError as error:
        why = str(error)
    for number in op.outputs:
        writer.stand_in(number)
    return why


OPS: dict[str, Callable[[Writer, Operator], None]] = {
    **dict.fromkeys((*FUNCTIONS, *CLIPS), arithmetic.unary),
    **dict.fromkeys(arithmetic.BINARY, arithmetic.binary),
    **dict.fromkeys(arithmetic.REDUCTIONS, arithmetic.reduce),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), windows.convolution),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), windows.pool),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), windows.resize),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), windows.blocks),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), moves.reshape),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), moves.split),
    **dict.fromkeys(("PAD", "PADV2"), moves.pad),
    **dict.fromkeys(("GATHER", "EMBEDDING_LOOKUP"), moves.gather),
    **dict.fromkeys(("SHAPE", "RANK"), moves.extents),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), moves.batch_blocks),
    **dict.fromkeys(("SQUARE", "SQUARED_DIFFERENCE"), arithmetic.square),
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD"), arithmetic.floor_pair),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), arithmetic.softmax),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), arithmetic.arg),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), arithmetic.requantise),
    "TRANSPOSE_CONV": windows.transposed_convolution, "FULLY_CONNECTED": arithmetic.fully_connected,
    "BATCH_MATMUL": arithmetic.batch_matmul, "LEAKY_RELU": arithmetic.leaky_relu, "PRELU": arithmetic.prelu,
    "RSQRT": arithmetic.rsqrt, "SELECT": arithmetic.select, "GELU": arithmetic.gelu, "NOT_EQUAL": arithmetic.not_equal,
    "TOPK_V2": arithmetic.top_k, "L2_NORMALIZATION": arithmetic.l2_normalize,
    "LOCAL_RESPONSE_NORMALIZATION": arithmetic.local_response, "CUMSUM": arithmetic.cumulate, "CAST": arithmetic.cast,
    "TRANSPOSE": moves.transpose, "MIRROR_PAD": moves.mirror_pad, "CONCATENATION": moves.concat, "PACK": moves.pack,
    "UNPACK": moves.unpack, "SLICE": moves.slice_, "STRIDED_SLICE": moves.strided_slice, "TILE": moves.tile,
    "BROADCAST_TO": moves.broadcast, "REVERSE_V2": moves.reverse, "ZEROS_LIKE": moves.zeros, "ONE_HOT": moves.one_hot,
}  # fmt: skip
"""TFLite op -> the function that writes its nodes."""
