"""Inputs that are fixed to values become constants, so that nodes that depend on them alone are evaluated at import."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.element_types import dtype_of
from tpusim.frontend.onnx.model_file import NUMBERS, GraphInput, dims_text, graph_inputs, type_text
from tpusim.numbers.border import converts


def fix_inputs(graph: onnx.GraphProto, values: Mapping[str, Any], label: str) -> None:
    """Replace inputs by constants, in place; values: numbers by input name, as in `Cut`.

    Raises ImportModelError for a name that no input has, and for values that do not fit its type or shape.
    """
    inputs = {i.name: i for i in graph_inputs(graph, None, label)}
    for name, value in values.items():
        if name not in inputs:
            known = ", ".join(inputs) or "(none)"
            raise ImportModelError(f"model '{label}': no input '{name}' to fix to a value, its inputs are {known}")
        graph.initializer.append(numpy_helper.from_array(_array(np.asarray(value), inputs[name], label), name))
    kept = [i for i in graph.input if i.name not in values]
    del graph.input[:]
    graph.input.extend(kept)


def _array(given: np.ndarray, wanted: GraphInput, label: str) -> np.ndarray:
    """The values in the type and the shape of an input."""
    where = f"model '{label}': input '{wanted.name}'"
    if wanted.elem_type not in NUMBERS:
        raise ImportModelError(f"{where} is {type_text(wanted.elem_type)}, which no number is a value of")
    shape, dtype = _shape(given, wanted.dims), dtype_of(wanted.elem_type)
    if shape is None:
        raise ImportModelError(
            f"{where} has shape {dims_text(wanted.dims)}: one number, or one for each element, is required, got "
            f"{given.size} of shape {given.shape}"
        )
    if not converts(given, dtype):
        raise ImportModelError(
            f"{where} is {type_text(wanted.elem_type)}: values that it holds are required, got "
            f"{', '.join(map(str, given.reshape(-1)[:8].tolist()))}"
        )
    return np.broadcast_to(given.astype(dtype).reshape(shape if given.size == prod(shape) else ()), shape)


def _shape(given: np.ndarray, dims: tuple[int | str, ...] | None) -> tuple[int, ...] | None:
    """The extents of an input with these values, None if they do not fit; a free dim is 1 for a single number."""
    if dims is None:
        return given.shape
    free, known = sum(isinstance(d, str) for d in dims), prod(d for d in dims if isinstance(d, int))
    if given.ndim > 1:
        if given.ndim != len(dims) or any(d != n for d, n in zip(dims, given.shape, strict=True) if isinstance(d, int)):
            return None
        return given.shape
    if given.size == 1:
        return tuple(d if isinstance(d, int) else 1 for d in dims)
    if not given.size or given.size % known or free > 1 or (not free and given.size != known):
        return None
    return tuple(d if isinstance(d, int) else given.size // known for d in dims)
