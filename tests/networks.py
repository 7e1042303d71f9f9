"""Random small calibrated networks, seeded: what the compiler's stages are tried on.

Two image sizes and a handful of channel counts around the lane count, so that few kernels are compiled. Ranges are
estimated from the weights' scale, not measured: what is tested is agreement, not accuracy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from compiling import to_calibrated, to_canonical, to_reordered, to_tpu_with_fallbacks
from onnx import TensorProto, helper, numpy_helper
from plain_names import import_onnx

from tpusim import chips
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.inference import run
from tpusim.ir.attrs import op_name, text
from tpusim.ir.module import Model
from tpusim.layer_group.candidates import base_groups, group_types
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import Decided, plan
from tpusim.layer_group.slicing import possible_sections
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.relu import MOVED_AHEAD
from tpusim.schedule import GroupSchedule, Sections, subgraph

CHIPS = ("bm1684x", "bm1684")
IMAGE = (12, 10)
"""Rows and columns of the first tensors; after one stride of 2 half of it."""
CHANNELS = (3, 10, 64, 70, 130)
Array = np.ndarray


@dataclass
class Tensor:
    """A tensor under construction: name, shape, the largest magnitude it is said to have, its sign."""

    name: str
    shape: tuple[int, ...]
    limit: float
    signed: bool
    users: int = 0


@dataclass
class Network:
    """An ONNX graph that grows op by op, and its calibration table.

    below: how far the ranges of signed tensors are said to reach below zero, by their limits; not 1: they are kept.
    """

    rng: np.random.Generator
    below: float = 1.0
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    inputs: list[Tensor] = field(default_factory=list[Tensor])

    def _new(self, shape: tuple[int, ...], limit: float, signed: bool) -> Tensor:
        limit *= float(self.rng.uniform(0.8, 1.25))
        tensor = Tensor(f"t{len(self.tensors)}", shape, limit, signed)
        self.tensors.append(tensor)
        return tensor

    def _node(self, op: str, inputs: list[Tensor], constants: list[Array], out: Tensor, **attributes: Any) -> Tensor:
        names = [t.name for t in inputs]
        for tensor in inputs:
            tensor.users += 1
        for array in constants:
            names.append(f"{out.name}_c{len(names)}")
            self.constants[names[-1]] = array.astype(np.float32)
        self.nodes.append(helper.make_node(op, names, [out.name], name=out.name, **attributes))
        return out

    def input(self, shape: tuple[int, ...], *, signed: bool = True) -> Tensor:
        """A network input."""
        tensor = self._new(shape, 1.0, signed)
        self.inputs.append(tensor)
        return tensor

    def conv(
        self, x: Tensor, oc: int, k: int = 3, stride: int = 1, *, groups: int = 1, bias: bool = True,
        pads: tuple[int, int, int, int] | None = None,
    ) -> Tensor:  # fmt: skip
        """A convolution; pads are (top, left, bottom, right), by default those that keep the image."""
        n, c, h, w = x.shape
        top, left, bottom, right = pads or (k // 2,) * 4
        shape = (n, oc, (h + top + bottom - k) // stride + 1, (w + left + right - k) // stride + 1)
        fan = c // groups * k * k
        weights = [self.rng.standard_normal((oc, c // groups, k, k)) / np.sqrt(fan)]
        if bias:
            weights.append(self.rng.standard_normal(oc) * 0.3)
        geometry = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [top, left, bottom, right]}
        return self._node("Conv", [x], weights, self._new(shape, x.limit * 1.2, True), group=groups, **geometry)

    def conv3d(self, x: Tensor, oc: int, k: int = 3) -> Tensor:
        """A 3-D convolution that keeps the volume."""
        fan = x.shape[1] * k**3
        weights = [self.rng.standard_normal((oc, x.shape[1], k, k, k)) / np.sqrt(fan)]
        weights.append(self.rng.standard_normal(oc) * 0.3)
        geometry = {"kernel_shape": [k] * 3, "pads": [k // 2] * 6}
        return self._node(
            "Conv", [x], weights, self._new((x.shape[0], oc, *x.shape[2:]), x.limit * 1.2, True), **geometry
        )

    def pool3d(self, x: Tensor, kind: str = "MaxPool", **more: Any) -> Tensor:
        """A pool of 3 x 3 x 3 that keeps the volume."""
        geometry = {"kernel_shape": [3] * 3, "pads": [1] * 6}
        return self._node(kind, [x], [], self._new(x.shape, x.limit, x.signed), **geometry, **more)

    def relu(self, x: Tensor) -> Tensor:
        """A separate Relu node; it is fused if it is the only user of the op that makes x."""
        return self._node("Relu", [x], [], self._new(x.shape, x.limit, False))

    def pool(self, x: Tensor, kind: str = "MaxPool", k: int = 2, stride: int = 2, pad: int = 0) -> Tensor:
        """A MaxPool or AveragePool."""
        n, c, h, w = x.shape
        shape = (n, c, (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
        geometry = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [pad] * 4}
        return self._node(kind, [x], [], self._new(shape, x.limit, x.signed), **geometry)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """A sum of two tensors of one shape."""
        return self._node("Add", [x, y], [], self._new(x.shape, (x.limit + y.limit) * 0.7, x.signed or y.signed))

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """A product of two tensors whose shapes broadcast."""
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self._node("Mul", [x, y], [], self._new(shape, x.limit * y.limit * 0.7, x.signed or y.signed))

    def add_constant(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A sum with a constant that broadcasts to x."""
        term = self.rng.uniform(-x.limit, x.limit, shape)
        return self._node("Add", [x], [term], self._new(x.shape, x.limit * 1.4, True))

    def function(self, x: Tensor, kind: str) -> Tensor:
        """An element-wise function with values in [-1, 1]."""
        return self._node(kind, [x], [], self._new(x.shape, 1.0, kind == "Tanh"))

    def hard_swish(self, x: Tensor) -> Tensor:
        """Hard swish: x * relu6(x + 3) / 6."""
        return self._node("HardSwish", [x], [], self._new(x.shape, x.limit, True))

    def global_pool(self, x: Tensor) -> Tensor:
        """The mean of every channel."""
        return self._node("GlobalAveragePool", [x], [], self._new((*x.shape[:2], 1, 1), x.limit * 0.5, x.signed))

    def flatten(self, x: Tensor) -> Tensor:
        """One row per image."""
        shape = (x.shape[0], int(np.prod(x.shape[1:])))
        return self._node("Flatten", [x], [], self._new(shape, x.limit, x.signed))

    def enlarge(self, x: Tensor, times: int) -> Tensor:
        """Every pixel `times` times along both axes."""
        n, c, h, w = x.shape
        out = self._new((n, c, h * times, w * times), x.limit, x.signed)
        modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self._node("Resize", [x], [np.zeros(0), np.array([1, 1, times, times])], out, **modes)

    def matmul(self, x: Tensor, right: Tensor | tuple[int, ...]) -> Tensor:
        """A product with another tensor, or with a constant of this shape."""
        depth = x.shape[-1]
        if isinstance(right, Tensor):
            shape, limit = (*x.shape[:-1], right.shape[-1]), x.limit * right.limit * depth**0.5
            return self._node("MatMul", [x, right], [], self._new(shape, limit, True))
        matrix = self.rng.standard_normal(right) / np.sqrt(depth)
        return self._node("MatMul", [x], [matrix], self._new((*x.shape[:-1], right[-1]), x.limit * 1.2, True))

    def concat(self, parts: list[Tensor]) -> Tensor:
        """A concatenation of channels."""
        n, _, h, w = parts[0].shape
        limit, signed = max(p.limit for p in parts), any(p.signed for p in parts)
        return self._node(
            "Concat", parts, [], self._new((n, sum(p.shape[1] for p in parts), h, w), limit, signed), axis=1
        )

    def top(self, *outputs: Tensor) -> Model:
        """The canonical, calibrated module; outputs default to every tensor without a user."""
        results = outputs or tuple(t for t in self.tensors if not t.users)
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.shape) for t in self.inputs],
            [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.shape) for t in results],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )  # fmt: skip
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model = to_canonical(import_onnx(proto, name="net"))
        entries = {t.name: Entry(t.limit, -t.limit * self.below if t.signed else 0.0, t.limit) for t in self.tensors}
        for op in model.ops:  # canonicalization adds relus
            made, moved, _ = op_name(op).partition(MOVED_AHEAD)
            if moved:
                entries[op_name(op)] = Entry(entries[made].threshold, 0.0, entries[made].threshold)
        return to_calibrated(model, CalibrationTable(entries), asymmetric=self.below != 1)

    def feeds(self, seed: int = 5) -> dict[str, Array]:
        """Values of every network input."""
        rng = np.random.default_rng(seed)
        return {
            t.name: rng.uniform(-t.limit if t.signed else 0, t.limit, t.shape).astype(np.float32) for t in self.inputs
        }


