"""Ops that move, choose or mask elements, decomposed into those of the top dialect."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from tpusim.frontend.onnx.parts import Parts

INT = np.int64


def whole(value: object) -> np.ndarray:
    """Constant integers, in the type of indices."""
    return np.array(value, INT)


def gather_nd(p: Parts) -> None:
    """Rows of the flattened operand at flattened indices."""
    shape, indices, batch = p.node.shape(0), p.node.shape(1), int(p.node.take("batch_dims", 0))
    depth = indices[-1]
    rows = shape[: batch + depth]
    flat = _flat_places(p, p.input(1), indices, rows, batch)
    table = p.reshape(p.x, prod(rows), *shape[batch + depth :])
    found = p.op("Gather", table, flat, axis=0)
    p.result("Reshape", found, whole((*indices[:-1], *shape[batch + depth :])))


def _flat_places(p: Parts, indices: str, extents: tuple[int, ...], rows: tuple[int, ...], batch: int = 0) -> str:
    """(..., depth) indices into `rows` as one index each; the leading `batch` axes of both are the same."""
    sizes = rows[batch:]
    strides = [prod(rows[batch + k + 1 :]) for k in range(len(sizes))]
    total = ""
    for k, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        part = p.op("Slice", indices, whole([k]), whole([k + 1]), whole([len(extents) - 1]))
        below = p.op("Less", part, whole([0]))
        part = p.op("Where", below, p.op("Add", part, whole([size])), part)
        part = p.op("Mul", part, whole([stride])) if stride != 1 else part
        total = p.op("Add", total, part) if total else part
    if batch:
        first = np.arange(prod(rows[:batch]), dtype=INT) * prod(sizes)
        total = p.op("Add", total, first.reshape((*rows[:batch], *[1] * (len(extents) - batch))))
    return p.reshape(total, prod(extents[:-1]))


def scatter_nd(p: Parts) -> None:
    """Elements of rows scattered along the flattened leading axes."""
    shape, indices = p.node.shape(0), p.node.shape(1)
    rows, rest = shape[: indices[-1]], prod(shape[indices[-1] :])
    count = prod(indices[:-1])
    flat = p.op("Expand", p.reshape(_flat_places(p, p.input(1), indices, rows), count, 1), whole([count, rest]))
    data, updates = p.reshape(p.x, prod(rows), rest), p.reshape(p.input(2), count, rest)
    found = p.op("ScatterElements", data, flat, updates, axis=0, reduction=p.node.take("reduction", "none"))
    p.result("Reshape", found, whole(shape))


def tensor_scatter(p: Parts) -> None:
    """TensorScatter: updates at a separate place for each sample along an axis, which may be cyclic."""
    shape, update = p.node.shape(0), p.node.shape(1)
    axis = int(p.node.take("axis", -2)) % len(shape)
    along = np.arange(update[axis], dtype=INT).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    places = p.op("Expand", along, whole([update[a] if a in (0, axis) else 1 for a in range(len(shape))]))
    if p.input(2):
        places = p.op("Add", p.reshape(p.input(2), shape[0], *[1] * (len(shape) - 1)), along)
    if p.node.take("mode", "linear") == "circular":
        places = p.op("Mod", places, whole(shape[axis]))
    p.result("ScatterElements", p.x, p.op("Expand", places, whole(update)), p.input(1), axis=axis)


def trilu(p: Parts) -> None:
    """Trilu: elements on the other side of a diagonal become 0."""
    shape, upper = p.node.shape(0), bool(p.node.take("upper", 1))
    diagonal = int(p.node.need(1, "diagonals").reshape(-1)[0]) if p.input(1) else 0
    ones = np.ones(shape[-2:], bool)
    kept = np.triu(ones, diagonal) if upper else np.tril(ones, diagonal)
    p.result("Where", kept.reshape((*[1] * (len(shape) - 2), *shape[-2:])), p.x, np.zeros((), p.node.dtype(0)))


def one_hot(p: Parts) -> None:
    """On where the index of an axis equals the given one, else off; negative ones count from the end."""
    shape, depth = p.node.shape(0), int(p.node.need(1, "depths").reshape(-1)[0])
    axis = int(p.node.take("axis", -1)) % (len(shape) + 1)
    along = np.arange(depth, dtype=np.float32).reshape([-1 if a == axis else 1 for a in range(len(shape) + 1)])
    x = p.op("Unsqueeze", p.op("Cast", p.x, to=1), whole([axis]))
    x = p.op("Where", p.op("Less", x, np.zeros(1, np.float32)), p.op("Add", x, np.array([depth], np.float32)), x)
    off, on = p.ops("Split", 2, p.input(2), axis=0, num_outputs=2)
    p.result("Where", p.op("Equal", x, along), on, off)


def eye_like(p: Parts) -> None:
    """Ones on a diagonal: a constant."""
    rows, columns = p.node.shape(0)
    dtype = p.node.tensors.types.dtype(p.node.output)
    p.node.take("dtype")
    p.result("Identity", np.eye(rows, columns, int(p.node.take("k", 0)), dtype))


def reverse_sequence(p: Parts) -> None:
    """The leading elements of each sample backwards, by constant or computed lengths; whole samples are mirrored."""
    shape = p.node.shape(0)
    batch, time = int(p.node.take("batch_axis", 1)), int(p.node.take("time_axis", 0))
    known = p.node.constant(1)
    if known is not None and (known == shape[time]).all():
        p.result("Slice", p.x, whole([-1]), whole([-shape[time] - 1]), whole([time]), whole([-1]))
        return
    steps = np.arange(shape[time], dtype=INT).reshape([-1 if a == time else 1 for a in range(len(shape))])
    lengths = p.reshape(p.input(1), *[shape[batch] if a == batch else 1 for a in range(len(shape))])
    backwards = p.op("Sub", p.op("Sub", lengths, whole(1)), steps)
    places = p.op("Where", p.op("Less", steps, lengths), backwards, steps)
    p.result("GatherElements", p.x, p.op("Expand", places, whole(shape)), axis=time)


def compress(p: Parts) -> None:
    """The elements where a constant condition holds."""
    kept = np.flatnonzero(p.node.need(1, "conditions")).astype(INT)
    axis = p.node.take("axis")
    x = p.x if axis is not None else p.reshape(p.x, -1)
    p.result("Gather", x, kept, axis=int(axis or 0))


def pad(p: Parts) -> None:
    """Pads below 0 cut off; wrap takes from the other end."""
    shape, mode = p.node.shape(0), p.node.take("mode", "constant")
    pads = [int(v) for v in p.node.need(1, "pads").reshape(-1)]
    axes = [int(a) % len(shape) for a in p.node.numbers(3, "axes") or range(len(shape))]
    if mode != "wrap" and min(pads) >= 0:
        raise ValueError("it is decomposed only for mode wrap or negative pads")
    x = p.x
    for i, axis in enumerate(axes):
        before, after, size = pads[i], pads[len(axes) + i], shape[axis]
        if mode == "wrap" and (before or after):
            x = p.op("Gather", x, np.arange(-before, size + after, dtype=INT) % size, axis=axis)
        elif mode != "wrap" and min(before, after) < 0:
            x = p.op("Slice", x, whole([max(-before, 0)]), whole([size - max(-after, 0)]), whole([axis]))
    if mode == "wrap":
        p.result("Identity", x)
    else:
        left = [max(v, 0) for v in pads]
        p.result("Pad", x, whole(left), p.input(2), whole(axes), mode=mode)


def einsum(p: Parts) -> None:
    """Einsum: operands one after the other, each pair as a broadcast product, then a sum.

    Two operands that share summed letters are a MatMul.
    """
    equation = str(p.node.take("equation")).replace(" ", "")
    terms, result = _letters(equation, [len(p.node.shape(i)) for i in range(len(p.node.inputs))])
    sizes = dict[str, int]()
    for i, term in enumerate(terms):
        for letter, size in zip(term, p.node.shape(i), strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    x, letters = _diagonal(p, p.x, terms[0], p.node.shape(0))
    for i, term in enumerate(terms[1:], 1):
        other, found = _diagonal(p, p.input(i), term, p.node.shape(i))
        later = set(result).union(*terms[i + 1 :])
        x, letters = _product(p, (x, letters), (other, found), later, sizes)
    gone = [i for i, letter in enumerate(letters) if letter not in result]
    if gone:
        x = p.op("ReduceSum", x, whole(gone), keepdims=0)
        letters = [letter for letter in letters if letter in result]
    if result and letters != result:
        p.result("Transpose", x, perm=[letters.index(letter) for letter in result])
    else:
        p.result("Identity", x)
    if len(terms) == PAIR:
        _name_product(p, _mode(terms, result))


PAIR = 2
"""Operands of an Einsum that is one product."""
PRODUCT_ENDINGS = {
    "abcd,aecd->abec": "_matmul", "abcd,aecd->acbe": "_matmul", "abcd,acde->abde": "_matmul",
    "abcd,adbe->acbe": "_matmul", "abcd,abef->acdef": "_l_matmul", "abcd,abce->abde": "_l_matmul",
}  # fmt: skip
"""Mode of an Einsum -> what follows its name in that of its MatMul (U-33); other modes: "_r_matmul"."""


def _mode(terms: list[list[str]], result: list[str]) -> str:
    """The equation with the letters a, b ... in the order in which they occur."""
    names = {letter: chr(ord("a") + i) for i, letter in enumerate(dict.fromkeys(v for term in terms for v in term))}
    left = ",".join("".join(names[v] for v in term) for term in terms)
    return f"{left}->{''.join(names[v] for v in result)}"


def _name_product(p: Parts, mode: str) -> None:
    """Call the one MatMul or Mul of an Einsum by TPU-MLIR's name (U-33); that of the result if it is the last op."""
    products, last = [n for n in p.nodes if n.op_type in ("MatMul", "Mul")], p.nodes[-1]
    if len(products) != 1 or last.op_type not in ("Identity", "Transpose", "Reshape"):
        return
    (product,), result = products, p.output(0)
    if last.op_type == "Identity" and list(last.input) == list(product.output) and mode not in PRODUCT_ENDINGS:
        p.nodes.pop()
        name = result
    else:
        ending = "_r_Mul" if product.op_type == "Mul" else PRODUCT_ENDINGS.get(mode, "_r_matmul")
        name = f"{result}{p.node.ending(0)}{ending}"
    old, product.output[0] = product.output[0], name
    for node in p.nodes:
        node.input[:] = [name if read == old else read for read in node.input]


