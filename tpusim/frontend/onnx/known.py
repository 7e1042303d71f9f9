"""The tensors of a graph during import: constants, values of the module, aliases."""

from collections.abc import Sequence

import numpy as np
import onnx
from xdsl.ir import SSAValue

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.casts import Casts
from tpusim.frontend.onnx.duplicates import Duplicates
from tpusim.frontend.onnx.element_types import ElementTypes, dtype_of
from tpusim.frontend.onnx.model_file import GraphInput, Numbers, live_nodes, opset_version, reads
from tpusim.frontend.onnx.naming import Naming
from tpusim.frontend.onnx.node import as_float
from tpusim.ir.types import is_tensor, shape_of
from tpusim.numbers.border import is_float
from tpusim.ops.framework.builder import ModuleBuilder


class Known:
    """The tensors of a graph, by name; implements the `Tensors` that mappers see.

    An ONNX tensor is a constant (`_constants`, NumPy), a value of the module (`_values`), or an alias of another
    tensor: `_aliases` are outputs of Identity, Dropout and Casts that change nothing (those after a Dropout or a Cast
    of bools or integers are also in `_dropped`), `_duplicates` are outputs of nodes that repeat an earlier node.
    """

    def __init__(
        self, proto: onnx.ModelProto, inputs: Sequence[GraphInput], numbers: Numbers, *, onnx_names: bool
    ) -> None:
        self.opset = opset_version(proto)
        self._opsets = list(proto.opset_import)
        self._proto = proto
        self._inputs, self._numbers = inputs, numbers
        shapes = {t.name: tuple(t.dims) for t in proto.graph.initializer}
        nodes, returned = live_nodes(proto.graph), [o.name for o in proto.graph.output]
        self._casts = Casts(nodes, returned)
        self._naming = Naming(nodes, returned, shapes, self._casts, plain=onnx_names)
        self._aliases: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._duplicates = Duplicates(frozenset(o.name for o in proto.graph.output))
        self._initializers = {t.name: t for t in proto.graph.initializer}
        self._constants: dict[str, np.ndarray] = {}
        self._values: dict[str, SSAValue] = {}
        types = {t.name: t.data_type for t in proto.graph.initializer} | {i.name: i.elem_type for i in inputs}
        self.types = ElementTypes(types)
        names = {n for node in proto.graph.node for n in (*node.input, *node.output)}
        self._module = ModuleBuilder(named=self._named, reserved=names)
        for i in inputs:
            self._values[i.name] = self._module.input(i.name, i.shape or (), dtype_of(i.elem_type))

    def _named(self, tensor: str) -> tuple[str, str]:
        name = self._naming.of(tensor)
        return name.text, name.onnx

    def ending(self, tensor: str) -> str:
        """What follows a tensor's name in the name of the op that makes it, such as "_Relu"."""
        return self._naming.of(tensor).text.removeprefix(tensor)

    @property
    def builder(self) -> ModuleBuilder:
        """The builder of the module under construction."""
        return self._module

    def value(self, name: str) -> SSAValue:
        """The value of a tensor; a constant becomes a top.Weight in f32, once per tensor."""
        name = self._resolve(name)
        if name not in self._values:
            constant = self.constant(name)
            if constant is None:
                raise ImportModelError(f"tensor '{name}' is not available")
            real = constant if is_float(constant.dtype) else as_float(constant, name)
            self._values[name] = self._module.constant(name, real.astype(np.float32, copy=False))
        return self._values[name]

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a constant tensor, None if the tensor is computed."""
        name = self._resolve(name)
        if name not in self._constants and name in self._initializers:
            self._constants[name] = self._numbers.of(self._initializers[name])
        return self._constants.get(name)

    def is_last(self, name: str) -> bool:
        """Whether the graph returns a tensor that no node reads."""
        read = any(name in reads(node) for node in self._proto.graph.node)
        return not read and any(o.name == name for o in self._proto.graph.output)

    def _resolve(self, name: str) -> str:
        source = self._aliases.get(name, name)
        return self._duplicates.merged.get(source, source)

    def _is_constant(self, name: str) -> bool:
        return not name or self.constant(name) is not None

    def _is_known(self, name: str) -> bool:
        return self._is_constant(name) or self._resolve(name) in self._values

    def _is_tensor(self, name: str) -> bool:
        return self._resolve(name) in self._values and is_tensor(self._values[self._resolve(name)])

    def _shape(self, name: str) -> tuple[int, ...]:
        constant = self.constant(name)
        return shape_of(self._values[self._resolve(name)]) if constant is None else constant.shape