def random_network(seed: int, ops: int = 6, batch: int = 1) -> Network:
    """A connected random network of about `ops` ops: chains, branches, residual sums, concatenations, pools."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    net.input((batch, int(rng.choice(CHANNELS[:3])), *IMAGE), signed=bool(rng.integers(2)))
    for _ in range(ops):
        _grow(net, rng)
    return net


def random_tokens(seed: int, shape: tuple[int, ...], ops: int = 5) -> Network:
    """A network of matrix products, sums, products and functions on rows of `shape`; only X-family chips have all."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    net.input(shape)
    batch = () if len(shape) > 3 else (int(rng.choice([1, shape[0]])),)
    for _ in range(ops):
        x = net.tensors[-1 - int(rng.integers(min(len(net.tensors), 2)))]
        alike = [t for t in net.tensors if t.shape == x.shape and t is not x]
        kind = rng.choice(["matmul", "matmul", "add", "mul", "function"])
        if kind == "matmul":
            net.matmul(x, (*batch, x.shape[-1], int(rng.choice([12, 20]))))
        elif kind == "function" or not alike:
            net.function(x, str(rng.choice(["Sigmoid", "Tanh"])))
        else:
            (net.add if kind == "add" else net.mul)(x, alike[int(rng.integers(len(alike)))])
    return net


