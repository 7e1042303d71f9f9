"""`--input` of `infer` and `simulate`: a tensor file or an image, or a folder of them, with one output for each."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.errors import ConfigError, TpusimError
from tpusim.host.files import files_in

if TYPE_CHECKING:
    import numpy as np

    from tpusim.ir.module import Model

Described = Callable[[], "Model"]
"""A function that loads the module with the inputs and their preprocessing; called only if a file needs it."""
ARRAYS = ".npz", ".npy"
MODULES = "6_final.mlir", "5_grouped.mlir", "4_tpu.mlir"
"""Modules that describe the inputs of a program in the same folder."""


def each_input(path: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """(input, output) of the file itself, or of every file of a folder: in the folder `out` without its suffix, as npz.

    Raises ConfigError for a folder without inputs, and for two files that would have one output.
    """
    if not path.is_dir():
        yield path, out
        return
    from tpusim.images import SUFFIXES

    files = [file for file in files_in(path) if file.suffix.lower() in (*ARRAYS, *SUFFIXES)]
    if not files:
        raise ConfigError(f"--input {path}: a folder with .npz, .npy or image files is required, got none")
    folder, taken = out.with_suffix("") if out.suffix == ".npz" else out, dict[Path, Path]()
    for file in files:
        target = (folder / file.relative_to(path)).with_suffix(".npz")
        if target in taken:
            raise ConfigError(f"--input {path}: {taken[target]} and {file} would both become {target}; rename one")
        taken[target] = file
    yield from ((file, target) for target, file in taken.items())


def read_input(file: Path, described: Described) -> "Mapping[str, np.ndarray]":
    """The arrays of a sample by input name. Raises ConfigError or CalibrationError."""
    from tpusim.verify.npz import load_tensors

    if file.suffix.lower() not in _of_one_input():
        return load_tensors(file)
    from tpusim.calibration.samples import load_samples
    from tpusim.images import images_of
    from tpusim.inference import input_specs

    model = described()
    return next(load_samples(file, input_specs(model), images=images_of(model)))


def _of_one_input() -> tuple[str, ...]:
    from tpusim.images import SUFFIXES

    return (".npy", *SUFFIXES)


def described_by(program: Path, chip: str) -> Described:
    """A function that loads the module next to a program, for the same chip. It raises ConfigError without one."""

    def found() -> "Model":
        from tpusim.cli.options import load

        folder = program if program.is_dir() else program.parent
        for name in MODULES:
            if (folder / name).is_file():
                try:
                    model = load(folder / name)
                except TpusimError:
                    continue
                if model.chip == chip:
                    return model
        raise ConfigError(
            f"{program}: a program does not say how its inputs are made of images and arrays; one of "
            f"{', '.join(MODULES)} for {chip} is required next to it, or give an .npz keyed by input name"
        )

    return found
