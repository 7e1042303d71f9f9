"""`Model`: a module and its weights, the artefact the compiler stages hand on, as text plus npz on disk.

Module attributes (U-96): `module.state`, `module.platform`, `module.top_run_mode`, `module.FLOPs`, `module.chip`,
`module.weight_file`; of lowered modules `module.mode`, `module.asymmetric`, `module.cores` and those of LOWERED; of
final modules `module.inputs`, `module.outputs`, `module.coeff_addr`, `module.coeff_size`, `module.neuron_addr` and
`module.neuron_size`. Of tpusim: `module.output_types` (if a result is not float32 in the network's framework). The name
of the network is the symbol of the module.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import (
    IntegerAttr,
    IntegerType,
    ModuleOp,
    Signedness,
    StringAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, OpTrait

from tpusim.errors import ImportModelError
from tpusim.host.files import is_file_name, replacing
from tpusim.ir import text
from tpusim.ir.attrs import flag, int_attr, op_name, texts_attr, value_name
from tpusim.ir.bytecode import is_bytecode
from tpusim.ir.functions import Function, functions_of
from tpusim.ir.opaque import require_known
from tpusim.ir.packing import pack, packed_shape, unpack
from tpusim.ir.types import (
    FLOAT_TYPES,
    AnyTensor,
    address_of,
    calibrated_range,
    is_packed,
    is_tensor,
    storage_bits,
    storage_dtype,
    tensor_of,
)
from tpusim.ir.universe import OpenContext
from tpusim.ir.weights import WeightStore, load_weights, save_weights


@dataclass
class ModelContext(OpenContext):
    """An xDSL context that also carries the weights of the module a pass runs on; a pass may replace them."""

    weights: WeightStore = field(default_factory=WeightStore)


class NamesWeight(MemoryEffect):
    """The op's result is the entry of the weight file that is named like the op.

    The op reads the file into a new tensor: no other op gives the same one, even with equal attributes, and without
    users it can go.
    """

    @classmethod
    @override
    def get_effects(cls, op: Operation) -> frozenset[EffectInstance]:
        """A read, and the allocation of the result."""
        reads = EffectInstance(MemoryEffectKind.READ)
        return frozenset((reads, *(EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results)))


def is_weight(op: Operation) -> bool:
    """Whether an op's result is the entry of a weight file; an op of no known dialect has none."""
    return op.has_trait(NamesWeight, value_if_unregistered=False)


class OfChip(OpTrait):
    """The op is one of a chip: a module with such ops is lowered."""


FORMER_NAME = "module.name"
"""The attribute in which earlier releases had the name of the network."""
ANY_CHIP = "ALL"
"""The chip that a module names before it is lowered."""
LOWERED: Mapping[str, str | int | bool] = {
    "devices": 1, "addr_mode": "basic", "high_precision": False, "q_group_size": 0, "q_symmetric": False,
}  # fmt: skip
"""Attributes of lowered modules that TPU-MLIR's tools require and that have one value in tpusim."""


class State(StrEnum):
    """How far a module has come, as its attribute `module.state` says; the names are TPU-MLIR's."""

    TOP = "TOP_F32"
    CALIBRATED = "TOP_CALIBRATED"
    LOWERED = "TPU_LOWERED"
    REORDERED = "TPU_REORDERED"
    GROUPED = "TPU_DIVIDED"
    ADDRESSED = "TPU_ADDRESSED"


