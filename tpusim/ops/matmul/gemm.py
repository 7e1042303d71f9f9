"""alpha*A'*B' + beta*C, the GEMM of BLAS, as a `top.MatMul` and, if needed, a `top.Add`."""

from math import prod

import numpy as np
from xdsl.ir import SSAValue

from tpusim.ir.attrs import value_name
from tpusim.ir.types import shape_of
from tpusim.ops.add import TopAdd
from tpusim.ops.framework.base import Builder
from tpusim.ops.framework.building import BuildError
from tpusim.ops.matmul.product import product_shape
from tpusim.ops.matmul.top import TopMatMul


def make_gemm(
    builder: Builder, left: SSAValue, right: SSAValue, term: SSAValue | None = None, *, alpha: float = 1.0,
    beta: float = 1.0, left_transpose: bool = False, right_transpose: bool = False, name: str,
) -> SSAValue:  # fmt: skip
    """A matrix product plus a term that broadcasts to it, constant or computed.

    alpha is multiplied into a constant B, beta into a constant C. A C that is not a row is added by a top.Add. Raises
    BuildError for factors of computed operands and for shapes that do not fit.
    """
    try:
        right, right_transpose = _matrix(builder, right, alpha, right_transpose)
        columns = product_shape(shape_of(left), shape_of(right), (left_transpose, right_transpose), None)[-1]
        row = None if term is None or beta == 0.0 else _row(builder, term, beta, columns)
        added = None if row is not None or term is None or beta == 0.0 else _scaled(builder, term, beta)
    except ValueError as error:
        raise BuildError(TopMatMul.name, name, str(error)) from error
    transposes = {"left_transpose": left_transpose, "right_transpose": right_transpose}
    product = name if added is None else name + "_product"
    y = TopMatMul.make(builder, left, right, row, **transposes, name=product)
    return y if added is None else TopAdd.make(builder, [y, added], name=name)


def _matrix(builder: Builder, right: SSAValue, alpha: float, transposed: bool) -> tuple[SSAValue, bool]:
    """(B, whether it is still transposed); a constant is always stored as (K, N)."""
    constant = builder.array(right)
    if constant is None or not transposed:
        return _scaled(builder, right, alpha), transposed
    matrix = np.ascontiguousarray(constant.T) * np.float32(alpha)
    return builder.weight(value_name(right) + "_transposed", matrix, of=right), False


def _row(builder: Builder, term: SSAValue, beta: float, columns: int) -> SSAValue | None:
    """C as the bias (N,); None if it is computed or not a row."""
    constant = builder.array(term)
    if constant is None:
        return None
    if constant.size == 1 < columns:
        row = np.full(columns, constant.reshape(-1)[0] * np.float32(beta), np.float32)
        return builder.weight(value_name(term) + "_row", row, of=term)
    return _scaled(builder, term, beta) if constant.size == columns == prod(constant.shape[-1:]) else None


def _scaled(builder: Builder, value: SSAValue, factor: float) -> SSAValue:
    """The tensor times a factor. Raises ValueError for another factor than 1 if the tensor is computed."""
    if factor == 1.0:
        return value
    constant = builder.array(value)
    if constant is None:
        name = value_name(value)
        raise ValueError(f"alpha and beta of 1 are required for computed operands, got {factor} for '{name}'")
    return builder.weight(value_name(value) + "_scaled", constant * np.float32(factor), of=value)
