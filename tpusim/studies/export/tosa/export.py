"""`to_tosa`: a module as a function of TOSA 1.0."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO

import numpy as np
from xdsl.dialects.builtin import ModuleOp, NoneType, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.printer import Printer

from tpusim import chips
from tpusim.errors import ConfigError, UnsupportedError, meant
from tpusim.inference.executor import kept_names
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.opaque import require_known
from tpusim.ir.types import shape_of, storage_dtype, tensor_of
from tpusim.ops.structure import TopInput, TopNone, TopWeight, TpuGroup, TpuYield
from tpusim.studies.export.tosa.forms import FORMS
from tpusim.studies.export.tosa.graph import BYTE, ELEMENTS, FLOATS, MAX_RANK, Tensor
from tpusim.studies.export.tosa.walk import Writer


@dataclass(frozen=True)
class Port:
    """An input or a result: its name, shape and type in the module; unsigned bytes are int8 in TOSA."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        """The tensor as in `name: 1x3x8x8xint8`."""
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
    refused, missing = list[str](), set[SSAValue]()
    made: list[SSAValue] = [op.output for op in inputs]
    _walk(g, model.ops, made, refused, missing)
    if refused:
        raise UnsupportedError("; ".join(refused))
    kept = _kept(model, keep, made)
    results = [g.stored(v) for v in kept.values()]
    g.finish([t.value for t in results])
    block.add_op(ReturnOp(*(t.value for t in results)))
    kinds = [b.type for b in block.args], [t.value.type for t in results]
    function = FuncOp("main", kinds, Region(block))
    ports = [(op_name(op), op.input) for op in inputs], kept.items()
    return TosaModule(ModuleOp([function]), *(tuple(_port(*pair) for pair in pairs) for pairs in ports))


def _kept(model: Model, keep: Sequence[str] | str | None, made: Sequence[SSAValue]) -> dict[str, SSAValue]:
    """The tensors to return by name. Raises ConfigError for an unknown name."""
    if keep is None:
        return dict(zip(kept_names(model, None), model.results, strict=True))
    known = {value_name(value): value for value in made}
    names = known if keep == "all" else keep
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"tensor '{unknown}': a name of the module is required{meant(unknown, known)}")
    return {name: known[name] for name in names}


def _type(value: SSAValue) -> TensorType[Attribute]:
    return TensorType(_element(value), shape_of(value))


def _element(value: SSAValue) -> Attribute:
    """TOSA's element type of a value. Raises UnsupportedError for another type than bytes, words and floats."""
    dtype = given_dtype(storage_dtype(tensor_of(value).element_type))
    if dtype.name not in ELEMENTS:
        raise UnsupportedError(
            f"export --to tosa: tensor '{value_name(value)}' is stored as {dtype}; one of {', '.join(ELEMENTS)} and "
            "uint8 is required"
        )
    return ELEMENTS[dtype.name]


def _port(name: str, value: SSAValue) -> Port:
    return Port(name, shape_of(value), storage_dtype(tensor_of(value).element_type))


def _walk(
    g: Writer, ops: Iterable[Operation], made: list[SSAValue], refused: list[str], missing: set[SSAValue]
) -> None:
    """Write all ops. made: gets their results. refused: gets a sentence for each op that cannot be written.

    missing: gets the results of refused ops and of ops that depend on them, which are not tried.
    """
    for op in ops:
        if isinstance(op, TpuGroup):
            _walk(g, op.body.block.ops, made, refused, missing)
            last = op.body.block.last_op
            assert isinstance(last, TpuYield)
            for result, value in zip(op.results, last.operands, strict=True):
                if value in missing:
                    missing.add(result)
                else:
                    g.tensors[result] = g.tensors[value]
        elif not op.results or isinstance(op, TopWeight | TopNone | TopInput):
            continue
        elif not missing.isdisjoint(op.operands):
            missing.update(op.results)
        else:
            try:
                _write(g, op)
                made.extend(op.results)
            except UnsupportedError as error:
                refused.append(str(error))
                missing.update(op.results)


def _write(g: Writer, op: Operation) -> None:
    """Write one op of the module."""
    g.op = op
    g.begin(op_name(op))
    form = FORMS.of(op)
    if len(op.results) != 1 or isinstance(op.results[0].type, NoneType):
        raise g.refuse("one result is required")
    if len(shape_of(op.results[0])) > MAX_RANK:
        raise g.refuse(f"tensors of at most {MAX_RANK} axes are required at level 8k")
    y, value = form(op, g), op.results[0]
    wanted = _element(value)
    if (y.is_float or y.element == ELEMENTS["bool"]) and wanted in FLOATS:
        y = g.cast(g.real(y), wanted)
    elif y.element != wanted:
        y = g.cast(y, wanted)
    g.tensors[value] = g.reshape(y, shape_of(value))
