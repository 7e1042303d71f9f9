"""Ops without arithmetic: inputs, weights, none, and the layer group with its loads and stores."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from tpusim_kernels.movement import pad
from typing_extensions import override
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    NoneType,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from tpusim.errors import ConfigError, ImportModelError
from tpusim.ir.attrs import (
    LayerGroupAttr,
    LayerGroupInfo,
    ints,
    op_name,
    results_location,
    set_op_name,
    texts,
    value_name,
)
from tpusim.ir.module import NamesWeight
from tpusim.ir.types import element_from_dtype, shape_of, tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import Array, Holds, Shape, ShapedOp, TopOp
from tpusim.ops.framework.logical import Extents
from tpusim.ops.framework.moves import Scattered, origin_of, pairs_of, places_of, scattered_of, strides_of, unpadded


@irdl_op_definition
class TopInput(TopOp):
    """`top.Input`: a network input; its attributes include those of preprocessing (interface.md 3.3)."""

    name = "top.Input"
    SPEC: ClassVar[tuple[str, ...]] = ("2.2",)
    input = operand_def(TensorType)
    output = result_def(TensorType)
    dtype = opt_attr_def(StringAttr)
    """NumPy name of the dtype that the user gives, if it is not float32; the network's border converts the values."""
    fused = opt_attr_def(BoolAttr)
    """Whether its operand has camera frames, from which the lowering makes the network's image (ops/frames.py)."""

    @override
    def verify_(self) -> None:
        """Check the shape only, because a module may have any attributes of preprocessing."""
        ShapedOp.verify_(self)

    @override
    def effects(self) -> None:
        """An input belongs to the network even if nothing uses it."""
        return

    @property
    def given(self) -> np.dtype:
        """The dtype in which the user gives the input."""
        if self.takes_frames:
            return np.dtype(np.uint8)
        return np.dtype(self.dtype.data if self.dtype else np.float32)

    @override
    def result_holds(self) -> Holds:
        """What the given dtype says; integers of at most 16 bits count as samples of real numbers (images)."""
        if self.given.kind == "b":
            return "bool"
        return "integer" if self.given.kind in "iu" and self.given.itemsize > 2 else "real"

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The result has the input's shape; an image is of the batch of its frames."""
        if self.takes_frames:
            return ((shape_of(self.input)[0], *shape_of(self.output)[1:]),)
        return (shape_of(self.input),)

    @property
    def takes_frames(self) -> bool:
        """Whether the preprocessing is fused, and not yet lowered."""
        return self.fused is not None and bool(self.fused.value.data)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Pass the operand on. Raises ConfigError for frames, from which the lowering makes the image."""
        if self.takes_frames:
            raise ConfigError(
                f"input '{op_name(self)}': an input without fused preprocessing is required to run a top module; lower "
                "the module first (convert-top-to-tpu)"
            )
        return (operands[0],)


@irdl_op_definition
class TopWeight(IRDLOperation):
    """`top.Weight`: a constant; its data is the entry of the weight file under the op's name."""

    name = "top.Weight"
    output = result_def(TensorType)
    scale = opt_attr_def(ArrayAttr)
    """Scales of a weight that was imported as integers: one, or one per output channel (imported_scales.py)."""
    traits = traits_def(NamesWeight())

    @override
    def verify_(self) -> None:
        """Check that a type with scales along an axis has one scale for each index."""
        uniform, shape = uniform_of(self.output), shape_of(self.output)
        if uniform is None or uniform.params.axis is None:
            return
        axis, count = uniform.params.axis, len(uniform.params.scales)
        if axis >= len(shape) or shape[axis] != count:
            raise VerifyException(
                f"top.Weight '{op_name(self)}': {count} scales along axis {axis} do not fit the shape {shape}"
            )


@irdl_op_definition
class TopNone(IRDLOperation):
    """`top.None`: an absent operand."""

    name = "top.None"
    output = result_def(NoneType)
    traits = traits_def(Pure())


def make_input(argument: SSAValue, name: str, dtype: np.dtype) -> TopInput:
    """A new top.Input of a function argument; dtype: what the user gives."""
    op = TopInput.create(operands=[argument], result_types=[argument.type])
    if dtype != np.float32:
        op.dtype = StringAttr(dtype.name)
    set_op_name(op, name)
    return op


def make_weight(weights: WeightStore, name: str, array: Array, element: Attribute | None = None) -> TopWeight:
    """A new top.Weight op for `array`, stored under a unique name. element: the type, if the dtype does not give it."""
    unique = weights.add(name, array)
    op = TopWeight.create(result_types=[tensor(array.shape, element or element_from_dtype(array.dtype))])
    set_op_name(op, unique)
    return op


def make_none() -> TopNone:
    """A new top.None op, outside every block."""
    return TopNone.create(result_types=[NoneType()])


# --------------------------------------------------------------------------------------------------------- layer group


