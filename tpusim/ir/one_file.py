"""A model as one file of MLIR bytecode: the module, its weights as resources, and the schema of our dialects.

Weights are blobs of the group `tpusim_weights`, in the order of the module, as the npz has them (4 bits two to a byte);
they are read as views of the mapped file. The group `tpusim` says the schema: every reader of MLIR keeps resources that
it does not know, and none takes a version of a dialect that it has no code for.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.traits import OpTrait

from tpusim.errors import ImportModelError
from tpusim.host.files import replacing
from tpusim.ir.attrs import op_name
from tpusim.ir.bytecode import EVERYBODY, Blob, Bytecode, Release, encode
from tpusim.ir.bytecode.resources import Groups, Resource
from tpusim.ir.packing import packed_shape
from tpusim.ir.text import checked
from tpusim.ir.types import AnyTensor, is_packed, storage_dtype, tensor_of
from tpusim.ir.upstream.final import written
from tpusim.ir.weights import WeightStore

SCHEMA = 2
"""The schema of the dialects top and tpu; it grows when files of the release before need an upgrade.

2: names, types and operands are those of TPU-MLIR; the op classes also take those of 1 (`tpusim.ir.upstream.Spelled`).
"""
UPGRADES: dict[int, Callable[[ModuleOp], None]] = {1: lambda module: None}
"""Schema -> what brings a module of it to the next one."""
TOOL, WEIGHTS = "tpusim", "tpusim_weights"
WEIGHT_FILE = "module.weight_file"


def encode_module(
    module: ModuleOp, weights: Mapping[str, np.ndarray] | None = None, *, version: int | None = None,
    release: Release = EVERYBODY, use_lists: bool = True,
) -> bytes:  # fmt: skip
    """A module as bytecode with its schema; with weights, as they are in an npz, these too.

    use_lists: keep the order of the uses of each value; without it, equal modules are equal bytes.
    """
    groups: dict[str, dict[str, Resource | None]] = {TOOL: {"schema": str(SCHEMA)}}
    if weights is not None:
        groups[WEIGHTS] = {name: Blob(array) for name, array in weights.items()}
    external: Groups = groups
    return encode(written(module), version=version, release=release, external=external, use_lists=use_lists)


def digest_of(module: ModuleOp, weights: Mapping[str, np.ndarray]) -> str:
    """A digest of a module and its weights, the same in whatever form they were stored: a key for caches."""
    if WEIGHT_FILE in module.attributes:
        module = module.clone()
        del module.attributes[WEIGHT_FILE]
    digest = hashlib.sha256(encode_module(module, use_lists=False))
    for name in sorted(weights):
        add_array(digest, name, weights[name])
    return digest.hexdigest()


def add_array(digest: Any, name: str, array: np.ndarray) -> None:
    """Add an array with its name, shape and type to a digest of hashlib."""
    digest.update(repr((name, array.shape, str(array.dtype))).encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")


def write_module(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises ConfigError."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def read_module(path: Path, ctx: Context, is_weight: type[OpTrait]) -> tuple[ModuleOp, WeightStore | None]:
    """The module of a file and its weights, None if they are not in the file; ops with the trait name weights.

    Raises ImportModelError for a damaged file, a schema of a later release, and a weight of another size than its type.
    """
    file = Bytecode.open(path, ctx)
    module = current_module(file, ctx)
    group = file.resources.external.get(WEIGHTS)
    return module, None if group is None else WeightStore(_weights(module, group, path, is_weight))


def current_module(file: Bytecode, ctx: Context) -> ModuleOp:
    """The module of a file as the stages take it, of the present schema, verified. Raises ImportModelError."""
    module = file.module()
    _upgrade(module, file)
    return checked(module, file.name, ctx)


def _upgrade(module: ModuleOp, file: Bytecode) -> None:
    stated = file.resources.external.get(TOOL, {}).get("schema", str(SCHEMA))
    if not isinstance(stated, str) or not stated.isascii() or not stated.isdecimal() or int(stated) > SCHEMA:
        raise ImportModelError(
            f"bytecode '{file.name}': schema {stated} of the dialects top and tpu, this tpusim reads up to {SCHEMA}; "
            "install the tpusim that wrote the file, or a later one"
        )
    for schema in range(int(stated), SCHEMA):
        UPGRADES[schema](module)


def _weights(
    module: ModuleOp, group: Mapping[str, Resource | None], path: Path, is_weight: type[OpTrait]
) -> dict[str, np.ndarray]:
    types = {
        op_name(op): tensor_of(op.results[0])
        for op in module.walk()
        if op.has_trait(is_weight, value_if_unregistered=False)
    }
    blobs = ((name, group[name], wanted) for name, wanted in types.items() if name in group)
    return dict(_arrays(blobs, path))


def _arrays(
    blobs: Iterable[tuple[str, Resource | None, AnyTensor]], path: Path
) -> Iterable[tuple[str, np.ndarray]]:  # fmt: skip
    for name, blob, wanted in blobs:
        try:
            shape, dtype = _stored_as(wanted)
        except TypeError as error:
            raise ImportModelError(f"bytecode '{path}': the weight '{name}': {error}; give it a stored type") from error
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not isinstance(blob, Blob) or len(blob.raw) != size:
            raise ImportModelError(
                f"bytecode '{path}': the weight '{name}' of {wanted} requires a blob of {size:,} bytes, got "
                f"{f'{len(blob.raw):,} bytes' if isinstance(blob, Blob) else blob}; "
                "take module and weights of the same stage"
            )
        yield name, np.frombuffer(blob.raw, dtype).reshape(shape)


def _stored_as(wanted: AnyTensor) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and element type of a weight in a file."""
    if is_packed(wanted.element_type):
        return packed_shape(wanted.get_shape()), np.dtype(np.uint8)
    return wanted.get_shape(), storage_dtype(wanted.element_type)
