"""`to_tosa`: a module as a function of TOSA 1.0."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO

import numpy as np
from xdsl.dialects.builtin import ModuleOp, NoneType, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.printer import Printer

from tpusim import chips
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.opaque import require_known
from tpusim.ir.types import shape_of, storage_dtype, tensor_of
from tpusim.ops.structure import TopInput, TopNone, TopWeight, TpuGroup, TpuYield
from tpusim.studies.export.tosa.forms import FORMS
from tpusim.studies.export.tosa.graph import ELEMENTS, MAX_RANK, Tensor
from tpusim.studies.export.tosa.walk import BYTE, Writer


@dataclass(frozen=True)
class Port:
    """An input or a result: its name, shape and type in the module; unsigned bytes are int8 in TOSA."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        """`name: 1x3x8x8xint8`."""
        return f"{self.name}: {'x'.join(map(str, (*self.shape, self.dtype)))}"


@dataclass(frozen=True)
class TosaModule:
    """The function @main: what it takes and returns, in order.

    A port of uint8 has byte - 128 in an int8 tensor, as `as_given` and `as_stored` convert.
    """

    module: ModuleOp
    inputs: tuple[Port, ...]
    results: tuple[Port, ...]

    @cached_property
    def text(self) -> str:
        """MLIR text in the generic form, with locations."""
        stream = StringIO()
        Printer(stream, print_generic_format=True, print_debuginfo=True).print_op(self.module)
        return stream.getvalue() + "\n"

    @cached_property
    def bytecode(self) -> bytes:
        """MLIR bytecode, which every MLIR since LLVM 17 reads."""
        from tpusim.ir.bytecode import encode

        return encode(self.module)

    @property
    def kinds(self) -> dict[str, int]:
        """How many ops of each kind, without constants."""
        found: dict[str, int] = {}
        for op in self.module.walk():
            kind = op.name.removeprefix("tosa.")
            if op.name.startswith("tosa.") and not kind.startswith("const"):
                found[kind] = found.get(kind, 0) + 1
        return dict(sorted(found.items()))


def given_dtype(dtype: np.dtype) -> np.dtype:
    """The type in which the function has a tensor of the module."""
    return np.dtype(np.int8) if dtype == np.uint8 else dtype


def as_given(array: np.ndarray) -> np.ndarray:
    """An array of the module as the function takes it."""
    return (array.astype(np.int16) - BYTE).astype(np.int8) if array.dtype == np.uint8 else array


def as_stored(array: np.ndarray, port: Port) -> np.ndarray:
    """A result of the function as the module stores it."""
    return (array.astype(np.int16) + BYTE).astype(np.uint8) if port.dtype == np.uint8 else array.astype(port.dtype)


def to_tosa(model: Model, keep: Sequence[str] | str | None = None) -> TosaModule:
    """A module as TOSA 1.0. keep: names of the tensors to return, None for the network's results, or "all".

    Raises UnsupportedError that names all ops that TOSA cannot express.
    """
    require_known(model.module.walk(), f"export --to tosa, module '{model.name}'")
    inputs = [op for op in model.ops if isinstance(op, TopInput)]
    block = Block(arg_types=[_type(op.input) for op in inputs])
    g = Writer(block)
    g.weights, g.tensors = model.weights, {}
    g.chip = chips.of(model) if model.chip else None
    for op, argument in zip(inputs, block.args, strict=True):
        if op.takes_frames:
            raise UnsupportedError(
                f"export --to tosa: input '{op_name(op)}' takes frames of a camera, which TOSA cannot say; "
                "export the module before preprocessing is fused into it"
            )
        offset = BYTE if storage_dtype(tensor_of(op.input).element_type) == np.uint8 else 0
        g.tensors[op.output] = Tensor(argument, offset)
    refused: list[str] = []
    made: list[SSAValue] = []
    _walk(g, list(model.ops), refused, made)
    if refused:
        raise UnsupportedError("; ".join(refused))
    values = _kept(model, keep, made)
    results = [g.stored(v) for v in values]
    g.finish([t.value for t in results])
    block.add_op(ReturnOp(*(t.value for t in results)))
    kinds = [b.type for b in block.args], [t.value.type for t in results]
    function = FuncOp("main", kinds, Region(block))
    ports = [(op_name(op), op.input) for op in inputs], [(value_name(v), v) for v in values]
    return TosaModule(ModuleOp([function]), *(tuple(_port(*pair) for pair in pairs) for pairs in ports))


def _kept(model: Model, keep: Sequence[str] | str | None, made: list[SSAValue]) -> list[SSAValue]:
    if keep is None:
        return list(model.results)
    return [v for v in made if keep == "all" or value_name(v) in keep]


def _type(value: SSAValue) -> TensorType:  # type: ignore[type-arg]
    dtype = storage_dtype(tensor_of(value).element_type)
    return TensorType(ELEMENTS[given_dtype(dtype).name], shape_of(value))


def _port(name: str, value: SSAValue) -> Port:
    return Port(name, shape_of(value), storage_dtype(tensor_of(value).element_type))


def _walk(g: Writer, ops: list[Operation], refused: list[str], made: list[SSAValue]) -> None:
    """Write all ops; what cannot be written is collected, and what follows from it is left out."""
    for op in ops:
        if isinstance(op, TpuGroup):
            _walk(g, list(op.body.block.ops), refused, made)
            last = op.body.block.last_op
            assert isinstance(last, TpuYield)
            for result, value in zip(op.results, last.operands, strict=True):
                if value in g.tensors:
                    g.tensors[result] = g.tensors[value]
        elif isinstance(op, TopWeight | TopNone | TopInput | TpuYield) or not op.results:
            continue
        else:
            try:
                _write(g, op)
                made.extend(op.results)
            except UnsupportedError as error:
                refused.append(str(error))
            except KeyError:
                if not refused:
                    raise


def _write(g: Writer, op: Operation) -> None:
    """Write one op."""
    g.op = op
    g.begin(op_name(op))
    form = FORMS.of(op)
    if len(op.results) != 1 or isinstance(op.results[0].type, NoneType):
        raise g.refuse("one result is required")
    if max(len(shape_of(v)) for v in (*op.results,)) > MAX_RANK:
        raise g.refuse(f"tensors of at most {MAX_RANK} axes are required at level 8k")
    y, value = form(op, g), op.results[0]
    dtype = storage_dtype(tensor_of(value).element_type)
    if y.is_float or y.element == ELEMENTS["bool"]:
        y = g.cast(g.real(y), ELEMENTS[dtype.name]) if dtype.kind in "fV" else g.cast(y, ELEMENTS[dtype.name])
    elif dtype == np.float32:
        y = g.cast(y, f32)
    if y.shape != shape_of(value):
        y = g.reshape(y, shape_of(value))
    g.tensors[value] = y
