"""`Node`: one ONNX node as mappers see it, with attributes and constants as Python values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from tpusim.frontend.onnx.element_types import ElementTypes
from tpusim.ir.types import shape_of
from tpusim.numbers.border import EXACT_F32, is_float
from tpusim.ops.framework.base import Builder


class ConstantNeeded(ValueError):
    """A `tensor` that must be constant is computed by the network."""

    def __init__(self, tensor: str, what: str) -> None:
        super().__init__(f"constant {what} are required, '{tensor}' is computed")
        self.tensor = tensor


class Tensors(Protocol):
    """The tensors of a graph during import, by name."""

    opset: int

    @property
    def builder(self) -> Builder:
        """The builder for `make` of an op."""
        ...

    def value(self, name: str) -> SSAValue:
        """The value of a tensor; a constant becomes a top.Weight."""
        ...

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a constant tensor, None if the tensor is computed."""
        ...

    def ending(self, tensor: str) -> str:
        """What follows a tensor's name in the name of the op that makes it."""
        ...

    def is_last(self, name: str) -> bool:
        """Whether the graph returns a tensor that no node reads."""
        ...

    def is_read(self, name: str) -> bool:
        """Whether a node that the results need reads a tensor, or the graph returns it."""
        ...

    @property
    def types(self) -> ElementTypes:
        """The ONNX element types of tensors by name."""
        ...


@dataclass
class Node:
    """One node. `take` and `options` mark attributes as read; all other attributes are problems of the model."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    tensors: Tensors
    taken: set[str] = field(default_factory=set[str])

    @property
    def builder(self) -> Builder:
        """The builder for `make` of an op."""
        return self.tensors.builder

    @property
    def opset(self) -> int:
        """Version of the operator set by which the node is read."""
        return self.tensors.opset

    @property
    def output(self) -> str:
        """The name of the first output."""
        return self.outputs[0]

    def take(self, key: str, default: Any = None) -> Any:
        """The attribute's value, or `default`; it then counts as read."""
        self.taken.add(key)
        return self.attributes.get(key, default)

    def options(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Those of these attributes that are given; renamed: name in the result = name in ONNX."""
        names = {**{key: key for key in keys}, **renamed}
        self.taken.update(names.values())
        return {new: self.attributes[key] for new, key in names.items() if key in self.attributes}

    def has(self, index: int) -> bool:
        """Whether an optional input is given; an empty name means that it is absent."""
        return len(self.inputs) > index and bool(self.inputs[index])

    def value(self, index: int) -> SSAValue:
        """The value of an input; an absent one is a top.None."""
        if not self.has(index):
            return self.builder.none()
        return self.tensors.value(self.inputs[index])

    def optional(self, index: int) -> SSAValue | None:
        """The value of an input that may be absent."""
        return self.value(index) if self.has(index) else None

    def values(self) -> list[SSAValue]:
        """The values of all inputs, constants included."""
        return [self.value(index) for index in range(len(self.inputs))]

    def constant(self, index: int) -> np.ndarray | None:
        """The data of a constant input, None if it is computed or absent."""
        return self.tensors.constant(self.inputs[index]) if self.has(index) else None

    def ending(self, index: int) -> str:
        """What follows an output's name in the name of the op that makes it."""
        return self.tensors.ending(self.outputs[index])

    def numbers(self, index: int, what: str) -> list[Any] | None:
        """The numbers of a constant input, None if it is absent. Raises ValueError if it is computed."""
        return self.need(index, what).reshape(-1).tolist() if self.has(index) else None

    def need(self, index: int, what: str) -> np.ndarray:
        """The data of an input that must be constant. Raises ConstantNeeded if it is computed, ValueError if absent."""
        constant = self.constant(index)
        if constant is not None:
            return constant
        if not self.has(index):
            raise ValueError(f"{what} are required")
        raise ConstantNeeded(self.inputs[index], what)

    def dtype(self, index: int) -> np.dtype:
        """The type that an input has in ONNX."""
        return self.tensors.types.dtype(self.inputs[index])

    def shape(self, index: int) -> tuple[int, ...]:
        """The extents of an input, whether it is a constant or computed."""
        constant = self.constant(index)
        return shape_of(self.value(index)) if constant is None else constant.shape

    def rank(self) -> int:
        """The largest rank of the inputs."""
        return max(len(self.shape(index)) for index in range(len(self.inputs)))

    def real(self, index: int, rank: int) -> SSAValue:
        """The value of an input; a constant of bools or integers as f32, with leading axes of length 1 up to `rank`."""
        constant = self.constant(index)
        if constant is None or is_float(constant.dtype):
            return self.value(index)
        narrow = as_float(constant, self.inputs[index])
        return self.builder.weight(self.inputs[index], narrow.reshape((1,) * (rank - narrow.ndim) + narrow.shape))


def as_float(constant: np.ndarray, name: str) -> np.ndarray:
    """Bools and integers as f32. Raises ValueError for integers that f32 cannot represent."""
    if constant.dtype.kind not in "biu":
        raise ValueError(f"floats, bools or integers are required, '{name}' is {constant.dtype}")
    real = constant.astype(np.float32)
    large = np.abs(real) > EXACT_F32
    if large.any() and [int(r) for r in real[large]] != constant[large].tolist():
        raise ValueError(f"integers that float32 holds exactly are required, '{name}' has others")
    return real


Mapper: TypeAlias = Callable[[Node], SSAValue | Sequence[SSAValue | None]]
"""Reads one node: the value of its first output, or those of all; None for an output that nothing reads."""
