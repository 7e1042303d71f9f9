"""What each op is: one file (or package) per family of ops answers all questions that the stages ask of an op.

`framework.base` defines the questions, `framework.families` has shared answers. A new op is a class in a file here, a
line in `MODULES`, a kernel in `tpusim_kernels` and a row in tests/op_cases.py. This package knows no stage and no
framework; it uses ir, isa, chips and the kernels. Front ends build modules with the `make` of top ops and a
`framework.builder.ModuleBuilder`. The dialects `top` and `tpu` below contain the ops of both levels;
`tpusim.ir.dialects` loads these dialects and those of other packages.
"""

from types import ModuleType

from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Dialect, Operation

from tpusim.ir.attrs import LayerGroupAttr
from tpusim.ir.dialects import context, op_classes
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
    host_function,
    layernorm,
    lrn,
    matmul,
    minmax,
    mul,
    nms,
    norm,
    pad,
    permute,
    pixelnorm,
    pool,
    power,
    recurrent,
    reduce,
    relu,
    requant_axis,
    rescale,
    resize,
    reverse,
    rmsnorm,
    slice,
    softmax,
    structure,
    sub,
    swap_dim,
    tile,
    view,
    where,
)

MODULES: tuple[ModuleType, ...] = (
    structure, cast, rescale, requant_axis, conv, deconv, matmul, attention, pool, add, mul, concat, view, permute,
    softmax, lrn, norm, relu, activation, hard, host_function, layernorm, groupnorm, pixelnorm, reduce,
    sub, minmax, const_binary, pad, slice, tile, resize, compare, where, arg, elements,
    cumulate, power, grid_sampler, depth2space, swap_dim, reverse, rmsnorm, frames, nms,
    recurrent,
)  # fmt: skip


def _classes() -> list[type[Operation]]:
    classes: dict[str, type[Operation]] = {}
    for module in MODULES:
        for value in vars(module).values():
            # `__mro__` first, for speed: `issubclass` asks all subclasses of Operation about a class that is none
            if (
                isinstance(value, type)
                and Operation in value.__mro__
                and issubclass(value, Operation)
                and hasattr(value, "name")
            ):
                classes[value.name] = value
    return [classes[name] for name in sorted(classes)]


_ALL = [c for c in _classes() if c is not UnregisteredOp]
Top = Dialect("top", [c for c in _ALL if c.name.startswith("top.")], [])
Tpu = Dialect("tpu", [c for c in _ALL if c.name.startswith("tpu.")], [LayerGroupAttr, *MODE_ATTRIBUTES])

__all__ = ["Top", "Tpu", "context", "op_classes"]
