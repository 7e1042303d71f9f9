"""The layout of a whole graph: transpositions are delayed, and most of them cancel.

The operands and results of kernels are NCHW, but convolutions compute in NHWC. In a single kernel the two
transpositions are two copies. In a graph the second transposition of one kernel and the first of the next are inverse,
but the ops between them (requants, additions, pools, concatenations) prevent XLA from cancelling them. Here a traced
graph is evaluated on arrays that may be stored in another order of axes than in the graph. A transposition only renames
axes. Primitives that work element by element or along an axis are applied to the stored array. Other primitives, and
the results of the graph, get the array in the graph's order. Values do not change. Derivatives are not supported;
`Flat` differentiates the traced function itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from tpusim_kernels.lazy import jax, lax

Order = tuple[int, ...]


@dataclass(frozen=True)
class Laid:
    """A stored value: axis i of the array is axis order[i] of the graph's value."""

    array: Any
    order: Order

    @classmethod
    def plain(cls, array: Any) -> "Laid":
        """An array whose axes are in the graph's order."""
        return cls(array, tuple(range(array.ndim)) if hasattr(array, "ndim") else ())

    def in_order(self, order: Order) -> Any:
        """The array with its axes in another order."""
        return self.array if order == self.order else _permuted(self.array, [self.order.index(axis) for axis in order])

    @property
    def meant(self) -> Any:
        """The array in the graph's order of axes."""
        return self.in_order(tuple(sorted(self.order)))


def _permuted(array: Any, permutation: Sequence[int]) -> Any:
    """`lax.transpose` after merging axes that stay together.

    NCHW to NHWC then has rank 3, and XLA does not fold it into a convolution, for which it would not use its library.
    """
    runs: list[list[int]] = []
    for axis in permutation:
        if runs and runs[-1][-1] + 1 == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    stored = sorted(runs)
    merged = lax.reshape(array, [prod(array.shape[axis] for axis in run) for run in stored])
    turned = lax.transpose(merged, [stored.index(run) for run in runs])
    return lax.reshape(turned, [array.shape[axis] for axis in permutation])


