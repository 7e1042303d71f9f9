"""The executor: walk @main in program order and ask each op for its function."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import tpusim_kernels
from tpusim_kernels.gradient import not_differentiable
from tpusim_kernels.lazy import jax, jnp
from tpusim_kernels.prim.forms import estimates
from tpusim_kernels.store import Stored, text_of
from xdsl.ir import Block, Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.inference.layout import with_few_transpositions
from tpusim.inference.shuffles import shuffles
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.one_file import encode_module
from tpusim.ir.opaque import require_known
from tpusim.ir.types import is_tensor, shape_of, storage_dtype, tensor_of, uniform_of
from tpusim.numbers import border
from tpusim.ops.framework.base import Array, ShapedOp, TopOp, TpuOp
from tpusim.ops.framework.building import fitting
from tpusim.ops.interfaces import ChannelOrder, FilledUp, KernelConstants, PackedWeights, estimate_of
from tpusim.ops.structure import TopInput, TopNone, TopWeight, TpuGroup, TpuYield, Transfer

Environment = dict[SSAValue, Array]
Recorder = Callable[[Operation, Sequence[Array]], None]
Place = tuple[Operation, int]
"""An operand: the op and its number."""


def inputs_of(model: Model) -> list[TopInput]:
    """The network inputs in argument order."""
    return [op for op in model.ops if isinstance(op, TopInput)]


def input_specs(model: Model) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of every network input by name; the dtype is that of the user's array."""
    return {op_name(op): (shape_of(op.input), op.given) for op in inputs_of(model)}