@dataclass(frozen=True)
class Model:
    """A verified module with its weights."""

    module: ModuleOp
    weights: WeightStore

    def __repr__(self) -> str:
        """What and how much it is; `tpusim.ir.text.print_module` has the text."""
        target = f" for {self.chip} in {self.mode}"
        ops = sum(not is_weight(op) for op in self.ops if op is not self.body.last_op)
        size = f"{ops} ops, {len(self.weights)} weights"
        return f"<Model {self.name}{target if self.state.startswith('TPU') else ''}: {self.state}, {size}>"

    @property
    def name(self) -> str:
        """The network's name: the symbol of the module; in files of earlier releases the attribute `module.name`."""
        symbol = self.module.sym_name
        return symbol.data if symbol else self.attribute(FORMER_NAME)

    @property
    def state(self) -> str:
        """How far the module has come: `module.state`, a name of State."""
        return self.attribute("module.state")

    @property
    def chip(self) -> str:
        """The name of the chip that the module is lowered for; empty before."""
        stated = self.attribute("module.chip")
        return "" if stated == ANY_CHIP else stated

    @property
    def mode(self) -> str:
        """The mode that the module is lowered for, as `--mode` spells it; empty before."""
        return self.attribute("module.mode").lower()

    def attribute(self, key: str, default: str = "") -> str:
        """A string attribute of the module."""
        value = self.module.attributes.get(key)
        return value.data if isinstance(value, StringAttr) else default

    def number(self, key: str) -> int:
        """An integer attribute of the module, 0 if absent."""
        value = self.module.attributes.get(key)
        return value.value.data if isinstance(value, IntegerAttr) else 0

    def call(self, name: str) -> None:
        """Give the network its name; a module without one has no symbol."""
        self.module.attributes.pop(FORMER_NAME, None)
        self.module.sym_name = StringAttr(name) if name else None

    def set(self, **attributes: str | int | bool | Sequence[str]) -> None:
        """Set module attributes: `set(state="TOP_F32")` sets `module.state`.

        All are in alphabetical order afterwards, as MLIR prints them and as bytecode gives them back.
        """
        given = {f"module.{key}": _attribute(value) for key, value in attributes.items()}
        self.module.attributes = dict(sorted({**self.module.attributes, **given}.items()))

    @property
    def function(self) -> FuncOp:
        """The function `func.func @main` of the module."""
        for op in self.module.ops:
            if isinstance(op, FuncOp) and op.sym_name.data == "main":
                return op
        raise ImportModelError(f"module '{self.name}': a function @main is required, there is none")

    @property
    def body(self) -> Block:
        """The single block of @main, which holds every op of the network."""
        return self.function.body.block

    @property
    def ops(self) -> Iterator[Operation]:
        """The ops of @main in program order, the terminator last."""
        return iter(self.body.ops)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the network in the order of execution: those that TPU-MLIR cut it into, else one, @main."""
        computed = (op for op in self.ops if op.operands and op.operands[0].owner is not self.body)
        return functions_of(op for op in computed if op is not self.body.last_op)

    @property
    def terminator(self) -> ReturnOp:
        """The `func.return` of @main; its operands are the network's outputs."""
        last = self.body.last_op
        if not isinstance(last, ReturnOp):
            raise ImportModelError(f"module '{self.name}': @main must end with func.return")
        return last

    @property
    def results(self) -> tuple[SSAValue, ...]:
        """The values that the network returns, in order."""
        return tuple(self.terminator.operands)

    @property
    def output_types(self) -> tuple[np.dtype, ...]:
        """The types in which the network's framework has the results; the module stores them in other types."""
        stated = self.attribute("module.output_types")
        return tuple(map(np.dtype, stated.split(","))) if stated else (np.dtype(np.float32),) * len(self.results)

    def set_output_types(self, types: Sequence[np.dtype]) -> None:
        """State the types of the results, if one is not float32."""
        if any(dtype != np.float32 for dtype in types):
            self.set(output_types=",".join(dtype.name for dtype in types))

    def clone(self) -> "Model":
        """A copy that a pass may change; weight arrays are shared, the store can grow."""
        return Model(self.module.clone(), self.weights.copy())

    def require_state(self, *states: str, stage: str) -> None:
        """Raise ImportModelError unless the module is in one of `states`, UnsupportedError for its opaque ops."""
        if self.state not in states:
            raise ImportModelError(
                f"{stage}: a module in state {' or '.join(states)} is required, '{self.name}' is in state "
                f"{self.state or '(none)'}; run the stages in order"
            )
        require_known(self.module.walk(), f"{stage}, module '{self.name}'")


def _attribute(value: str | int | bool | Sequence[str]) -> Attribute:
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, int):
        return flag(value) if isinstance(value, bool) else int_attr(value)
    return texts_attr(value)


def is_returned(value: SSAValue) -> bool:
    """Whether the network returns a value."""
    return any(isinstance(use.operation, ReturnOp) for use in value.uses)


def update_function_type(model: Model) -> None:
    """Make @main's type follow its block arguments and returned values."""
    model.function.update_function_type()


Form = Literal["text", "bytecode", "one-file"]
"""How a module is stored: as text or bytecode with its weights in an npz, or as bytecode with its weights."""


def save_model(model: Model, path: Path, *, weight_file: str = "weights.npz", form: Form = "text") -> None:
    """Write `path` and, unless they are in it, the weights next to it; both appear whole or not at all."""
    name_weights(model, weight_file, form)
    if form == "one-file":
        save_one_file(model, path)
        return
    save_weights(packed_weights(model.module, model.weights), path.parent / weight_file)
    with replacing(path) as temporary:
        if form == "bytecode":
            from tpusim.ir.one_file import encode_module

            temporary.write_bytes(encode_module(model.module))
        else:
            temporary.write_text(text.print_module(model.module), encoding="utf-8")