def _grow(net: Network, rng: np.random.Generator) -> None:
    """One more op on a random tensor, recent ones more likely."""
    recent = net.tensors[-3:]
    x = recent[int(rng.integers(len(recent)))]
    alike = [t for t in net.tensors if t.shape == x.shape and t is not x]
    near = [t for t in net.tensors if t.shape[2:] == x.shape[2:] and t is not x and t.shape[1] + x.shape[1] <= 140]
    kind = rng.choice(["conv", "conv", "conv", "add", "add", "concat", "pool", "relu"])
    if kind == "add" and alike:
        net.add(x, alike[int(rng.integers(len(alike)))])
    elif kind == "concat" and near:
        net.concat([x, near[int(rng.integers(len(near)))]])
    elif kind == "pool":
        _pool(net, x, rng)
    elif kind == "relu" and x.signed:
        net.relu(x)
    else:
        _conv(net, x, rng)


def _pool(net: Network, x: Tensor, rng: np.random.Generator) -> None:
    kind = str(rng.choice(["MaxPool", "AveragePool"]))
    if x.shape[2] == IMAGE[0] and rng.integers(2):
        net.pool(x, kind, 2, 2)
    else:
        net.pool(x, kind, 3, 1, 1)


def _conv(net: Network, x: Tensor, rng: np.random.Generator) -> None:
    c = x.shape[1]
    stride = 2 if x.shape[2] == IMAGE[0] and rng.integers(3) == 0 else 1
    k = int(rng.choice([1, 3, 3, 3, 5, 7])) if stride == 1 else int(rng.choice([1, 3, 5]))
    form, bias = int(rng.integers(5)), bool(rng.integers(4))
    if form == 0:
        out = net.conv(x, c, 3, stride, groups=c, bias=bias)
    elif form == 1 and c % 2 == 0 and c <= 70:
        out = net.conv(x, c, k, stride, groups=2, bias=bias)
    else:
        out = net.conv(x, int(rng.choice(CHANNELS[1:])) if c < 64 else 10, k, stride, bias=bias)
    if rng.integers(2):
        net.relu(out)


