"""Nine classic networks, complete and offline, for tests, examples and benchmarks.

The `onnx` package ships the topologies of nine image classifiers without their weights (`backend/test/data/light`):
every large tensor is a `ConstantOfShape` of 0.02. `build` puts seeded weights in their place and leaves the other nodes
as they are, so a compiler sees what the exporters of these networks really wrote: caffe's BatchNormalization + Mul +
Add, channel shuffles, grouped convolutions, LRN, uneven pads, a Reshape of a weight, an initializer nobody reads.

The networks are not trained. They are made to *behave* like trained ones where a quantising compiler looks: the network
is run once, node by node, on a few seeded images, and each layer gets parameters that suit what it really receives.

* A filter is He-normal, standard deviation sqrt(2 / fan_in), cut at two deviations (as Keras' `he_normal`).
* A batch norm's mean is the share 1 - `KEPT_MEAN` of the measured channel mean, its variance the measured mean square
  around that, but no less than the layer's average, both with a small perturbation; its scale is around 1, its bias has
  the standard deviation `BIAS_STD`. On a residual branch that joins an identity both are half of that, so that the sum
  stays bounded over many blocks.
* In a network without batch norm a filter is scaled by one factor per layer so that the output's mean square around the
  mean that is taken away is 1. The bias takes away the same share of the channel mean and also has the standard
  deviation `BARE_BIAS_STD`: without a batch norm trained biases are small compared with the activations, and a chip may
  keep a bias in 16 bits at the filter's shift, so that large biases would cost the filters their lower bits.
* The last layer is scaled so that the logits of an image have a standard deviation of about `LOGITS_STD` over the
  classes.

Why not simply centre and normalise every channel: random layers carry a large common mean and a small part that tells
images apart. Taking the whole mean away, or blowing weak channels up, amplifies rounding noise from layer to layer,
which trained networks do not do. `KEPT_MEAN` is where all tensors of the networks pass the INT8 tolerances even with
a chip's power-of-two scales. The price: the logits of different images differ little (a few percent of their range).
Similarity of tensors is a meaningful measure on these networks, top-1 agreement is not.

The values of a tensor come from the seed, the tensor's name and the measurement. Measured numbers are rounded to
`MEASURED_BITS` bits, so that the last places of a convolution do not reach the weights. One seed on one machine gives
one file, byte for byte; another processor or ONNX Runtime may round a measured number the other way.
"""

# onnxruntime has no type stubs:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tpusim.errors import ConfigError, meant
from tpusim.host.files import replacing

Array = NDArray[np.generic]
FloatArray = NDArray[np.float32]

ZOO: tuple[str, ...] = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

IMAGE_SHAPE = (3, 224, 224)
IR_VERSION = 4  # the first that lets an initializer stand without a graph input; the files say 3
LOGITS_STD = 2.5
BIAS_STD = 0.7  # in units of a layer's standard deviation, as in trained batch norms
BARE_BIAS_STD = 0.35  # the same without batch norm, where trained biases are small compared with the activations
MEASURED_BITS = 9
MEASURED_IMAGES = 8
IDENTITY_BRANCH_SCALE = 0.5
KEPT_MEAN = 0.85  # share of a channel's mean that a layer leaves
TRUNCATION = 2.0
TRUNCATED_STD = 0.87962566  # of a standard normal cut at +-2

_TOPOLOGIES = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_VIEWS = ("Reshape", "Unsqueeze")  # what stands between a parameter and the node that computes with it
_LINEAR = ("Conv", "Gemm")


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """Build a network of the zoo: the topology of the `onnx` package (opset 9, batch 1) with seeded float32 weights.

    name: one of `ZOO`; anything else raises `ConfigError`.
    seed: another seed gives another set of weights; the same seed gives the same bytes. Below 0 is a `ConfigError`.
    """
    model = _topology(name)
    shapes = _take_parameters(model.graph)
    model.ir_version = IR_VERSION
    parameters = _Filler(model, shapes, seed).fill()
    model.graph.initializer.extend(numpy_helper.from_array(parameters[key], key) for key in shapes)
    return model