def name_weights(model: Model, weight_file: str, form: Form) -> None:
    """State in a module the file of its weights, if they are in another file than the module."""
    if form == "one-file":
        model.module.attributes.pop("module.weight_file", None)
    elif model.attribute("module.weight_file") != weight_file:
        model.set(weight_file=weight_file)


def packed_weights(module: ModuleOp, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights as a file holds them: those of 4-bit types two to a byte (`tpusim.ir.packing`), scalars with an axis.

    TPU-MLIR skips arrays without axes.
    """
    packed = _packed_types(module)
    return {name: pack(array) if name in packed else np.atleast_1d(array) for name, array in weights.items()}


def _packed_types(module: ModuleOp) -> dict[str, AnyTensor]:
    """Type of every weight of 4 bits, by name."""
    types = {op_name(op): tensor_of(op.results[0]) for op in module.walk() if is_weight(op)}
    return {name: found for name, found in types.items() if is_packed(found.element_type)}


def _unpacked(module: ModuleOp, weights: WeightStore) -> WeightStore:
    """The weights with one value of 4 bits per byte; what does not fit its type stays as it is and is refused later."""
    packed = _packed_types(module)
    if not packed:
        return weights
    found = dict(weights)
    for name, wanted in packed.items():
        stored, shape = weights.get(name), wanted.get_shape()
        if stored is not None and (stored.dtype, stored.shape) == (np.dtype(np.uint8), packed_shape(shape)):
            found[name] = unpack(stored, shape, signed=storage_dtype(wanted.element_type).kind == "i")
    return WeightStore(found)


def _has_weights(module: ModuleOp) -> bool:
    """Whether a module has weights; without, TPU-MLIR names a file that it does not write."""
    return any(is_weight(op) for op in module.walk())


def _as_typed(module: ModuleOp, weights: WeightStore) -> WeightStore:
    """The weights in the shapes and types of their ops, as far as they are the same bytes.

    TPU-MLIR stores weights of lowered modules without their shape or in one of a stage before, 16-bit floats as uint16,
    and rows of bytes as uint8.
    """
    found: dict[str, np.ndarray] = {}
    lowered = any(op.has_trait(OfChip, value_if_unregistered=False) for op in module.walk())
    for op in module.walk():
        if is_weight(op) and (stored := weights.get(op_name(op))) is not None:
            wanted = tensor_of(op.results[0])
            found[op_name(op)] = _in_type(_apart(stored, op, wanted), wanted, any_shape=lowered)
    return WeightStore({**weights, **found}) if found else weights


def _apart(stored: np.ndarray, op: Operation, wanted: AnyTensor) -> np.ndarray:
    """An array whose batch items TPU-MLIR interleaved in words of four bytes (`store_mode` "4N", "2N"), one by one."""
    mode, shape = op.attributes.get("store_mode"), wanted.get_shape()
    items = {"4N": 4, "2N": 2}.get(mode.data if isinstance(mode, StringAttr) else "", 1)
    batch, inside = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    words = -(-batch // items) * inside
    if items == 1 or stored.size != words * items:
        return stored
    return stored.reshape(-1, inside, items).swapaxes(1, 2).reshape(-1, inside)[:batch].reshape(shape)


def _in_type(stored: np.ndarray, wanted: AnyTensor, *, any_shape: bool) -> np.ndarray:
    """An array in a shape and type that are the same bytes, as far as they are.

    A flat array, or one with other axes of extent 1, takes the shape. Bits become the narrow float of the type, and
    bytes int8.
    """
    shape = wanted.get_shape()
    if any_shape or stored.ndim == 1 or _without_ones(stored.shape) == _without_ones(shape):
        stored = stored.reshape(shape) if stored.size == math.prod(shape) else stored
    bits, element = stored.dtype.name in ("uint8", "uint16"), wanted.element_type
    if bits and element in FLOAT_TYPES.values() and storage_bits(element) == stored.dtype.itemsize * 8:
        stored = stored.view(storage_dtype(element))
    for stated, kinds in SAME_BYTES.items():
        if stored.dtype == stated and wanted.element_type in kinds:
            stored = stored.view(storage_dtype(wanted.element_type))
    return stored


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


SAME_BYTES = {np.dtype(f"uint{n}"): (IntegerType(n), IntegerType(n, Signedness.SIGNED)) for n in (8, 16)}
"""Type of an array that TPU-MLIR stores -> types of weights that state its bytes."""


def save_one_file(model: Model, path: Path) -> None:
    """Write module and weights as one file of bytecode (`tpusim.ir.one_file`); it appears whole or not at all."""
    from tpusim.ir.one_file import encode_module, write_module

    write_module(path, encode_module(model.module, packed_weights(model.module, model.weights)))


def load_model(path: Path, ctx: Context, *, keep: bool = False) -> Model:
    """Read a module, text or bytecode, and its weights. Raises ImportModelError.

    keep: to print the module again. Ops that their classes refuse are kept (`text.parse_module`), and where no file of
    weights is next to the module, it is read without them.
    """
    if is_bytecode(path):
        from tpusim.ir.one_file import read_module

        module, stored = read_module(path, ctx, NamesWeight)
    else:
        module, stored = text.parse_module(text.read_text(path), ctx, str(path), keep=keep), None
    model = without_weights(module)
    weight_file = model.attribute("module.weight_file")
    if weight_file and not is_file_name(weight_file):
        raise ImportModelError(f"module '{path}': module.weight_file must be a file name, got '{weight_file}'")
    if stored is None:
        if keep and not (path.parent / weight_file).is_file():
            return model
        stored = load_weights(path.parent / weight_file) if weight_file and _has_weights(module) else model.weights
    weights = _as_typed(module, _unpacked(module, stored))
    _check_weights(module, weights, path, weight_file)
    if not keep:
        _share_places(module, weights)
    return Model(module, weights)


def _share_places(module: ModuleOp, weights: WeightStore) -> None:
    """Give the users of equal constants at one address the first of them: TPU-MLIR stores equal tables once."""
    first: dict[tuple[Attribute, bytes], SSAValue] = {}
    for op in list(module.walk()):
        if is_weight(op) and address_of(op.results[0]) is not None:
            value = first.setdefault((op.results[0].type, weights[op_name(op)].tobytes()), op.results[0])
            if value is not op.results[0]:
                op.results[0].replace_all_uses_with(value)
                op.detach()
                op.erase()


def without_weights(module: ModuleOp) -> Model:
    """A module as it was read, before its weights; its state follows from its ops if the text does not say it.

    Raises ImportModelError for calibrated types in a module that says it is not calibrated.
    """
    model = Model(module, WeightStore())
    model.call(model.name)
    if not model.state and (state := _state_of(module)):
        model.set(state=state)
    if model.state == State.TOP and (value := _calibrated(module)) is not None:
        raise ImportModelError(
            f"module.state = {State.TOP}: tensors without ranges are required, '{value_name(value)}' has the type "
            f"{value.type}; state {State.CALIBRATED}, or write the tensor without its range"
        )
    return model


def _state_of(module: ModuleOp) -> str:
    """The state of a module that does not say it, as a person types one: top ops, calibrated types or not; else ""."""
    if any(op.has_trait(OfChip, value_if_unregistered=False) for op in module.walk()) or not text.is_network(module):
        return ""
    return State.TOP if _calibrated(module) is None else State.CALIBRATED


def _calibrated(module: ModuleOp) -> SSAValue | None:
    """The first tensor of a calibrated type."""
    values = (value for op in module.walk() for value in op.results if is_tensor(value))
    return next((value for value in values if calibrated_range(value) is not None), None)


def _check_weights(module: ModuleOp, weights: WeightStore, path: Path, weight_file: str) -> None:
    """Every weight op has data of its type. Raises ImportModelError that names all that have not."""
    weight_ops = [op for op in module.walk() if is_weight(op)]
    problems = [why for op in weight_ops if (why := _mismatch(op, weights))]
    if nameless := sum(not op_name(op) for op in weight_ops):
        raise ImportModelError(
            f"module '{path}': a name for each weight is required, got {nameless} of {len(weight_ops)} without one; "
            "names are locations, which `mlir-opt --mlir-print-debuginfo` and `xdsl-opt --print-debuginfo` keep; in "
            "what `tpusim opt --names-as-attributes` writes, every tool keeps them"
        )
    if problems:
        shown = "; ".join(problems[:8]) + (" ..." if len(problems) > 8 else "")
        advice = "take module and weights of the same stage"
        if not weight_file:
            advice = 'name an npz next to the module, `module attributes {module.weight_file = "weights.npz"}`'
        raise ImportModelError(
            f"module '{path}': weight file '{weight_file or '(none)'}' must hold the data of every weight, {shown}; "
            f"{advice}"
        )


def _mismatch(op: Operation, weights: WeightStore) -> str:
    """How the data of a weight op differs from its type, "" if it does not."""
    name, wanted = op_name(op), tensor_of(op.results[0])
    if name not in weights:
        return f"'{name}' is not there"
    found = weights[name]
    try:
        dtype = storage_dtype(wanted.element_type)
    except TypeError as error:
        return f"'{name}': {error}"
    if (found.shape, found.dtype) == (wanted.get_shape(), dtype):
        return ""
    return f"'{name}' is {found.dtype} {found.shape}, not {dtype} {wanted.get_shape()}"
