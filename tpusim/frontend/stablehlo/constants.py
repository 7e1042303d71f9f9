"""Arrays of constants in the text of a module."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import numpy as np
from jax.extend.mlir import ir

from tpusim.errors import UnsupportedError


def array_of(attribute: Any, dtype: np.dtype) -> np.ndarray:
    """The elements of a dense attribute; equal ones are stored once (strides of 0)."""
    if (text := str(attribute)[:60]).startswith("dense_resource"):
        name = text.partition(">")[0]
        raise UnsupportedError(
            f"a constant with its elements in place is required, got {name}>, which the file leaves out or has at its "
            "end; write it with dense constants"
        )
    shape = tuple(ir.ShapedType(attribute.type).shape)
    if getattr(attribute, "is_splat", False):
        return np.broadcast_to(np.asarray(attribute.get_splat_value().value, dtype), shape)
    try:
        found = np.array(attribute)
    except TypeError:  # element types that NumPy does not have
        found = np.array([float(number) for number in attribute], dtype)
    except ValueError as error:
        raise UnsupportedError(f"a dense constant is required, got {str(attribute)[:60]}") from error
    return found.astype(dtype, copy=False).reshape(shape)