def save(name: str, path: str | os.PathLike[str], seed: int = 0) -> None:
    """Build a network and write it to `path` in one step: readers see the whole file or none (vgg19: 575 MB)."""
    content = build(name, seed).SerializeToString(deterministic=True)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def images(count: int, seed: int = 0) -> FloatArray:
    """Draw seeded images float32[count, 3, 224, 224] for the zoo, with mean near 0 and standard deviation about 1.

    An image is a sum of random fields of several grain sizes, from large patches to white noise, with its own
    weight for each, and a tint per channel: images differ in more than their noise, as photographs do.
    """
    return np.stack([_image(_generator(seed, f"image {index}")) for index in range(count)])


def _image(rng: np.random.Generator) -> FloatArray:
    channels, height, width = IMAGE_SHAPE
    image = np.zeros(IMAGE_SHAPE, np.float32)
    for grain in (56, 28, 14, 7, 2, 1):
        field = rng.standard_normal((channels, height // grain, width // grain), dtype=np.float32)
        image += rng.uniform(0.0, 1.0) ** 2 * field.repeat(grain, axis=1).repeat(grain, axis=2)
    image /= image.std()
    return (image + rng.normal(0.0, 0.3, (channels, 1, 1))).astype(np.float32)


def _topology(name: str) -> onnx.ModelProto:
    if name not in ZOO:
        raise ConfigError(f"zoo: no network '{name}'; the zoo has {', '.join(ZOO)}{meant(name, ZOO)}")
    return onnx.load(_TOPOLOGIES / f"light_{name}.onnx")


def _generator(seed: int, key: str) -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"zoo: seed {seed}: 0 or more is required")
    return np.random.default_rng([seed, zlib.crc32(key.encode())])


# The graph: parameters out of it, names into it.


def _take_parameters(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Remove every float parameter from the graph and return its shape by name.

    Those are the outputs of the `ConstantOfShape` nodes (removed with the shape tensors that feed them) and the small
    float initializers that kept their trained values, which do not fit to random filters. An initializer that no node
    reads stays, and so do the int64 shapes of Reshape. Initializers leave `graph.input`; nodes without a name get one.
    """
    placeholders = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    read = {key for node in nodes for key in node.input}
    shapes = {
        node.output[0]: tuple(int(size) for size in numpy_helper.to_array(initializers[node.input[0]]))
        for node in placeholders
    }
    shapes |= {
        key: tuple(tensor.dims)
        for key, tensor in initializers.items()
        if tensor.data_type == onnx.TensorProto.FLOAT and key in read
    }
    gone = shapes.keys() | {node.input[0] for node in placeholders}
    inputs = [value for value in graph.input if value.name not in initializers]
    kept = [tensor for key, tensor in initializers.items() if key not in gone]
    for node in nodes:
        node.name = node.name or node.output[0]
    del graph.input[:], graph.initializer[:], graph.node[:]
    graph.input.extend(inputs)
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    return shapes


# The values: one walk over the nodes, in which every layer sees what the layers before it made of the images.


class _Filler:
    """Fills the parameters of a network while running it, one node at a time, on `MEASURED_IMAGES` images.

    A node runs in ONNX Runtime as a separate model, so no op is written a second time here. Batch is 1 in the zoo
    (Reshape says so), therefore a value is a list with one array per image.
    """

    def __init__(self, model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], seed: int):
        graph = model.graph
        self._nodes = list(graph.node)
        self._opsets = list(model.opset_import)
        self._shapes = shapes
        self._seed = seed
        self._parameters: dict[str, FloatArray] = {}
        self._roots = {key: key for key in shapes}  # parameter or view of one -> parameter
        self._constants: dict[str, Array] = {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}
        self._constants |= {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._values: dict[str, list[Array]] = {graph.input[0].name: _batch(images(MEASURED_IMAGES, seed))}
        self._readers = _readers(self._nodes)
        self._has_norm = any(node.op_type == "BatchNormalization" for node in self._nodes)
        self._norms = {node.output[0] for node in self._nodes if node.op_type == "BatchNormalization"}
        self._has_scale = any(node.op_type == "Mul" for node in self._nodes)
        self._head = [node for node in self._nodes if node.op_type in _LINEAR][-1]
        last = self._nodes[-1]
        self._logits = last.input[0] if last.op_type == "Softmax" else last.output[0]

    def fill(self) -> dict[str, FloatArray]:
        """Return float32 values for every parameter."""
        rules = {"Conv": self._linear, "Gemm": self._linear, "BatchNormalization": self._norm}
        rules |= {"Mul": self._scale, "Add": self._shift}
        for node in self._nodes:
            if node.op_type in _VIEWS and node.input[0] in self._roots:
                self._view(node)
                continue
            self._values[node.output[0]] = rules.get(node.op_type, self._run)(node)
            self._forget(node)
        self._scale_head()
        return self._parameters

    # One rule per kind of layer: set its parameters, return its output for every image.

    def _linear(self, node: onnx.NodeProto) -> list[Array]:
        """He-normal filter [out, in / group, ...] and, where the topology has one, a bias [out]."""
        filter_ = self._truncated_normal(node.input[1])
        filter_ *= np.float32(np.sqrt(2.0 / np.prod(filter_.shape[1:])))
        self._set(node.input[1], filter_)
        if len(node.input) < 3:
            return self._run(node)
        bias = self._normal(node.input[2])
        if self._has_norm:
            self._set(node.input[2], bias * np.float32(BIAS_STD))
            return self._run(node)
        without_bias = [
            value.astype(np.float32, copy=False) for value in self._run(node)
        ]  # the bias is still the placeholder zero
        samples = _by_channel(without_bias)
        mean = _rounded(samples.mean(axis=1)) * np.float32(1 - KEPT_MEAN)
        deviation = _rounded(np.sqrt(np.square(samples - mean[:, None]).mean()))
        bias = (bias * np.float32(BARE_BIAS_STD) - mean / deviation).astype(np.float32)
        self._set(node.input[1], filter_ / deviation)
        self._set(node.input[2], bias)
        return [value / deviation + bias.reshape(-1, *[1] * (value.ndim - 2)) for value in without_bias]

    def _norm(self, node: onnx.NodeProto) -> list[Array]:
        """Scale, bias, mean and variance, each float32[C]; mean and variance as measured, within a few percent."""
        _, scale, bias, mean_name, var_name = node.input
        samples = _by_channel(self._values[node.input[0]])
        mean = _rounded(samples.mean(axis=1)) * np.float32(1 - KEPT_MEAN)
        var = _rounded(np.square(samples - mean[:, None]).mean(axis=1))
        var = np.maximum(var, var.mean(dtype=np.float32))  # weak channels are not blown up, noise and all
        weight = IDENTITY_BRANCH_SCALE if self._joins_identity(node) else 1.0
        self._set(scale, self._uniform(scale, 0.7, 1.3) * np.float32(weight))
        bias_std = 0.1 if self._has_scale else BIAS_STD
        self._set(bias, self._normal(bias) * np.float32(weight * bias_std))
        offset = np.float32(0.1) * np.sqrt(var) * self._normal(mean_name)
        self._set(mean_name, (mean + offset).astype(np.float32))
        self._set(var_name, var * self._uniform(var_name, 0.9, 1.1))
        return self._run(node)

    def _scale(self, node: onnx.NodeProto) -> list[Array]:
        """The factor of caffe's Scale layer, around 1."""
        self._set(node.input[1], self._uniform(node.input[1], 0.7, 1.3))
        return self._run(node)

    def _shift(self, node: onnx.NodeProto) -> list[Array]:
        """The bias of caffe's Scale layer, which replaces that of batch norm."""
        self._set(node.input[1], self._normal(node.input[1]) * np.float32(BIAS_STD))
        return self._run(node)

    def _scale_head(self) -> None:
        """Scale the last layer: everything from it to the logits (Relu, average, Dropout) is homogeneous."""
        logits = np.stack([value.ravel() for value in self._values[self._logits]])
        factor = np.float32(LOGITS_STD) / _rounded(logits.std(axis=1).mean())
        for name in self._head.input[1:]:
            self._parameters[self._roots[name]] *= factor

    # What the rules ask.

    def _joins_identity(self, node: onnx.NodeProto) -> bool:
        """Whether the output is added to a shortcut without batch norm."""
        sums = [reader for reader in self._readers.get(node.output[0], ()) if reader.op_type == "Sum"]
        return any(not self._norms.issuperset(reader.input) for reader in sums)

    def _normal(self, name: str) -> FloatArray:
        shape = self._constants[name].shape
        return _generator(self._seed, self._roots[name]).standard_normal(shape, dtype=np.float32)

    def _truncated_normal(self, name: str) -> FloatArray:
        """Standard deviation 1, nothing beyond two deviations of the normal it is cut from (Keras' he_normal)."""
        rng = _generator(self._seed, self._roots[name])
        values = rng.standard_normal(self._constants[name].shape, dtype=np.float32)
        while (far := np.flatnonzero(np.abs(values) > TRUNCATION)).size:
            values.reshape(-1)[far] = rng.standard_normal(far.size, dtype=np.float32)
        values /= np.float32(TRUNCATED_STD)
        return values

    def _uniform(self, name: str, low: float, high: float) -> FloatArray:
        shape = self._constants[name].shape
        return _generator(self._seed, self._roots[name]).uniform(low, high, shape).astype(np.float32)

    def _set(self, name: str, value: FloatArray) -> None:
        """Set a parameter by its name or by the name of a view of it; the value has the shape of that name."""
        root = self._roots[name]
        self._constants[name] = value
        self._parameters[root] = value.reshape(self._shapes[root])

    # Running.

    def _view(self, node: onnx.NodeProto) -> None:
        """Note that a node shows a parameter in another shape; its values come when a layer asks for them."""
        out = node.output[0]
        self._roots[out] = self._roots[node.input[0]]
        (self._constants[out],) = _execute(node, self._opsets, [{key: self._constants[key] for key in node.input}])

    def _run(self, node: onnx.NodeProto) -> list[Array]:
        """Return the node's first output for every image."""
        values = {key: self._values.get(key) or [self._constants[key]] * MEASURED_IMAGES for key in node.input}
        feeds = [{key: value[index] for key, value in values.items()} for index in range(MEASURED_IMAGES)]
        return _execute(node, self._opsets, feeds)

    def _forget(self, node: onnx.NodeProto) -> None:
        """Free the values whose last reader this node was."""
        for key in set(node.input) & self._values.keys():
            if self._readers[key][-1] is node and key != self._logits:
                del self._values[key]


def _execute(
    node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto], feeds: Sequence[dict[str, Array]]
) -> list[Array]:
    """Run one node in ONNX Runtime on each feed and return its first outputs; one thread, so that sums keep order."""
    inputs = [_value_info(key, value.dtype) for key, value in feeds[0].items()]
    out = node.output[0]
    graph = helper.make_graph([node], "node", inputs, [_value_info(out, np.dtype(np.float32))])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [np.asarray(session.run([out], feed)[0]) for feed in feeds]


def _value_info(name: str, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)


def _readers(nodes: Sequence[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for key in node.input:
            readers.setdefault(key, []).append(node)
    return readers


def _batch(samples: FloatArray) -> list[Array]:
    return [sample[None] for sample in samples]


def _by_channel(values: Sequence[Array]) -> FloatArray:
    """Reorder values [1, C, ...] of all images to [C, images * positions]."""
    stacked = np.concatenate(values).astype(np.float32, copy=False)
    return np.moveaxis(stacked, 1, 0).reshape(stacked.shape[1], -1)


def _rounded(measured: Any) -> FloatArray:
    """Round to `MEASURED_BITS` significant bits, so that the last digits of a machine do not matter."""
    mantissa, exponent = np.frexp(np.asarray(measured, np.float32))
    steps = np.float32(2**MEASURED_BITS)
    return np.ldexp(np.round(mantissa * steps) / steps, exponent).astype(np.float32)
