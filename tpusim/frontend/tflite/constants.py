"""Weights stored in fewer bits, converted to the constants that ops read."""

from dataclasses import replace

import numpy as np

from tpusim.frontend.tflite.file import Graph, Operator, Tensor


def with_constants(graph: Graph) -> Graph:
    """The graph without the Dequantize ops of constants: their results are constants.

    float16 constants become float32 with the same values; integers keep their scales.
    """
    tensors, operators = list(graph.tensors), list[Operator]()
    for op in graph.operators:
        source = tensors[op.inputs[0]] if op.kind == "DEQUANTIZE" else None
        if source is None or source.data is None or op.outputs[0] in graph.outputs:
            operators.append(op)
        else:
            tensors[op.outputs[0]] = _stored(source, tensors[op.outputs[0]].name)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _stored(source: Tensor, name: str) -> Tensor:
    if source.data is not None and source.dtype == np.float16:
        return replace(source, name=name, dtype=np.dtype(np.float32), data=source.data.astype(np.float32))
    return replace(source, name=name)