ELEMENTWISE = frozenset(
    {
        *("abs", "add", "add_any", "and", "bitcast_convert_type", "ceil", "clamp", "convert_element_type", "copy"),
        *("div", "eq", "exp", "exp2", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p"),
        *("logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "reduce_precision", "rem", "round"),
        *("rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sqrt"),
        *("square", "sub", "tanh", "xor"),
    }
)
REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"})


def with_few_transpositions(body: Callable[..., Any]) -> Callable[..., Any]:
    """`body`, a function that JAX traces, with delayed transpositions; the same results bit for bit."""

    def relaid(*arguments: Any) -> Any:
        closed, shape = cast("Any", jax).make_jaxpr(body, return_shape=True)(*arguments)
        leaves = [Laid.plain(x) for x in jax.tree.leaves(arguments)]
        found = [value.meant for value in _evaluated(closed.jaxpr, closed.consts, leaves)]
        tree = cast("Any", jax).tree
        return tree.unflatten(tree.structure(shape), found)

    return relaid


def _evaluated(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Laid]) -> list[Laid]:
    values: dict[Any, Laid] = dict(zip(jaxpr.constvars, map(Laid.plain, consts), strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Laid:
        return Laid.plain(atom.val) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        with equation.ctx.manager:
            results = _applied(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _applied(equation: Any, operands: list[Laid]) -> Sequence[Laid]:
    name, params = equation.primitive.name, equation.params
    if "jaxpr" in params and name in ("jit", "pjit"):
        inner = params["jaxpr"]
        return _evaluated(inner.jaxpr, inner.consts, operands)
    if name in ("custom_vmap_call", "custom_jvp_call"):
        inner = params["call" if name == "custom_vmap_call" else "call_jaxpr"]
        return _evaluated(inner.jaxpr, inner.consts, operands)
    if name == "optimization_barrier":
        arrays = equation.primitive.bind(*(x.array for x in operands), **params)
        return [Laid(array, x.order) for array, x in zip(arrays, operands, strict=True)]
    if name == "reduce_sum" and operands[0].array.dtype.kind == "f":  # the order of axes is the order of the terms
        return _in_order(equation, operands)
    rule = _RULES.get(name)
    if rule is not None and any(x.order != tuple(sorted(x.order)) for x in operands) or name == "transpose":
        return [cast("Any", rule)(equation, operands)]
    return _in_order(equation, operands)


def _in_order(equation: Any, operands: Sequence[Laid]) -> list[Laid]:
    """Apply any other primitive to arrays in the graph's order."""
    primitive = equation.primitive
    results = primitive.bind(*(x.meant for x in operands), **primitive.get_bind_params(equation.params))
    return [Laid.plain(y) for y in (results if primitive.multiple_results else [results])]


# -------------------------------------------------------------------------- primitives on arrays as they are stored


def _transpose(equation: Any, operands: Sequence[Laid]) -> Laid:
    (x,) = operands
    permutation = equation.params["permutation"]
    return Laid(x.array, tuple(permutation.index(axis) for axis in x.order))


def _elementwise(equation: Any, operands: Sequence[Laid]) -> Laid:
    order = next(x.order for x in operands if x.order != tuple(sorted(x.order)))
    arrays = [x.in_order(order) if len(x.order) == len(order) else x.array for x in operands]
    return Laid(equation.primitive.bind(*arrays, **equation.params), order)


def _pad(equation: Any, operands: Sequence[Laid]) -> Laid:
    x, value = operands
    sides = equation.params["padding_config"]
    return Laid(lax.pad(x.array, value.array, [sides[axis] for axis in x.order]), x.order)


def _slice(equation: Any, operands: Sequence[Laid]) -> Laid:
    (x,), params = operands, equation.params
    strides = params["strides"] or (1,) * len(x.order)
    first, last, step = (
        [along[axis] for axis in x.order] for along in (params["start_indices"], params["limit_indices"], strides)
    )
    return Laid(lax.slice(x.array, first, last, step), x.order)


def _concatenate(equation: Any, operands: Sequence[Laid]) -> Laid:
    order = max(operands, key=lambda x: (x.order != tuple(sorted(x.order)), x.array.size)).order
    axis = order.index(equation.params["dimension"])
    return Laid(lax.concatenate([x.in_order(order) for x in operands], axis), order)


def _reduce(equation: Any, operands: Sequence[Laid]) -> Laid:
    (x,) = operands
    axes = equation.params["axes"]
    params = {**equation.params, "axes": tuple(sorted(x.order.index(axis) for axis in axes))}
    left = [axis for axis in x.order if axis not in axes]
    return Laid(equation.primitive.bind(x.array, **params), tuple(sorted(left).index(axis) for axis in left))


def _reshape(equation: Any, operands: Sequence[Laid]) -> Laid:
    """A reshape of a stored array: axes that are merged or split are made adjacent; the others keep their place."""
    (x,), sizes = operands, equation.params["new_sizes"]
    place = {axis: i for i, axis in enumerate(x.order)}
    meant = [x.array.shape[place[axis]] for axis in range(len(x.order))]

    def stored(group: tuple[list[int], list[int]]) -> int:
        return max((place[axis] for axis in group[0] if meant[axis] != 1), default=-1)

    groups = sorted(_groups(meant, list(sizes)), key=stored)
    array = x.in_order(tuple(axis for old, _ in groups for axis in old))
    order = tuple(axis for _, made in groups for axis in made)
    return Laid(lax.reshape(array, [sizes[axis] for axis in order]), order)


def _groups(old: list[int], new: list[int]) -> list[tuple[list[int], list[int]]]:
    """Pairs of (axes before, axes after) of equal size, as short as possible."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(a), j + len(b)
        while prod(old[k] for k in a) != prod(new[k] for k in b):
            if prod(old[k] for k in a) < prod(new[k] for k in b):
                a, i = [*a, i], i + 1
            else:
                b, j = [*b, j], j + 1
        found.append((a, b))
    return found


_RULES: dict[str, Callable[[Any, list[Laid]], Laid]] = {
    "transpose": _transpose, "pad": _pad, "slice": _slice, "concatenate": _concatenate, "reshape": _reshape,
    **dict.fromkeys(ELEMENTWISE, _elementwise), **dict.fromkeys(REDUCTIONS, _reduce),
}  # fmt: skip
