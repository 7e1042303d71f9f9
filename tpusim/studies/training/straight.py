"""`Differentiable`: forward in the chip's integers, backward straight through their rounding.

Forward: the module is lowered anew with the given weights, so that filters, multipliers and shifts are those that the
compiler makes of them, and run flat. Backward: the derivative of each op of the float module, at the numbers that the
chip has there; the derivative of rounding is 1, and 0 where a value does not fit the range of its quantised type
(straight-through estimator, Bengio et al. 2013, with the clipping of Hubara et al. 2016).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from tpusim_kernels.prim.forms import plain
from xdsl.ir import Operation, SSAValue

from tpusim.errors import ConfigError
from tpusim.inference import Arguments
from tpusim.inference.executor import Environment, Steps
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import Array, ShapedOp, TopOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.passes import PassManager
from tpusim.passes.pipelines import lowered

Weights: TypeAlias = Mapping[str, Array]
_JAX: Any = jax
"""Some of its functions are only partly annotated."""


class Limits(NamedTuple):
    """The least and the largest real number of a quantised type."""

    low: float
    high: float


class Differentiable:
    """The network as a function of its float weights: `network(weights, inputs)` gives the real results by name.

    weights: arrays by name, f32, the values of the module; give all or some of them, the others stay. inputs: as of
    `Flat`; the first axis counts samples. The results are exactly those of the lowered module, times their scale.

    `jax.grad`, `jax.vjp` and optimisers take it as any function of arrays. Not under `jax.jit`: the module is lowered
    for each set of weights, outside JAX.
    """

    def __init__(self, model: Model, lowering: LoweringConfig) -> None:
        self._model, self._lowering = model, lowering
        self._weights = {n: a for n, a in model.weights.items() if a.dtype == np.float32 and n in _read(model)}
        self._limits = _limits(PassManager(lowered(lowering)).run(model.clone()))
        self._expression = _JAX.jit(_JAX.vmap(self._float_results, in_axes=(None, 0, 0)))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The f32 weights of the module by name: filters, matrices, biases, factors."""
        return dict(self._weights)

    def module(self, weights: Weights) -> Model:
        """The calibrated top module with these weights. Raises ConfigError for other names, shapes and numbers."""
        model = self._model.clone()
        for name, array in _named(weights).items():
            model.weights.replace(name, self._checked(name, array))
        return model

    def tpu(self, weights: Weights) -> Model:
        """The lowered module with these weights."""
        return PassManager(lowered(self._lowering)).run(self.module(weights))

    def __call__(self, weights: Weights, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Real results by name, f32 (N, ...). Raises ConfigError for what does not fit, and under `jax.jit`."""
        real = Arguments(self._model)(inputs)
        filled = {**self._weights, **{name: self._numbers(name, a) for name, a in _named(weights).items()}}

        def exact(weights: Weights, arguments: Sequence[Array]) -> dict[str, Array]:
            _require_values(*weights.values(), *arguments)
            return self._chip_values(weights, arguments)

        held = _without_derivative(exact)
        results = self._expression(filled, real, held(filled, real))
        names = map(value_name, self._model.results)  # JAX returns a mapping in the order of its keys
        return {name: results[name].reshape(-1, *results[name].shape[2:]) for name in names}

    def text(self, inputs: Mapping[str, Array] | Array, *, gradient: bool = False) -> str:
        """What is differentiated, as StableHLO: the float ops with the chip's numbers, or the gradient of their sum.

        The chip's numbers are arguments. An instruction's location is the op that it belongs to.
        """
        arguments = Arguments(self._model)(inputs)
        chip = self._chip_values(self._weights, arguments)

        def total(weights: Weights) -> Array:
            return sum(y.sum() for y in self._expression(weights, arguments, chip).values())

        if gradient:
            return _JAX.jit(_JAX.grad(total)).lower(self._weights).as_text(debug_info=True)
        return self._expression.lower(self._weights, arguments, chip).as_text(debug_info=True)

    # ------------------------------------------------------------------------------------------------------ the chip

    def _chip_values(self, weights: Weights, arguments: Sequence[Array]) -> dict[str, Array]:
        """Every tensor of the lowered module by name, as real numbers f32; results also by `_result`."""
        module = self.tpu({name: np.asarray(a) for name, a in weights.items()})
        given = {op_name(op): np.asarray(x) for op, x in zip(_inputs(self._model), arguments, strict=True)}
        whole = {name: x.reshape(-1, *x.shape[2:]) for name, x in given.items()}
        stored = Arguments(module)(whole)
        named = {value_name(v): value_name(r) for v, r in zip(module.results, self._model.results, strict=True)}

        def run(arguments: list[Array]) -> dict[str, Array]:
            found: dict[str, Array] = {}

            def record(op: Operation, results: Sequence[Array]) -> None:
                for value, y in zip(op.results, results, strict=True):
                    real = _real(value, y)
                    found[value_name(value)] = real
                    if value_name(value) in named:
                        found[_result(named[value_name(value)])] = real

            environment: Environment = dict(zip(module.body.args, arguments, strict=True))
            Steps.of(module, record).block(module.body, environment)
            return found

        with jax.enable_x64(True):
            return _JAX.vmap(run)(stored)

    # --------------------------------------------------------------------------------------------------- derivatives

    def _float_results(
        self, weights: Weights, arguments: Sequence[Array], chip: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The results of one sample, whose values are the chip's and whose derivatives are those of the float ops."""
        environment: Environment = dict(zip(self._model.body.args, arguments, strict=True))
        steps = Steps({**self._model.weights, **weights}, None)
        with plain():
            for op in self._model.ops:
                if isinstance(op, TopWeight):
                    environment[op.output] = steps.weights[op_name(op)]
                elif isinstance(op, TopNone):
                    environment[op.output] = None
                elif isinstance(op, ShapedOp):
                    with jax.named_scope(op_name(op)):
                        results = steps.results(op, [environment[v] for v in op.operands])
                    for value, y in zip(op.results, results, strict=True):
                        environment[value] = self._straight(value_name(value), y, chip)
        return {
            value_name(v): self._straight(_result(value_name(v)), environment[v], chip) for v in self._model.results
        }

    def _straight(self, name: str, y: Array, chip: Mapping[str, Array]) -> Array:
        """The chip's number for a float result, with the derivative of the float result where it fits the type."""
        value = chip.get(name)
        if value is None or value.shape != y.shape:
            return y
        limits = self._limits.get(name)
        clipped = y if limits is None else jnp.clip(y, limits.low, limits.high)
        finite = jnp.where(jnp.isfinite(clipped), clipped, 0.0)
        return value + (finite - jax.lax.stop_gradient(finite))

    # ----------------------------------------------------------------------------------------------------- the weights

    def _numbers(self, name: str, array: Array) -> Array:
        """A weight as f32, also where JAX traces it. Raises ConfigError for another name or no real numbers."""
        if name not in self._weights:
            raise ConfigError(f"weights: one of {', '.join(self._weights)} is required, got '{name}'")
        try:
            found = _JAX.numpy.asarray(array)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"weight '{name}': an array of numbers is required, got {type(array).__name__}"
            ) from error
        if not jnp.issubdtype(found.dtype, jnp.floating) and not jnp.issubdtype(found.dtype, jnp.integer):
            raise ConfigError(f"weight '{name}': real numbers are required, got {found.dtype}")
        return found.astype(jnp.float32)

    def _checked(self, name: str, array: Array) -> np.ndarray:
        _require_values(array)
        found, wanted = np.asarray(self._numbers(name, array)), self._weights[name].shape
        if found.shape != wanted:
            raise ConfigError(f"weight '{name}': shape {wanted} is required, got {found.shape}")
        if not np.isfinite(found).all():
            raise ConfigError(
                f"weight '{name}': finite numbers are required, got NaN or infinity; lower the learning rate"
            )
        return found