def _letters(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of the operands and of the result; those of an ellipsis are numbers."""
    left, arrow, right = equation.partition("->")
    terms: list[list[str]] = []
    for term, rank in zip(left.split(","), ranks, strict=True):
        before, dots, after = term.partition("...")
        more = rank - len(before) - len(after)
        terms.append([*before, *([str(i) for i in range(-more, 0)] if dots else []), *after])
    hidden = sorted({v for term in terms for v in term if v.startswith("-")}, key=int)
    if not arrow:
        flat = left.replace("...", "").replace(",", "")
        return terms, hidden + sorted(v for v in set(flat) if flat.count(v) == 1)
    before, dots, after = right.partition("...")
    return terms, [*before, *(hidden if dots else []), *after]


def _diagonal(p: Parts, x: str, letters: list[str], shape: tuple[int, ...]) -> tuple[str, list[str]]:
    """The operand without repeated letters: the elements where their indices are equal."""
    sizes = dict(zip(letters, shape, strict=True))
    kept = list(sizes)
    for letter in [v for v in kept if letters.count(v) > 1]:
        places = [i for i, v in enumerate(letters) if v == letter]
        grid = np.indices([shape[i] for i in places])
        mask = np.all(grid == grid[:1], axis=0)
        full = mask.reshape([shape[i] if i in places else 1 for i in range(len(shape))])
        x = p.op("Where", full, x, np.float32(0))
        x = p.op("ReduceSum", x, whole(places[1:]), keepdims=0)
        letters = [v for i, v in enumerate(letters) if i not in places[1:]]
        shape = tuple(sizes[v] for v in letters)
    return x, letters


def _product(
    p: Parts, left: tuple[str, list[str]], right: tuple[str, list[str]], later: set[str], sizes: Mapping[str, int]
) -> tuple[str, list[str]]:
    """The product of two operands, summed over the letters that only they have; sizes: the extent of every letter."""
    (x, mine), (y, theirs) = left, right
    both = [v for v in mine if v in theirs]
    summed = [v for v in both if v not in later]
    if summed:
        batch = [v for v in both if v in later]
        rows, columns = ([v for v in letters if v not in both] for letters in (mine, theirs))
        if rows and columns:
            return _matrices(p, left, right, (batch, rows, summed, columns), sizes)
    letters = [*mine, *(v for v in theirs if v not in mine)]
    x = p.op("Unsqueeze", x, whole(range(len(mine), len(letters)))) if len(letters) > len(mine) else x
    y = _ordered(p, right, [v for v in letters if v in theirs])
    missing = [i for i, v in enumerate(letters) if v not in theirs]
    y = p.op("Unsqueeze", y, whole(missing)) if missing else y
    x = p.op("Mul", x, y)
    places = [letters.index(v) for v in summed]
    x = p.op("ReduceSum", x, whole(places), keepdims=0) if places else x
    return x, [v for v in letters if v not in summed]


def _matrices(
    p: Parts, left: tuple[str, list[str]], right: tuple[str, list[str]], roles: Sequence[list[str]],
    sizes: Mapping[str, int],
) -> tuple[str, list[str]]:  # fmt: skip
    """The product as a MatMul; roles: letters of batches, rows, sums and columns, of which several are one axis."""
    batch, rows, summed, columns = roles
    x, y = _ordered(p, left, [*batch, *rows, *summed]), _ordered(p, right, [*batch, *summed, *columns])
    inner, many = [sizes[v] for v in batch], (bool(batch) or len(summed) > 1, len(summed) > 1 or len(columns) > 1)
    m, k, n = (prod(sizes[v] for v in letters) for letters in (rows, summed, columns))
    joined = many[0] and (len(rows) > 1 or len(summed) > 1)
    x = p.reshape(x, *inner, m, k) if joined else x
    y = p.reshape(y, *inner, k, n) if many[1] else y
    z = p.op("MatMul", x, y)
    if joined or len(columns) > 1:
        z = p.reshape(z, *(sizes[v] for v in (*batch, *rows, *columns)))
    return z, [*batch, *rows, *columns]


def _ordered(p: Parts, operand: tuple[str, list[str]], letters: list[str]) -> str:
    x, mine = operand
    return x if mine == letters else p.op("Transpose", x, perm=[mine.index(v) for v in letters])


def matmul(p: Parts) -> None:
    """Vectors are matrices of one row or column."""
    ranks = len(p.node.shape(0)), len(p.node.shape(1))
    if 1 not in ranks:
        raise ValueError("it is decomposed only for operands of one axis")
    left = p.op("Unsqueeze", p.x, whole([0])) if ranks[0] == 1 else p.x
    right = p.op("Unsqueeze", p.input(1), whole([1])) if ranks[1] == 1 else p.input(1)
    gone = [axis for axis, rank in zip((-2, -1), ranks, strict=True) if rank == 1]
    y = p.op("MatMul", left, right)
    p.result("Squeeze", y, whole(gone)) if gone else p.result("Identity", y)


def split(p: Parts) -> None:
    """Split with empty parts, which become constants without elements."""
    axis = int(p.node.take("axis", 0))
    sizes = [int(v) for v in p.node.numbers(1, "sizes") or p.node.take("split", ())]
    if 0 not in sizes:
        raise ValueError("it is decomposed only for results without elements")
    shape = list(p.node.shape(0))
    for i, size in enumerate(sizes):
        start = sum(sizes[:i])
        shape[axis] = size
        if size:
            p.result("Slice", p.x, whole([start]), whole([start + size]), whole([axis]), index=i)
        else:
            p.result("Identity", np.zeros(shape, p.node.dtype(0)), index=i)


def slice_(p: Parts) -> None:
    """A part without elements is a constant."""
    shape = list(p.node.shape(0))
    starts, ends, axes, steps = (p.node.numbers(i, "bounds") for i in range(1, 5))
    if starts is None or ends is None:
        raise ValueError("starts and ends are required")
    axes, steps = axes or range(len(starts)), steps or [1] * len(starts)
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        raise ValueError(f"an axis of {tuple(shape)} is required, got {list(axes)}")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        shape[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
    if 0 not in shape:
        raise ValueError("it is decomposed only for results without elements")
    p.result("Identity", np.zeros(shape, p.node.dtype(0)))


def depth_to_space(p: Parts) -> None:
    """Blocks of channels become pixels: the block first (DCR), or the channel (CRD)."""
    n, c, h, w = p.node.shape(0)
    b, column_first = int(p.node.take("blocksize")), p.node.take("mode", "DCR") == "CRD"
    left = c // (b * b)
    split = (n, left, b, b, h, w) if column_first else (n, b, b, left, h, w)
    order = [0, 1, 4, 2, 5, 3] if column_first else [0, 3, 4, 1, 5, 2]
    y = p.op("Transpose", p.reshape(p.x, *split), perm=order)
    p.result("Reshape", y, whole((n, left, h * b, w * b)))


def space_to_depth(p: Parts) -> None:
    """Pixels of a block become channels, the block first."""
    n, c, h, w = p.node.shape(0)
    b = int(p.node.take("blocksize"))
    order = [0, 1, 3, 5, 2, 4] if p.node.take("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    y = p.op("Transpose", p.reshape(p.x, n, c, h // b, b, w // b, b), perm=order)
    p.result("Reshape", y, whole((n, c * b * b, h // b, w // b)))


def known_when_compiled(p: Parts) -> None:
    """Nodes that only make constants; their inputs must be constant."""
    for index, name in enumerate(p.node.inputs):
        if name:
            p.node.need(index, "operands")


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {
    "GatherND": gather_nd, "ScatterND": scatter_nd, "TensorScatter": tensor_scatter, "Trilu": trilu,
    "OneHot": one_hot, "EyeLike": eye_like, "ReverseSequence": reverse_sequence, "Compress": compress, "Pad": pad,
    "Einsum": einsum, "MatMul": matmul, "Split": split, "Slice": slice_,
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
    **dict.fromkeys(("Range", "ConstantOfShape", "BlackmanWindow", "HannWindow", "HammingWindow", "MelWeightMatrix"),
                    known_when_compiled),
}  # fmt: skip