class Transfer(ShapedOp):
    """A load or store: it moves a tensor to another memory and, if it has a map, into another order."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    group_info = opt_attr_def(LayerGroupAttr, attr_name="ginfo")
    moved = opt_attr_def(ArrayAttr)
    """Names of the ops whose work the map does, in program order; they only move elements."""

    @override
    def effects(self) -> None:
        """A transfer belongs to the schedule of its group."""
        return

    @property
    def mapping(self) -> AffineMap | None:
        """Map from indices in local memory to indices of the tensor in global memory; None: they are the same."""
        raise NotImplementedError

    @property
    def pads(self) -> Shape:
        """Padding that the transfer puts around the tensor in global memory: before every axis, then after."""
        return ()

    @property
    def origin(self) -> int | None:
        """Number of padding elements before the first element of the tensor; None without padding."""
        return origin_of(shape_of(self._sides[1]), self.pads) if self.pads else None

    @property
    def middle(self) -> Shape:
        """The shape in global memory, without the padding."""
        return unpadded(shape_of(self._sides[1]), self.pads)

    @property
    def _sides(self) -> tuple[SSAValue, SSAValue]:
        """(the tensor in local memory, the tensor in global memory)."""
        raise NotImplementedError

    def strides(self, lengths: Shape) -> Shape | None:
        """Distances in global memory of neighbours in local memory, in elements; None without a map.

        lengths: the axes of the tensor in local memory. Raises ImportModelError if the map has no such distances.
        """
        if self.mapping is None:
            return None
        inside, outside = (shape_of(value) for value in self._sides)
        strides = strides_of(self.mapping, inside, outside, lengths, self.pads)
        if strides is None:
            raise ImportModelError(
                f"{self.name} '{op_name(self)}': a map from {inside} to {outside} that moves every element, with equal "
                f"distances along {lengths}, is required, got {self.mapping}; run `tpusim group`"
            )
        return strides

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape; with a map, the declared shape of the result."""
        inside = shape_of(self._sides[0])
        moves = self.places() is not None or self.strides(inside) is not None
        return (shape_of(self.output if moves else self.input),)

    def places(self) -> np.ndarray | None:
        """The position in global memory of each element in local memory, if no single command moves all; else None."""
        return None

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Values do not change. A map changes their order, and a store may add padding."""
        if (places := self.places()) is not None:
            return (operands[0].reshape(-1)[places],)
        inside = shape_of(self._sides[0])
        strides = self.strides(inside)
        if strides is None:
            return (operands[0],)
        order = sorted(range(len(inside)), key=lambda axis: (-strides[axis], axis))
        if isinstance(self, TpuStore):
            stored = operands[0].transpose(order).reshape(self.middle)
            return (pad(stored, pairs_of(self.pads), mode="constant", value=self.pad_value) if self.pads else stored,)
        return (
            operands[0]
            .reshape([inside[axis] for axis in order])
            .transpose([order.index(i) for i in range(len(order))]),
        )


@irdl_op_definition
class TpuLoad(Transfer):
    """`tpu.Load`: global memory to local memory, one slice at a time (layer_group.md 14)."""

    name = "tpu.Load"
    indexing_map_s2l = opt_attr_def(AffineMapAttr)

    @property
    @override
    def mapping(self) -> AffineMap | None:
        return self.indexing_map_s2l.data if self.indexing_map_s2l else None

    @override
    def places(self) -> np.ndarray | None:
        inside, outside = map(shape_of, self._sides)
        if self.mapping is None or strides_of(self.mapping, inside, outside, inside) is not None:
            return None
        return places_of(self.mapping, inside, outside)

    def scattered(self, lengths: Extents) -> Scattered | None:
        """How the tensor is stored in global memory if its channels are at unequal distances, else None.

        lengths: the axes of the tensor in the group.
        """
        inside, outside = map(shape_of, self._sides)
        if self.mapping is None or strides_of(self.mapping, inside, outside, lengths) is not None:
            return None
        return scattered_of(self.mapping, inside, outside, lengths)

    @property
    @override
    def _sides(self) -> tuple[SSAValue, SSAValue]:
        return self.output, self.input


@irdl_op_definition
class TpuStore(Transfer):
    """`tpu.Store`: local memory to global memory, one slice at a time."""

    name = "tpu.Store"
    indexing_map_l2s = opt_attr_def(AffineMapAttr)
    paddings = opt_attr_def(ArrayAttr)
    pad_const_val = opt_attr_def(FloatAttr)

    @property
    @override
    def pads(self) -> Shape:
        """The padding of a Pad whose work the store does; it is the last of `moved`."""
        return ints(self.paddings) if self.paddings else ()

    @property
    def pad_value(self) -> float:
        """The stored value of the padding."""
        return self.pad_const_val.value.data if self.pad_const_val else 0.0

    @property
    @override
    def mapping(self) -> AffineMap | None:
        return self.indexing_map_l2s.data if self.indexing_map_l2s else None

    @property
    @override
    def _sides(self) -> tuple[SSAValue, SSAValue]:
        return self.input, self.output

    @property
    def tensor(self) -> str:
        """Name of the tensor in global memory: that of the last op whose work the store does, else the operand's."""
        return texts(self.moved)[-1] if self.moved else value_name(self.input)