def _named(weights: object) -> Weights:
    """The weights, if they are a mapping. Raises ConfigError otherwise."""
    if isinstance(weights, Mapping):
        return cast("Weights", weights)
    raise ConfigError(f"weights: a mapping of arrays by name is required, got {type(weights).__name__}")


def _require_values(*arrays: Array) -> None:
    if any(isinstance(x, Tracer) for x in arrays):
        raise ConfigError(
            "differentiable: weights and inputs with values are required, got ones that JAX traces; call it "
            "outside jax.jit and jax.vmap (the loss of its results may be compiled)"
        )


def _without_derivative(function: Any) -> Any:
    """A function of arrays that JAX calls with values, and whose results it takes for constants."""
    held: Any = _JAX.custom_jvp(function)

    @held.defjvp
    def derivative(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        del tangents
        values = held(*primals)
        return values, {name: _JAX.numpy.zeros_like(y) for name, y in values.items()}

    return held


def _read(model: Model) -> set[str]:
    """Names of the weights that ops read."""
    values = (v for op in model.ops if isinstance(op, TopOp) for v in op.operands)
    return {op_name(v.owner) for v in values if isinstance(v.owner, TopWeight)}


def _inputs(model: Model) -> list[TopInput]:
    return [op for op in model.ops if isinstance(op, TopInput)]


def _result(name: str) -> str:
    """The key of a result of the network, which a cast may give other numbers than the op of that name."""
    return f"result {name}"


def _limits(module: Model) -> dict[str, Limits]:
    """The range of each quantised tensor of a lowered module by name."""
    found: dict[str, Limits] = {}
    for value in (v for op in module.body.walk() for v in op.results if is_tensor(v)):
        uniform = uniform_of(value)
        if uniform is not None and uniform.params.axis is None:
            p = uniform.params
            found[value_name(value)] = Limits(*(float(p.scale * (q - p.zero_point)) for q in p.limits))
    return found


def _real(value: SSAValue, stored: Array) -> Array:
    """The real numbers f32 of a stored tensor."""
    uniform = uniform_of(value)
    if uniform is None or uniform.params.axis is not None:
        return stored.astype(np.float32)
    p = uniform.params
    return ((stored.astype(np.float32) - np.float32(p.zero_point)) * np.float32(p.scale)).astype(np.float32)
