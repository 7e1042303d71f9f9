"""WHAT each op is: one file (or package) per family answers, top to bottom, every question the stages ask of it.

`base` defines the questions, `families` shared answers. A new op is a class in a file here, a line in `MODULES`, its
kernels in `tpusim_kernels`, and a row in tests/op_cases.py. Nothing in this package knows a stage or a framework; it
may use ir, isa, chips and the kernels. Front ends append top ops by their `make` to a `builder.ModuleBuilder`. The
dialects `top` and `tpu` below are all ops of both levels; `dialects` loads them and those of other packages.
"""

from types import ModuleType

from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Dialect, Operation

from tpusim.ir.attrs import LayerGroupAttr
from tpusim.ir.modes import MODE_ATTRIBUTES
from tpusim.ops import (
    activation,
    add,
    arg,
    attention,
    cast,
    compare,
    concat,
    const_binary,
    conv,
    cumulate,
    deconv,
    depth2space,
    elements,
    frames,
    grid_sampler,
    groupnorm,
    hard,
    layernorm,
    lrn,
    matmul,
    minmax,
    mul,
    nms,
    norm,
    pad,
    permute,
    pool,
    power,
    reduce,
    relu,
    requant_axis,
    rescale,
    resize,
    rmsnorm,
    slice,
    softmax,
    structure,
    sub,
    tile,
    view,
    where,
)
from tpusim.ops.framework.dialects import context, op_classes

MODULES: tuple[ModuleType, ...] = (
    structure, cast, rescale, requant_axis, conv, deconv, matmul, attention, pool, add, mul, concat, view, permute,
    softmax, lrn, norm, relu, activation, hard, layernorm, groupnorm, reduce,
    sub, minmax, const_binary, pad, slice, tile, resize, compare, where, arg, elements,
    cumulate, power, grid_sampler, depth2space, rmsnorm, frames, nms,
)  # fmt: skip


def _classes() -> list[type[Operation]]:
    found: dict[str, type[Operation]] = {}
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Operation) and hasattr(value, "name"):
                found[value.name] = value
    return [found[name] for name in sorted(found)]


_ALL = [c for c in _classes() if c is not UnregisteredOp]
Top = Dialect("top", [c for c in _ALL if c.name.startswith("top.")], [])
Tpu = Dialect("tpu", [c for c in _ALL if c.name.startswith("tpu.")], [LayerGroupAttr, *MODE_ATTRIBUTES])

__all__ = ["Top", "Tpu", "context", "op_classes"]