def check_inputs(model: Model, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The arrays in argument order, as the module stores them.

    Raises ConfigError for a missing input, a wrong shape, and values outside the input's type or the module's type.
    """
    arrays: list[np.ndarray] = []
    for op in inputs_of(model):
        name, shape = op_name(op), shape_of(op.input)
        if name not in inputs:
            raise ConfigError(f"input '{name}' is missing; given are {', '.join(sorted(inputs)) or '(none)'}")
        array = array_of(op, inputs[name])
        if array.shape != shape:
            raise ConfigError(f"input '{name}': shape {shape} is required, got {array.shape}")
        arrays.append(stored_input(op, array))
    return arrays


def array_of(op: TopInput, given: object) -> np.ndarray:
    """The given value of an input as an array. Raises ConfigError for rows of different lengths."""
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ConfigError(
            f"input '{op_name(op)}': an array of shape {shape_of(op.input)} is required: {error}"
        ) from error


def stored_input(op: TopInput, array: np.ndarray) -> np.ndarray:
    """A network input in the module's stored type. Raises ConfigError for values outside one of the types."""
    try:
        return border.stored(array, op.given, storage_dtype(tensor_of(op.input).element_type))
    except ValueError as error:
        raise ConfigError(f"input '{op_name(op)}': {error}") from error


def run(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Op by op: every tensor of the network by name (quantised ones as stored integers)."""
    found: dict[str, np.ndarray] = {}

    def record(op: Operation, results: Sequence[Array]) -> None:
        found.update((value_name(v), np.asarray(y)) for v, y in zip(op.results, results, strict=True))

    steps, arguments = Steps.of(model, record), check_inputs(model, inputs)
    environment: Environment = dict(zip(model.body.args, arguments, strict=True))
    steps.block(model.body, environment)
    return found


def results_of(model: Model, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The network's results, in order, as they are stored: also in the order of a store that moves elements."""
    steps, arguments = Steps.of(model), check_inputs(model, inputs)
    environment: Environment = dict(zip(model.body.args, arguments, strict=True))
    steps.block(model.body, environment)
    return [np.asarray(environment[value]) for value in model.results]


def chip_of(model: Model) -> ChipSpec | None:
    """The chip of a lowered module; None for a top module, which does not depend on a chip."""
    return chips.of(model) if model.chip else None


@dataclass(frozen=True)
class Steps:
    """The ops of one module, executed on an environment to which their results are added.

    chip: None for a top module; record: called with the results of every op that computes; forms: constant operands in
    the form that their op's kernel reads; quick: compute float ops of a top module by their estimates; shuffled: ops
    whose work is done by earlier constants, and the values that are their results; located: traced instructions have
    the op's name as their location, which compilers and profilers show.
    """

    weights: Mapping[str, Array]
    chip: ChipSpec | None
    record: Recorder | None = None
    forms: Mapping[Place, Any] = field(default_factory=dict[Place, Any])
    quick: bool = False
    shuffled: Mapping[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    located: bool = False

    @classmethod
    def of(cls, model: Model, record: Recorder | None = None) -> "Steps":
        """The steps of a module with its weights, on its chip. Raises UnsupportedError for opaque ops."""
        require_known(model.module.walk(), f"inference of module '{model.name}'")
        return cls(model.weights, chip_of(model), record)

    def block(self, block: Block, environment: Environment) -> None:
        """Compute all ops of a block in order; results are added to `environment`."""
        for op in block.ops:
            self.step(op, environment)

    def step(self, op: Operation, environment: Environment) -> None:
        """Compute one op. Raises ConfigError for a tpu op in a module without a chip."""
        if isinstance(op, TopWeight):
            environment[op.output] = self.weights.get(op_name(op))  # None: only their forms are here
        elif isinstance(op, TopNone):
            environment[op.output] = None
        elif isinstance(op, TpuGroup):
            self.block(op.body.block, environment)
            last = op.body.block.last_op
            assert isinstance(last, TpuYield)
            for result, value in zip(op.results, last.operands, strict=True):
                environment[result] = environment[value]
        elif op in self.shuffled:
            environment[op.results[0]] = environment[self.shuffled[op]]
        elif isinstance(op, ShapedOp):
            operands = [self.forms.get((op, i), environment[v]) for i, v in enumerate(op.operands)]
            with jax.named_scope(op_name(op)) if self.located else nullcontext():
                results = self.results(op, operands)
            environment.update(zip(op.results, results, strict=True))
            if self.record is not None and not isinstance(op, Transfer):
                self.record(op, results)

    def results(self, op: ShapedOp, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The results of an op. Raises ImportModelError if its attributes contradict its operands."""
        if isinstance(op, TpuOp) and self.chip is None:
            raise ConfigError(f"{op.name} '{op_name(op)}': the chip is required, got a module without module.chip")
        if any(is_tensor(v) and uniform_of(v) is not None for v in op.results):
            operands = [not_differentiable(x, lambda: _without_derivative(op)) for x in operands]
        with fitting(op, "cannot be computed"):
            if isinstance(op, TpuOp) and self.chip is not None:
                return op.compute(operands, self.chip)
            if self.quick and isinstance(op, TopOp):
                return self._estimated(op, operands)
            return op.inference(operands)

    def _estimated(self, op: TopOp, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The results of an op with sums in any order; inner arrays in the layout of `with_few_transpositions`."""
        estimate = estimate_of(op)
        orders = {i: order for i, order in estimate.operands.items() if (op, i) not in self.forms}
        stored = [jnp.transpose(v, orders[i]) if i in orders else v for i, v in enumerate(operands)]
        results = estimate.compute(stored)
        back = tuple(estimate.result.index(axis) for axis in range(len(estimate.result)))
        return tuple(jnp.transpose(y, back) for y in results) if back else results


def _without_derivative(op: ShapedOp) -> ConfigError:
    return ConfigError(
        f"{op.name} '{op_name(op)}': has no derivative, its result is quantised to integers; differentiate the float "
        "network (mode f32, f16 or bf16, or the top module), or hold this operand constant with jax.lax.stop_gradient"
    )


def tensor_ops(model: Model) -> Iterator[Operation]:
    """Every op that makes a named tensor, groups opened, in program order."""
    for op in model.ops:
        inner = op.body.block.ops if isinstance(op, TpuGroup) else (op,)
        yield from (o for o in inner if isinstance(o, TopOp | TpuOp))


def kept_names(model: Model, keep: Sequence[str] | str | None) -> list[str]:
    """Tensor names: the given ones; for None the network's results, by the ops that make them; for "all" all."""
    if keep is None:
        return [value_name(_made(v)) for v in model.results if isinstance(v.owner, Operation)]
    return [value_name(v) for op in tensor_ops(model) for v in op.results] if keep == "all" else list(keep)


def bytes_of(model: Model, names: Sequence[str]) -> int:
    """Bytes of the network's inputs and of the named tensors, of one run."""
    wanted, made = set(names), (value for op in tensor_ops(model) for value in op.results)
    kept = [v for v in made if value_name(v) in wanted] + [op.output for op in inputs_of(model)]
    return sum(prod(shape_of(v)) * storage_dtype(tensor_of(v).element_type).itemsize for v in kept)


class Graph:
    """The whole network as one compiled function; weights are arguments, so nothing is baked in twice.

    Args: model: any stage; keep: tensor names to return, or None for the network's results (by the name of the op
    that makes them), or "all". quick: add f32 products in the fastest order, which is not specified: results differ by
    rounding from those in the stated order, and between processors and batches.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None, *, quick: bool = False) -> None:
        require_known(model.module.walk(), f"inference of module '{model.name}'")
        self.model, self.keep, self._quick = model, kept_names(model, keep), quick
        concrete = _concrete_weights(model)
        self._chip = chip_of(model)
        self._fixed = {name: model.weights[name] for name in concrete}
        self._forms: dict[Place, str] = {}
        self.weights: dict[str, Any] = {}
        for op, index, name in _constants(model):
            raw = model.weights[name]
            form = self._form(op, index, raw) if name not in concrete else raw
            key = name if form is raw else f"{name} for {op_name(op)}"
            if form is not raw:
                self._forms[op, index] = key
            if name not in concrete and key not in self.weights:
                self.weights[key] = _on_device(form)
        self.shuffled = dict(self._taken_shuffles()) if not quick else {}
        self._compiled = Stored(with_few_transpositions(self.trace), self.identity, fixed=self.weights)

    def _taken_shuffles(self) -> Iterator[tuple[Operation, SSAValue]]:
        """Ops that shuffle channels, with values that have that order already: their constants were reordered."""
        kept = {v for op in tensor_ops(self.model) for v in op.results if value_name(v) in self.keep}
        for found in shuffles(self.model.ops, kept | set(self.model.results)):
            op = found.made.owner
            if not isinstance(op, ShapedOp) or not isinstance(op, ChannelOrder):
                continue
            constants = {i: self.model.weights[name] for other, i, name in _constants(self.model) if other is op}
            forms = op.in_channel_order(constants, found.order)
            if forms is not None:
                for index, form in forms.items():
                    self._forms[op, index] = key = f"operand {index} of {op_name(op)}, shuffled"
                    self.weights[key] = _on_device(form)
                yield found.last, found.made

    def _form(self, op: ShapedOp, index: int, raw: np.ndarray) -> Any:
        """A constant operand in the form that its op's kernel reads."""
        if not self._quick or not isinstance(op, TopOp):
            return op.for_kernel(index, raw) if isinstance(op, KernelConstants) else raw
        orders = estimate_of(op).operands
        if not orders:
            return op.for_kernel(index, raw) if isinstance(op, KernelConstants) else raw
        return np.ascontiguousarray(raw.transpose(orders[index])) if index in orders else raw

    def identity(self) -> str | None:
        """A hash of module, chip, constants and texts of both packages; None with ops of other packages."""
        if not all(type(op).__module__.startswith(("tpusim.", "xdsl.")) for op in self.model.body.walk()):
            return None
        texts = text_of(Path(tpusim_kernels.__file__).parent), text_of(Path(__file__).parents[1])
        parts = (encode_module(self.model.module), self.keep, self._chip, texts, self._quick)
        digest = hashlib.sha256(repr(parts).encode())
        for name in sorted(self._fixed):
            digest.update(self._fixed[name].tobytes())
        return digest.hexdigest()

    def trace(self, weights: dict[str, Any], arguments: list[Array]) -> list[Array]:
        """The kept tensors, for JAX to trace; weights: by name, arguments: the inputs in order."""
        found: dict[str, Array] = {}

        def record(op: Operation, results: Sequence[Array]) -> None:
            found.update((value_name(v), y) for v, y in zip(op.results, results, strict=True))

        environment: Environment = dict(zip(self.model.body.args, arguments, strict=True))
        forms = {place: weights[key] for place, key in self._forms.items()}
        steps = Steps({**weights, **self._fixed}, self._chip, record, forms, self._quick, self.shuffled, located=True)
        with estimates() if self._quick else nullcontext():
            steps.block(self.model.body, environment)
        return [found[name] for name in self.keep]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Execute the network on one sample."""
        arguments = check_inputs(self.model, inputs)
        with jax.enable_x64(True):
            results = self._compiled(self.weights, arguments)
        return {name: np.asarray(value) for name, value in zip(self.keep, results, strict=True)}


def _made(value: SSAValue) -> SSAValue:
    """The value that an op computes: inside the group that returns it, and before its store."""
    owner = value.owner
    assert isinstance(owner, Operation)
    if isinstance(owner, TpuGroup):
        last = owner.body.block.last_op
        assert isinstance(last, TpuYield)
        return _made(last.operands[owner.results.index(value)])
    return _made(owner.input) if isinstance(owner, Transfer) else value


def _on_device(array: Any) -> Any:
    return cast("Any", jax).device_put(array)


def _constants(model: Model) -> Iterator[tuple[ShapedOp, int, str]]:
    """(op, number of the operand, name) of every weight that an op reads, through loads."""
    for op in model.body.walk():
        if isinstance(op, ShapedOp) and not isinstance(op, Transfer):
            owners = [_weight_owner(value) for value in op.operands]
            yield from ((op, i, op_name(owner)) for i, owner in enumerate(owners) if owner is not None)


def _concrete_weights(model: Model) -> set[str]:
    """Weights that an op must see as data while tracing (packed coefficients)."""
    return {name for op, _, name in _constants(model) if isinstance(op, PackedWeights) and op.needs_concrete_weights()}


def _weight_owner(value: SSAValue) -> TopWeight | None:
    """The top.Weight of a value, before its loads."""
    owner: Any = value.owner
    while isinstance(owner, Transfer):
        owner = owner.input.owner
    return owner if isinstance(owner, TopWeight) else None


def quantisation(model: Model) -> dict[str, tuple[float, int]]:
    """(scale, zero point) of every quantised tensor of the module."""
    types = {op_name(op): op.results[0] for op in tensor_ops(model) if op.results and is_tensor(op.results[0])}
    found = {name: uniform_of(value) for name, value in types.items()}
    return {name: (u.scale.data, u.zero_point.value.data) for name, u in found.items() if u is not None}


def without_padding(value: SSAValue, array: np.ndarray) -> np.ndarray:
    """A value of a top module without the rows that pad it to fixed extents (FilledUp)."""
    return value.owner.without_padding(array) if isinstance(value.owner, FilledUp) else array


def real_of(array: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """Real values of stored integers: scale * (q - zero point) in f32."""
    if array.dtype.itemsize > 2:
        return np.float32(scale) * (array.astype(np.int32) - zero_point).astype(np.float32)
    return np.float32(scale) * (array.astype(np.float32) - np.float32(zero_point))  # differences are exact in f32


class RealValues(Mapping[str, np.ndarray]):
    """Tensors as real values, each converted when it is read, which needs a quarter of the memory.

    Quantised tensors of the module are dequantised (`real_of`), others unchanged.
    """

    def __init__(self, model: Model, tensors: Mapping[str, np.ndarray]) -> None:
        self._known, self._tensors = quantisation(model), tensors

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor of that name."""
        array = self._tensors[name]
        return real_of(array, *self._known[name]) if name in self._known else array

    def __iter__(self) -> Iterator[str]:
        """Names in the order of the network."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._tensors)


def dequantised(model: Model, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All of `RealValues` at once."""
    return dict(RealValues(model, tensors))


def last_uses(model: Model, kept: Collection[SSAValue] = ()) -> dict[Operation, list[SSAValue]]:
    """Op -> the values that are not read after it, without those to be kept."""
    last: dict[SSAValue, Operation] = {}
    for op in model.ops:
        last.update(dict.fromkeys((*op.operands, *op.results), op))
    found: dict[Operation, list[SSAValue]] = {}
    for value, op in last.items():
        if value not in kept:
            found.setdefault(op, []).append(value)
    return found
