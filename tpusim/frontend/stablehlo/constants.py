"""Arrays of constants in the text of a module."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir import ir

from tpusim.errors import UnsupportedError

ALIGNED = 4
"""Bytes of a resource before its elements: their alignment."""
BYTES = {"bf16": "<u2", "f16": "<f2", "f32": "<f4", "f64": "<f8"} | {
    f"{sign}{bits}": f"<{kind}{bits // 8}" for sign, kind in (("i", "i"), ("ui", "u")) for bits in (8, 16, 32, 64)
}
"""Element types of StableHLO -> how a resource stores them; a bf16 is the upper half of an f32."""


def resources(module: Any) -> dict[str, bytes]:
    """What a module has at its end: the bytes of `dense_resource` constants by name, as PyTorch's weights."""
    _, _, end = str(module.operation.get_asm(large_elements_limit=1)).rpartition("{-#")
    found = re.findall(r'"?([^\s":]+)"?: "0x([0-9A-Fa-f]*)"', end)
    return {name: bytes.fromhex(digits)[ALIGNED:] for name, digits in found}


def array_of(attribute: Any, dtype: np.dtype, stored: Callable[[], Mapping[str, bytes]]) -> np.ndarray:
    """The elements of a dense attribute; equal ones are stored once (strides of 0). stored: the module's resources.

    Raises UnsupportedError for a constant whose elements the file leaves out.
    """
    shape = tuple(ir.ShapedType(attribute.type).shape)
    if (text := str(attribute)[:1000]).startswith("dense_resource"):
        name, element = text.partition("<")[2].partition(">")[0], str(ir.ShapedType(attribute.type).element_type)
        content = stored().get(name)
        if content is None or element not in BYTES or len(content) != _size(shape, element):
            raise UnsupportedError(
                f"a constant with its elements in the file is required, got dense_resource<{name}> of {element}, which "
                "the file leaves out; write it with its resources or with dense constants"
            )
        found = np.frombuffer(content, BYTES[element])
        found = (found.astype(np.uint32) << 16).view(np.float32) if element == "bf16" else found
        return found.astype(dtype, copy=False).reshape(shape)
    if getattr(attribute, "is_splat", False):
        return np.broadcast_to(np.asarray(attribute.get_splat_value().value, dtype), shape)
    try:
        found = np.array(attribute)
    except TypeError:  # element types that NumPy does not have
        found = np.array([float(number) for number in attribute], dtype)
    except ValueError as error:
        raise UnsupportedError(f"a dense constant is required, got {str(attribute)[:60]}") from error
    return found.astype(dtype, copy=False).reshape(shape)


def _size(shape: tuple[int, ...], element: str) -> int:
    """Bytes of a tensor in a resource."""
    return prod(shape) * np.dtype(BYTES[element]).itemsize
