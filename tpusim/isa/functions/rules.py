"""Rules of shapes that functions share; each returns why it is broken, or None."""

from collections.abc import Sequence
from math import prod

from tpusim.isa.functions.base import Misfit, Shape


def counted(operands: Sequence[Shape], wanted: int) -> Misfit | None:
    """There are as many operands as the function takes."""
    return None if len(operands) == wanted else Misfit(f"{wanted} operands", f"{len(operands)}")


def equal_shapes(operands: Sequence[Shape], result: Shape, count: int = 1) -> Misfit | None:
    """`count` operands, the first of the result's shape."""
    if (why := counted(operands, count)) is not None:
        return why
    return None if operands[0] == result else Misfit(f"an operand of the result's shape {result}", f"{operands[0]}")


def broadcast(operands: Sequence[Shape], result: Shape, parameters: int) -> Misfit | None:
    """One operand per parameter; its axes are the last of the result and as long, or of length 1."""
    if (why := counted(operands, parameters)) is not None:
        return why
    for shape in operands:
        last = result[len(result) - len(shape) :]
        if len(shape) > len(result) or any(a not in (1, b) for a, b in zip(shape, last, strict=True)):
            return Misfit(f"operands that broadcast to {result}", f"{shape}")
    return None


def has_axis(axis: int, shape: Shape) -> Misfit | None:
    """Check that the axis is one of the shape's."""
    return None if 0 <= axis < len(shape) else Misfit(f"an axis of 0 to {len(shape) - 1}", f"{axis}")


def left_without(shape: Shape, axes: Sequence[int]) -> int:
    """Elements of a tensor with some axes reduced."""
    return prod(size for axis, size in enumerate(shape) if axis not in axes)


def reduced(operands: Sequence[Shape], axes: Sequence[int], result: Shape) -> Misfit | None:
    """One operand; the result has the elements left without the axes."""
    if (why := counted(operands, 1)) is not None:
        return why
    wrong = next((why for axis in axes if (why := has_axis(axis, operands[0])) is not None), None)
    if wrong is None and (left := left_without(operands[0], axes)) != prod(result):
        return Misfit(f"{left} elements left of {operands[0]} without axes {list(axes)}", f"{result}")
    return wrong


def joined(operands: Sequence[Shape], axis: int, result: Shape) -> Misfit | None:
    """The operands are parts of the result along the axis."""
    if (why := has_axis(axis, result)) is not None:
        return why
    length = 0
    for shape in operands:
        if len(shape) != len(result) or shape[:axis] + shape[axis + 1 :] != result[:axis] + result[axis + 1 :]:
            return Misfit(f"parts of {result} along axis {axis}", f"{shape}")
        length += shape[axis]
    return None if length == result[axis] else Misfit(f"{result[axis]} along axis {axis} in all", f"{length}")


def per_axis(shape: Shape, **lists: Sequence[int]) -> Misfit | None:
    """Every list has an entry for each axis of the shape."""
    return next(
        (Misfit(f"{len(shape)} {name}", f"{len(v)}") for name, v in lists.items() if len(v) != len(shape)), None
    )


def image(shape: Shape) -> Misfit | None:
    """Check that the operand has the four axes of an image."""
    return None if len(shape) == 4 else Misfit("four axes", f"{shape}")
