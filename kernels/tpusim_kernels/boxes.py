"""Boxes chosen by their scores: non-maximum suppression."""

from __future__ import annotations

from tpusim_kernels.base import Array, kernel, pin
from tpusim_kernels.lazy import jax, jnp, lax

ABSENT = -1
"""The entry of a row without a box."""


def _corners(boxes: Array, center: bool) -> tuple[Array, Array, Array, Array]:
    """(low, low, high, high) of boxes (..., 4): two opposite corners each or, if `center`, centre and extents."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    if center:
        rows, columns = c / 2, d / 2
        return a - rows, b - columns, a + rows, b + columns
    return jnp.minimum(a, c), jnp.minimum(b, d), jnp.maximum(a, c), jnp.maximum(b, d)


def _overlap(one: tuple[Array, ...], others: tuple[Array, ...], limit: float) -> Array:
    """Whether the intersection over union of one box with each of others exceeds the limit; each step is f32."""
    rows = jnp.minimum(one[2], others[2]) - jnp.maximum(one[0], others[0])
    columns = jnp.minimum(one[3], others[3]) - jnp.maximum(one[1], others[1])
    common = pin(rows * columns)
    area, areas = (pin((box[2] - box[0]) * (box[3] - box[1])) for box in (one, others))
    proper = (rows > 0) & (columns > 0) & (area > 0) & (areas > 0)
    return proper & (common / pin(area + areas - common) > jnp.float32(limit))


def _kept(corners: Array, scores: Array, kept: int, iou: float, score: float | None) -> Array:
    """(kept,) indices of the boxes kept of one class, by falling score; then ABSENT."""
    order = jnp.argsort(scores, stable=True, descending=True)
    ordered = tuple(side[order] for side in corners)
    alive = ~jnp.isnan(scores[order]) if score is None else scores[order] > jnp.float32(score)

    def step(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        alive, found = state
        best, left = jnp.argmax(alive), jnp.any(alive)
        found = found.at[number].set(jnp.where(left, order[best].astype(jnp.int32), ABSENT))
        beaten = _overlap(tuple(side[best] for side in ordered), ordered, iou)
        return alive & ~beaten & (jnp.arange(alive.size) != best), found

    return lax.fori_loop(0, kept, step, (alive, jnp.full((kept,), ABSENT, jnp.int32)))[1]


@kernel(static=("kept", "iou", "score", "center"))
def non_max_suppression(
    boxes: Array, scores: Array, *, kept: int, iou: float, score: float | None, center: bool
) -> Array:
    """Give (batch x classes x kept, 3) int32: batch, class and number of every box kept, in this order.

    boxes: (batch, boxes, 4) f32; scores: (batch, classes, boxes) f32. The boxes of each class are visited by falling
    score, equal scores by index; boxes whose score is not above `score` are skipped. A box is kept unless its
    intersection over union with a box already kept is above `iou`. kept: at most so many per class. Unused rows are
    ABSENT.
    """
    batch, classes, _ = scores.shape
    corners = jnp.stack(_corners(boxes, center), axis=1)
    of_class = jax.vmap(lambda sides, s: _kept(sides, s, kept, iou, score), in_axes=(None, 0))
    numbers = jax.vmap(of_class)(corners, scores)
    at_batch, at_class, _ = jnp.indices(numbers.shape, dtype=jnp.int32)
    rows = jnp.stack([at_batch, at_class, numbers], axis=-1).reshape(-1, 3)
    absent = rows[:, 2] < 0
    order = jnp.argsort(absent, stable=True)
    return jnp.where(absent[order][:, None], ABSENT, rows[order]).astype(jnp.int32)


__all__ = ["ABSENT", "non_max_suppression"]