# ------------------------------------------------------------------------------------------------------------- stages


@cache
def cached_network(seed: int, ops: int = 6, batch: int = 1) -> Network:
    """`random_network`, once per process."""
    return random_network(seed, ops, batch)


@cache
def cached_top(seed: int, ops: int = 6, batch: int = 1) -> Model:
    """The calibrated module of `cached_network`."""
    return cached_network(seed, ops, batch).top()


def reordered(top: Model, chip: str) -> Model:
    """The lowered module with chip-layout weights; nothing may have fallen back to float."""
    lowered, fallbacks = to_tpu_with_fallbacks(top, chip)
    assert not fallbacks, fallbacks
    return to_reordered(lowered)


@cache
def cached_lowered(seed: int, chip: str, ops: int = 6, batch: int = 1) -> tuple[Model, dict[str, Array]]:
    """(reordered module, every tensor of the flat inference)."""
    model = reordered(cached_top(seed, ops, batch), chip)
    return model, run(model, cached_network(seed, ops, batch).feeds())


def randomly_grouped(
    model: Model, rng: np.random.Generator, *, longest: int = 8, seen: Callable[[GroupSchedule], None] = lambda _: None,
    change: Callable[[list[Decided]], list[Decided]] = lambda decided: decided,
) -> tuple[Model, list[GroupSchedule]]:  # fmt: skip
    """A copy of a reordered module in random groups with random sections that work.

    change: what becomes of groups and global layers before they are written; `seen` is shown every plan that is.
    """
    work = model.clone()
    chip = chips.load(work.attribute("module.chip"))
    decided: list[Decided] = []
    for ops, why in list(base_groups(work, chip)):
        if why is not None:
            decided.append((ops[0], why))
            continue
        while ops:
            size = int(rng.integers(1, min(longest, len(ops)) + 1))
            found = _random_plan(ops[:size], rng)
            decided.append((ops[0], found) if isinstance(found, str) else found)
            ops = ops[len(found.graph.ops) if isinstance(found, GroupSchedule) else 1 :]
    for item in decided:
        if not isinstance(item, GroupSchedule):
            item[0].attributes["tpusim.global_reason"] = text(item[1])
    plans = [item for item in change(decided) if isinstance(item, GroupSchedule)]
    for found in reversed(plans):
        seen(found)
        write_group(found, work.weights)
    work.set(state="TPU_DIVIDED")
    return work, plans


def _random_plan(ops: list[TpuOp], rng: np.random.Generator) -> GroupSchedule | str:
    """A plan for the ops, or for as many of the first as can be a group; why the first cannot be one alone."""
    chip = chips.load(_chip_of(ops[0]))
    kinds = group_types(ops, chip)
    for _ in range(6 if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        found = plan(ops, chip, _random_sections(possible_sections(subgraph(ops, chip, kind), chip), rng), kind)
        if isinstance(found, GroupSchedule):
            return found
    whole = plan(ops, chip, Sections())
    return whole if isinstance(whole, GroupSchedule) or len(ops) == 1 else _random_plan(ops[: len(ops) // 2], rng)


def _random_sections(limit: Sections, rng: np.random.Generator) -> Sections:
    """Legal counts, more than one along two or three of the axes that can be cut: more are many small slices."""
    able = [axis for axis in AXES if limit.count(axis) > 1]
    kept = [str(axis) for axis in rng.permutation(np.array(able))][: 2 + int(rng.integers(2))]
    return Sections(**{axis: int(rng.integers(1, min(limit.count(axis), 6) + 1)) for axis in kept})  # type: ignore[arg-type]


def _chip_of(op: TpuOp) -> str:
    module = op.get_toplevel_object()
    return module.attributes["module.chip"].data  # type: ignore[union-attr,attr-defined]
