"""The options of a run as JSON values, and the files that it read: written to its manifest and report, and read back.

A run can be repeated from it. Files are known by their path and content; a path is stored as it was given, relative to
`folder`, the working directory of the run.
"""

import ast
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tpusim import chips
from tpusim.calibration.samples import files_of
from tpusim.errors import ConfigError
from tpusim.ir.formats import NumberFormat
from tpusim.lowering import LoweringConfig
from tpusim.registry import FORMATS
from tpusim.running.artefacts import RunConfig
from tpusim.running.store import MANIFEST, Manifest, digest
from tpusim.verify.report import FileRead, RunRecord
from tpusim.version import __version__

HASHED_BYTES: Final = 4 << 30
"""The most bytes of samples that are hashed; larger ones are known by the names and sizes of their files."""
TEXTS = ("model", "data", "test_data", "labels", "table", "out", "to", "start", "form", "addr_mode")
"""Fields that were written as they are when manifests had Python's representations."""
Json = dict[str, Any]


# --------------------------------------------------------------------------------------------------------------- config


def stated(config: RunConfig) -> Json:
    """The configuration as JSON has it: chips that ship and number formats by name.

    Workers are left out, because they change no result. A user's format is stated by its name, too.
    """
    lowering = config.lowering
    mode = lowering.mode.name if isinstance(lowering.mode, NumberFormat) else lowering.mode
    content = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "workers"}
    content["lowering"] = {**vars(lowering), "chip": chips.as_stated(lowering.chip), "mode": mode}
    return msgspec.to_builtins(content, enc_hook=str)


def config_from(content: Mapping[str, Any], where: Path) -> RunConfig:
    """The configuration that `stated` wrote, or an older manifest.

    Raises ConfigError for other content, and for a number format that this process does not have.
    """
    content = dict(content)
    try:
        if isinstance(content.get("lowering"), str):
            content = _from_representations(content)
        lowering = msgspec.convert(content.pop("lowering", {}), Json)
        mode = lowering.get("mode", LoweringConfig.mode)
        if mode not in FORMATS:
            raise ConfigError(f"{where}: a mode of {', '.join(FORMATS)} is required to run again, got '{mode}'")
        found = msgspec.convert(content, RunConfig, strict=False, dec_hook=_decoded)
        return replace(found, lowering=msgspec.convert(lowering, LoweringConfig, strict=False, dec_hook=_decoded))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ConfigError(f"{where}: the options of a run are required, which these are not: {error}") from error


def _decoded(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"a value of {kind.__name__} cannot be read from {value!r}")


def _from_representations(content: Mapping[str, Any]) -> Json:
    """The content of a manifest of version 0.1, whose values are the texts that Python has for them."""
    texts = {name: str(value) for name, value in content.items() if name != "workers"}
    found: Json = {}
    for name, text in texts.items():
        if name == "keep":
            found[name] = {"asked": text.split()[1:]}
        elif name in TEXTS:
            found[name] = None if text == "None" else text
        else:
            found[name] = _value(ast.parse(text, mode="eval").body)
    chip = msgspec.convert(found["lowering"], Json).get("chip", {})
    if isinstance(chip, dict) and cast("Json", chip).get("name") in chips.available():
        found["lowering"]["chip"] = chip["name"]
    return found


def _value(node: ast.expr) -> Any:
    """A literal, or the fields of `Name(field=value, ...)`; anything else is left out."""
    if not isinstance(node, ast.Call):
        return _plain(node)
    found: Json = {}
    for keyword in node.keywords:
        with suppress(ValueError):
            found[str(keyword.arg)] = _value(keyword.value)
    return found


def _plain(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(item) for item in node.elts]
    return ast.literal_eval(node)


# ---------------------------------------------------------------------------------------------------------------- files


def record_of(config: RunConfig, command: str) -> RunRecord:
    """The record of a run, without the number of samples, which is not known before calibration has measured.

    command: the command line, "" if there is none.
    """
    named = {
        "model": config.model, "data": config.data, "test_data": config.test_data, "labels": config.labels,
        "table": config.table, "qtable": config.lowering.qtable,
    }  # fmt: skip
    files = {name: found for name, path in named.items() if path is not None for found in [_read(name, str(path))]}
    now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
    return RunRecord(now, command, os.getcwd(), stated(config), files, tpusim=__version__)


def _read(name: str, path: str) -> FileRead:
    """A file or source of samples with its hash; the hash is "" for what is no file (random numbers, a text)."""
    return FileRead(path, _hash(_files(name, Path(path))))


