"""Tune the digits network through the arithmetic of a chip, and take its weights back into the compiler.

Forward: the INT8 results that the chip computes. Backward: straight through the rounding. The loss is the distance from
the logits of the float network (distillation), so that no label is needed: the calibration images suffice.

Run: python examples/tune_digits.py    (pip install 'tpusim[examples]')
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import tpusim

HERE = Path(__file__).parent / "digits"
STEPS = 40
LEARNING_RATE = 1e-4


def judged(network: tpusim.Compiled, reference: tpusim.Compiled) -> tuple[int, float]:
    """Right answers on the test images, and the root mean square distance to the float logits of the reference."""
    with np.load(HERE / "test.npz") as images, np.load(HERE / "labels.npz") as labels:
        x, wanted = images["image"], labels["label"]
    (logits,), (real,) = network.flat(x).values(), reference.fast_f32(x).values()
    return int((logits.argmax(1) == wanted).sum()), float(np.sqrt(np.square(logits - real).mean()))


def main(chip: str = "bm1684", steps: int = STEPS) -> None:
    """Tune for a chip, and print what it gains on the test images, whose labels and images are not used before."""
    with np.load(HERE / "calibration.npz") as archive:
        images = archive["image"]
    network = tpusim.compile(HERE / "digits.onnx", [{"image": x[None]} for x in images[:50]], chip=chip, mode="int8")
    tuned = network.with_weights(tune(network, images, steps))
    for name, one in (("as trained", network), ("tuned", tuned)):
        right, distance = judged(one, network)
        print(f"{chip} int8, {name}: {right} right, logits {distance:.4f} from the float network's")
    first = {"image": images[:1]}
    machine, flat = tuned.machine().run(first), tuned.tensors(first)
    stored = [n for n in flat if n in machine.tensors]
    different = sum(int((machine.tensors[n] != flat[n]).sum()) for n in stored)
    print(f"{different} elements of {len(stored)} tensors differ between the machine and flat inference")


def tune(network: tpusim.Compiled, images: np.ndarray, steps: int) -> dict[str, Any]:
    """The weights of all steps whose INT8 results were nearest to the float network's."""
    (wanted,) = network.fast_f32(images).values()
    weights: dict[str, Any] = network.differentiable.weights
    optimiser = optax.adam(LEARNING_RATE)
    state = optimiser.init(weights)

    def loss(weights: dict[str, Any]) -> jax.Array:
        (logits,) = network.differentiable(weights, images).values()
        return jnp.square(logits - wanted).mean()

    best, nearest = weights, np.inf
    for step in range(steps):
        value, slope = jax.value_and_grad(loss)(weights)
        if value < nearest:
            best, nearest = weights, float(value)
        if step % 10 == 0:
            print(f"step {step}: mean square {float(value):.5f}")
        change, state = optimiser.update(slope, state)
        weights = optax.apply_updates(weights, change)
    return best


if __name__ == "__main__":
    main()
