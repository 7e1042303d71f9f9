"""tpusim as an ONNX backend: `onnx.backend.base.Backend`, for ONNX's test runner and every tool that takes a backend.

import tpusim.backend
tpusim.backend.run_model(onnx.load("net.onnx"), [x])

What runs is the flat f32 form of the top module: the meaning of the network before any chip. A module has static shapes
and constant parameters (axes, pads, extents); a model that leaves them to its inputs is imported anew for each set of
them that a call gives, and kept. What cannot be imported or computed raises a TpusimError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from tpusim.errors import ConfigError, ImportModelError, UnsupportedError
from tpusim.frontend.onnx.importer import Network, read_network
from tpusim.frontend.onnx.model_file import NUMBERS, read_onnx
from tpusim.frontend.onnx.problems import NetworkRefused
from tpusim.inference import Graph, without_padding
from tpusim.ir.attrs import value_name
from tpusim.numbers.border import is_float, is_integer, whole_limits

Arrays = dict[str, np.ndarray]
OPSET = 22
"""Version of the operator set of a single node, if the caller says none."""


@dataclass
class Ready:
    """A network as a function of the inputs that are left."""

    network: Network
    graph: Graph | None

    @classmethod
    def of(cls, network: Network) -> "Ready":
        """Nothing is compiled for a network whose results are all constant."""
        if network.model is None:
            return cls(network, None)
        return cls(network, Graph(network.model))

    def run(self, feeds: Arrays) -> Arrays:
        """All results by name in the types of the model."""
        found = dict(self.network.constants)
        if self.graph is not None and self.network.model is not None:
            model = self.network.model
            computed = self.graph(feeds)
            for name, value, dtype in zip(self.network.computed, model.results, model.output_types, strict=True):
                y = computed[value_name(value)]
                found[name] = given_back(name, without_padding(value, y), dtype)
        return found


def given_back(name: str, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result in the type of the model. Raises UnsupportedError for a number that is none of an integer type."""
    if dtype.kind == "b":
        return y != 0
    if is_integer(dtype):
        low, high = whole_limits(dtype)
        wide = y.astype(np.float64)
        if not np.all(np.isfinite(wide) & (wide >= low) & (wide <= high) & (wide == np.floor(wide))):
            raise UnsupportedError(
                f"result '{name}': {dtype} is required, and f32, in which tpusim computes, left its range; "
                "compute in float, or scale the operands"
            )
    with np.errstate(over="ignore"):
        return y.astype(dtype)


class TpusimRep(BackendRep):
    """A model made ready; `run` takes arrays in the order of its inputs, or by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._proto = read_onnx(model)
        initializers = {t.name for t in self._proto.graph.initializer}
        self.inputs = [v.name for v in self._proto.graph.input if v.name not in initializers]
        self.outputs = [v.name for v in self._proto.graph.output]
        self._bound: frozenset[str] = frozenset()
        self._ready: dict[Any, Ready] = {}

    @property
    def is_constant(self) -> bool:
        """Whether nothing was left to compute in all calls so far."""
        return all(ready.graph is None for ready in self._ready.values())

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results in the order of the outputs.

        Raises ConfigError for inputs that are no arrays of numbers, UnsupportedError for what has no implementation.
        """
        del kwargs
        feeds = self._named(inputs)
        found = self._ready_for(feeds).run(feeds)
        return tuple(found[name] for name in self.outputs)

    def _named(self, inputs: Any) -> Arrays:
        given: Any = [inputs] if isinstance(inputs, np.ndarray) else inputs
        if not isinstance(given, Mapping):
            values: Sequence[Any] = list(given)
            if len(values) != len(self.inputs):
                raise ConfigError(f"inputs: {len(self.inputs)} are required, got {len(values)}")
            given = dict(zip(self.inputs, values, strict=True))
        return {name: _array(name, cast("Arrays", given).get(name)) for name in self.inputs}

    def _ready_for(self, feeds: Arrays) -> Ready:
        while True:
            self._bound |= {name for name in self.inputs if feeds[name].size == 0}
            fixed = tuple((name, feeds[name].tobytes()) for name in self.inputs if name in self._bound)
            key = (fixed, *((name, x.shape, x.dtype.str) for name, x in feeds.items()))
            if key in self._ready:
                return self._ready[key]
            try:
                self._ready[key] = Ready.of(self._import({name: feeds[name] for name in self._bound}, feeds))
            except NetworkRefused as error:
                more = (error.wanted & set(self.inputs)) - self._bound
                if not more:
                    raise
                self._bound |= more

    def _import(self, fixed: Arrays, feeds: Arrays) -> Network:
        """Of the model with some inputs as constants."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        left = [v for v in proto.graph.input if v.name not in fixed]
        del proto.graph.input[:]
        proto.graph.input.extend(left)
        proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in fixed.items())
        shapes = {name: x.shape for name, x in feeds.items() if name not in fixed}
        return read_network(proto, input_shapes=shapes)


def _array(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value) if value is not None and not isinstance(value, list | dict) else None
    if array is None or not (is_float(array.dtype) or is_integer(array.dtype)):
        got = "nothing" if value is None else array.dtype if array is not None else "a sequence"
        raise ConfigError(f"input '{name}': an array of numbers or bools is required, got {got}")
    return array


class TpusimBackend(Backend):
    """Runs ONNX models as flat f32 top modules."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be read, and its inputs and results are tensors of numbers.

        Ops that tpusim does not have are found when it runs, when shapes are known.
        """
        del kwargs
        try:
            proto = read_onnx(model)
        except ImportModelError:
            return False
        values = (*proto.graph.input, *proto.graph.output)
        return cls.supports_device(device) and all(v.type.tensor_type.elem_type in NUMBERS for v in values)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TpusimRep:
        """A model made ready. Raises ImportModelError for a model that is not valid ONNX."""
        del kwargs
        if not cls.supports_device(device):
            raise ConfigError(f"device CPU is required, got {device}")
        return TpusimRep(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node on arrays, of operator set `opset_version`."""
        names = [name for name in dict.fromkeys(node.input) if name]
        arrays = [np.asarray(x) for x in inputs]
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, arrays, strict=True)
        ]
        types = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype, _ in outputs_info or ()]
        outputs = [name for name in node.output if name]
        made = [onnx.ValueInfoProto(name=name) for name in outputs]
        for value, elem_type in zip(made, types, strict=False):
            value.type.tensor_type.elem_type = elem_type
        opsets = [helper.make_opsetid(node.domain, int(kwargs.pop("opset_version", OPSET)))]
        graph = helper.make_graph([node], node.op_type, given, made)
        typed = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets))
        return cls.run_model(typed, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only what NumPy and JAX compute on the host."""
        return device.split(":")[0] == "CPU"


is_compatible = TpusimBackend.is_compatible
prepare = TpusimBackend.prepare
run_model = TpusimBackend.run_model
run_node = TpusimBackend.run_node
supports_device = TpusimBackend.supports_device
