"""Train the digits network and write it, with its calibration and test data, next to this file.

A small CNN for scikit-learn's 1,797 digits (8x8 images in [0, 1]), trained in JAX and optax and exported with
`onnx.helper`. Its topology has one of each structure that a TPU compiler treats separately: a convolution with batch
norm, a residual add, a depthwise convolution, a channel concat, max and average pooling, a fully connected head.

    python examples/digits/train.py
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime as ort
import optax
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
SEED = 0
TEST_SAMPLES = 400
CALIBRATION_SAMPLES = 200
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 2e-3
LABEL_SMOOTHING = 0.05
BN_EPSILON = 1e-5
BN_MOMENTUM = 0.9
CLASSES = 10

# name -> (out channels, in channels, kernel, groups). Every convolution is followed by batch norm.
CONVS = {
    "stem": (32, 1, 3, 1),
    "block_a": (32, 32, 3, 1),
    "block_b": (32, 32, 3, 1),
    "depthwise": (32, 32, 3, 32),
    "pointwise": (32, 32, 1, 1),
    "mix": (64, 64, 1, 1),
}

Params = dict[str, dict[str, jax.Array]]
Stats = dict[str, dict[str, jax.Array]]


class Split(NamedTuple):
    """Images float32[N, 1, 8, 8] in [0, 1] and labels int64[N] of one part of the data."""

    image: np.ndarray
    label: np.ndarray


# The data


def load() -> tuple[Split, Split]:
    """Return the training and the test part, drawn by class with a fixed seed."""
    data: Any = load_digits()
    image = (data.images / 16.0).astype(np.float32)[:, None]
    label = data.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(label)), test_size=TEST_SAMPLES, stratify=label, random_state=SEED)
    return Split(image[train], label[train]), Split(image[test], label[test])


def calibration_part(train: Split) -> np.ndarray:
    """Return `CALIBRATION_SAMPLES` training images, drawn by class with a fixed seed."""
    index = np.arange(len(train.label))
    chosen, _ = train_test_split(index, train_size=CALIBRATION_SAMPLES, stratify=train.label, random_state=SEED)
    return train.image[chosen]


def augment(rng: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """Shift a batch by up to one pixel in each direction, filling with zeros."""
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, cols = rng.integers(0, 3, (2, len(image)))
    return np.stack([one[:, r : r + 8, c : c + 8] for one, r, c in zip(padded, rows, cols, strict=True)])


# The network


def initial(rng: np.random.Generator) -> tuple[Params, Stats]:
    """Return He-normal weights and the starting statistics of the batch norms."""
    params: Params = {}
    stats: Stats = {}
    for name, (out, in_, kernel, groups) in CONVS.items():
        shape = (out, in_ // groups, kernel, kernel)
        weight = rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:]))
        params[name] = {"w": jnp.float32(weight), "scale": jnp.ones(out), "bias": jnp.zeros(out)}
        stats[name] = {"mean": jnp.zeros(out), "var": jnp.ones(out)}
    params["head"] = {"w": jnp.float32(rng.standard_normal((CLASSES, 64)) * 0.1), "b": jnp.zeros(CLASSES)}
    return params, stats


def conv_norm(params: Params, stats: Stats, name: str, x: jax.Array, training: bool) -> tuple[jax.Array, Any]:
    """Convolve [N, C, H, W] with padding "same" and normalise; returns the result and the updated statistics."""
    _, _, kernel, groups = CONVS[name]
    p, s = params[name], stats[name]
    pad = kernel // 2
    y = jax.lax.conv_general_dilated(
        x, p["w"], (1, 1), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups
    )
    mean, var = (y.mean((0, 2, 3)), y.var((0, 2, 3))) if training else (s["mean"], s["var"])
    by_channel = (slice(None), None, None)
    scale = p["scale"] * jax.lax.rsqrt(var + BN_EPSILON)
    y = (y - mean[by_channel]) * scale[by_channel] + p["bias"][by_channel]
    keep = BN_MOMENTUM
    return y, {"mean": keep * s["mean"] + (1 - keep) * mean, "var": keep * s["var"] + (1 - keep) * var}


def pool(x: jax.Array, init: float, op: Any) -> jax.Array:
    """Reduce windows of 2x2 with stride 2."""
    return jax.lax.reduce_window(x, init, op, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def network(params: Params, stats: Stats, image: jax.Array, training: bool) -> tuple[jax.Array, Stats]:
    """Return logits [N, 10] and the updated statistics; `onnx_nodes` writes the same graph."""
    new: Stats = {}

    def layer(name: str, x: jax.Array) -> jax.Array:
        y, new[name] = conv_norm(params, stats, name, x, training)
        return y

    stem = jax.nn.relu(layer("stem", image))
    inner = jax.nn.relu(layer("block_a", stem))
    block = jax.nn.relu(layer("block_b", inner) + stem)
    half = pool(block, -jnp.inf, jax.lax.max)
    depthwise = jax.nn.relu(layer("depthwise", half))
    pointwise = jax.nn.relu(layer("pointwise", depthwise))
    both = jnp.concatenate([half, pointwise], axis=1)
    mix = jax.nn.relu(layer("mix", both))
    quarter = pool(mix, 0.0, jax.lax.add) / 4
    flat = quarter.mean((2, 3))
    return flat @ params["head"]["w"].T + params["head"]["b"], new


# Training


def loss(params: Params, stats: Stats, image: jax.Array, label: jax.Array) -> tuple[jax.Array, Stats]:
    """Return the smoothed cross-entropy and the updated statistics."""
    logits, new = network(params, stats, image, training=True)
    target = optax.smooth_labels(jax.nn.one_hot(label, CLASSES), LABEL_SMOOTHING)
    return optax.softmax_cross_entropy(logits, target).mean(), new


def train(data: Split) -> tuple[Params, Stats]:
    """Train with AdamW and a cosine schedule; deterministic for `SEED` on one machine."""
    rng = np.random.default_rng(SEED)
    params, stats = initial(rng)
    steps = len(data.label) // BATCH
    optimiser = optax.adamw(optax.cosine_decay_schedule(LEARNING_RATE, EPOCHS * steps), weight_decay=WEIGHT_DECAY)
    state = optimiser.init(params)

    @jax.jit
    def step(params: Params, stats: Stats, state: Any, image: jax.Array, label: jax.Array) -> Any:
        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats, image, label)
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), stats, state, value

    for epoch in range(EPOCHS):
        order = rng.permutation(len(data.label))[: steps * BATCH].reshape(steps, BATCH)
        value = 0.0
        for batch in order:
            params, stats, state, value = step(params, stats, state, augment(rng, data.image[batch]), data.label[batch])
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: loss {float(value):.3f}")
    return params, stats


# Export


def onnx_nodes() -> list[onnx.NodeProto]:
    """Return the nodes of the network; a tensor is named after the node that makes it."""

    def node(op: str, inputs: list[str], out: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [out], name=out, **attributes)

    def layer(name: str, x: str) -> list[onnx.NodeProto]:
        _, _, kernel, groups = CONVS[name]
        norm = [f"{name}_conv", *(f"{name}.{key}" for key in ("scale", "bias", "mean", "var"))]
        shape = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": groups}
        return [
            node("Conv", [x, f"{name}.w"], f"{name}_conv", **shape),
            node("BatchNormalization", norm, f"{name}_norm", epsilon=BN_EPSILON),
        ]

    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return [
        *layer("stem", "image"),
        node("Relu", ["stem_norm"], "stem"),
        *layer("block_a", "stem"),
        node("Relu", ["block_a_norm"], "block_a"),
        *layer("block_b", "block_a"),
        node("Add", ["block_b_norm", "stem"], "block_sum"),
        node("Relu", ["block_sum"], "block"),
        node("MaxPool", ["block"], "half", **window),
        *layer("depthwise", "half"),
        node("Relu", ["depthwise_norm"], "depthwise"),
        *layer("pointwise", "depthwise"),
        node("Relu", ["pointwise_norm"], "pointwise"),
        node("Concat", ["half", "pointwise"], "both", axis=1),
        *layer("mix", "both"),
        node("Relu", ["mix_norm"], "mix"),
        node("AveragePool", ["mix"], "quarter", **window),
        node("GlobalAveragePool", ["quarter"], "global"),
        node("Flatten", ["global"], "flat", axis=1),
        node("Gemm", ["flat", "head.w", "head.b"], "logits", transB=1),
    ]


def export(params: Params, stats: Stats) -> onnx.ModelProto:
    """Return the trained network as an ONNX model of opset 13, batch 1."""
    tensors = {
        f"{layer}.{key}": v for tree in (params, stats) for layer, part in tree.items() for key, v in part.items()
    }
    graph = helper.make_graph(
        onnx_nodes(),
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(np.asarray(value, np.float32), key) for key, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model.producer_name = "tpusim examples/digits"
    onnx.checker.check_model(model, full_check=True)
    return model


def top1(model: onnx.ModelProto, data: Split) -> float:
    """Return the share of images that ONNX Runtime classifies as labelled."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = [np.asarray(session.run(["logits"], {"image": one[None]})[0]).argmax() for one in data.image]
    return float(np.mean(np.array(found) == data.label))


def main() -> None:
    """Train, export, write the data and print the accuracy."""
    start = time.perf_counter()
    train_part, test_part = load()
    model = export(*train(train_part))
    onnx.save(model, HERE / "digits.onnx")
    np.savez_compressed(HERE / "calibration.npz", image=calibration_part(train_part))
    np.savez_compressed(HERE / "test.npz", image=test_part.image)
    np.savez_compressed(HERE / "labels.npz", label=test_part.label)
    print(f"top-1: training {top1(model, train_part):.4f}, test {top1(model, test_part):.4f} of {len(test_part.label)}")
    print(f"{(HERE / 'digits.onnx').stat().st_size} bytes, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