@irdl_op_definition
class TpuYield(IRDLOperation):
    """`tpu.Yield`: the stored tensors, in the order of the group's results."""

    name = "tpu.Yield"
    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator())


@irdl_op_definition
class TpuGroup(IRDLOperation):
    """`tpu.Group`: ops that run from local memory in slices; its attributes are their schedule (layer_group.md 14)."""

    name = "tpu.Group"
    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")
    nsecs = opt_attr_def(IntegerAttr)
    hsecs = opt_attr_def(IntegerAttr)
    dsecs = opt_attr_def(IntegerAttr)
    wsecs = opt_attr_def(IntegerAttr)
    csecs = opt_attr_def(IntegerAttr)
    swpipl_stage_num = opt_attr_def(IntegerAttr)
    group_type = opt_attr_def(IntegerAttr)
    flow = opt_attr_def(ArrayAttr)
    self_up_overlap_op = opt_attr_def(ArrayAttr)
    self_down_overlap_op = opt_attr_def(ArrayAttr)
    other_up_overlap_op = opt_attr_def(ArrayAttr)
    other_down_overlap_op = opt_attr_def(ArrayAttr)

    def given(self, way: Literal["up", "down"]) -> frozenset[int]:
        """Ids of loads of this group that the one before runs (up), or of stores that the one after runs (down)."""
        attribute = self.attributes.get(f"self_{way}_overlap_op")
        return frozenset() if attribute is None else frozenset(ints(attribute))  # type: ignore[arg-type]

    def taken(self, way: Literal["up", "down"]) -> dict[int, list[int]]:
        """Row -> ids of the loads of the group after (up) or the stores of the group before (down) that run in it.

        Raises ImportModelError for an id before the first row.
        """
        attribute = self.attributes.get(f"other_{way}_overlap_op")
        rows: dict[int, list[int]] = {}
        row: int | None = None
        for code in () if attribute is None else ints(attribute):  # type: ignore[arg-type]
            if code < 0:
                row = -code - 1
            elif row is None:
                raise ImportModelError(
                    f"tpu.Group: other_{way}_overlap_op names item {code} before any row; a row r is written as -r - 1 "
                    "and must stand before its items. Group the module again, or correct the list"
                )
            else:
                rows.setdefault(row, []).append(code)
        return rows

    def neighbour(self, side: Literal["before", "after"]) -> "TpuGroup | None":
        """The group before or after this one in the module."""
        op = self.prev_op if side == "before" else self.next_op
        while op is not None and not isinstance(op, TpuGroup):
            op = op.prev_op if side == "before" else op.next_op
        return op

    def store_of(self, result: SSAValue) -> TpuStore:
        """The store that makes a result of the group."""
        store = self._yielded[list(self.results).index(result)].owner  # type: ignore[arg-type]
        if not isinstance(store, TpuStore):
            raise ImportModelError(f"tpu.Group: every value of tpu.Yield is a tpu.Store's, got that of {store}")
        return store

    def result_of(self, store: TpuStore) -> SSAValue:
        """The result of the group that a store makes."""
        if store.output not in self._yielded:
            raise ImportModelError(f"tpu.Store '{op_name(store)}': tpu.Yield must return its result, but does not")
        return self.results[self._yielded.index(store.output)]

    def name_results(self) -> None:
        """Call the group and its end like the tensors that the group stores."""
        last = self.body.block.last_op
        assert last is not None
        last.location = self.location = results_location(self.store_of(result).tensor for result in self.results)

    @property
    def _yielded(self) -> list[SSAValue]:
        last = self.body.block.last_op
        return list(last.values) if isinstance(last, TpuYield) else []

    def sections(self) -> dict[str, int]:
        """Number of sections by axis; 1 if the attribute is absent."""
        sections: dict[str, int] = {}
        for axis in "ncdhw":
            attribute: Attribute | None = self.attributes.get(f"{axis}secs")
            sections[axis] = attribute.value.data if isinstance(attribute, IntegerAttr) else 1
        return sections


def make_group(inputs: Sequence[SSAValue], block: Block, results: Sequence[Attribute]) -> TpuGroup:
    """A new tpu.Group around a finished block."""
    return TpuGroup.create(operands=inputs, result_types=results, regions=[Region(block)])


def group_info(op: IRDLOperation) -> LayerGroupInfo | None:
    """The attribute `ginfo`; None outside groups."""
    attribute = op.attributes.get("ginfo")
    return attribute.data if isinstance(attribute, LayerGroupAttr) else None