def _files(name: str, path: Path) -> Sequence[Path]:
    if name == "model":
        from tpusim.frontend.onnx import external_files

        return [path, *external_files(path)] if path.is_file() else ()
    return files_of(path) if name in ("data", "test_data") else [path] * path.is_file()


def _hash(files: Sequence[Path]) -> str:
    """SHA-256 of one file, or of the names and contents of several; of contents that are too large the sizes count."""
    if len(files) == 1 and files[0].stat().st_size <= HASHED_BYTES:
        return digest(files[0])
    large = sum(file.stat().st_size for file in files) > HASHED_BYTES
    parts = [[file.name, file.stat().st_size if large else digest(file)] for file in files]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest() if parts else ""


# ---------------------------------------------------------------------------------------------------------------- again


@dataclass(frozen=True)
class Again:
    """A run to repeat: its options, and warnings about files that have changed."""

    config: RunConfig
    changed: tuple[str, ...]


def again(path: Path) -> Again:
    """The run of a report.json, or of a run's folder.

    Paths are taken from the run's working directory, or from the present one if they no longer exist. Raises
    ConfigError for a file that describes no run, and for a run whose model is not a file.
    """
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise ConfigError(f"--again {path}: the report.json or the folder of a run is required; there is no such file")
    record = _record(path / "report.json" if path.is_dir() else path)
    if record is not None:
        config = _moved(config_from(record.config, path), Path(record.folder))
        return Again(config, tuple(_changed(record, config, path)))
    config = run_config(folder)
    if config is None:
        raise ConfigError(f"--again {path}: the report.json or the folder of a run is required; this says no options")
    note = f"{folder / MANIFEST} has no hashes of files: whether they are what they were is not known"
    return Again(_moved(config, folder), (note,))


def run_config(folder: Path) -> RunConfig | None:
    """The options of the run in a folder, from its manifest of this or an older version; None without a manifest.

    Raises ConfigError for a manifest of other content.
    """
    manifest = Manifest.read(folder)
    if manifest is None or "model" not in manifest.config:
        return None
    return config_from(manifest.config, folder / MANIFEST)


def run_here(folder: Path, *, reading: bool = False) -> RunConfig | None:
    """As `run_config`, with paths that are not here taken from the run's working directory.

    reading: the run's artefacts are only read; then a user's number format is known by its name, without its
    methods, which are code.
    """
    manifest = Manifest.read(folder)
    if manifest is None or "model" not in manifest.config:
        return None
    content, own = dict(manifest.config), ""
    lowering = content.get("lowering")
    if reading and isinstance(lowering, dict):
        stated_mode = str(cast("Json", lowering).get("mode", LoweringConfig.mode))
        own = "" if stated_mode in FORMATS else stated_mode
        content["lowering"] = {**cast("Json", lowering), **({"mode": "int8"} if own else {})}
    found = config_from(content, folder / MANIFEST)
    if own:
        found = replace(found, lowering=replace(found.lowering, mode=NumberFormat(own, "integer", unit="int8")))
    record = _record(folder / "report.json")
    return _moved(found, folder if record is None else Path(record.folder))


def _record(report: Path) -> RunRecord | None:
    """The record of the run in a report; None for a report of an older version, or without one."""
    from tpusim.verify.schema import read_report

    return read_report(report).run if report.is_file() else None


def _moved(config: RunConfig, folder: Path) -> RunConfig:
    """With relative paths of files that are not here taken from the run's working directory."""

    def at(path: Any) -> Any:
        there = folder / str(path)
        return type(path)(there) if path is not None and not Path(path).exists() and there.exists() else path

    found = {name: at(getattr(config, name)) for name in ("model", "data", "test_data", "labels", "table")}
    lowering = replace(config.lowering, qtable=at(config.lowering.qtable))
    return replace(config, lowering=lowering, start=None, resume=False, **found)


def _changed(record: RunRecord, config: RunConfig, path: Path) -> Iterator[str]:
    now = record_of(config, "").files
    for name, was in record.files.items():
        found = now.get(name)
        if found is None or (was.sha256 and not found.sha256):
            yield f"{name} {was.path} is not there any more; the run of {path} read it"
        elif found.sha256 != was.sha256:
            yield f"{name} {found.path} has changed since the run of {path} on {record.date}"
    if record.tpusim != __version__:
        yield f"tpusim is {__version__}, the run of {path} was by {record.tpusim}"
