"""The kind of a file that is no model, by its first bytes."""

import os
import re
import zipfile
from pathlib import Path

from tpusim.host.files import opened
from tpusim.ir.bytecode import MAGIC as BYTECODE
from tpusim.registry import FRONTENDS

BEGIN = 4096
"""The number of bytes that are examined."""
PIECE, OVERLAP = 1 << 20, 32
"""Bytes that are searched at a time for the name of a dialect, and those that are searched again with the next."""
TEXT = re.compile(rb"\s*(?://[^\n]*\n\s*)*(?:#\w+ ?=|\"?(?:builtin\.)?module\b|func\.func\b)")
"""How MLIR text begins: with an alias, a module or a function."""
DIALECT = re.compile(
    rb"(?P<stablehlo>StableHLO_v|\b(?:stablehlo|vhlo|chlo|mhlo)[.\0])|(?P<tpusim>module\.state|\b(?:top|tpu)(?:\.[A-Z]|\0))"
)
ONNX = "an ONNX protobuf by its first byte"
MAGIC: dict[bytes, str] = {
    b"version https://git-lfs": "a Git LFS pointer in place of the file; fetch the file with `git lfs pull`",
    b"\x93NUMPY": "an npy array; give it as samples, and a model here",
    b"\x1f\x8b": "compressed by gzip; unpack it",
    b"\x89HDF": "an HDF5 file, as Keras saves models; export the model to ONNX",
    b"\x80": "a Python pickle, as PyTorch saves modules; export the module to ONNX",
    b"\x08": f"{ONNX}; its name must end in .onnx",
    b"<": "a page of HTML or XML, perhaps of a download that failed; download the model again",
}


def what_it_is(path: str | os.PathLike[str]) -> str:
    """The kind of a file that cannot be read as a model, with advice; "" if the kind is unknown."""
    path = Path(path)
    if path.is_dir():
        return "a folder; give the file of a model in it"
    try:
        with opened(path) as file:
            begin = file.read(BEGIN)
    except OSError:
        return ""
    if not begin:
        return "empty, it has 0 bytes; export or download it again"
    if begin[:2] == b"PK":
        return _archive(path)
    if begin[4:8] == b"TFL3":
        return "a TFLite file; its name must end in .tflite"
    if begin.count(0) == len(begin):
        return f"zeros for its first {len(begin):,} bytes, as a download that broke off leaves them; download it again"
    known = next((what for magic, what in MAGIC.items() if begin.startswith(magic)), "")
    return known or _text(begin)


def is_known(path: Path) -> bool:
    """Whether it is clear what is in a file: a module, a program, or the network of a front end.

    The ending of its name says it; StableHLO is recognised by its content.
    """
    return path.suffix in (".mlir", ".tpusim") or path.suffix.removeprefix(".") in FRONTENDS or is_stablehlo(path)


def is_stablehlo(path: Path) -> bool:
    """Whether a file is a StableHLO module, text or bytecode, by the first dialect that it names."""
    if path.suffix == ".tpusim" or path.suffix.removeprefix(".") in FRONTENDS:
        return False
    try:
        with opened(path) as file:
            begin = file.read(BEGIN)
            if not (begin.startswith(BYTECODE) or TEXT.match(begin)):
                return False
            piece, rest = begin, b""
            while piece:
                if found := DIALECT.search(rest + piece):
                    return found.lastgroup == "stablehlo"
                piece, rest = file.read(PIECE), piece[-OVERLAP:]
    except OSError:
        pass
    return False


def is_module(path: Path) -> bool:
    """Whether a file is a module of tpusim or TPU-MLIR, text or bytecode, by its content; a file named .mlir is one.

    StableHLO is none: it is the network of a framework.
    """
    if is_stablehlo(path):
        return False
    if is_known(path):
        return path.suffix == ".mlir"
    try:
        with opened(path) as file:
            begin = file.read(BEGIN)
    except OSError:
        return False
    if begin.startswith(BYTECODE):
        return True
    lines = begin.decode("utf-8", errors="replace").splitlines()
    first = next((line for line in map(str.strip, lines) if line and not line.startswith("//")), "")
    return re.match(r'"?(builtin\.)?module"?\b', first) is not None


def is_program(path: Path) -> bool:
    """Whether a file is a program, by its content; a file named .tpusim always is."""
    if is_known(path):
        return path.suffix == ".tpusim"
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False
    return "header.json" in names and any(name.rpartition("/")[2] == "tensors.json" for name in names)


def _archive(path: Path) -> str:
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a zip archive that is cut off or damaged"
    if is_program(path):
        return "a compiled program, which `tpusim inspect`, `tpusim simulate` and `tpusim dis` read"
    if names and all(name.endswith(".npy") for name in names):
        return "an npz of arrays; give it as samples, and a model here"
    if any(name.endswith("data.pkl") for name in names):
        return "a zip archive as PyTorch saves modules; export the module to ONNX"
    return f"a zip archive of {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}; unpack it"


def _text(begin: bytes) -> str:
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(begin) - 4:  # otherwise the last character may be incomplete
            return ""
        text = begin[: error.start].decode("utf-8")
    if "module.state" in text:
        return "a module of tpusim; its name must end in .mlir"
    if text.startswith("{") and '"tpusim":' in text:
        return "the report of a run; `tpusim run --again` repeats it, and its folder is a network"
    first = text.strip().splitlines()[:1]
    return f"text that begins {first[0][:40]!r}; a model is required" if first and first[0].isprintable() else ""
